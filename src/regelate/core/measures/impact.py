"""What a maintenance job changed, and five checks of it: measured before and after, judged by the noise. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Sequence
from enum import StrEnum

from regelate.core.table.table import SnapshotEntry
from regelate.core.values import dataclass

LISTED_PARTITIONS = 200
LIKE = 1e-9
"""Relative difference of two floating point results that only another order of addition explains."""

Row = tuple[object, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFiles:
    """The live data files of one partition. `path`: as in `month=2025-01`, empty for a table without partitions."""

    path: str
    files: int
    size_bytes: int
    min_bytes: int
    max_bytes: int
    rows: int

    @property
    def average_bytes(self) -> float:
        return self.size_bytes / self.files if self.files else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FileMetrics:
    """The live data files of a table at one snapshot."""

    snapshot_id: int | None
    partitions: tuple[PartitionFiles, ...]

    @property
    def whole(self) -> PartitionFiles:
        """The table as if it were one partition."""
        found = self.partitions
        return PartitionFiles(
            path="",
            files=sum(p.files for p in found),
            size_bytes=sum(p.size_bytes for p in found),
            min_bytes=min((p.min_bytes for p in found), default=0),
            max_bytes=max((p.max_bytes for p in found), default=0),
            rows=sum(p.rows for p in found),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """All rows of a snapshot: how many, and the sum of a hash of each, in whatever order they come."""

    rows: int
    hash_sum: str


LEAST_NOISE_SECONDS = 0.1
"""Less says nothing about files: the planner, a collection of garbage or another process takes as long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryRuns:
    """One query asked several times after a warm-up that does not count; `rows` is what it answered."""

    seconds: tuple[float, ...]
    rows: tuple[Row, ...]

    @property
    def median_seconds(self) -> float:
        return statistics.median(self.seconds)

    @property
    def noise_seconds(self) -> float:
        """How far apart runs of the same query over the same files lie."""
        return max(self.seconds) - min(self.seconds)


class CheckName(StrEnum):
    ROWS = "rows"
    FILE_COUNT = "file_count"
    AVERAGE_SIZE = "average_size"
    QUERY_RESULT = "query_result"
    QUERY_TIME = "query_time"


class Verdict(StrEnum):
    PASSED = "PASSED"
    FAILED = "FAILED"
    NOT_APPLICABLE = "NOT_APPLICABLE"
    """There was nothing to judge; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    name: CheckName
    verdict: Verdict
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """All that the five checks look at. `pairs`: fingerprints before and after each stretch of the job's own commits.

    `fewer_files_planned`: the plan merges; `deletes_applied`: it dropped rows that had been deleted. `foreign_commits`:
    what others committed meanwhile; `between`: they lie between the two of a pair, as the catalog shows no snapshot but
    the head, so what they changed cannot be told from what the job did.
    """

    files: tuple[FileMetrics, FileMetrics]
    pairs: tuple[tuple[Fingerprint, Fingerprint], ...] = ()
    queries: tuple[QueryRuns, QueryRuns] | None = None
    committed: bool = False
    fewer_files_planned: bool = False
    deletes_applied: bool = False
    foreign_commits: int = 0
    between: bool = False


def judge(observed: Observed) -> tuple[Check, ...]:
    """Return the five checks, in their order."""
    return (
        _judge_rows(observed),
        _judge_count(observed),
        _judge_size(observed),
        _judge_result(observed),
        _judge_time(observed),
    )


def failed(checks: Sequence[Check]) -> tuple[Check, ...]:
    return tuple(check for check in checks if check.verdict is Verdict.FAILED)


def _check(name: CheckName, holds: bool, detail: str) -> Check:
    return Check(name=name, verdict=Verdict.PASSED if holds else Verdict.FAILED, detail=detail)


def _none(name: CheckName, why: str) -> Check:
    return Check(name=name, verdict=Verdict.NOT_APPLICABLE, detail=why)


def _judge_rows(o: Observed) -> Check:
    if not o.committed:
        return _none(CheckName.ROWS, "nothing was committed")
    if o.between and any(before != after for before, after in o.pairs):
        return _none(CheckName.ROWS, f"{o.foreign_commits} commit(s) of others lie between, and no snapshot is shown")
    for before, after in o.pairs:
        if before.rows != after.rows:
            return _check(CheckName.ROWS, False, f"{before.rows:,} rows became {after.rows:,}")
        if before != after:
            return _check(CheckName.ROWS, False, f"{before.rows:,} rows, but their content differs")
    rows = ", ".join(f"{after.rows:,}" for _, after in o.pairs)
    return _check(
        CheckName.ROWS,
        bool(o.pairs),
        f"{rows} rows, and their content, are the same" if rows else "no commit is in the table's history",
    )


def _judge_count(o: Observed) -> Check:
    before, after = (m.whole.files for m in o.files)
    if not (o.committed and o.fewer_files_planned):
        return _none(CheckName.FILE_COUNT, f"fewer files were not planned: {before:,}, then {after:,}")
    if o.foreign_commits:
        return _none(CheckName.FILE_COUNT, f"others committed meanwhile: {before:,}, then {after:,}")
    return _check(CheckName.FILE_COUNT, after < before, f"{before:,} data files became {after:,}")


def _judge_size(o: Observed) -> Check:
    before, after = (m.whole for m in o.files)
    shown = f"{before.average_bytes:,.0f} bytes on average became {after.average_bytes:,.0f}"
    if not (o.committed and o.fewer_files_planned):
        return _none(CheckName.AVERAGE_SIZE, f"larger files were not planned: {shown}")
    if o.deletes_applied or o.foreign_commits:
        why = "deleted rows are gone" if o.deletes_applied else "others committed meanwhile"
        return _none(CheckName.AVERAGE_SIZE, f"{why}: {shown}")
    if after.average_bytes <= before.average_bytes and after.rows * before.files > before.rows * after.files:
        return _check(CheckName.AVERAGE_SIZE, True, f"{shown}, with more rows: they take less room than before")
    return _check(CheckName.AVERAGE_SIZE, after.average_bytes > before.average_bytes, shown)


def _judge_result(o: Observed) -> Check:
    if o.queries is None:
        return _none(CheckName.QUERY_RESULT, "no query was given")
    if o.foreign_commits:
        return _none(CheckName.QUERY_RESULT, f"{o.foreign_commits} commit(s) of others came between")
    before, after = o.queries
    same = same_rows(before.rows, after.rows)
    return _check(CheckName.QUERY_RESULT, same, f"{len(after.rows):,} row(s), {'the same' if same else 'not the same'}")


def _judge_time(o: Observed) -> Check:
    if o.queries is None:
        return _none(CheckName.QUERY_TIME, "no query was given")
    before, after = o.queries
    noise = noise_seconds(before, after)
    shown = f"{before.median_seconds:.3f} s became {after.median_seconds:.3f} s; noise {noise:.3f} s"
    if o.foreign_commits:
        return _none(CheckName.QUERY_TIME, f"others committed meanwhile: {shown}")
    return _check(CheckName.QUERY_TIME, after.median_seconds <= before.median_seconds + noise, shown)


def noise_seconds(before: QueryRuns, after: QueryRuns) -> float:
    """Return the widest spread of the runs; a few runs may agree by chance, so never less than LEAST_NOISE_SECONDS."""
    return max(before.noise_seconds, after.noise_seconds, LEAST_NOISE_SECONDS)


def same_rows(before: Collection[Row], after: Collection[Row]) -> bool:
    """Say whether two results hold the same rows, in any order; floats may differ by the order of addition."""
    if len(before) != len(after):
        return False
    pairs = zip(sorted(before, key=_order), sorted(after, key=_order), strict=True)
    return all(len(a) == len(b) and all(map(_same, a, b)) for a, b in pairs)


def _order(row: Row) -> tuple[list[str], list[float]]:
    """Floats last: two that are like must not decide where a row stands before all else has."""
    floats = [value for value in row if isinstance(value, float)]
    rest = [f"{type(value).__name__} {value!r}" for value in row if not isinstance(value, float)]
    return rest, [math.inf if math.isnan(value) else value for value in floats]


def _same(a: object, b: object) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=LIKE, abs_tol=0.0) or a == b
    return type(a) is type(b) and a == b


def own_stretches(
    log: Sequence[SnapshotEntry], base_id: int | None, head_id: int | None, own: Collection[int]
) -> tuple[tuple[tuple[int, int], ...], int]:
    """Return (snapshot before, last snapshot) of each unbroken stretch of own commits after `base_id`, oldest first,
    and how many commits of others lie on the way.

    Own commits that are not between base and head are in no stretch, and there is none in a history that was cut.
    """
    by_id = {entry.snapshot_id: entry for entry in log}
    path: list[SnapshotEntry] = []
    at = head_id
    while at is not None and at != base_id and at in by_id:
        path.append(by_id[at])
        at = by_id[at].parent_id
    if at != base_id:
        return (), len(path)
    stretches: list[tuple[int, int]] = []
    foreign, before = 0, base_id
    for entry in reversed(path):
        if entry.snapshot_id not in own:
            foreign += 1
        elif stretches and stretches[-1][1] == before:
            stretches[-1] = (stretches[-1][0], entry.snapshot_id)
        elif before is not None:
            stretches.append((before, entry.snapshot_id))
        before = entry.snapshot_id
    return tuple(stretches), foreign
