"""One loaded table for the length of one operation, with a private folder of its own."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from regelate.core.access import Access
from regelate.core.table.table import MAIN_BRANCH
from regelate.service.access import CatalogAccess
from regelate.tenancy import Address

if TYPE_CHECKING:
    from regelate.adapters.iceberg.manifests import ManifestReader
    from regelate.adapters.iceberg.session import TableSession


class OpenTables:
    """Loads tables for operations. `manifests` caches what was read of them, for all operations of this process."""

    def __init__(
        self, access: CatalogAccess, manifests: Callable[[], ManifestReader], *, longest_run_seconds: float
    ) -> None:
        self._access = access
        self._manifests = manifests
        self._longest_run_seconds = longest_run_seconds

    @contextmanager
    def open(
        self, address: Address, access: Access = Access.WRITE, *, ref: str = MAIN_BRANCH
    ) -> Iterator[TableSession]:
        """Load a table to work on a branch of it, with a private folder that is gone afterwards, whatever happens."""
        from regelate.adapters.iceberg.metadata_files import metadata_read_once
        from regelate.adapters.iceberg.session import TableSession
        from regelate.adapters.parquet.iceberg_footer import as_iceberg_writes

        private = tempfile.TemporaryDirectory(prefix="regelate-", ignore_cleanup_errors=True)
        with metadata_read_once(), private as folder:
            session = TableSession(
                self._access.of(address, access),
                address.ident,
                self._manifests(),
                Path(folder),
                annotate=as_iceberg_writes,
                longest_run_seconds=self._longest_run_seconds,
                survey=lambda: self._access.survey(address.catalog),
                ref=ref,
            )
            with session.run():
                yield session
