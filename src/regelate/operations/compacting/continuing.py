"""From one part of a COMPACT to the next: the token that takes up what was left, and what the part did."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from regelate.core.answers import Status
from regelate.core.jobs.job import NOTHING_DONE, JobTotals, run_of_part
from regelate.core.requests import CompactRequest
from regelate.core.running.resume import ResumeToken
from regelate.core.table.head import Head
from regelate.core.table.table import SnapshotEntry
from regelate.core.values import dataclass
from regelate.operations.compacting.command import CompactOutcome
from regelate.operations.compacting.partial_progress import Stop

_LEAVES_NOTHING = (Stop.CANCELLED, Stop.PRICE)
"""To a next part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPart:
    """Which part of a COMPACT a run is. `request`: the one that began it, or what its token carries on."""

    base_run_id: str
    part: int
    request: CompactRequest
    token: ResumeToken | None = None
    in_job: bool = False

    @property
    def run_id(self) -> str:
        return run_of_part(self.base_run_id, self.part)


@dataclass(frozen=True, slots=True, kw_only=True)
class RanPart:
    """What came of it. `token` is for the next part, where groups were left over."""

    outcome: CompactOutcome
    did: JobTotals
    token: str | None


def ran(part: RunPart, outcome: CompactOutcome, *, now_ms: int, head: Callable[[], Head]) -> RanPart:
    """Say what a part did and what comes next. `head` is asked only where the part had landed before.

    Then nobody said what was left over. In a job its worker died before it could: the next part looks.
    """
    if outcome.status is Status.ALREADY_DONE:
        if not part.in_job:
            return RanPart(outcome=outcome, did=NOTHING_DONE, token=None)
        found = head()
        landed = found.run(part.run_id)
        sequence = found.sequence_number if landed is None else landed.sequence_number
        did = NOTHING_DONE if landed is None else _of_summary(landed)
        token = _next(part, found.uuid, outcome.snapshot_id, sequence, now_ms)
        return RanPart(outcome=outcome, did=did, token=token)
    plan, rest = outcome.plan, None
    if plan is not None and outcome.compacted and outcome.stopped not in (None, *_LEAVES_NOTHING):
        rest = _next(part, plan.table_uuid, plan.starting_snapshot_id, plan.starting_sequence_number, now_ms)
    return RanPart(outcome=outcome, did=_of_stats(outcome), token=rest)


def _next(part: RunPart, table_uuid: str, snapshot_id: int | None, sequence_number: int, now_ms: int) -> str:
    """Return the token of the part after this one. Where a run starts is said once: every later part carries it on."""
    start = part.token or ResumeToken(
        table_uuid=table_uuid,
        starting_snapshot_id=snapshot_id or 0,
        starting_sequence_number=sequence_number,
        run_id=part.base_run_id,
        part=2,
        now_ms=now_ms,
        request=part.request.rest,
    )
    return replace(start, part=part.part + 1).encoded()


def _of_stats(outcome: CompactOutcome) -> JobTotals:
    stats = outcome.stats
    if stats is None or outcome.snapshot_id is None:
        return NOTHING_DONE
    return JobTotals(
        files_compacted=stats.files_compacted,
        files_added=stats.files_added,
        bytes_saved=stats.bytes_saved,
        rows=stats.rows,
        snapshot_ids=(outcome.snapshot_id,),
    )


def _of_summary(landed: SnapshotEntry) -> JobTotals:
    """Read from a snapshot what its run did. Bytes count delete files that went in the same commit, too."""

    def number(name: str) -> int:
        text = landed.summary.get(name, "0")
        return int(text) if text.isdecimal() else 0

    return JobTotals(
        files_compacted=number("deleted-data-files"),
        files_added=number("added-data-files"),
        bytes_saved=number("removed-files-size") - number("added-files-size"),
        rows=number("added-records"),
        snapshot_ids=(landed.snapshot_id,),
    )
