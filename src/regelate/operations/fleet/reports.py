"""What readers and writers report of a table, as Iceberg's REST catalogs are sent it: ScanReport and CommitReport."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from regelate.core.values import dataclass
from regelate.errors import InvalidRequest

MOST_FILES = 10**9
"""More no table has: a count beyond it is a mistake, or somebody who would like to be served first."""


class ReportType(StrEnum):
    SCAN = "scan-report"
    COMMIT = "commit-report"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportMetricsAnswer:
    """What was taken of a report. `files`: data files that a scan opened; null of a commit, whose counts a fleet reads
    from the metadata: it is a notice, and `job_id` the run that it led to."""

    table: str
    report_type: ReportType
    files: int | None = None
    job_id: str | None = None


def kind_of(report: Mapping[str, object]) -> ReportType:
    """Return which report it is. Errors: InvalidRequest INVALID_FIELD."""
    named = report.get("report-type")
    if named not in tuple(ReportType):
        raise _wrong(f"report-type must be one of {', '.join(ReportType)}")
    return ReportType(str(named))


def files_opened(report: Mapping[str, object]) -> int:
    """Return the data files that a scan opened: `metrics.result-data-files`, 0 where the reader left it out, as it does
    when it found none. What else a report holds is passed over. Errors: InvalidRequest INVALID_FIELD."""
    metrics = report.get("metrics")
    if not isinstance(metrics, Mapping):
        raise _wrong("metrics must be an object")
    counter = metrics.get("result-data-files")
    if counter is None:
        return 0
    value = counter.get("value") if isinstance(counter, Mapping) else None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MOST_FILES:
        raise _wrong(f"metrics.result-data-files must be a counter with a value from 0 to {MOST_FILES:,}")
    return value


def _wrong(told: str) -> InvalidRequest:
    return InvalidRequest("INVALID_FIELD", f"report: {told}", field="report")
