"""Where remote inputs are kept while they are read, wired."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from regelate.adapters.duckdb.copies import LocalCopies
    from regelate.adapters.iceberg.session import TableSession
    from regelate.settings import Settings


@contextmanager
def local_copies(settings: Settings, session: TableSession) -> Iterator[LocalCopies | None]:
    """Make room for the inputs of one table, and none where they are on this machine anyway."""
    from regelate.adapters.duckdb.copies import LocalCopies

    storage = settings.storage
    budget_bytes = 0 if session.is_local else storage.fetch_ahead_bytes(shutil.disk_usage(session.folder).free)
    if not budget_bytes:
        yield None
        return
    copies = LocalCopies(
        session.inputs.fetch, session.folder, connections=storage.connections, budget_bytes=budget_bytes
    )
    with closing(copies):
        yield copies
