"""WRITE, and what `compaction.auto` says after one that found enough small files."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from regelate.core.answers import WriteAnswer
from regelate.core.jobs.job import Origin, automatic_run
from regelate.core.measures.measures import Wrote
from regelate.core.policy.options import AUTOMATIC, Auto
from regelate.core.policy.write_options import resolve_optimized
from regelate.core.requests import CompactRequest, MissingColumns, WriteMode
from regelate.core.table.table import MAIN_BRANCH
from regelate.errors import RegelateError
from regelate.operations import answers
from regelate.operations.compacting.conducting import run_id_of
from regelate.operations.compacting.continuing import RunPart
from regelate.ports.clock import Clock
from regelate.ports.telemetry import Telemetry
from regelate.service.compactions import Compactions
from regelate.service.engines import Engines
from regelate.service.job_desk import JobDesk
from regelate.service.knobs import Knobs
from regelate.service.open_tables import OpenTables
from regelate.tenancy import Address

if TYPE_CHECKING:
    from regelate.adapters.iceberg.session import TableSession
    from regelate.operations.write import SmallFileCheck, WriteCommand, WriteResult

log = logging.getLogger(__name__)


class Writes:
    """Writes rows. What follows a write by itself is left to `compactions`, now, or to `jobs`, later."""

    def __init__(
        self,
        tables: OpenTables,
        engines: Engines,
        knobs: Knobs,
        compactions: Compactions,
        jobs: JobDesk,
        clock: Clock,
        telemetry: Telemetry,
    ) -> None:
        self._tables = tables
        self._engines = engines
        self._knobs = knobs
        self._compactions = compactions
        self._jobs = jobs
        self._clock = clock
        self._telemetry = telemetry

    def write(
        self,
        address: Address,
        records: object,
        *,
        mode: str,
        key: Sequence[str],
        idempotency_key: str | None,
        missing_columns: str = MissingColumns.NULL.value,
        ref: str = MAIN_BRANCH,
        max_partitions: int | None = None,
        seconds_left: float | None = None,
    ) -> WriteAnswer:
        """Write records, JSON objects or an Arrow table, to a branch. `max_partitions`: that they may belong to, or
        None. `seconds_left`: until this process is ended from outside. What `compaction.auto` starts is for main; of
        another branch a compaction is only recommended."""
        from regelate.operations.write import WriteCommand

        run_id = run_id_of("write", idempotency_key)
        command = WriteCommand(
            rows=records,
            run_id=run_id,
            repeatable=idempotency_key is not None,
            mode=WriteMode(mode),
            key=tuple(key),
            max_partitions=max_partitions,
            missing=MissingColumns(missing_columns),
        )
        with self._tables.open(address, ref=ref) as session:
            done = self._written(session, command)
            properties = session.properties
        recommended, small = done.compaction_recommended, done.small_files_count
        taken = 0 if done.already_done else done.files_taken_along
        self._telemetry.tell(
            Wrote(table=address.ident, compaction_recommended=recommended, small_files=small, files_taken_along=taken)
        )
        starts = recommended and ref == MAIN_BRANCH
        auto = self._knobs.after_write(properties) if starts else Auto.RECOMMEND
        job_id, status = self._followed(address, auto, done.snapshot_id, seconds_left)
        return answers.written(done, job_id=job_id, status=status or done.check_fault)

    def _written(self, session: TableSession, command: WriteCommand) -> WriteResult:
        from regelate.operations.write import WriteTools, write

        with self._engines.upserting(session) as keys:
            tools = WriteTools(
                table_uuid=session.uuid,
                rows=session.rows,
                committer=session.committer,
                clock=self._clock,
                check=lambda: self._check(session),
                fresh_reader=session.fresh_reader,
                keys=keys,
                optimized=lambda: resolve_optimized(session.properties),
            )
            return write(tools, command)

    def _check(self, session: TableSession) -> SmallFileCheck:
        from regelate.operations.write import SmallFileCheck

        found = self._knobs.check(session)
        request = CompactRequest() if found.after_write is Auto.RECOMMEND else AUTOMATIC
        interval = found.interval if found.enabled else 0
        return SmallFileCheck(interval=interval, policy=self._knobs.policy(session, request))

    def _followed(
        self, address: Address, auto: Auto, snapshot_id: int | None, seconds_left: float | None
    ) -> tuple[str | None, str | None]:
        """Do what `compaction.auto` says, and return the id of the job and how it ended, as far as there is one.

        Nothing here fails the write, which has landed.
        """
        try:
            if auto is Auto.ASYNC and self._jobs.enabled:
                part = RunPart(base_run_id=automatic_run(snapshot_id), part=1, request=AUTOMATIC)
                return self._jobs.ensured(address, part, Origin.WRITE).job_id, None
            if auto is Auto.SYNC:
                asked = replace(AUTOMATIC, idempotency_key=automatic_run(snapshot_id))
                done = self._compactions.compact(address, asked, seconds_left=seconds_left)
                return done.job_id, done.status.value
        except RegelateError as error:
            return None, error.code
        except Exception:
            log.exception("the compaction after a write failed")
            return None, "INTERNAL_ERROR"
        return None, None
