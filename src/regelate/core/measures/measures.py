"""What is measured: one definition of every counter, histogram and gauge, and what an occurrence adds to them.

The sinks (CloudWatch's embedded metric format, Prometheus) translate; none has a metric of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from regelate.core.running.rewrite import RewriteResult
from regelate.core.running.stats import CompactionStats
from regelate.core.values import dataclass


class Kind(StrEnum):
    """`up_down` is a level that is told as changes; `gauge` is one that is told as it is."""

    COUNTER = "counter"
    HISTOGRAM = "histogram"
    GAUGE = "gauge"
    UP_DOWN = "up_down"


class Unit(StrEnum):
    """CloudWatch's names."""

    COUNT = "Count"
    BYTES = "Bytes"
    SECONDS = "Seconds"
    NONE = "None"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """`label` tells several series of one metric apart; its values must be few. `buckets` are of histograms."""

    name: str
    kind: Kind
    help: str
    unit: Unit = Unit.COUNT
    label: str | None = None
    buckets: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One value; `label_value` is None exactly for a metric without a label."""

    metric: Metric
    value: float
    label_value: str | None = None

    def __post_init__(self) -> None:
        if (self.metric.label is None) != (self.label_value is None):
            raise ValueError(f"{self.metric.name} has the label {self.metric.label}, given was {self.label_value!r}")


MB = 1024 * 1024
_SECONDS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0)
_QUERY_SECONDS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 25.0)
_SIZES = tuple(float(MB * 4**power) for power in range(6))
_RATIOS = (0.5, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0)
_FILES = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 500.0, 1000.0)

FILES_COMPACTED = Metric(name="files_compacted", kind=Kind.COUNTER, help="Data files rewritten.")
BYTES_READ = Metric(name="bytes_read", kind=Kind.COUNTER, unit=Unit.BYTES, help="Bytes of the data files rewritten.")
BYTES_WRITTEN = Metric(name="bytes_written", kind=Kind.COUNTER, unit=Unit.BYTES, help="Bytes of the files they became.")
COMPACTIONS_SUCCEEDED = Metric(
    name="compactions_succeeded", kind=Kind.COUNTER, help="COMPACTs that landed, partial ones included."
)
COMPACTIONS_FAILED = Metric(
    name="compactions_failed",
    kind=Kind.COUNTER,
    label="code",
    help="Tries of COMPACTs that ended with an error which is not the request's, by its code, and jobs given up.",
)
COMPACTION_DURATION = Metric(
    name="compaction_duration",
    kind=Kind.HISTOGRAM,
    unit=Unit.SECONDS,
    buckets=_SECONDS,
    help="Wall-clock time of COMPACTs that landed.",
)
FILE_SIZES = Metric(
    name="file_size_distribution",
    kind=Kind.HISTOGRAM,
    unit=Unit.BYTES,
    buckets=_SIZES,
    help="Sizes of the data files that COMPACTs made.",
)
COMPRESSION_RATIO = Metric(
    name="compression_ratio",
    kind=Kind.HISTOGRAM,
    unit=Unit.NONE,
    buckets=_RATIOS,
    help="Bytes read / bytes written of one COMPACT.",
)
FILES_RATIO = Metric(
    name="files_before_after_ratio",
    kind=Kind.HISTOGRAM,
    unit=Unit.NONE,
    buckets=_FILES,
    help="Data files of the table before / after one COMPACT.",
)
PENDING_COMPACTIONS = Metric(
    name="pending_compactions",
    kind=Kind.GAUGE,
    help="Jobs that wait for a worker, of all tenants, as the job store has them.",
)
ACTIVE_COMPACTIONS = Metric(name="active_compactions", kind=Kind.UP_DOWN, help="COMPACTs under way in this process.")
LAST_COMPACTION = Metric(
    name="last_compaction_timestamp",
    kind=Kind.GAUGE,
    unit=Unit.SECONDS,
    label="table",
    help="When the last COMPACT of a table landed, in seconds since 1970.",
)
SMALL_FILES = Metric(
    name="small_files",
    kind=Kind.GAUGE,
    label="table",
    help="Small data files of a table when last looked: by a WRITE's check, TABLE_HEALTH, or after a COMPACT.",
)
WRITES = Metric(name="writes", kind=Kind.COUNTER, help="WRITEs answered.")
FILES_TAKEN_ALONG = Metric(
    name="files_taken_along", kind=Kind.COUNTER, help="Small files that WRITEs took into their own commits."
)
COMPACTION_CHECKS = Metric(name="compaction_checks", kind=Kind.COUNTER, help="WRITEs that looked for small files.")
COMPACTION_RECOMMENDED = Metric(
    name="compaction_recommended", kind=Kind.COUNTER, help="WRITEs that recommended a COMPACT."
)
QUERY_TIME = Metric(
    name="query_time", kind=Kind.HISTOGRAM, unit=Unit.SECONDS, buckets=_QUERY_SECONDS, help="Time of QUERYs answered."
)
SWEEPS = Metric(name="sweeps", kind=Kind.COUNTER, help="SWEEPs that came to their end, with errors or without.")
SWEEP_ERRORS = Metric(
    name="sweep_errors",
    kind=Kind.COUNTER,
    help="Tables and namespaces that a SWEEP could not look after, and jobs that it could not submit.",
)
METRICS = (
    FILES_COMPACTED,
    BYTES_READ,
    BYTES_WRITTEN,
    COMPACTIONS_SUCCEEDED,
    COMPACTIONS_FAILED,
    COMPACTION_DURATION,
    FILE_SIZES,
    COMPRESSION_RATIO,
    FILES_RATIO,
    PENDING_COMPACTIONS,
    ACTIVE_COMPACTIONS,
    LAST_COMPACTION,
    SMALL_FILES,
    WRITES,
    FILES_TAKEN_ALONG,
    COMPACTION_CHECKS,
    COMPACTION_RECOMMENDED,
    QUERY_TIME,
    SWEEPS,
    SWEEP_ERRORS,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionStarted:
    table: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionEnded:
    """Every CompactionStarted has one. `failed_with` is the code of an error that is not the request's."""

    table: str
    failed_with: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobGivenUp:
    """A job ends with an error that no try of it has told: its workers died without a word, or it never came to one."""

    table: str
    code: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """A COMPACT has landed. `output_bytes`: the size of each data file that it made."""

    table: str
    stats: CompactionStats
    bytes_read: int
    output_bytes: tuple[int, ...]
    at_ms: int

    @classmethod
    def of(cls, table: str, stats: CompactionStats, landed: Sequence[RewriteResult], *, at_ms: int) -> Compacted:
        return cls(
            table=table,
            stats=stats,
            bytes_read=sum(r.group.size_bytes for r in landed),
            output_bytes=tuple(f.size_bytes for r in landed for f in r.added),
            at_ms=at_ms,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrote:
    """`small_files` is None where the WRITE did not look."""

    table: str
    compaction_recommended: bool
    small_files: int | None
    files_taken_along: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Queried:
    table: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessed:
    table: str
    small_files: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepEnded:
    """`faults`: what the SWEEP could not do, though it did the rest."""

    faults: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsCounted:
    """How many jobs wait for a worker, when one came or was taken."""

    pending: int


Occurrence = (
    CompactionStarted | CompactionEnded | JobGivenUp | Compacted | Wrote | Queried | Assessed | SweepEnded | JobsCounted
)


def measurements(occurrence: Occurrence) -> tuple[Measurement, ...]:
    """Return what an occurrence adds to the metrics."""
    match occurrence:
        case CompactionStarted():
            return (Measurement(metric=ACTIVE_COMPACTIONS, value=1),)
        case CompactionEnded(failed_with=code):
            failed = () if code is None else (Measurement(metric=COMPACTIONS_FAILED, value=1, label_value=code),)
            return (Measurement(metric=ACTIVE_COMPACTIONS, value=-1), *failed)
        case JobGivenUp(code=code):
            return (Measurement(metric=COMPACTIONS_FAILED, value=1, label_value=code),)
        case Compacted():
            return _of_compaction(occurrence)
        case Wrote():
            return _of_write(occurrence)
        case Queried(seconds=seconds):
            return (Measurement(metric=QUERY_TIME, value=seconds),)
        case Assessed(table=table, small_files=small):
            return (Measurement(metric=SMALL_FILES, value=small, label_value=table),)
        case JobsCounted(pending=pending):
            return (Measurement(metric=PENDING_COMPACTIONS, value=pending),)
        case SweepEnded(faults=faults):
            return (Measurement(metric=SWEEPS, value=1), Measurement(metric=SWEEP_ERRORS, value=faults))


def _of_write(done: Wrote) -> tuple[Measurement, ...]:
    taken = done.files_taken_along
    along = (Measurement(metric=FILES_TAKEN_ALONG, value=taken),) if taken else ()
    written = (Measurement(metric=WRITES, value=1), *along)
    if done.small_files is None:
        return written
    return (
        *written,
        Measurement(metric=COMPACTION_CHECKS, value=1),
        Measurement(metric=COMPACTION_RECOMMENDED, value=int(done.compaction_recommended)),
        Measurement(metric=SMALL_FILES, value=done.small_files, label_value=done.table),
    )


def _of_compaction(done: Compacted) -> tuple[Measurement, ...]:
    stats, written = done.stats, sum(done.output_bytes)
    values: dict[Metric, float] = {
        FILES_COMPACTED: stats.files_compacted,
        BYTES_READ: done.bytes_read,
        BYTES_WRITTEN: written,
        COMPACTIONS_SUCCEEDED: 1,
        COMPACTION_DURATION: stats.seconds.total,
    }
    if written:
        values[COMPRESSION_RATIO] = done.bytes_read / written
    if stats.files_after:
        values[FILES_RATIO] = stats.files_before / stats.files_after
    return (
        *(Measurement(metric=metric, value=value) for metric, value in values.items()),
        *(Measurement(metric=FILE_SIZES, value=size) for size in done.output_bytes),
        Measurement(metric=LAST_COMPACTION, value=done.at_ms / 1000, label_value=done.table),
        Measurement(metric=SMALL_FILES, value=stats.small_files_remaining, label_value=done.table),
    )
