"""A fleet as one HTML page that needs nothing else: no server, no network, no font of elsewhere. Pure.

What is foreign in it (names of tables, sentences, who asked) reaches the page as escaped text or inside a block of
JSON; the page's own policy lets no script run but the one that it was made with.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from importlib.resources import files

from regelate.core.fleet.operation import FleetOperation, FleetOutcome, FleetStatus
from regelate.report.fleet.charts import (
    backlog_chart,
    budget_bar,
    health_bar,
    median_error,
    prediction_chart,
    priced,
)
from regelate.report.fleet.contents import FleetContents, RunLine, SpendLine, TableLine
from regelate.report.fleet.texts import dollars_text, escaped, plain, short_count, time_text

MOST_RUNS = 2_000
"""The latest ones; the store has the others."""
MOST_ILL = 10
MOST_TENANTS = 12
_ORDER = (
    FleetStatus.FAILED,
    FleetStatus.PAUSED,
    FleetStatus.RUNNING,
    FleetStatus.QUEUED,
    FleetStatus.DUE,
    FleetStatus.OVER_BUDGET,
    FleetStatus.COOLING,
    FleetStatus.NOT_YET_OBSERVED,
    FleetStatus.DISABLED,
    FleetStatus.HEALTHY,
)
"""What needs somebody comes first."""
_OUTCOMES = (
    FleetOutcome.FAILED,
    FleetOutcome.PARTIAL,
    FleetOutcome.NO_EFFECT,
    FleetOutcome.CANCELLED,
    FleetOutcome.DONE,
)
_WORKING = (FleetStatus.DUE, FleetStatus.QUEUED, FleetStatus.RUNNING)
_LEGEND = (
    '<ul class="legend"><li><i class="swatch-kept"></i>kept</li>'
    '<li><i class="swatch-files"></i>lost to small files</li>'
    '<li><i class="swatch-deletes"></i>to deletes</li><li><i class="swatch-metadata"></i>to metadata</li></ul>'
)


def fleet_page(contents: FleetContents) -> str:
    """Return the page. Of the runs it shows the latest MOST_RUNS."""
    runs = sorted(contents.runs, key=lambda run: -run.started_ms)[:MOST_RUNS]
    style, script = _asset("page.css"), _asset("page.js")
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{content_policy()}">'
        '<meta name="referrer" content="no-referrer">'
        f"<title>{escaped(contents.title)}</title><style>{style}</style>"
    )
    body = [
        '<a class="skip" href="#tables">To the tables</a><main>',
        _header(contents),
        _tiles(contents),
        f'<div class="pair">{_worst(contents.tables)}<div>{_backlog(contents)}{_predictions(runs)}</div></div>',
        _spend(contents),
        _grid("tables", "All tables", _TABLES_NOTE, "Tenant", "Search tables, tenants, states and reasons"),
        _grid("runs", "Runs, before and after", _runs_note(contents, runs), "Operation", "Search runs"),
        "</main>",
        f'<script type="application/json" id="data">{_data(contents, runs)}</script><script>{script}</script>',
    ]
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>\n' + "\n".join(body) + "\n</body></html>\n"


def content_policy() -> str:
    """Return the content security policy of every such page: its one style and its one script, and nothing else."""
    style, script = _hash(_asset("page.css")), _hash(_asset("page.js"))
    return f"default-src 'none'; style-src '{style}'; script-src '{script}'; base-uri 'none'; form-action 'none'"


def _asset(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """Return what a content security policy calls this block by."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _data(contents: FleetContents, runs: Sequence[RunLine]) -> str:
    """Return the rows as JSON that cannot end the element it stands in, nor begin another."""
    document = {
        "made": contents.made_ms,
        "order": [status.value for status in (*_ORDER, *_OUTCOMES)],
        "tables": [_table_row(line) for line in contents.tables],
        "runs": [_run_row(run) for run in runs],
    }
    text = json.dumps(document, separators=(",", ":"), allow_nan=False)  # ASCII: the separators of lines of JS too
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _table_row(line: TableLine) -> list[object]:
    lost = line.lost and [round(points, 4) for points in (line.lost.files, line.lost.deletes, line.lost.metadata)]
    named = [plain(text) for text in (line.catalog, line.table, line.tenant)]
    numbers = [line.next_ms, line.backlog_files, line.backlog_bytes, line.cost_dollars]
    return [*named, line.status.value, plain(line.sentence), lost, *numbers]


def _run_row(run: RunLine) -> list[object]:
    named = [plain(run.catalog), plain(run.table), run.operation.value, run.outcome.value]
    prices = [run.predicted_dollars, run.actual_dollars, run.predicted_seconds, run.actual_seconds]
    sizes = [run.files_before, run.files_after, run.bytes_before, run.bytes_after]
    return [run.started_ms, *named, plain(run.asked_by), plain(run.reason), *prices, *sizes]


def _header(contents: FleetContents) -> str:
    tenants = len({line.tenant for line in contents.tables})
    of = f" of {tenants:,} tenants" if tenants > 1 else ""
    said = f"{_plural(len(contents.tables), 'table')}{of}, as of {time_text(contents.made_ms)}"
    left = f"; {_plural(contents.left_out, 'healthier table')} left out" if contents.left_out else ""
    return f"<header><h1>{escaped(contents.title)}</h1><p>{said}{left}</p></header>"


def _plural(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _tiles(contents: FleetContents) -> str:
    states = Counter(line.status for line in contents.tables)
    files = sum(line.backlog_files or 0 for line in contents.tables)
    ill = sum(line.lost is not None and line.lost.total >= 20 for line in contents.tables)
    looking = states[FleetStatus.FAILED] + states[FleetStatus.PAUSED]
    tiles = [
        _tile(f"{looking:,}", "need a look: failed or paused"),
        _tile(f"{sum(states[status] for status in _WORKING):,}", "due, queued or running"),
        _tile(f"{states[FleetStatus.OVER_BUDGET]:,}", "wait for a budget"),
        _tile(f"{ill:,}", "lost 20 points of health or more"),
        _tile(short_count(files), "files to rewrite"),
    ]
    if contents.whole is not None:
        spent = contents.whole
        limit = "" if spent.day_budget is None else f" of {dollars_text(spent.day_budget)}"
        bar = "" if spent.day_budget is None else budget_bar(spent.day_dollars, spent.day_budget)
        tiles.append(_tile(dollars_text(spent.day_dollars), f"spent today{limit}", bar))
    return f'<div class="tiles">{"".join(tiles)}</div>'


def _tile(number: str, said: str, bar: str = "") -> str:
    return f'<div class="card tile"><b>{escaped(number)}</b><span>{escaped(said)}</span>{bar}</div>'


def _worst(tables: Sequence[TableLine]) -> str:
    ill = [(line.lost, line) for line in tables if line.lost is not None and line.lost.total > 0]
    ill.sort(key=lambda found: (-found[0].total, found[1].catalog, found[1].table))
    rows = "".join(
        f'<tr><td class="name">{escaped(line.table)}<span class="sub">{escaped(_under(line))}</span></td>'
        f'<td class="health"><span class="hidden">{lost.files:.0f} to files, {lost.deletes:.0f} to deletes, '
        f'{lost.metadata:.0f} to metadata</span>{health_bar(lost)}</td><td class="num">{lost.total:.1f}</td>'
        f"<td>{_status(line.status)}</td></tr>"
        for lost, line in ill[:MOST_ILL]
    )
    head = '<th scope="col">Table</th><th scope="col">Of 100 points</th><th scope="col" class="num">Lost</th>'
    table = f'<table><thead><tr>{head}<th scope="col">State</th></tr></thead><tbody>{rows}</tbody></table>'
    shown = f"{_LEGEND}{_scroll('Tables that lost most points', table)}" if ill else _EMPTY_ILL
    return _section("Most points lost", "Health says how ill, the plan by gain per dollar what comes first.", shown)


_EMPTY_ILL = '<p class="empty">No table that was looked at has lost a point.</p>'
_TABLES_NOTE = (
    "Every table with its state, why it is in it and when it may have its next run. Press <kbd>/</kbd> to search."
)


def _under(line: TableLine) -> str:
    return " · ".join(part for part in (line.catalog, line.tenant) if part)


def _status(status: FleetStatus) -> str:
    return f'<span class="status s-{status.value}">{status.value.replace("_", " ")}</span>'


def _scroll(label: str, inner: str) -> str:
    return f'<div class="scroll" role="region" tabindex="0" aria-label="{label}">{inner}</div>'


def _backlog(contents: FleetContents) -> str:
    if not contents.backlog:
        return ""
    note = "Files that would go by what is due or waits for money, in all tables."
    return _section("Backlog over time", note, backlog_chart(contents.backlog))


def _spend(contents: FleetContents) -> str:
    lines = sorted(contents.spend, key=lambda line: (-_used(line), -line.day_dollars, line.name))
    shown = [_tenants(lines[:MOST_TENANTS])] if lines else ['<p class="empty">Nothing is spent per tenant yet.</p>']
    if len(lines) > MOST_TENANTS:
        rest = _tenants(lines[MOST_TENANTS:])
        shown.append(f"<details><summary>{_plural(len(lines) - MOST_TENANTS, 'more tenant')}</summary>{rest}</details>")
    note = "By tenant, in this day and month of UTC; who used most of a budget first."
    return _section("Spend against budget", note, "".join(shown))


def _used(line: SpendLine) -> float:
    pairs = ((line.day_dollars, line.day_budget), (line.month_dollars, line.month_budget))
    return max((spent / budget if budget else 1.0 for spent, budget in pairs if budget is not None), default=0.0)


def _tenants(lines: Sequence[SpendLine]) -> str:
    items = "".join(
        f"<li><h3>{escaped(line.name)}</h3><dl>{_spent('today', line.day_dollars, line.day_budget)}"
        f"{_spent('month', line.month_dollars, line.month_budget)}</dl></li>"
        for line in lines
    )
    return f'<ul class="tenants">{items}</ul>'


def _spent(name: str, spent: float, budget: float | None) -> str:
    limit = "no limit" if budget is None else f"of {dollars_text(budget)}"
    told = f'{escaped(dollars_text(spent))} <span class="soft">{escaped(limit)}</span>'
    return f"<dt>{name}</dt><dd>{budget_bar(spent, budget)}</dd><dd>{told}</dd>"


def _predictions(runs: Sequence[RunLine]) -> str:
    error = median_error(runs)
    told = "" if error is None else f" Half of the predictions are within {error:.0%} of what was paid."
    note = f"Dollars of each run; the band is 30 % above and below.{told}"
    kinds = {run.operation for run, _, _ in priced(runs)}
    legend = "".join(
        f'<li><i class="kind{at}"></i>{kind.value}</li>' for at, kind in enumerate(FleetOperation) if kind in kinds
    )
    listed = f'<ul class="legend">{legend}</ul>' if legend else ""
    return _section("Predicted against paid", note, listed + prediction_chart(runs))


def _section(title: str, note: str, inner: str) -> str:
    return f'<section class="card"><h2>{title}</h2><p class="note">{note}</p>{inner}</section>'


def _runs_note(contents: FleetContents, runs: Sequence[RunLine]) -> str:
    if len(runs) < len(contents.runs):
        latest = f"The latest {len(runs):,} of {len(contents.runs):,} runs"
        return f"{latest}: what each was to cost, what it cost, and what it left."
    return "What each run was to cost, what it cost, and what it left."


def _grid(name: str, title: str, note: str, group: str, placeholder: str) -> str:
    sizes = "".join(f"<option{' selected' if size == 50 else ''}>{size}</option>" for size in (25, 50, 100, 250))
    return (
        f'<section class="card" id="{name}" tabindex="-1"><h2>{title}</h2><p class="note">{note}</p>'
        f'<div class="tools"><div class="grow"><input type="search" aria-label="{placeholder}"'
        f' placeholder="{placeholder}" spellcheck="false" autocomplete="off"></div>'
        f'<select data-filter aria-label="{group}"><option value="">{group}: all</option></select></div>'
        f'<div class="chips" role="group" aria-label="{title}: states"></div>'
        + _scroll(title, "<table><thead><tr></tr></thead><tbody></tbody></table>")
        + '<noscript><p class="empty">This list needs JavaScript.</p></noscript>'
        f'<div class="pages"><span role="status"></span><div><label>Rows <select data-size>{sizes}</select></label>'
        f'<button type="button" aria-label="{title}: previous page">Previous</button>'
        f'<button type="button" aria-label="{title}: next page">Next</button></div></div></section>'
    )
