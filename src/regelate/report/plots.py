"""Pictures of answers. The one module that imports matplotlib, and only when a picture is drawn."""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from regelate.core.policy.sizes import size_text
from regelate.report.frames import Answer, occupied, plural, size_range

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BEFORE_COLOUR, AFTER_COLOUR, TEXT_COLOUR, FAINT_COLOUR = "#c8553d", "#2a6f97", "#222222", "#777777"
_INCHES = (13.0, 5.4)
_DOTS_PER_INCH = 140
_BAR = 0.38
_NUMBERS: Mapping[str, Any] = {
    "padding": 4,
    "fontsize": 11,
    "bbox": {"facecolor": "white", "edgecolor": "none", "pad": 0.5},
}
"""Numbers above bars, readable where they cross a line of the grid."""
_MOST_PARTITIONS = 10
_HEADROOM = 1.14
"""Room above the tallest bar for its number, as a factor of the axis."""


def can_draw() -> bool:
    """Say whether matplotlib is installed (the extra `report`), without importing it."""
    return importlib.util.find_spec("matplotlib") is not None


def before_after(
    *, title: str, subtitle: str, health: tuple[Answer, Answer], query_ms: Mapping[str, tuple[float, float]]
) -> Figure:
    """Return a picture of one table before and after a compaction: files, sizes of files, time of queries.

    `health`: the TABLE_HEALTH answers before and after; `query_ms`: milliseconds before and after, by query.
    """
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with rc_context({"font.size": 11.5, "text.color": TEXT_COLOUR, "axes.labelcolor": TEXT_COLOUR}):
        figure = Figure(figsize=_INCHES, dpi=_DOTS_PER_INCH, facecolor="white")
        FigureCanvasAgg(figure)
        files, sizes, times = figure.subplots(1, 3, width_ratios=[0.8, 1.15, 1.35])
        _draw_files(files, health)
        _draw_sizes(sizes, health)
        _draw_times(times, query_ms)
        figure.suptitle(title, x=0.02, y=0.97, ha="left", fontsize=17, fontweight="bold")
        figure.text(0.02, 0.875, subtitle, ha="left", va="center", fontsize=11.5, color=FAINT_COLOUR)
        figure.subplots_adjust(left=0.045, right=0.985, top=0.74, bottom=0.13, wspace=0.22)
    return figure


def impact(*, title: str, subtitle: str, impact: Answer) -> Figure:
    """Return a picture of the `impact` of one job's result: files, files by partition, time of the query."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    sides = (impact["files"]["before"], impact["files"]["after"])
    with rc_context({"font.size": 11.5, "text.color": TEXT_COLOUR, "axes.labelcolor": TEXT_COLOUR}):
        figure = Figure(figsize=_INCHES, dpi=_DOTS_PER_INCH, facecolor="white")
        FigureCanvasAgg(figure)
        timed = impact.get("query")
        drawn = figure.subplots(1, 3 if timed else 2, width_ratios=[1.0, 1.9, 0.8] if timed else [0.9, 2.0])
        _draw_files(drawn[0], sides)
        _draw_partitions(drawn[1], sides)
        if timed:
            _draw_query(drawn[2], timed)
        figure.suptitle(title, x=0.02, y=0.97, ha="left", fontsize=17, fontweight="bold")
        figure.text(0.02, 0.875, subtitle, ha="left", va="center", fontsize=11.5, color=FAINT_COLOUR)
        figure.subplots_adjust(left=0.045, right=0.985, top=0.74, bottom=0.13, wspace=0.22)
    return figure


def of_result(result: Answer) -> bytes:
    """Return the picture of a job's result as PNG; nothing where nothing was measured, or nothing can draw."""
    measured = result.get("impact")
    if not measured or not can_draw() or not measured["files"]["before"]["files"]:
        return b""
    before, after = (measured["files"][side] for side in ("before", "after"))
    rows = f"{before['rows']:,} rows in {plural(after['partitions'], 'partition')}"
    timed = measured.get("query")
    figure = impact(
        title=f"{result['table']}: {before['files']:,} data files became {after['files']:,}",
        subtitle=rows + (f". Query: median of {timed['runs']}, whiskers show the noise." if timed else "."),
        impact=measured,
    )
    target = io.BytesIO()
    figure.savefig(target, format="png")
    return target.getvalue()


def _draw_partitions(axes: Axes, sides: tuple[Answer, Answer]) -> None:
    """Draw the files of the partitions that had most before."""
    ill, well = ({p["partition"]: p["files"] for p in side["by_partition"]} for side in sides)
    names = sorted(ill.keys() | well.keys(), key=lambda name: (-ill.get(name, 0), name))[:_MOST_PARTITIONS]
    for index, (counts, colour, label) in enumerate(
        ((ill, BEFORE_COLOUR, "before"), (well, AFTER_COLOUR, "after")),
    ):
        places = [position + (index - 0.5) * _BAR for position in range(len(names))]
        values = [counts.get(name, 0) for name in names]
        bars = axes.bar(places, values, width=_BAR, color=colour, label=label)
        axes.bar_label(bars, [f"{value:,}" if value else "" for value in values], **_NUMBERS)
    shown = [name.rpartition("=")[2] or "(whole table)" for name in names]
    axes.set_xticks(range(len(names)), [name if len(name) <= 12 else f"{name[:11]}…" for name in shown])
    axes.legend(frameon=False, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2)
    more = "" if len(names) == len(ill.keys() | well.keys()) else f", the {len(names)} with most"
    _finish(axes, f"Data files by partition{more}")


def _draw_query(axes: Axes, timed: Answer) -> None:
    """Draw the medians, with the noise that was measured as a whisker."""
    values = [timed["before_seconds"] * 1000, timed["after_seconds"] * 1000]
    noise = timed["noise_seconds"] * 1000
    whiskers = [[min(value, noise) for value in values], [noise, noise]]
    names = ("before", "after")
    axes.bar(names, values, width=0.62, color=[BEFORE_COLOUR, AFTER_COLOUR])
    axes.errorbar(range(2), values, yerr=whiskers, fmt="none", ecolor=FAINT_COLOUR, capsize=6)
    axes.set_xticks(range(2), [f"{name}\n{value:,.0f} ms" for name, value in zip(names, values, strict=True)])
    _finish(axes, "Query, and its noise")


def _draw_files(axes: Axes, health: tuple[Answer, Answer]) -> None:
    counts = [answer["files"] for answer in health]
    bars = axes.bar(["before", "after"], counts, width=0.62, color=[BEFORE_COLOUR, AFTER_COLOUR])
    average = [size_text(a["size_bytes"] / a["files"]) if a["files"] else "-" for a in health]
    labels = [f"{count:,}\nof {size}" for count, size in zip(counts, average, strict=True)]
    _finish(axes, "Data files, and their average size", bars, labels)


def _draw_sizes(axes: Axes, health: tuple[Answer, Answer]) -> None:
    """Draw the share of the table's files in each bucket as counts: an empty place has no bar."""
    histograms = [answer["size_histogram"] for answer in health]
    shown = occupied(histograms)
    for histogram, colour, shift, label in zip(
        histograms, (BEFORE_COLOUR, AFTER_COLOUR), (-_BAR / 2, _BAR / 2), ("before", "after"), strict=True
    ):
        counts = [histogram[i]["files"] for i in shown]
        places = [position + shift for position in range(len(shown))]
        bars = axes.bar(places, counts, width=_BAR, color=colour, label=label)
        axes.bar_label(bars, [f"{count:,}" if count else "" for count in counts], **_NUMBERS)
    names = [size_range(histograms[0][i]).replace(" - ", " -\n").replace("under ", "under\n") for i in shown]
    axes.set_xticks(range(len(shown)), names)
    axes.legend(frameon=False, loc="upper right")
    _finish(axes, "Data files by size")


def _draw_times(axes: Axes, query_ms: Mapping[str, tuple[float, float]]) -> None:
    for index, (colour, label) in enumerate(((BEFORE_COLOUR, "before"), (AFTER_COLOUR, "after"))):
        places = [position + (index - 0.5) * _BAR for position in range(len(query_ms))]
        values = [pair[index] for pair in query_ms.values()]
        bars = axes.bar(places, values, width=_BAR, color=colour, label=label)
        axes.bar_label(bars, [f"{value:,.0f}" for value in values], **_NUMBERS)
    axes.set_xticks(range(len(query_ms)), [_in_two_lines(name) for name in query_ms])
    _finish(axes, "Query time in milliseconds")


def _in_two_lines(name: str) -> str:
    """Break a name at the space nearest to its middle."""
    spaces = [i for i, character in enumerate(name) if character == " "]
    if not spaces:
        return name
    middle = min(spaces, key=lambda i: abs(2 * i - len(name)))
    return f"{name[:middle]}\n{name[middle + 1 :]}"


def _finish(axes: Axes, title: str, bars: Any = None, labels: Sequence[str] = ()) -> None:
    """Name the panel; axes start at zero and leave room for the numbers above the bars."""
    if bars is not None:
        axes.bar_label(bars, labels, **_NUMBERS)
    axes.set_title(title, loc="left", fontsize=12.5, pad=12)
    axes.set_ylim(bottom=0, top=axes.get_ylim()[1] * _HEADROOM)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="x", length=0)
    axes.tick_params(axis="y", length=0, labelcolor=FAINT_COLOUR)
    axes.grid(axis="y", color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)
