"""A run as Markdown, as one HTML page and as pictures; where it is kept, and what docs/study.md shows of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from regelate.core.policy.sizes import size_text
from regelate.report import documents
from regelate.report.frames import Frame, count_text, plural
from regelate.report.jobs import Report, Section
from studies.small_files.arms import Arm
from studies.small_files.charts import all_arms, one_arm
from studies.small_files.logbook import Logbook
from studies.small_files.results import SLOPE_FROM, ArmResult, Clock, promises, result_of, slope_text

WHOLE = 200
"""The iterations of the whole study; what has fewer says so."""
ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
OPENING, CLOSING = "<!-- figures of make study -->", "<!-- end of the figures -->"
PAGE = "study.html"
_TITLE = "Small merges, and what keeps a table"


def results_of(log: Logbook, arms: Sequence[Arm], iterations: int) -> list[ArmResult]:
    """Sum up the first so many iterations of the arms that have any."""
    return [result_of(arm, log.of(arm.key)[:iterations]) for arm in arms if log.of(arm.key)]


def write(log: Logbook, results: Sequence[ArmResult], folder: Path) -> Report:
    """Write study.md, study.html and the pictures into a folder, and return what they say."""
    report = report_of(log, results)
    drawn = pictures(results)
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in drawn.items():
        (folder / name).write_bytes(data)
    (folder / "study.md").write_text(documents.markdown(report, list(drawn)))
    (folder / PAGE).write_text(documents.page(report, list(drawn.values())))
    return report


def publish(log: Logbook, results: Sequence[ArmResult], docs: Path = DOCS) -> None:
    """Put the figures into docs/study.md, between the marks that stand in it, and the pictures into docs/images."""
    drawn = pictures(results)
    for name, data in drawn.items():
        (docs / "images" / name).write_bytes(data)
    page = docs / "study.md"
    before, opened, rest = page.read_text().partition(OPENING)
    _, closed, after = rest.partition(CLOSING)
    if not opened or not closed:
        raise SystemExit(f"{page} has no place for the figures")
    _, _, told = documents.markdown(report_of(log, results), [f"images/{name}" for name in drawn]).partition("\n\n")
    page.write_text(f"{before}{OPENING}\n\n{told}\n{CLOSING}{after}")


def pictures(results: Sequence[ArmResult]) -> dict[str, bytes]:
    """Return the PNG of every section by its file name, in their order."""
    every = max(len(result.measured) for result in results)
    drawn = {"study.png": all_arms(results, f"{_TITLE}: {every} iterations")}
    return drawn | {f"study-{result.arm.key.replace('_', '-')}.png": one_arm(result, results) for result in results}


def report_of(log: Logbook, results: Sequence[ArmResult]) -> Report:
    """Return what a run says: the arms side by side, what was promised of them, and each of them."""
    kept = promised_frame(results)
    together = Section(
        title="All arms",
        line=_run_line(log, results),
        failed=False,
        frames=(
            *((f"Time, seconds {clock.value}", results_frame(results, clock)) for clock in Clock),
            ("Written", written_frame(results)),
            *((f"Growth, seconds {clock.value}", growth_frame(results, clock)) for clock in Clock),
            *([("Promised", kept)] if kept.rows else []),
        ),
        notes=(_machine_line(log, results), *_short_of_whole(results)),
    )
    return Report(title=_TITLE, sections=(together, *map(_arm_section, results)))


def results_frame(results: Sequence[ArmResult], clock: Clock) -> Frame:
    """Return the arms side by side by one clock: time, and how steady they are (SD: standard deviation)."""
    columns = ("arm", "total minutes", "SD of file count", "SD of MERGE + compaction, s", "SD of query, s")
    rows = [
        (
            result.arm.title,
            f"{result.times[clock].minutes:.2f}",
            f"{result.files_deviation:.1f}",
            f"{result.times[clock].write_deviation:.2f}",
            f"{result.times[clock].query_deviation:.2f}",
        )
        for result in results
    ]
    return Frame(columns=columns, rows=tuple(rows), right=frozenset({1, 2, 3, 4}))


def written_frame(results: Sequence[ArmResult]) -> Frame:
    """Return what each arm wrote, and what is left of it."""
    columns = ("arm", "files at the end", "compactions", "written", "write amplification")
    rows = [
        (
            result.arm.title,
            count_text(result.measured[-1].data_files),
            count_text(result.compactions),
            size_text(result.bytes_written),
            f"{result.amplification:.2f}",
        )
        for result in results
    ]
    return Frame(columns=columns, rows=tuple(rows), right=frozenset({1, 2, 3, 4}))


def growth_frame(results: Sequence[ArmResult], clock: Clock) -> Frame:
    """Return by how much each iteration takes longer than the one before, with the interval of 95 %."""
    columns = ("arm, per iteration (95 %)", "MERGE", "MERGE + compaction", "query")
    rows = [
        (result.arm.title, *(slope_text(one) for one in (times.merge_slope, times.write_slope, times.query_slope)))
        for result in results
        for times in [result.times[clock]]
    ]
    return Frame(columns=columns, rows=tuple(rows), right=frozenset({1, 2, 3}))


def promised_frame(results: Sequence[ArmResult]) -> Frame:
    """Return what was promised of the arms, and what came out."""
    rows = [(p.name, p.limit, p.found, "met" if p.met else "NOT MET") for p in promises(results)]
    return Frame(columns=("what", "promised", "is", "verdict"), rows=tuple(rows))


def _run_line(log: Logbook, results: Sequence[ArmResult]) -> str:
    work = log.workload
    mode = "merge-on-read" if work.merge_on_read else "copy-on-write"
    counts = sorted({len(result.measured) for result in results})
    told = " to ".join(str(count) for count in dict.fromkeys((counts[0], counts[-1])))
    return (
        f"{told} iterations of {work.rows:,} rows, {work.tasks} write tasks, {mode}; compaction by {work.engine}; "
        f"slopes from the last {1 - SLOPE_FROM:.0%} of the iterations."
    )


def _machine_line(log: Logbook, results: Sequence[ArmResult]) -> str:
    first, last = log.sessions[0], log.sessions[-1]
    dates = " to ".join(dict.fromkeys((first.began[:10], last.began[:10])))
    told = ", ".join(f"{name} {value}" for name, value in last.machine.items())
    loads = sorted(one.load for result in results for one in result.measured)
    busy = f"load while it ran: median {loads[len(loads) // 2]:.1f}, most {loads[-1]:.1f}"
    return f"{dates}, {told}; {busy}."


def _short_of_whole(results: Sequence[ArmResult]) -> tuple[str, ...]:
    count = min(len(result.measured) for result in results)
    return (f"This is a run of {count} iterations; the whole study has {WHOLE}.",) if count < WHOLE else ()


def _arm_section(result: ArmResult) -> Section:
    last, most = result.measured[-1], max(one.files_after_merge for one in result.measured)
    counted = (
        (last.row_groups, "row group"),
        (last.delete_files, "delete file"),
        (last.manifests, "manifest"),
        (last.snapshots, "snapshot"),
        (result.compactions, "compaction"),
    )
    others = ", ".join(plural(count, noun) for count, noun in counted)
    line = f"{plural(last.data_files, 'data file')} at the end, {most:,} at most; {others}."
    return Section(title=result.arm.title, line=line, failed=False, frames=())
