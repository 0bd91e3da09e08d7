"""Pictures of a run: all arms on the same axes, and each arm by itself with the same limits."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from regelate.report.plots import FAINT_COLOUR, TEXT_COLOUR
from studies.small_files.logbook import Measured
from studies.small_files.results import ArmResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WRITE_COLOUR, QUERY_COLOUR = "#c8553d", "#2a6f97"
_DOTS_PER_INCH = 110
_ROOM = 1.06
Value = Callable[[Measured], float]


def files(one: Measured) -> float:
    return one.data_files


def write_seconds(one: Measured) -> float:
    return one.merge_seconds + one.compaction_seconds


def query_seconds(one: Measured) -> float:
    return one.query_seconds


def all_arms(results: Sequence[ArmResult], title: str) -> bytes:
    """Return a PNG with the lines of every arm: files, seconds of MERGE and compaction, seconds of the query."""
    values: tuple[tuple[str, Value], ...] = (
        ("Data files", files),
        ("MERGE and compaction, seconds", write_seconds),
        ("Query, seconds", query_seconds),
    )

    def draw(figure: Figure) -> None:
        for axes, (name, value) in zip(figure.subplots(1, 3), values, strict=True):
            for result in results:
                _line(axes, result, value, result.arm.colour, result.arm.title)
            _finish(axes, name, _most(results, value))
        lines, names = figure.axes[0].get_legend_handles_labels()
        figure.legend(lines, names, loc="lower center", ncols=len(results), frameon=False, fontsize=10)
        figure.subplots_adjust(left=0.045, right=0.985, top=0.8, bottom=0.2, wspace=0.16)

    return _png(draw, title, (15.0, 5.2))


def one_arm(result: ArmResult, results: Sequence[ArmResult]) -> bytes:
    """Return a PNG of one arm, with the limits that all arms need: what is small there is small here."""

    def draw(figure: Figure) -> None:
        left, right = figure.subplots(1, 2)
        _line(left, result, files, result.arm.colour, "")
        _finish(left, "Data files", _most(results, files))
        _line(right, result, write_seconds, WRITE_COLOUR, "MERGE and compaction")
        _line(right, result, query_seconds, QUERY_COLOUR, "query")
        _finish(right, "Seconds", max(_most(results, write_seconds), _most(results, query_seconds)))
        right.legend(frameon=False, loc="upper left", fontsize=10)
        figure.subplots_adjust(left=0.06, right=0.985, top=0.8, bottom=0.13, wspace=0.14)

    return _png(draw, result.arm.title, (12.0, 4.0))


def _png(draw: Callable[[Figure], None], title: str, inches: tuple[float, float]) -> bytes:
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with rc_context({"font.size": 11, "text.color": TEXT_COLOUR, "axes.labelcolor": TEXT_COLOUR}):
        figure = Figure(figsize=inches, dpi=_DOTS_PER_INCH, facecolor="white")
        FigureCanvasAgg(figure)
        draw(figure)
        figure.suptitle(title, x=0.02, y=0.97, ha="left", fontsize=15, fontweight="bold")
        target = io.BytesIO()
        figure.savefig(target, format="png")
    return target.getvalue()


def _line(axes: Axes, result: ArmResult, value: Value, colour: str, label: str) -> None:
    iterations = [one.iteration for one in result.measured]
    axes.plot(iterations, [value(one) for one in result.measured], color=colour, linewidth=1.4, label=label)


def _most(results: Sequence[ArmResult], value: Value) -> float:
    return max(value(one) for result in results for one in result.measured)


def _finish(axes: Axes, title: str, most: float) -> None:
    axes.set_title(title, loc="left", fontsize=12)
    axes.set_xlabel("iteration", color=FAINT_COLOUR, fontsize=10)
    axes.set_ylim(bottom=0, top=most * _ROOM)
    axes.set_xlim(left=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(length=0, labelcolor=FAINT_COLOUR)
    axes.grid(axis="y", color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)
