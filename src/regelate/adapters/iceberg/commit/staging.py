"""Chooses the name of the metadata file that a commit writes, so that it can be in the ledger before the file exists.

SQL and Glue catalogs of PyIceberg write it themselves, under a name that nobody else learns: when the swap is lost, or
the process dies before it, the file stays behind. A REST server writes its own.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.table import StagedTable, Table
from pyiceberg.table.update import TableUpdate

Updates = tuple[TableUpdate, ...]

_chosen: ContextVar[tuple[Updates, str] | None] = ContextVar("chosen metadata file", default=None)
"""The updates of the commit under way, and the location for what comes out."""
_wrapping = threading.Lock()


def next_metadata_location(catalog: Catalog, table: Table) -> str | None:
    """Return a name for the metadata file of the next commit on this table; None where the catalog chooses it.

    The version in it is that of the table as loaded. Where the catalog has a younger one by then, two files bear it;
    nothing but the name of the next is ever read from it.
    """
    if not isinstance(catalog, MetastoreCatalog):
        return None
    version = catalog._parse_metadata_version(table.metadata_location) + 1
    return table.location_provider().new_table_metadata_file_location(version)


@contextmanager
def naming(catalog: Catalog, updates: Updates, location: str | None) -> Iterator[None]:
    """Within the block, the commit of exactly these updates writes its metadata file to `location`.

    Any other commit, of another client through the same catalog for example, is named as ever: two commits under one
    name would be one file, and the one that lost would delete it.
    """
    if location is None:
        yield
        return
    _wrap(catalog)
    token = _chosen.set((updates, location))
    try:
        yield
    finally:
        _chosen.reset(token)


def _wrap(catalog: Any) -> None:
    with _wrapping:
        stage = catalog._update_and_stage_table
        if getattr(stage, "names_chosen", False):
            return

        def named(current: Table | None, ident: Any, requirements: Any, updates: Updates) -> StagedTable:
            staged: StagedTable = stage(current, ident, requirements, updates)
            ours, location = _chosen.get() or (None, "")
            if ours is updates:
                staged.metadata_location = location
            return staged

        named.names_chosen = True  # type: ignore[attr-defined]
        catalog._update_and_stage_table = named
