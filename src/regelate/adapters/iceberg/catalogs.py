"""Opens catalogs by PyIceberg's own properties and tables by their idents; each gives up waiting after a while.

PyIceberg's REST session has no timeout and its AWS clients wait for a minute (trap T46: a server that never answers),
so catalogs with limits stand in its table of catalog types; its configuration files and variables are read as ever.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pyiceberg.catalog import AVAILABLE_CATALOGS, BOTOCORE_SESSION, Catalog, CatalogType, MetastoreCatalog, load_catalog
from pyiceberg.exceptions import NotInstalledError
from pyiceberg.io import load_file_io
from pyiceberg.table import Table
from pyiceberg.typedef import EMPTY_DICT

from regelate.adapters.iceberg.metadata_files import let_remember
from regelate.adapters.iceberg.pyiceberg_errors import catalog_faults, namespace_not_found
from regelate.adapters.iceberg.s3.settings import boto3_is_installed
from regelate.core.catalogs import OPENED_HERE, CatalogKind, Commits
from regelate.core.policy.timeouts import Timeouts
from regelate.errors import NotFound, Unavailable

if TYPE_CHECKING:
    from pyiceberg.catalog.rest import RestCatalog

OUR_FILE_IO = "regelate.adapters.iceberg.s3.file_io.S3FileIO"
"""By its name: PyArrow, which it stands on, takes a third of the time that listing tables does."""
NOT_OURS = ("adls.", "hf.", "s3.signer")
"""Properties that ask for a storage which only another FileIO of PyIceberg knows."""

CATALOGS_KEPT = 64
"""Every tenant's sessions open a catalog anew, three an hour or so."""


class Catalogs:
    """The configured catalogs of one process, each opened when first asked for; safe for several threads.

    `storage` are properties of our own for every FileIO (see `s3.settings`); `timeouts` are for every request.
    """

    def __init__(self, storage: Mapping[str, str] | None = None, timeouts: Timeouts | None = None) -> None:
        self._storage = storage or {}
        self._timeouts = timeouts or Timeouts()
        limit_waiting()
        self._open: OrderedDict[tuple[str, str], Catalog] = OrderedDict()
        self._lock = threading.Lock()

    def open(
        self, name: str, properties: Mapping[str, str], folders: tuple[Path, ...] = (), *, session: str = ""
    ) -> Catalog:
        """Return a catalog; `folders` are made first, because SQLite makes a file but no folder.

        `session` names the credentials among the properties: another session, another catalog. Few are kept.
        """
        key = (name, session)
        with self._lock:
            if key not in self._open:
                with catalog_faults():
                    for folder in folders:
                        folder.mkdir(parents=True, exist_ok=True)
                    known = _absolute(with_storage(properties, self._storage))
                    self._open[key] = _loaded(name, {**self._timeouts.properties, **known})
                    let_remember(self._open[key])
                    keep_storage(self._open[key])
                if len(self._open) > CATALOGS_KEPT:
                    self._open.popitem(last=False)
            self._open.move_to_end(key)
            return self._open[key]


def _loaded(name: str, properties: Mapping[str, str]) -> Catalog:
    """Open a catalog. Errors: Unavailable ENGINE_UNAVAILABLE where its library is not installed."""
    try:
        return load_catalog(name, **properties)
    except NotInstalledError as error:
        kind = properties.get("type", "")
        extra = OPENED_HERE[CatalogKind(kind)].extra if kind in OPENED_HERE else None
        todo = f"pip install 'regelate[{extra}]'" if extra is not None else "install what PyIceberg needs for it"
        told = f"the catalog {name!r} is of type {kind}, whose library is not installed: {todo}"
        raise Unavailable("ENGINE_UNAVAILABLE", told, retryable=False) from error


def preload(kind: CatalogKind) -> None:
    """Import what tables in catalogs of this kind need, without opening one. A library that is not installed is left
    for `open` to say."""
    for name in ("rows", "scan", "session"):
        import_module(f"regelate.adapters.iceberg.{name}")
    with suppress(ImportError):
        import_module(_module(kind))
        import_module("pyiceberg.io.pyarrow")
        if OPENED_HERE[kind].in_s3:
            import_module("regelate.adapters.iceberg.s3.streams")


def keep_storage(catalog: Catalog) -> None:
    """Let every table be read and written by the catalog's configuration alone.

    PyIceberg lays a table's properties over it, where Iceberg's Java does not: whoever may set properties could send
    our credentials to an endpoint of theirs, or name a class to load (trap T52: properties that open storage). A REST
    catalog's server answers with a configuration beside the table's properties: see `PatientRestCatalog`.
    """
    if isinstance(catalog, MetastoreCatalog):
        opened: Any = catalog
        opened._load_file_io = lambda properties=EMPTY_DICT, location=None: load_file_io(opened.properties, location)


def open_table(catalog: Catalog, ident: str) -> Table:
    """Load a table. Errors: NotFound TABLE_NOT_FOUND or NAMESPACE_NOT_FOUND, Unavailable CATALOG_UNAVAILABLE,
    DataUnavailable METADATA_CORRUPT."""
    name = tuple(ident.split("."))
    with faults_of_table(catalog, ident):
        table = catalog.load_table(name)
    from regelate.adapters.iceberg.s3.file_io import S3FileIO  # with PyArrow, which the table has loaded by now

    if isinstance(table.io, S3FileIO):  # a REST catalog hands out credentials with a table, and new ones with the next
        table.io.renew = lambda: catalog.load_table(name).io.properties
    return table


@contextmanager
def faults_of_table(catalog: Catalog, ident: str) -> Iterator[None]:
    """Turn what a call for one table raises into our errors; where its namespace is missing, the error says that."""
    try:
        with catalog_faults():
            yield
    except NotFound as error:
        try:
            there = error.code != "TABLE_NOT_FOUND" or catalog.namespace_exists(tuple(ident.split(".")[:-1]))
        except Exception:  # noqa: BLE001  who may not ask for the namespace is told what is known: no such table
            there = True
        if there:
            raise
        raise namespace_not_found(f"Namespace does not exist: {ident.rpartition('.')[0]}") from error


def commits_of(catalog: Catalog) -> Commits:
    """Say who checks the requirements of a commit, by the class that PyIceberg has for the kind. Those of kinds that
    nobody here knows check them in this process."""
    modules = [base.__module__ for base in type(catalog).__mro__]
    found = (here.commits for kind, here in OPENED_HERE.items() if any(m.startswith(_module(kind)) for m in modules))
    return next(found, Commits.REQUEST)


def _module(kind: CatalogKind) -> str:
    return f"pyiceberg.catalog.{kind}"


def with_storage(properties: Mapping[str, str], storage: Mapping[str, str]) -> dict[str, str]:
    """Read and write S3 by boto3, where it is installed and the properties ask for nothing else."""
    if "py-io-impl" in properties or not boto3_is_installed() or any(p.startswith(NOT_OURS) for p in properties):
        return dict(properties)
    return {**storage, **properties, "py-io-impl": OUR_FILE_IO}


def _absolute(properties: Mapping[str, str]) -> dict[str, str]:
    """Name a local warehouse by a file URI: metadata records locations, and a bare path is no location to every
    engine."""
    found = dict(properties)
    warehouse = found.get("warehouse")
    if warehouse and not urlsplit(warehouse).scheme:
        found["warehouse"] = Path(warehouse).absolute().as_uri()
    return found


_THEIR_GLUE = AVAILABLE_CATALOGS[CatalogType.GLUE]


def limit_waiting() -> None:
    """Let `load_catalog` open catalogs that give up after the `Timeouts` among their properties."""
    AVAILABLE_CATALOGS[CatalogType.REST] = _rest
    AVAILABLE_CATALOGS[CatalogType.GLUE] = _glue


def _rest(name: str, properties: Mapping[str, Any]) -> RestCatalog:
    from regelate.adapters.iceberg.tables.rest_catalog import PatientRestCatalog

    return PatientRestCatalog(name, **properties)


def _glue(name: str, properties: Mapping[str, Any]) -> Catalog:
    try:
        import botocore.session
        from botocore.config import Config
        from pyiceberg.catalog.glue import GlueCatalog
    except ImportError:
        return _THEIR_GLUE(name, dict(properties))  # which says what to install

    timeouts = Timeouts.of(properties)
    session = botocore.session.Session()
    session.set_default_client_config(
        Config(connect_timeout=timeouts.connect_seconds, read_timeout=timeouts.read_seconds)
    )
    catalog = GlueCatalog(name, **{BOTOCORE_SESSION: session, **properties})
    if BOTOCORE_SESSION not in properties:
        catalog.properties.pop(BOTOCORE_SESSION, None)  # every FileIO gets a copy of these, and it is no text
    return catalog
