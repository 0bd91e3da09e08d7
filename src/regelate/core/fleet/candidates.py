"""What may be done for a table: each operation with what it gains, what it costs, and how it ranks.

    opens   what a reader of the whole table no longer opens, counted in files; other things in files' worth
    score   w1 x gain' - w2 x cost', w1 = 0.5 x (1 + used / quota) of the tenant's files, w2 = 1 - w1

The weights are AutoComp's (SIGMOD 2025), and so is the scaling of both to 0..1 by the least and the most of the fleet;
but gain and cost are scaled as orders of magnitude, on one scale: with w1 = 0.5 the order is that of gain per dollar,
where sizes of a power law would leave all but the largest tables at 0.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field

from regelate.core.engines import COST_HERE, LAMBDA, OBJECT_STORE, Price
from regelate.core.fleet.observation import TableObservation
from regelate.core.fleet.operation import FleetOperation, FleetOutcome
from regelate.core.fleet.state import FleetRun, TableState
from regelate.core.values import dataclass

MB, GB = 2**20, 2**30
OPEN_BYTES = 4 * MB
"""Bytes that take a reader as long as opening a file: Iceberg's `read.split.open-file-cost`."""
OPEN_SECONDS = 0.1
"""What opening a file takes a reader: two or three requests to the store, one after the other."""
PAYBACK_DAYS, USUAL_READS = 30.0, 1.0
"""A rewrite that readers do not save in so many days is not worth it; of a table that no reader reports, a read a day
is believed."""
SNAPSHOT_OPENS, ORPHAN_OPENS = 0.1, 0.01
"""No reader opens them: a snapshot is an object more in the store and a line in every metadata.json, an orphan only the
former."""
LEAST_OPENS = 1.0
"""What gains less is not worth a run."""
UPLOAD_PART_BYTES = 8 * MB
BEGIN_SECONDS = 1.0
"""Of every run: the table opened, planned, committed."""
SNAPSHOT_SECONDS, MANIFEST_SECONDS, LISTED_SECONDS = 0.005, 0.02, 0.0005
COMMIT_GETS, COMMIT_PUTS = 8, 8
LISTED_PER_REQUEST = 1000
CLASSES_OF_BYTES = (MB, 16 * MB)
"""Means of the files that a run reads, up to which its pace is measured apart."""
SHORT_SECONDS, SHORT = 2.0, -1
"""Runs that the model gives less are mostly beginning and commit: their pace is measured apart, whatever they read."""
PRIOR_RUNS = 2
"""So many runs at the pace of what is most like them are believed of a kind of runs beside its own."""
MOST_FASTER, MOST_SLOWER = 0.02, 10.0
MOST_RISK = 0.9
AT_ANY_PRICE = 0.9
"""From this w1 on, four fifths of its quota, a tenant is short of files, whatever its readers save."""
EPSILON = 1e-9

_MEASURED = frozenset({FleetOutcome.DONE, FleetOutcome.PARTIAL})
"""Runs that failed, or found nothing to do, say nothing of the pace of the others."""
_OVERWRITING = frozenset({"overwrite", "delete"})
"""Operations of snapshots that may take away what a rewrite reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """Where the work is done, and what it costs there."""

    memory_bytes: int = 2 * GB
    threads: int = 2
    price: Price = LAMBDA

    def dollars(self, seconds: float, gets: float, puts: float) -> float:
        requests = gets * OBJECT_STORE.dollars_per_get + puts * OBJECT_STORE.dollars_per_put
        return self.price.dollars(seconds, self.memory_bytes) + requests

    def gb_seconds(self, seconds: float) -> float:
        return seconds * self.memory_bytes / GB


USUAL_WORKER = Worker()


_Level = tuple[object, ...]


def _levels(operation: FleetOperation, size_class: int) -> tuple[_Level, ...]:
    """Return what a run is one of, the most general first."""
    return (), (operation.rewrites_data,), (operation,), (operation, size_class)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How this fleet's runs took their time, as a factor on the model's, by operation and class of file sizes.

    What was not measured yet has that of its operation, else of those that rewrite data as it does or does not, else
    that of all: the machine and its store are the same.
    """

    factors: Mapping[_Level, float] = field(default_factory=dict)
    error: float | None = None
    """The median of how far predictions were off, as a share of what was predicted; None before the first run."""

    def factor(self, operation: FleetOperation, size_class: int) -> float:
        levels = _levels(operation, size_class)
        return next((self.factors[level] for level in reversed(levels) if level in self.factors), 1.0)

    @property
    def overall(self) -> float:
        return self.factors.get((), 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One operation on one table, priced.

    `opens`: the gain by the file above, what readers and risk make of it included. `removed`: files, delete files,
    snapshots, manifests or orphans, whichever the operation removes. `reads_per_day` is None where nobody knows, and
    then the table counts as much as one that is read as usual; `benefit_per_day` are dollars of readers' time. `share`:
    the part of the work that fits, below 1 where a run is to end early. `risk`: that another commit undoes it.
    """

    table_uuid: str
    catalog: str
    ident: str
    tenant: str
    operation: FleetOperation
    opens: float
    removed: int
    row_groups_removed: int | None
    read_files: int
    read_bytes: int
    model_seconds: float
    seconds: float
    dollars: float
    gb_seconds: float
    risk: float
    reads_per_day: float | None
    benefit_per_day: float | None
    share: float = 1.0
    pays_back: bool = True
    """Whether readers save in a month what a rewrite costs."""

    @property
    def opens_per_dollar(self) -> float:
        return self.opens / max(self.dollars, EPSILON)


def measured_pace(tables: Iterable[TableState]) -> Pace:
    """Measure how long the remembered runs took, as a factor on what the model had said.

    The factor of each kind of runs is their median, for one of them may have waited for a busy machine, together with
    `PRIOR_RUNS` at the factor of the more general kind.
    """
    ratios: dict[_Level, list[float]] = {}
    errors: list[float] = []
    for table in tables:
        for run in table.runs:
            if not run.actual_seconds or run.model_seconds <= 0 or run.outcome not in _MEASURED:
                continue
            ratio = min(max(run.actual_seconds / run.model_seconds, MOST_FASTER), MOST_SLOWER)
            for level in _levels(run.operation, _class_of_run(run)):
                ratios.setdefault(level, []).append(ratio)
            if run.predicted_seconds > 0:
                errors.append(abs(run.actual_seconds - run.predicted_seconds) / run.predicted_seconds)
    factors: dict[_Level, float] = {}
    for operation, size_class in sorted({level for level in ratios if len(level) == 2}, key=repr):
        prior = 1.0
        for level in _levels(operation, size_class):  # type: ignore[arg-type]
            prior = factors.setdefault(level, _middle(ratios[level], prior))
    return Pace(factors=factors, error=sorted(errors)[len(errors) // 2] if errors else None)


def _middle(found: Sequence[float], prior: float) -> float:
    """Return the median of what was found and of the prior, which counts `PRIOR_RUNS` times."""
    ordered = sorted([*found, *[prior] * PRIOR_RUNS])
    return math.sqrt(ordered[(len(ordered) - 1) // 2] * ordered[len(ordered) // 2])


def usual_reads(tables: Iterable[TableState]) -> float | None:
    """Return the median of the reads per day that are known; None where none are."""
    known = sorted(reads for t in tables if t.observation and (reads := t.observation.reads_per_day) is not None)
    return known[len(known) // 2] if known else None


def candidates_of(
    table: TableState,
    pace: Pace,
    worker: Worker = USUAL_WORKER,
    usual: float | None = None,
    *,
    seek_orphans: bool = False,
) -> Iterator[Candidate]:
    """Yield what would help a table that was observed. `usual`: the reads per day of a usual table of the fleet.
    `seek_orphans`: its folder is to be listed, though nobody knows what will be found."""
    seen = table.observation
    if seen is None:
        return
    open_dollars = _open_dollars(worker)
    for operation, opens, removed, files, size, seconds, gets, puts in _work(seen, worker, seek_orphans):
        size_class = _class_of(operation, size, files, seconds)
        paced = seconds * pace.factor(operation, size_class)
        risk = _risk(seen, paced) if operation.rewrites_data else 0.0
        kept = opens * (1.0 - risk)
        if kept < LEAST_OPENS:
            continue
        opened, reads = kept * _opened_share(seen), seen.reads_per_day
        saved = opened * (USUAL_READS if reads is None else reads) * open_dollars
        dollars = worker.dollars(paced, gets, puts)
        yield Candidate(
            table_uuid=table.table_uuid,
            catalog=table.catalog,
            ident=table.ident,
            tenant=table.tenant,
            operation=operation,
            opens=opened * _read_weight(seen, usual),
            removed=removed,
            row_groups_removed=_row_groups(seen) if operation is FleetOperation.COMPACT else None,
            read_files=files,
            read_bytes=size,
            model_seconds=seconds,
            seconds=paced,
            dollars=dollars,
            gb_seconds=worker.gb_seconds(paced),
            risk=risk,
            reads_per_day=reads,
            benefit_per_day=None if reads is None else saved,
            pays_back=not operation.rewrites_data or saved * PAYBACK_DAYS >= dollars,
        )


_Work = tuple[FleetOperation, float, int, int, int, float, float, float]
"""Operation, opens, removed, files and bytes read, the model's seconds, GETs, PUTs."""


def _work(seen: TableObservation, worker: Worker, seek_orphans: bool) -> Iterator[_Work]:
    removed = seen.files - seen.files_after
    if removed > 0:
        yield _rewrite(
            FleetOperation.COMPACT, removed, removed, seen.candidate_files, seen.candidate_bytes, seen, worker
        )
    if seen.delete_files and seen.deleting_files:
        opens = seen.delete_files + seen.delete_bytes / OPEN_BYTES
        files, size = seen.deleting_files, seen.deleting_bytes + seen.delete_bytes
        yield _rewrite(FleetOperation.APPLY_DELETES, opens, seen.delete_files, files, size, seen, worker)
    if gone := seen.expirable_snapshots:
        share = gone / max(seen.snapshots, gone)
        opens = gone * SNAPSHOT_OPENS + share * seen.metadata_bytes / OPEN_BYTES
        seconds = BEGIN_SECONDS + gone * SNAPSHOT_SECONDS + seen.manifests * SNAPSHOT_SECONDS
        gets = gone + seen.manifests + COMMIT_GETS
        yield FleetOperation.EXPIRE, opens, gone, gone, 0, seconds, gets, COMMIT_PUTS
    if (merged := seen.manifests - seen.manifests_after) > 0:
        seconds = BEGIN_SECONDS + seen.manifests * MANIFEST_SECONDS
        gets, puts = seen.manifests + COMMIT_GETS, seen.manifests_after + COMMIT_PUTS
        yield FleetOperation.REWRITE_MANIFESTS, float(merged), merged, seen.manifests, 0, seconds, gets, puts
    orphans = seen.orphan_files or 0
    if orphans or seek_orphans:
        listed = seen.files + seen.delete_files + orphans
        seconds = BEGIN_SECONDS + listed * LISTED_SECONDS
        gets, lists = seen.manifests + COMMIT_GETS, listed / LISTED_PER_REQUEST + COMMIT_PUTS
        opens = orphans * ORPHAN_OPENS if orphans else LEAST_OPENS
        yield FleetOperation.REMOVE_ORPHANS, opens, orphans, listed, 0, seconds, gets, lists


def _rewrite(
    operation: FleetOperation,
    opens: float,
    removed: int,
    files: int,
    size: int,
    seen: TableObservation,
    worker: Worker,
) -> _Work:
    groups = min(max(seen.partitions, 1), max(files // 2, 1))
    seconds = BEGIN_SECONDS + COST_HERE.seconds(size, files, threads=worker.threads)
    seconds += groups * COST_HERE.seconds_per_group
    gets = files + seen.delete_files + seen.manifests + COMMIT_GETS
    puts = max(files - removed, 1) + size / UPLOAD_PART_BYTES + COMMIT_PUTS
    return operation, opens, removed, files, size, seconds, gets, puts


def _risk(seen: TableObservation, seconds: float) -> float:
    """Return how likely what is rewritten goes for nothing: overwritten meanwhile, or within the day after.

    Writers that overwrite are taken to do so in one partition of all; what is rewritten is taken for young.
    """
    commits = sum(count for _, count in seen.commit_kinds)
    overwriting = sum(count for kind, count in seen.commit_kinds if kind in _OVERWRITING)
    meanwhile = 0.0
    if overwriting:
        hits = seen.commits_per_hour * overwriting / commits * seconds / 3600 / max(seen.partitions, 1)
        meanwhile = 1.0 - math.exp(-hits)
    later = seen.overwrites[0].probability if seen.overwrites else 0.0
    return min(1.0 - (1.0 - meanwhile) * (1.0 - later), MOST_RISK)


def _opened_share(seen: TableObservation) -> float:
    """Return the share of the files that one read opens; all where no reader says."""
    if seen.files_per_read is None or not seen.files:
        return 1.0
    return min(seen.files_per_read / seen.files, 1.0)


def _read_weight(seen: TableObservation, usual: float | None) -> float:
    """Return how much more a table is read than a usual one; one read a day more for both, so that none counts 0."""
    if seen.reads_per_day is None or usual is None:
        return 1.0
    return (1.0 + seen.reads_per_day) / (1.0 + usual)


def _open_dollars(worker: Worker) -> float:
    """What opening a file costs a reader that is such a worker."""
    return OBJECT_STORE.dollars_per_get + OPEN_SECONDS * worker.gb_seconds(1.0) * worker.price.dollars_per_gb_second


def _row_groups(seen: TableObservation) -> int | None:
    if seen.row_groups is None or seen.row_groups_after is None:
        return None
    return max(seen.row_groups - seen.row_groups_after, 0)


def _class_of(operation: FleetOperation, size_bytes: int, files: int, model_seconds: float) -> int:
    if model_seconds < SHORT_SECONDS:
        return SHORT
    mean = size_bytes / max(files, 1)
    return sum(mean >= edge for edge in CLASSES_OF_BYTES) if operation.rewrites_data else 0


def _class_of_run(run: FleetRun) -> int:
    return _class_of(run.operation, run.predicted_bytes, run.read_files, run.model_seconds)


def weight_of_gain(used: float, quota: float | None) -> float:
    """Return w1 of a tenant: 0.5, and more the nearer its files are to its quota, 1 at the quota and above."""
    return 0.5 * (1.0 + min(used / quota, 1.0)) if quota else 0.5


def scores(candidates: Sequence[Candidate], weights: Mapping[str, float]) -> list[float]:
    """Return the score of each candidate, -1 to 1, the highest ranks first. `weights`: w1 by tenant, or 0.5."""
    gains = [math.log(max(c.opens, EPSILON)) for c in candidates]
    costs = [math.log(max(c.dollars, EPSILON)) for c in candidates]
    if not gains:
        return []
    least_gain, least_cost = min(gains), min(costs)
    scale = max(max(gains) - least_gain, max(costs) - least_cost) or 1.0
    found = []
    for candidate, gain, cost in zip(candidates, gains, costs, strict=True):
        w1 = weights.get(candidate.tenant, 0.5)
        found.append((w1 * (gain - least_gain) - (1.0 - w1) * (cost - least_cost)) / scale)
    return found


def files_of(tables: Collection[TableState]) -> Mapping[str, int]:
    """Return how many files each tenant has, data files and delete files."""
    found: dict[str, int] = {}
    for table in tables:
        if table.observation is not None:
            files = table.observation.files + table.observation.delete_files
            found[table.tenant] = found.get(table.tenant, 0) + files
    return found
