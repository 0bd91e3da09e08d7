"""The impact of a job as a person reads it at the end of a run."""

from __future__ import annotations

from collections.abc import Iterator

from regelate.core.measures.impact import Check, PartitionFiles, QueryRuns, Verdict, noise_seconds
from regelate.core.policy.sizes import size_text
from regelate.core.running.stats import CompactionStats
from regelate.pipeline.proof import Impact
from regelate.pipeline.terminal import Terminal

MOST_PARTITIONS = 15
_MARKS = {Verdict.PASSED: "passed", Verdict.FAILED: "FAILED", Verdict.NOT_APPLICABLE: "  -   "}


def tell_impact(impact: Impact, stats: CompactionStats | None, terminal: Terminal) -> None:
    """Say what changed, in five points, partition by partition, and what the validations came to."""
    terminal.say("")
    terminal.say("COMPACTION IMPACT SUMMARY")
    for line in _points(impact, stats):
        terminal.say(line)
    before, after = (metrics.partitions for metrics in impact.files)
    if len(after) > 1:
        _tell_partitions(before, after, terminal)
    terminal.say("Validation:")
    for check in impact.checks:
        terminal.say(f"  {_line(check)}")


def _line(check: Check) -> str:
    return f"[{_MARKS[check.verdict]}] {check.name}: {check.detail}"


def _points(impact: Impact, stats: CompactionStats | None) -> Iterator[str]:
    before, after = (metrics.whole for metrics in impact.files)
    yield f"1. File count: {before.files:,} -> {after.files:,} ({_change(before.files, after.files)})"
    size = f"{size_text(before.average_bytes)} -> {size_text(after.average_bytes)}"
    target = "" if impact.target_file_size_bytes is None else f"; target {size_text(impact.target_file_size_bytes)}"
    yield f"2. Average file size: {size} ({_change(before.average_bytes, after.average_bytes)}){target}"
    total = f"{size_text(before.size_bytes)} -> {size_text(after.size_bytes)}"
    yield f"3. Storage of the data files: {total} ({_change(before.size_bytes, after.size_bytes)})"
    yield f"4. Query time: {'no query was given (--query)' if impact.queries is None else _times(*impact.queries)}"
    if stats is None:
        yield "5. Compaction: nothing was rewritten"
    else:
        rewritten = f"{stats.files_compacted:,} files -> {stats.files_added:,}"
        yield f"5. Compaction: {stats.seconds.total:.1f} s, {rewritten}, {stats.rows:,} rows"


def _times(before: QueryRuns, after: QueryRuns) -> str:
    a, b, noise = before.median_seconds, after.median_seconds, noise_seconds(before, after)
    verdict = f"{a / b:.2f} times as fast" if abs(a - b) > noise and b > 0 else "no difference beyond the noise"
    return f"{a:.3f} s -> {b:.3f} s, median of {len(before.seconds)}, noise {noise:.3f} s: {verdict}"


def _change(before: float, after: float) -> str:
    return "as before" if not before or before == after else f"{(after - before) / before:+.1%}"


def _tell_partitions(before: tuple[PartitionFiles, ...], after: tuple[PartitionFiles, ...], terminal: Terminal) -> None:
    ill = {p.path: p for p in before}
    empty = PartitionFiles(path="", files=0, size_bytes=0, min_bytes=0, max_bytes=0, rows=0)
    rows = [
        (
            p.path,
            f"{ill.get(p.path, empty).files:,} -> {p.files:,}",
            f"{size_text(ill.get(p.path, empty).average_bytes)} -> {size_text(p.average_bytes)}",
            f"{p.rows:,}",
        )
        for p in after[:MOST_PARTITIONS]
    ]
    terminal.show(("partition", "files", "average size", "rows"), rows)
    if len(after) > MOST_PARTITIONS:
        terminal.say(f"  and {len(after) - MOST_PARTITIONS} more partitions")
