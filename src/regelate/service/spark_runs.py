"""Parts of jobs that are left to Spark, and what its answer becomes."""

from __future__ import annotations

from dataclasses import replace

from regelate.core.answers import CompactAnswer
from regelate.core.jobs.job import JobRecord
from regelate.core.measures.measures import Compacted, JobGivenUp
from regelate.core.running.routing import no_spark
from regelate.core.running.stats import iso_time
from regelate.errors import Unsupported
from regelate.operations.jobs.delegating import Patience, spark_part
from regelate.operations.jobs.parts import Elsewhere, PartDone
from regelate.ports.clock import Clock
from regelate.ports.telemetry import Telemetry
from regelate.service.job_stores import JobStores
from regelate.service.knobs import Knobs
from regelate.service.open_tables import OpenTables
from regelate.service.spark_home import SparkHome
from regelate.service.spark_spec import spec_of
from regelate.settings import Settings
from regelate.tenancy import address_of


class SparkRuns:
    """Does the parts of jobs that are Spark's, and expires snapshots after them."""

    def __init__(
        self,
        home: SparkHome,
        stores: JobStores,
        tables: OpenTables,
        knobs: Knobs,
        settings: Settings,
        clock: Clock,
        telemetry: Telemetry,
    ) -> None:
        self._home = home
        self._stores = stores
        self._tables = tables
        self._knobs = knobs
        self._settings = settings
        self._clock = clock
        self._telemetry = telemetry

    @property
    def available(self) -> bool:
        """Whether this deployment can leave a table to Spark."""
        return self._home.available()

    def job_of(self, run_id: str) -> str | None:
        """Return the job that a run was started for; None for one of somebody else's."""
        return self._home.jobs.job_of(run_id)

    def part(self, record: JobRecord) -> PartDone | Elsewhere:
        """Do what is next for a job that Spark runs. Errors: Unsupported SPARK_DISABLED."""
        if not self.available:  # the configuration has changed since the job was made
            raise no_spark()
        found = self._settings.spark
        done = spark_part(
            self._home.jobs,
            record,
            lambda: spec_of(self._settings, record),
            Patience(
                start_seconds=found.start_minutes * 60,
                run_seconds=found.timeout_minutes * 60,
                look_again_seconds=found.seconds_between_looks,
            ),
            now_ms=self._stores.needed().store.now_ms(),
            why=record.why,
            settle=lambda answer: self._settle(record, answer),
        )
        if isinstance(done, PartDone) and done.failed is not None:
            self._telemetry.tell(JobGivenUp(table=record.ident, code=done.failed.code))
        return done

    def _settle(self, record: JobRecord, answer: CompactAnswer) -> CompactAnswer:
        """Expire snapshots as after a COMPACT of our own; the rewrite has landed, so nothing here may fail it."""
        if answer.stats is None or not answer.compacted:
            return answer
        self._telemetry.tell(Compacted.of(record.ident, answer.stats, (), at_ms=self._clock.now_ms()))
        if not record.request.expire_snapshots:
            return answer
        from regelate.operations.compacting.rewriting import as_error
        from regelate.operations.upkeep.expire import ExpiryTools, expire_after_commit

        try:
            with self._tables.open(address_of(record)) as session:
                hours = record.request.snapshot_retention_hours
                retention = self._knobs.retention(session, hours, hours_field="snapshot_retention_hours")
                uuid = session.committer.head().uuid
                tools = ExpiryTools(committer=session.committer, reclaimer=session.reclaimer, clock=self._clock)
                done = expire_after_commit(tools, retention, table_uuid=uuid)
        except Unsupported:  # format version 3: the job has expired them itself
            return answer
        except Exception as error:  # noqa: BLE001  as after a COMPACT of our own
            return replace(answer, warnings=(*answer.warnings, f"snapshots were not expired: {as_error(error)}"))
        stats = replace(
            answer.stats,
            snapshots_expired=len(done.snapshot_ids),
            bytes_freed=done.bytes_freed,
            bytes_quarantined=done.bytes_quarantined,
            undo_id=done.undo_id,
            deletable_at=iso_time(done.deletable_ms),
        )
        return replace(answer, warnings=(*answer.warnings, *done.warnings), stats=stats)
