"""The optimizers of AWS Glue that are switched on for a table: another manager, beside whom nothing is to be done."""

from __future__ import annotations

import logging
from typing import Any

from pyiceberg.catalog import Catalog

from regelate.core.catalogs import CatalogKind

KINDS = ("compaction", "retention", "orphan_file_deletion")
"""AWS Glue, BatchGetTableOptimizer: `type` of an entry."""
_NONE = frozenset({"EntityNotFoundException"})

_log = logging.getLogger(__name__)


def optimizers_of(catalog: Catalog, ident: str) -> tuple[str, ...]:
    """Return the kinds of those that are switched on for a table, by its catalog's settings too; none elsewhere than in
    Glue, and none where they cannot be seen, which is logged."""
    if catalog.properties.get("type") != CatalogKind.GLUE:
        return ()
    from botocore.exceptions import BotoCoreError, ClientError

    glue: Any = catalog.glue  # type: ignore[attr-defined]
    database, _, table = ident.rpartition(".")
    try:
        # A shared database has a name of its own here: the optimizers are of the table that it leads to.
        found = glue.get_table(DatabaseName=database, Name=table)["Table"]
        of_table = {"databaseName": found.get("DatabaseName", database), "tableName": found.get("Name", table)}
        if owner := found.get("CatalogId"):
            of_table["catalogId"] = owner
        answer = glue.batch_get_table_optimizer(Entries=[{**of_table, "type": kind} for kind in KINDS])
    except (BotoCoreError, ClientError) as error:
        _unseen(ident, error.response["Error"]["Code"] if isinstance(error, ClientError) else type(error).__name__)
        return ()
    for why in sorted({str(f.get("error", {}).get("ErrorCode")) for f in answer.get("Failures", ())} - _NONE):
        _unseen(ident, why)
    told = (item.get("tableOptimizer", {}) for item in answer.get("TableOptimizers", ()))
    return tuple(sorted(str(t.get("type")) for t in told if t.get("configuration", {}).get("enabled")))


def _unseen(ident: str, why: str) -> None:
    _log.warning("whether Glue's optimizers look after %s cannot be seen: %s", ident, why)
