"""Pictures of a fleet as SVG that a page holds in itself: backlog over time, predicted against actual, bars."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from statistics import median

from regelate.core.fleet.operation import FleetOperation
from regelate.core.planning.health import PointsLost
from regelate.core.policy.sizes import size_text
from regelate.core.table.time_ranges import DAY_MS
from regelate.report.fleet.contents import BacklogPoint, RunLine
from regelate.report.fleet.texts import dollars_text, escaped, short_count, time_text

WIDTH, HEIGHT = 640, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 68, 16, 14, 32
_NEAR = 0.3
"""A prediction is called near within so much of what was paid."""
_TICKS = 4


def backlog_chart(points: Sequence[BacklogPoint]) -> str:
    """Return the files that are left to rewrite, over time; a text where two looks are not there yet."""
    found = sorted(points, key=lambda point: point.at_ms)
    if len(found) < 2 or found[0].at_ms == found[-1].at_ms:
        return '<p class="empty">Not two looks at the fleet yet: a backlog over time needs them.</p>'
    top = _ceiling(max(point.files for point in found))
    first, span = found[0].at_ms, found[-1].at_ms - found[0].at_ms
    places = [(_across((point.at_ms - first) / span), _up(point.files / top)) for point in found]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    floor = _up(0)
    area = f"{_across(0):.1f},{floor:.1f} {line} {_across(1):.1f},{floor:.1f}"
    said = f"Files to rewrite: {found[0].files:,} at first, {found[-1].files:,} now"
    parts = [
        *_grid([(share * top, share) for share in (n / _TICKS for n in range(_TICKS + 1))], short_count),
        *_days(first, span),
        f'<polygon class="area" points="{area}"/><polyline class="line" points="{line}"/>',
        *_hovers(found, places),
        '<circle class="dot last" cx="{:.1f}" cy="{:.1f}" r="4"/>'.format(*places[-1]),
    ]
    return _svg(said, parts)


def _hovers(points: Sequence[BacklogPoint], places: Sequence[tuple[float, float]]) -> Iterator[str]:
    """Yield a column to point at for each look, which tells what it saw."""
    edges = [places[0][0], *((a + b) / 2 for (a, _), (b, _) in pairwise(places)), places[-1][0]]
    for point, (x, y), (left, right) in zip(points, places, pairwise(edges), strict=True):
        said = (
            f"{time_text(point.at_ms)}: {point.files:,} files, {size_text(point.size_bytes)}, {point.tables:,} tables"
        )
        yield (
            f'<g class="hover"><rect x="{left:.1f}" y="{_TOP}" width="{right - left:.1f}" '
            f'height="{HEIGHT - _TOP - _BOTTOM}"/><line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{_up(0):.1f}"/>'
            f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="4"/><title>{said}</title></g>'
        )


def _days(first: int, span: int) -> Iterator[str]:
    pattern = "%H:%M" if span <= 2 * DAY_MS else "%d %b"
    for n in range(_TICKS + 1):
        share = n / _TICKS
        anchor = "start" if n == 0 else "end" if n == _TICKS else "middle"
        text = time_text(first + int(share * span), pattern)
        yield f'<text class="tick" x="{_across(share):.1f}" y="{HEIGHT - 10}" text-anchor="{anchor}">{text}</text>'


def priced(runs: Sequence[RunLine]) -> list[tuple[RunLine, float, float]]:
    """Return the runs of which both prices are known, with the predicted and the actual one."""
    return [
        (run, run.predicted_dollars, run.actual_dollars)
        for run in runs
        if run.predicted_dollars and run.actual_dollars and run.predicted_dollars > 0 and run.actual_dollars > 0
    ]


def median_error(runs: Sequence[RunLine]) -> float | None:
    """Return the median absolute error of the predictions, as a share of what was paid."""
    errors = [abs(predicted - actual) / actual for _, predicted, actual in priced(runs)]
    return median(errors) if errors else None


def prediction_chart(runs: Sequence[RunLine]) -> str:
    """Return predicted against actual dollars of each run on two logarithmic scales; the band is what is near."""
    found = priced(runs)
    if not found:
        return '<p class="empty">No run yet of which both the predicted and the actual price are known.</p>'
    both = [price for _, predicted, actual in found for price in (predicted, actual)]
    low, high = math.floor(math.log10(min(both))), math.ceil(math.log10(max(both)))
    high = max(high, low + 1)

    def share(price: float) -> float:
        return (math.log10(price) - low) / (high - low)

    powers = [(10.0**power, (power - low) / (high - low)) for power in range(low, high + 1)]
    step = -(-len(powers) // 7)
    parts = [*_grid(powers[::step], _power_text)]
    for price, at in powers[::step]:
        anchor = "end" if at == 1 else "middle"
        text = f'<text class="tick" x="{_across(at):.1f}" y="{HEIGHT - 10}" text-anchor="{anchor}">'
        parts.append(f"{text}{_power_text(price)}</text>")
    edge = math.log10(1 + _NEAR) / (high - low)
    parts.append(
        f'<clipPath id="plot"><rect x="{_LEFT}" y="{_TOP}" width="{WIDTH - _LEFT - _RIGHT}" '
        f'height="{HEIGHT - _TOP - _BOTTOM}"/></clipPath><g clip-path="url(#plot)">'
        f'<polygon class="band" points="{_across(0)},{_up(-edge):.1f} {_across(0)},{_up(edge):.1f} '
        f'{_across(1)},{_up(1 + edge):.1f} {_across(1)},{_up(1 - edge):.1f}"/>'
        f'<line class="even" x1="{_across(0)}" y1="{_up(0)}" x2="{_across(1)}" y2="{_up(1)}"/></g>'
    )
    for run, predicted, actual in found:
        said = f"{run.table}, {run.operation.value}: {dollars_text(predicted)} predicted, {dollars_text(actual)} paid"
        x, y = _across(share(predicted)), _up(share(actual))
        kind = list(FleetOperation).index(run.operation)
        parts.append(
            f'<circle class="run kind{kind}" cx="{x:.1f}" cy="{y:.1f}" r="3.5"><title>{escaped(said)}</title></circle>'
        )
    return _svg(f"{len(found):,} runs: dollars predicted (across) against dollars paid (up)", parts)


def health_bar(lost: PointsLost | None) -> str:
    """Return the points that a table kept of 100, and those that it lost to files, deletes and metadata."""
    if lost is None:
        return '<svg class="bar" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true"></svg>'
    kept = max(100.0 - lost.total, 0.0)
    parts, at = [f'<rect class="kept" width="{kept:.1f}" height="8"/>'], kept
    for name, points in (("files", lost.files), ("deletes", lost.deletes), ("metadata", lost.metadata)):
        parts.append(f'<rect class="lost-{name}" x="{at:.1f}" width="{points:.1f}" height="8"/>' if points else "")
        at += points
    return f'<svg class="bar" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">{"".join(parts)}</svg>'


def budget_bar(spent: float, budget: float | None) -> str:
    """Return what was spent of a budget; what nearly used it up is marked."""
    if budget is None:
        return '<svg class="bar open" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true"></svg>'
    used = 1.0 if budget == 0 else spent / budget
    level = "full" if used >= 1 else "near" if used >= 0.9 else "within"
    return (
        '<svg class="bar" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="spent {level}" width="{min(used, 1) * 100:.1f}" height="8"/></svg>'
    )


def _across(share: float) -> float:
    return _LEFT + share * (WIDTH - _LEFT - _RIGHT)


def _up(share: float) -> float:
    return HEIGHT - _BOTTOM - share * (HEIGHT - _TOP - _BOTTOM)


def _power_text(price: float) -> str:
    return f"${price:,.0f}" if price >= 1 else f"${price:.6f}".rstrip("0")


def _grid(ticks: Sequence[tuple[float, float]], told: Callable[[float], str]) -> Iterator[str]:
    for value, share in ticks:
        y = _up(share)
        yield f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text class="tick" x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{told(value)}</text>'


def _ceiling(value: float) -> float:
    """Return the next number of which a fourth can be read: 1, 2, 4, 6, 8 or 10 times a power of ten."""
    if value <= _TICKS:
        return float(_TICKS)
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 4, 6, 8, 10) if step * power >= value)


def _svg(said: str, parts: Sequence[str]) -> str:
    head = f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escaped(said)}">'
    return f"{head}{''.join(parts)}</svg>"
