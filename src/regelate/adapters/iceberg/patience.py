"""Catalogs that give up waiting: PyIceberg's REST session has no timeout, its AWS clients wait for a minute (trap T46).

`limit_waiting` puts these catalogs in the place of PyIceberg's own in its table of catalog types, so that its
configuration files and variables are read as ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from pyiceberg.catalog import AVAILABLE_CATALOGS, BOTOCORE_SESSION, Catalog, CatalogType

from regelate.core.timeouts import Timeouts

if TYPE_CHECKING:
    from pyiceberg.catalog.rest import RestCatalog


_AWS = (CatalogType.GLUE, CatalogType.DYNAMODB)
_THEIRS = {kind: AVAILABLE_CATALOGS[kind] for kind in _AWS}


def limit_waiting() -> None:
    """Let `load_catalog` open catalogs that give up after the `Timeouts` among their properties."""
    AVAILABLE_CATALOGS[CatalogType.REST] = _rest
    for kind in _AWS:
        AVAILABLE_CATALOGS[kind] = partial(_of_aws, kind)


def _rest(name: str, properties: Mapping[str, Any]) -> RestCatalog:
    from regelate.adapters.iceberg.rest_catalog import PatientRestCatalog

    return PatientRestCatalog(name, **properties)


def _of_aws(kind: CatalogType, name: str, properties: Mapping[str, Any]) -> Catalog:
    try:
        import botocore.session
        from botocore.config import Config
        from pyiceberg.catalog.dynamodb import DynamoDbCatalog
        from pyiceberg.catalog.glue import GlueCatalog
    except ImportError:
        return _THEIRS[kind](name, dict(properties))  # which says what to install

    timeouts = Timeouts.of(properties)
    session = botocore.session.Session()
    session.set_default_client_config(
        Config(connect_timeout=timeouts.connect_seconds, read_timeout=timeouts.read_seconds)
    )
    made = GlueCatalog if kind is CatalogType.GLUE else DynamoDbCatalog
    catalog = made(name, **{BOTOCORE_SESSION: session, **properties})
    if BOTOCORE_SESSION not in properties:
        catalog.properties.pop(BOTOCORE_SESSION, None)  # every FileIO gets a copy of these, and it is no text
    return catalog
