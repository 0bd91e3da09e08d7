"""Results of jobs -> what a report says of each. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from regelate.core.policy.sizes import size_text
from regelate.core.values import dataclass
from regelate.report.frames import Frame, count_text, seconds_text
from regelate.report.results import JobResult, StepLine, result_of

Answer = Mapping[str, Any]
MOST_PARTITIONS = 50
_MARKS = {"PASSED": "passed", "FAILED": "FAILED", "NOT_APPLICABLE": "not applicable"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """What a report says of one job. `line`: all of it in one sentence; `failed`: somebody must look at it."""

    title: str
    line: str
    failed: bool
    frames: tuple[tuple[str, Frame], ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    title: str
    sections: tuple[Section, ...]
    overview: tuple[tuple[str, Frame], ...] = ()

    @property
    def failures(self) -> int:
        return sum(section.failed for section in self.sections)


def report_of(found: Sequence[Answer], title: str = "Table maintenance") -> Report:
    """Return the report of one or many results, in their order; writers that can be compared stand side by side."""
    results = [result_of(one) for one in found]
    ingests = [r for r in results if r.ingest]
    overview = [("Files written, side by side", _side_by_side(ingests))] if len(ingests) > 1 else []
    if len(results) > 1:
        overview.insert(0, ("All jobs", _all_jobs(results)))
    return Report(title=title, sections=tuple(map(_section, results)), overview=tuple(overview))


def _section(result: JobResult) -> Section:
    frames: list[tuple[str, Frame]] = []
    if result.impact:
        frames += _impact(result.impact)
    elif result.stats:
        frames.append(("Before and after", _stats(result.stats)))
    if result.ingest:
        frames.append(("What was written", _side_by_side([result])))
    if len(result.steps) > 1:
        frames.append(("Steps", _steps(result.steps)))
    notes = [*result.warnings]
    if result.error:
        notes.insert(0, f"{result.error['code']}: {result.error['message']}")
    at = result.started_at_ms
    when = "" if at is None else f", {datetime.fromtimestamp(at / 1000, UTC):%Y-%m-%d %H:%M} UTC"
    return Section(
        title=f"{result.table} ({result.job}{when})",
        line=_line(result),
        failed=result.failed,
        frames=tuple(frames),
        notes=tuple(notes),
    )


def _line(result: JobResult) -> str:
    table, status = result.table, result.status
    if result.error:
        return f"{table}: {status}, {result.error['code']}"
    stats, ingest = result.stats, result.ingest
    if ingest:
        return f"{table}: {count_text(ingest['rows'])} rows in {count_text(ingest['files'])} files"
    if not stats:
        return f"{table}: {status} ({result.reason})"
    before, after = stats["files_before"], stats["files_after"]
    less = f", {1 - after / before:.0%} fewer" if before and after < before else ""
    timed = (result.impact or {}).get("query")
    faster = f", query {_speed(timed)}" if timed else ""
    return f"{table}: {status}, {count_text(before)} -> {count_text(after)} files{less}{faster}"


def _speed(timed: Answer) -> str:
    before, after = timed["before_seconds"], timed["after_seconds"]
    if abs(before - after) <= timed["noise_seconds"] or not after:
        return "as fast as before, within the noise"
    return f"{before / after:.1f} times as fast"


def _impact(impact: Answer) -> Iterator[tuple[str, Frame]]:
    before, after = impact["files"]["before"], impact["files"]["after"]
    rows = [
        ("data files", count_text(before["files"]), count_text(after["files"]), _change(before, after, "files")),
        *(
            (label, size_text(before[key]), size_text(after[key]), _change(before, after, key))
            for label, key in (
                ("average file", "average_bytes"),
                ("smallest file", "min_bytes"),
                ("largest file", "max_bytes"),
                ("all data files", "size_bytes"),
            )
        ),
        ("partitions", count_text(before["partitions"]), count_text(after["partitions"]), ""),
        ("rows in data files", count_text(before["rows"]), count_text(after["rows"]), ""),
    ]
    timed = impact.get("query")
    if timed:
        shown = (seconds_text(timed["before_seconds"]), seconds_text(timed["after_seconds"]))
        rows.append(("query, median", *shown, _speed(timed)))
    yield "Before and after", Frame(columns=("", "before", "after", ""), rows=tuple(rows), right=frozenset({1, 2}))
    checks = [(c["name"], _MARKS.get(c["verdict"], c["verdict"]), c["detail"]) for c in impact["checks"]]
    yield "Validation", Frame(columns=("check", "verdict", "what was seen"), rows=tuple(checks))
    if after["partitions"] > 1:
        yield "By partition", _partitions(before["by_partition"], after["by_partition"])


def _partitions(before: Sequence[Answer], after: Sequence[Answer]) -> Frame:
    ill = {p["partition"]: p for p in before}
    rows = []
    for p in after[:MOST_PARTITIONS]:
        old = ill.get(p["partition"], {"files": 0, "average_bytes": 0})
        counts = (count_text(old["files"]), count_text(p["files"]))
        sizes = (size_text(old["average_bytes"]), size_text(p["average_bytes"]))
        rows.append((p["partition"], *counts, *sizes, count_text(p["rows"])))
    names = ("partition", "files before", "after", "average before", "after", "rows")
    return Frame(columns=names, rows=tuple(rows), right=frozenset(range(1, 6)))


def _change(before: Answer, after: Answer, key: str) -> str:
    old, new = before[key], after[key]
    return "" if not old or old == new else f"{(new - old) / old:+.1%}"


def _stats(stats: Answer) -> Frame:
    rows = [
        ("data files", count_text(stats["files_before"]), count_text(stats["files_after"])),
        ("size", size_text(stats["bytes_before"]), size_text(stats["bytes_after"])),
        ("manifests", count_text(stats["manifests_before"]), count_text(stats["manifests_after"])),
        ("rewritten", count_text(stats["files_compacted"]), count_text(stats["files_added"])),
    ]
    return Frame(columns=("", "before", "after"), rows=tuple(rows), right=frozenset({1, 2}))


def _steps(steps: Sequence[StepLine]) -> Frame:
    rows = [(s.step, s.status, s.reason or "", seconds_text(s.seconds)) for s in steps]
    return Frame(columns=("step", "status", "why", "took"), rows=tuple(rows), right=frozenset({3}))


def _all_jobs(results: Sequence[JobResult]) -> Frame:
    rows = [(result.table, result.job, result.status, _line(result)) for result in results]
    return Frame(columns=("table", "job", "status", "in short"), rows=tuple(rows))


def _side_by_side(ingests: Sequence[JobResult]) -> Frame:
    rows = []
    for result in ingests:
        found = result.ingest or {}
        counts = (count_text(found[name]) for name in ("commits", "rows", "files"))
        average = found["size_bytes"] / found["files"] if found["files"] else 0
        written = "optimized write" if found["optimized_write"] else "as each task has it"
        rows.append((result.table, found["mode"], written, *counts, size_text(average)))
    names = ("table", "mode", "written", "commits", "rows", "files", "average file")
    return Frame(columns=names, rows=tuple(rows), right=frozenset({3, 4, 5, 6}))
