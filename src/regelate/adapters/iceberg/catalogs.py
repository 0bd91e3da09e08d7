"""Opens catalogs by PyIceberg's own properties and tables by their idents."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from urllib.parse import urlsplit

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table

from regelate.adapters.iceberg.faults import catalog_faults


class Catalogs:
    """The configured catalogs of one process, each opened when first asked for; safe for several threads."""

    def __init__(self) -> None:
        self._open: dict[str, Catalog] = {}
        self._lock = threading.Lock()

    def open(self, name: str, properties: Mapping[str, str], folders: tuple[Path, ...] = ()) -> Catalog:
        """Return a catalog; `folders` are made first, because SQLite makes a file but no folder."""
        with self._lock:
            if name not in self._open:
                with catalog_faults():
                    for folder in folders:
                        folder.mkdir(parents=True, exist_ok=True)
                    self._open[name] = load_catalog(name, **_absolute(properties))
            return self._open[name]


def preload_catalog(kind: str) -> None:
    """Import what catalogs of this type need, without opening one. A library that is not installed is left for `open`
    to say."""
    with suppress(ImportError):
        import_module(f"pyiceberg.catalog.{kind}")
        import_module("pyiceberg.io.pyarrow")


def open_table(catalog: Catalog, ident: str) -> Table:
    """Load a table. Errors: NotFound TABLE_NOT_FOUND, Unavailable CATALOG_UNAVAILABLE, DataUnavailable
    METADATA_CORRUPT."""
    with catalog_faults():
        return catalog.load_table(tuple(ident.split(".")))


def _absolute(properties: Mapping[str, str]) -> dict[str, str]:
    """Name a local warehouse by a file URI: metadata records locations, and a bare path is no location to every
    engine."""
    found = dict(properties)
    warehouse = found.get("warehouse")
    if warehouse and not urlsplit(warehouse).scheme:
        found["warehouse"] = Path(warehouse).absolute().as_uri()
    return found
