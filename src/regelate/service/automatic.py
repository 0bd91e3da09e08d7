"""Automatic runs after the commits of whoever writes: one look at a table, and one job for each of its states."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from regelate.core.access import Access
from regelate.core.jobs.job import Origin, automatic_run
from regelate.core.policy.options import AUTOMATIC
from regelate.core.values import dataclass
from regelate.errors import InvalidRequest, NotFound
from regelate.operations.automatic import AutoStatus, Look, NotifyCommitAnswer, look
from regelate.operations.compacting.continuing import RunPart
from regelate.operations.upkeep.sweep import idents_of
from regelate.ports.clock import Clock
from regelate.service.access import CatalogAccess
from regelate.service.compactions import Compactions
from regelate.service.job_desk import JobDesk
from regelate.service.knobs import Knobs
from regelate.service.once import Together
from regelate.service.open_tables import OpenTables
from regelate.tenancy import Address, Scope

if TYPE_CHECKING:
    from regelate.adapters.iceberg.session import TableSession

NOWHERE = NotifyCommitAnswer(
    table=None,
    status=AutoStatus.UNKNOWN_LOCATION,
    explanation="no table of this tenant keeps its metadata there; name the table instead",
)
KNOWN_HEADS = 1_000
"""Of so many tables it is kept which file of metadata called for nothing."""
_WHY = {
    AutoStatus.OFF: "set regelate.auto.enabled=true on the table, or compaction.auto_enabled in config.json",
    AutoStatus.NO_JOBS: "a run is due, and there are no jobs: set jobs.store in config.json, or call COMPACT",
    AutoStatus.TIME_CAP_EXCEEDED: "its manifests could not be read in time: a SWEEP or a COMPACT takes it",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """A table as somebody who polls saw it. `answer` None: its head has not moved since."""

    metadata_location: str
    answer: NotifyCommitAnswer | None


class Automatic:
    """Hears of commits, and submits the job that a WRITE's `compaction.auto` would. It reads, and changes no table."""

    def __init__(
        self,
        access: CatalogAccess,
        tables: OpenTables,
        knobs: Knobs,
        jobs: JobDesk,
        compactions: Compactions,
        clock: Clock,
    ) -> None:
        self._access = access
        self._tables = tables
        self._knobs = knobs
        self._jobs = jobs
        self._compactions = compactions
        self._clock = clock
        self._named = Together[NotifyCommitAnswer]()
        self._placed = Together[NotifyCommitAnswer | None]()
        self._idle_heads: dict[Address, Watched] = {}

    def notified(self, address: Address) -> NotifyCommitAnswer:
        """Look at a table that somebody says was committed to, unless it has a job already: however many say so, a
        table has one, and those who say so at once share a look. Errors: NotFound, and those of reading a table and
        submitting a job."""
        return self._running(address) or self._named.made(address, lambda: self._noticed(address))

    def _noticed(self, address: Address) -> NotifyCommitAnswer:
        running = self._running(address)  # who waited for a look finds the job that it led to
        if running is not None:
            return running
        with self._tables.open(address, Access.READ) as session:
            found = self._look(session)
        return self._followed(address, found, Origin.EVENT)

    def located(self, candidates: Iterable[Address], location: str) -> NotifyCommitAnswer:
        """Look at that one of the tables whose metadata is where a new file of metadata is. Nobody looks again at the
        file that was the head of the last look, where that found nothing to do."""
        folder = location.rpartition("/")[0]
        for address in candidates:
            idle = self._idle_heads.get(address)
            if idle is not None and idle.metadata_location == location:
                return idle.answer or NOWHERE
            look = partial(self._noticed_at, address, location)
            found = self._running(address) or self._placed.made((address, folder), look)
            if found is not None:
                return found
        return NOWHERE

    def _noticed_at(self, address: Address, location: str) -> NotifyCommitAnswer | None:
        """Look at a table; None where it is none, or keeps its metadata elsewhere."""
        running = self._running(address)
        if running is not None:
            return running
        try:
            with self._tables.open(address, Access.READ) as session:
                if not session.keeps_metadata_at(location):
                    return None
                head, found = session.metadata_location, self._look(session)
        except NotFound:  # the folder of a table that was dropped, or of none
            return None
        answer = self._followed(address, found, Origin.EVENT)
        if answer.status in (AutoStatus.NOT_DUE, AutoStatus.OFF):
            self._keep(address, Watched(metadata_location=head, answer=answer))
        return answer

    def _keep(self, address: Address, idle: Watched) -> None:
        for oldest in list(self._idle_heads)[: len(self._idle_heads) - KNOWN_HEADS + 1]:
            self._idle_heads.pop(oldest, None)
        self._idle_heads[address] = idle

    def tables(self, scope: Scope) -> tuple[str, ...]:
        """Return the idents of all tables of a scope that can be listed now."""
        from regelate.adapters.iceberg.admin import IcebergAdmin

        found, _ = idents_of(IcebergAdmin(self._access.survey(scope.catalog), defaults={}), scope.holds)
        return tuple(found)

    def watched(self, address: Address, known: str | None) -> Watched:
        """Look at a table whose metadata is not where it was `known` to be; without jobs, compact it here."""
        with self._tables.open(address, Access.READ) as session:
            there = session.metadata_location
            found = None if there == known else self._look(session)
        if found is None:
            return Watched(metadata_location=there, answer=None)
        answer = self._running(address) or self._followed(address, found, Origin.WATCH)
        if answer.status is AutoStatus.NO_JOBS and isinstance(found, Look):
            answer = self._compacted(answer, address, found)
        return Watched(metadata_location=there, answer=answer)

    def _running(self, address: Address) -> NotifyCommitAnswer | None:
        job = self._jobs.live(address, announce=False) if self._jobs.enabled else None
        if job is None:
            return None
        return NotifyCommitAnswer(table=address.told_ident, status=AutoStatus.JOB_RUNNING, job_id=job.job_id)

    def _look(self, session: TableSession) -> Look | InvalidRequest:
        try:
            if not self._knobs.automatic(session.properties):
                return Look(snapshot_id=session.head_id, status=AutoStatus.OFF)
            policy = self._knobs.policy(session, AUTOMATIC)
        except InvalidRequest as fault:
            return fault
        return look(session.reader, policy, self._clock, snapshot_id=session.head_id, files=session.head_files)

    def _followed(self, address: Address, found: Look | InvalidRequest, origin: Origin) -> NotifyCommitAnswer:
        told = NotifyCommitAnswer(table=address.told_ident, status=AutoStatus.INVALID_TABLE_PROPERTY)
        if isinstance(found, InvalidRequest):
            return replace(told, explanation=found.message)
        status = found.status
        if status is None and not self._jobs.enabled:
            status = AutoStatus.NO_JOBS
        if status is not None:
            return replace(told, status=status, small_files=found.small_files, explanation=_WHY.get(status))
        part = RunPart(base_run_id=automatic_run(found.snapshot_id), part=1, request=AUTOMATIC)
        job = self._jobs.of_run(address, part.base_run_id)
        status = AutoStatus.ALREADY_DONE if job is not None and job.state.is_final else AutoStatus.SUBMITTED
        if job is None or status is AutoStatus.SUBMITTED:
            job = self._jobs.submit(address, part, origin)
        return replace(told, status=status, small_files=found.small_files, job_id=job.job_id)

    def _compacted(self, told: NotifyCommitAnswer, address: Address, found: Look) -> NotifyCommitAnswer:
        asked = replace(AUTOMATIC, idempotency_key=automatic_run(found.snapshot_id))
        done = self._compactions.compact(address, asked, may_delegate=False)
        status = AutoStatus.COMPACTED if done.compacted else AutoStatus.NOT_DUE
        return replace(told, status=status, explanation=done.reason)
