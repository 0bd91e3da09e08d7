"""The one file that knows every class: an address and a request in, the fields of an answer out.

Adapters are imported when an operation first needs them, so that health, help and refusals start fast.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regelate import __version__
from regelate.adapters.clock import SystemClock
from regelate.adapters.telemetry import ProcessTelemetry
from regelate.core.measures import Assessed, Wrote
from regelate.core.option_retention import resolve_retention
from regelate.core.options import Auto, resolve_check, resolve_policy
from regelate.core.policy import CompactionPolicy
from regelate.core.requests import CompactRequest
from regelate.core.schema import TableDefinition
from regelate.core.session_policy import Access
from regelate.errors import RegelateError
from regelate.operations import answers
from regelate.settings import Settings, load_settings
from regelate.tenancy import Address, Tenancy
from regelate.wiring_access import Opening
from regelate.wiring_compact import Compacting, run_id_of
from regelate.wiring_jobs import Jobs
from regelate.wiring_maintenance import Maintenance
from regelate.wiring_query import Querying
from regelate.wiring_spark import Delegating
from regelate.wiring_sweep import Sweeping

if TYPE_CHECKING:
    from regelate.adapters.iceberg.admin import IcebergAdmin
    from regelate.adapters.iceberg.manifests import ManifestReader
    from regelate.adapters.iceberg.session import TableSession
    from regelate.operations.write import CheckPolicy
    from regelate.ports.engine import KeyRewriter

Fields = Mapping[str, object]
Progress = Callable[[int, int], None]
EXPLAINED_FILES = 10_000
"""Files listed by an explained health answer; the command line streams all of them."""


class Application(Opening, Compacting, Delegating, Jobs, Maintenance, Querying, Sweeping):
    """Everything behind the doors, for one process. Safe for several threads; an operation owns its own sessions."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.tenancy = Tenancy(settings)
        self.clock = SystemClock()
        self.telemetry = ProcessTelemetry(os.environ, settings.environment)
        self.placement = settings.placement_policy(os.environ)

    @cached_property
    def _manifests(self) -> ManifestReader:
        from regelate.adapters.iceberg.manifests import ManifestReader

        return ManifestReader()

    def _admin(self, address: Address, access: Access = Access.WRITE) -> IcebergAdmin:
        from regelate.adapters.iceberg.admin import IcebergAdmin

        def survey() -> Any:
            return self.catalog(address.catalog)

        return IcebergAdmin(self.catalog_of(address, access), defaults=self.settings.table_defaults, survey=survey)

    @contextmanager
    def _session(self, address: Address, access: Access = Access.WRITE) -> Iterator[TableSession]:
        """Load a table, with a private folder that is gone afterwards, whatever happens."""
        from regelate.adapters.iceberg.metadata_files import metadata_read_once
        from regelate.adapters.iceberg.session import TableSession
        from regelate.adapters.parquet.iceberg_footer import as_iceberg_writes

        private = tempfile.TemporaryDirectory(prefix="regelate-", ignore_cleanup_errors=True)
        with metadata_read_once(), private as folder:
            session = TableSession(
                self.catalog_of(address, access),
                address.ident,
                self._manifests,
                Path(folder),
                annotate=as_iceberg_writes,
                longest_run_seconds=self.settings.sweep.longest_run_seconds,
                survey=lambda: self.catalog(address.catalog),
            )
            with session.run():
                yield session

    def health_check(self) -> Fields:
        from regelate.adapters.iceberg.admin import IcebergAdmin

        try:
            reachable = IcebergAdmin(self.catalog(), defaults={}).reachable()
        except RegelateError:  # some catalogs are already asked when they are opened
            reachable = False
        return {
            "version": __version__,
            "environment": self.settings.environment,
            "catalog_reachable": reachable,
            "engines": list(self.engines),
        }

    def metrics_text(self) -> str:
        """Return the metrics of this process since this was first called, in Prometheus' text format."""
        return self.telemetry.prometheus.text()

    def create_table(self, address: Address, definition: TableDefinition, *, if_not_exists: bool) -> Fields:
        from regelate.operations.tables import create_table

        self.tenancy.check_locations(address, definition.properties)
        self._check_knobs(definition.properties)
        made = create_table(self._admin(address), address.ident, definition, if_not_exists=if_not_exists)
        return {"created": made.created, "table_uuid": made.table_uuid, "location": made.location}

    def alter_table(
        self, address: Address, *, set_properties: Mapping[str, str], unset_properties: Sequence[str]
    ) -> Fields:
        from regelate.operations.tables import alter_table

        self.tenancy.check_locations(address, set_properties)
        self._check_knobs(set_properties)
        found = alter_table(
            self._admin(address), address.ident, set_properties=set_properties, unset_properties=unset_properties
        )
        return {"properties": dict(found)}

    def _check_knobs(self, properties: Mapping[str, str]) -> None:
        """Refuse a malformed property now rather than in every later COMPACT of the table."""
        resolve_check(table_properties=properties, config=self.settings.check_policy)
        resolve_retention(table_properties=properties, config=self.settings.retention_defaults)
        resolve_policy(
            request=CompactRequest(), table_properties=properties, config=self.settings.compaction_defaults, now_ms=0
        )

    def describe_table(self, address: Address) -> Fields:
        from regelate.operations.tables import describe_table

        return answers.described(describe_table(self._admin(address, Access.READ), address.ident))

    def list_tables(self, address: Address) -> Fields:
        from regelate.operations.tables import list_tables

        return {"tables": list(list_tables(self._admin(address, Access.READ), address.ident))}

    def drop_table(self, address: Address, *, purge: bool) -> Fields:
        from regelate.operations.tables import drop_table

        drop_table(self._admin(address), address.ident, purge=purge)
        return {"dropped": True}

    def write(
        self,
        address: Address,
        records: object,
        *,
        mode: str,
        key: Sequence[str],
        idempotency_key: str | None,
        request_id: str,
        seconds_left: float | None = None,
    ) -> Fields:
        from regelate.adapters.iceberg.rows import IcebergRowWriter
        from regelate.operations.write import WriteCommand, WriteMode, WriteTools, write

        with self._session(address) as session, ExitStack() as stack:

            def keys() -> KeyRewriter:
                from regelate.adapters.duckdb.key_rewriter import DuckDBKeyRewriter

                connection = stack.enter_context(self._engine_session(session))
                head = session.committer.table.metadata
                return DuckDBKeyRewriter(
                    connection, session.views_of(head), session.outputs_of(head), codec=session.compression_codec
                )

            tools = WriteTools(
                table_uuid=str(session.table.metadata.table_uuid),
                rows=IcebergRowWriter(session.table.metadata, session.outputs),
                committer=session.committer,
                clock=self.clock,
                check=lambda: self._check(session),
                fresh_reader=session.fresh_reader,
                keys=keys,
            )
            command = WriteCommand(
                rows=records, run_id=run_id_of("write", idempotency_key), mode=WriteMode(mode), key=tuple(key)
            )
            done = write(tools, command)
            recommended, small = done.compaction_recommended, done.small_files_count
            properties = session.properties
        self.telemetry.tell(Wrote(table=address.ident, compaction_recommended=recommended, small_files=small))
        auto = Auto.RECOMMEND
        if recommended:
            auto = resolve_check(table_properties=properties, config=self.settings.check_policy).auto
        return {**answers.written(done), **self.after_write(address, auto, done.snapshot_id, seconds_left)}

    def _check(self, session: TableSession) -> CheckPolicy:
        from regelate.operations.write import CheckPolicy

        found = resolve_check(table_properties=session.properties, config=self.settings.check_policy)
        policy = self._policy(session, CompactRequest())
        return CheckPolicy(interval=found.interval if found.enabled else 0, policy=policy)

    @contextmanager
    def _engine_session(self, session: TableSession) -> Iterator[Any]:
        from regelate.adapters.duckdb.session import EXTENSIONS, LOCAL_EXTENSIONS, open_session

        connection = open_session(
            memory_bytes=self.placement.memory_bytes,
            threads=self.placement.threads,
            folder=session.folder,
            extensions=LOCAL_EXTENSIONS if session.is_local else EXTENSIONS,
            store=None if session.is_local else session.store_access,
        )
        try:
            yield connection
        finally:
            connection.close()

    def table_health(self, address: Address, *, explain: bool) -> Fields:
        from regelate.operations.health import table_health

        with self._session(address, Access.READ) as session:
            policy = self._policy(session, CompactRequest())
            report = table_health(session.reader, self.clock, policy)
            self.telemetry.tell(Assessed(table=address.ident, small_files=report.health.small_files))
            listed = None
            if explain:
                found = islice(session.reader.explain(policy), EXPLAINED_FILES)
                listed = [answers.explained(data_file, reason) for data_file, reason in found]
            return answers.assessed(report.health, listed)

    def explain_files(self, address: Address) -> Iterator[Mapping[str, object]]:
        """Stream one reason per data file, without a limit."""
        with self._session(address, Access.READ) as session:
            policy = self._policy(session, CompactRequest())
            for data_file, reason in session.reader.explain(policy):
                yield answers.explained(data_file, reason)

    def _policy(self, session: TableSession, request: CompactRequest, *, now_ms: int | None = None) -> CompactionPolicy:
        return resolve_policy(
            request=request,
            table_properties=session.properties,
            config=self.settings.compaction_defaults,
            now_ms=self.clock.now_ms() if now_ms is None else now_ms,
            table_sort_order=session.sort_fields,
        )


def build_application(environ: Mapping[str, str] | None = None) -> Application:
    """Load the settings and wire one application. Errors: SettingsError INVALID_CONFIG."""
    return Application(load_settings(environ))
