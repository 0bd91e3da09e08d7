"""DuckDB at work for one loaded table: the rewrite engine, the rewriter of an upsert, the query engine."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING, Any

from regelate.core.policy.policy import PlacementPolicy
from regelate.core.running.placement import parallelism

if TYPE_CHECKING:
    from regelate.adapters.duckdb.copies import LocalCopies
    from regelate.adapters.duckdb.engine import DuckDBRewriteEngine
    from regelate.adapters.duckdb.key_rewriter import DuckDBKeyRewriter
    from regelate.adapters.duckdb.query import DuckDBQueryEngine
    from regelate.adapters.duckdb.query_pool import QueryPool
    from regelate.adapters.iceberg.session import TableSession
    from regelate.settings.models import StorageSettings


class Engines:
    """Makes engines that fit into `placement`; `queries` is where queries are answered.

    `prepare` is told every connection of this process before it is used.
    """

    def __init__(
        self,
        placement: PlacementPolicy,
        storage: StorageSettings,
        queries: Callable[[], QueryPool],
        *,
        prepare: Callable[[Any], object] = lambda connection: None,
    ) -> None:
        self._placement = placement
        self._storage = storage
        self._queries = queries
        self._prepare = prepare

    @contextmanager
    def rewriting(self, session: TableSession) -> Iterator[DuckDBRewriteEngine]:
        """Hand out the engine of a COMPACT; it connects when it has something to rewrite."""
        from regelate.adapters.duckdb.engine import DuckDBRewriteEngine
        from regelate.adapters.parquet.damage import damaged_column
        from regelate.adapters.parquet.splicing import ParquetSplicer

        workers = parallelism(self._placement)
        with ExitStack() as stack:
            yield DuckDBRewriteEngine(
                lambda: stack.enter_context(self._connection(session)),
                session.views,
                session.outputs,
                folder=session.folder,
                workers=workers,
                threads=self._placement.threads,
                worker_memory_bytes=self._placement.memory_bytes // workers,
                splicer=ParquetSplicer(session.views.columns),
                damaged=damaged_column,
                copies=stack.enter_context(self._copies(session)),
                renew=session.renewed_access,
            )

    @contextmanager
    def upserting(self, session: TableSession) -> Iterator[Callable[[], DuckDBKeyRewriter]]:
        """Hand out a maker of the rewriter for the head that was last seen; each one connects."""
        with ExitStack() as stack:

            def rewriter() -> DuckDBKeyRewriter:
                from regelate.adapters.duckdb.key_rewriter import DuckDBKeyRewriter
                from regelate.adapters.parquet.damage import damaged_column

                connection = stack.enter_context(self._connection(session))
                head = session.committer.table.metadata
                return DuckDBKeyRewriter(
                    connection,
                    session.views_of(head),
                    session.outputs_of(head),
                    damaged=damaged_column,
                    codec=session.compression_codec,
                )

            yield rewriter

    def warm_for_query(self) -> None:
        """Have a process for the next query started, while its table is still being opened and planned."""
        self._queries().warm()

    def querying(self, session: TableSession, *, tenant: str, max_stored_bytes: int | None) -> DuckDBQueryEngine:
        """Return the engine of a QUERY; without `max_stored_bytes` a result that is too large is cut."""
        from regelate.adapters.duckdb.query import DuckDBQueryEngine

        return DuckDBQueryEngine(
            self._queries(),
            who=tenant,
            folder=session.folder,
            threads=self._placement.threads,
            max_stored_bytes=max_stored_bytes,
            store=lambda: session.store_access,
        )

    @contextmanager
    def _connection(self, session: TableSession) -> Iterator[Any]:
        from regelate.adapters.duckdb.session import EXTENSIONS, LOCAL_EXTENSIONS, open_session

        connection = open_session(
            memory_bytes=self._placement.memory_bytes,
            threads=self._placement.threads,
            folder=session.folder,
            extensions=LOCAL_EXTENSIONS if session.is_local else EXTENSIONS,
            store=None if session.is_local else session.store_access,
        )
        with closing(connection):
            self._prepare(connection)
            yield connection

    @contextmanager
    def _copies(self, session: TableSession) -> Iterator[LocalCopies | None]:
        """Make room for the inputs of one table, and none where they are on this machine anyway."""
        from regelate.adapters.duckdb.copies import LocalCopies

        storage = self._storage
        budget_bytes = 0 if session.is_local else storage.fetch_ahead_bytes(shutil.disk_usage(session.folder).free)
        if not budget_bytes:
            yield None
            return
        copies = LocalCopies(
            session.inputs.fetch, session.folder, connections=storage.connections, budget_bytes=budget_bytes
        )
        with closing(copies):
            yield copies
