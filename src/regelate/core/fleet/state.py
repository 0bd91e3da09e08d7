"""What a fleet remembers of its tables: the last observation, the runs, what they cost, and why one waits.

    QUEUED -> RUNNING -> settled: DONE | PARTIAL | NO_EFFECT | FAILED | CANCELLED

A table has one live run at most. A `TableState` is what a store keeps in one row; the runs that it remembers are the
latest ones, and the whole history, which is only ever added to, is the store's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from datetime import date

from regelate.core.fleet.observation import TableObservation
from regelate.core.fleet.operation import FleetOperation, FleetOutcome, FleetTrigger, PauseKind
from regelate.core.fleet.reads import Reads
from regelate.core.table.time_ranges import DAY_MS, HOUR_MS
from regelate.core.values import dataclass
from regelate.errors import Conflict

KEPT_RUNS = 8
"""Runs that a table remembers: what the decisions look back on. Ten thousand tables are held at once."""
AFTER_FAILURE_MS = HOUR_MS
MANY_FAILURES = 3
AFTER_MANY_FAILURES_MS = 6 * HOUR_MS
_EPOCH = date(1970, 1, 1).toordinal()


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetRun:
    """One run of one operation on one table, live while it has no `outcome`.

    `predicted_*` is what was reckoned when it was proposed, `max_dollars` what is set aside for it and ends it;
    `model_seconds` is the prediction before the fleet's own pace was taken into account, of which that pace is
    measured. `read_files` and `read_bytes`: what it was to take. Files are data files and delete files together.
    `snapshot_before` and `snapshot_after`: the heads that it found and left. None is what is not known (yet).
    """

    run_id: str
    operation: FleetOperation
    trigger: FleetTrigger
    asked_by: str
    reason: str
    queued_ms: int
    predicted_seconds: float = 0.0
    predicted_dollars: float = 0.0
    predicted_gb_seconds: float = 0.0
    predicted_bytes: int = 0
    predicted_files_removed: int = 0
    model_seconds: float = 0.0
    max_dollars: float = 0.0
    read_files: int = 0
    started_ms: int | None = None
    ended_ms: int | None = None
    actual_seconds: float | None = None
    actual_dollars: float | None = None
    actual_gb_seconds: float | None = None
    actual_bytes: int | None = None
    files_before: int | None = None
    files_after: int | None = None
    row_groups_before: int | None = None
    row_groups_after: int | None = None
    snapshot_before: int | None = None
    snapshot_after: int | None = None
    outcome: FleetOutcome | None = None
    error: str = ""
    job_id: str | None = None
    plan_id: str | None = None

    def __post_init__(self) -> None:
        if self.outcome is not None and self.ended_ms is None:
            raise ValueError(f"the run {self.run_id} is {self.outcome.value} but never ended")
        if self.predicted_dollars < 0 or self.predicted_gb_seconds < 0:
            raise ValueError(f"the run {self.run_id} is predicted to cost less than nothing")

    @property
    def is_live(self) -> bool:
        return self.outcome is None

    @property
    def dollars(self) -> float:
        """What it cost, or what is set aside for it while nobody knows."""
        return max(self.predicted_dollars, self.max_dollars) if self.actual_dollars is None else self.actual_dollars

    @property
    def gb_seconds(self) -> float:
        """The same in GB-seconds: as much more than predicted as the dollars set aside are."""
        if self.actual_gb_seconds is not None:
            return self.actual_gb_seconds
        more = self.max_dollars / self.predicted_dollars if self.predicted_dollars else 1.0
        return self.predicted_gb_seconds * max(more, 1.0)

    @property
    def rewritten_bytes(self) -> int:
        return self.predicted_bytes if self.actual_bytes is None else self.actual_bytes

    @property
    def files_removed(self) -> int:
        """By how many files it left fewer; 0 while nobody knows."""
        if self.files_before is None or self.files_after is None:
            return 0
        return max(self.files_before - self.files_after, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What the runs of one table took, by the day (UTC) on which they were settled, of the last such day and month.

    `day`: days since 1970; `month`: months since year 0. A table that is dropped should be kept to the end of its
    month, so that its tenant does not get back what was spent.
    """

    day: int = 0
    day_dollars: float = 0.0
    day_gb_seconds: float = 0.0
    day_bytes: int = 0
    day_runs: int = 0
    month: int = 0
    month_dollars: float = 0.0

    def on(self, now_ms: int) -> Spent:
        """Return what counts now: nothing of another day, nothing of another month."""
        day, month = day_of(now_ms), month_of(now_ms)
        if day == self.day:
            return self
        return Spent(day=day, month=month, month_dollars=self.month_dollars if month == self.month else 0.0)

    def plus(self, run: FleetRun, now_ms: int) -> Spent:
        """Add a run that has ended; one that ended on an earlier day, by another's clock, counts today."""
        today = self.on(max(now_ms, self.day * DAY_MS))
        return replace(
            today,
            day_dollars=today.day_dollars + run.dollars,
            day_gb_seconds=today.day_gb_seconds + run.gb_seconds,
            day_bytes=today.day_bytes + run.rewritten_bytes,
            day_runs=today.day_runs + 1,
            month_dollars=today.month_dollars + run.dollars,
        )


NOTHING_SPENT = Spent()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Why a table is left alone, and until when; None is until somebody resumes it."""

    kind: PauseKind
    reason: str
    since_ms: int
    until_ms: int | None = None

    def holds(self, now_ms: int) -> bool:
        return self.until_ms is None or now_ms < self.until_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """One table as the fleet knows it; `table_uuid` is its name, for the others change.

    `failures` and `without_effect` count runs in a row, `not_before_ms` is the end of a backoff. `runs` are the latest
    that ended, oldest first, and `live` is the one that is queued or running. `orphans_sought_ms`: when its folder was
    last listed for orphans, 0 for never.
    """

    table_uuid: str
    catalog: str
    ident: str
    tenant: str
    observation: TableObservation | None = None
    runs: tuple[FleetRun, ...] = ()
    live: FleetRun | None = None
    spent: Spent = NOTHING_SPENT
    failures: int = 0
    without_effect: int = 0
    not_before_ms: int = 0
    pause: Pause | None = None
    orphans_sought_ms: int = 0
    reads: Reads | None = None

    def __post_init__(self) -> None:
        if self.observation is not None and self.observation.table_uuid != self.table_uuid:
            raise ValueError(f"{self.table_uuid} cannot have the observation of {self.observation.table_uuid}")
        if self.live is not None and not self.live.is_live:
            raise ValueError(f"{self.ident}: the run {self.live.run_id} has ended and is not live")

    @property
    def last_run(self) -> FleetRun | None:
        return self.runs[-1] if self.runs else None

    def ended_since(self, before: TableState | None) -> tuple[FleetRun, ...]:
        """Return the runs that are in this state's memory and were not in the one before."""
        known = set() if before is None else {run.run_id for run in before.runs}
        return tuple(run for run in self.runs if run.run_id not in known)

    def observed(self, observation: TableObservation) -> TableState:
        """Take a newer look, and the names that the table has now; an older one changes nothing."""
        if self.observation is not None and observation.observed_ms < self.observation.observed_ms:
            return self
        names = {"catalog": observation.catalog, "ident": observation.ident, "tenant": observation.tenant}
        seen = _as_read(observation, self.reads, observation.observed_ms)
        return replace(self, observation=seen, **names)  # type: ignore[arg-type]

    def read(self, count: int, files: int, now_ms: int) -> TableState:
        """Take reads that were reported, and the data files that they opened together."""
        reads = (self.reads or Reads(since_ms=now_ms, at_ms=now_ms)).plus(count, files, now_ms)
        seen = None if self.observation is None else _as_read(self.observation, reads, now_ms)
        return replace(self, reads=reads, observation=seen)

    def queued(self, run: FleetRun) -> TableState:
        """Errors: Conflict RUN_LIVE where the table has a live run already."""
        if self.live is not None:
            told = f"{self.ident} has the live run {self.live.run_id}: one at a time"
            raise Conflict("RUN_LIVE", told, run_id=self.live.run_id)
        return replace(self, live=run)

    def started(self, now_ms: int, job_id: str | None = None) -> TableState:
        """Its live run has begun; a second beginning keeps the first one's time."""
        run = self._running()
        begun = now_ms if run.started_ms is None else run.started_ms
        return replace(self, live=replace(run, started_ms=begun, job_id=job_id or run.job_id))

    def settled(self, ended: FleetRun) -> TableState:
        """Take the end of its live run: into the history, the bill, and the backoff.

        One failure rests the table for an hour, three in a row for six. Errors: Conflict RUN_NOT_LIVE where that run is
        not the live one: it was settled before.
        """
        run = self._running()
        if run.run_id != ended.run_id or ended.outcome is None or ended.ended_ms is None:
            raise Conflict("RUN_NOT_LIVE", f"{ended.run_id} is not the live run of {self.ident}", retryable=False)
        failed = ended.outcome is FleetOutcome.FAILED
        failures = self.failures + 1 if failed else 0
        rest = AFTER_MANY_FAILURES_MS if failures >= MANY_FAILURES else AFTER_FAILURE_MS
        sought = ended.operation is FleetOperation.REMOVE_ORPHANS and not failed
        idle = self.without_effect + 1 if ended.outcome is FleetOutcome.NO_EFFECT else 0
        return replace(
            self,
            runs=(*self.runs, ended)[-KEPT_RUNS:],
            live=None,
            spent=self.spent.plus(ended, ended.ended_ms),
            failures=failures,
            without_effect=self.without_effect if failed else idle,
            not_before_ms=ended.ended_ms + rest if failed else self.not_before_ms,
            orphans_sought_ms=ended.ended_ms if sought else self.orphans_sought_ms,
        )

    def paused(self, pause: Pause) -> TableState:
        return replace(self, pause=pause)

    def resumed(self) -> TableState:
        """Forget why it was paused, and what came before: it begins anew."""
        return replace(self, pause=None, failures=0, without_effect=0, not_before_ms=0)

    def _running(self) -> FleetRun:
        if self.live is None:
            raise Conflict("RUN_NOT_LIVE", f"{self.ident} has no live run", retryable=False)
        return self.live


def _as_read(seen: TableObservation, reads: Reads | None, now_ms: int) -> TableObservation:
    if reads is None:
        return seen
    return replace(seen, reads_per_day=reads.per_day(now_ms), files_per_read=reads.files_per_read)


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetState:
    """All tables of a fleet. `files_quota`: how many files a tenant may have, where its storage sets a limit."""

    tables: tuple[TableState, ...] = ()
    files_quota: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len({table.table_uuid for table in self.tables}) != len(self.tables):
            raise ValueError("a table is in the fleet twice")


def day_of(now_ms: int) -> int:
    """Return the day (UTC) in days since 1970."""
    return now_ms // DAY_MS


def next_day_ms(now_ms: int) -> int:
    """Return the next midnight (UTC)."""
    return (day_of(now_ms) + 1) * DAY_MS


def next_month_ms(now_ms: int) -> int:
    """Return the first midnight (UTC) of the next month."""
    year, month = divmod(month_of(now_ms) + 1, 12)
    return (date(year, month + 1, 1).toordinal() - _EPOCH) * DAY_MS


def month_of(now_ms: int) -> int:
    """Return the month (UTC) in months since year 0."""
    today = date.fromordinal(_EPOCH + day_of(now_ms))
    return today.year * 12 + today.month - 1
