"""What a webhook is told of a fleet: each table that failed or was paused, once, and a summary of each day. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import field

from regelate.core.answers.fleet import FleetStatusAnswer, TableStanding
from regelate.core.fleet.operation import FleetOutcome, FleetStatus
from regelate.core.fleet.sentences import at, count, dollars
from regelate.core.fleet.state import FleetRun, day_of
from regelate.core.table.time_ranges import DAY_MS
from regelate.core.values import dataclass
from regelate.report import slack

_SIGNS = {FleetStatus.FAILED: ":x:", FleetStatus.PAUSED: ":double_vertical_bar:"}
_VERBS = {FleetStatus.FAILED: "failed", FleetStatus.PAUSED: "paused"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What was told of one catalog: the trouble of each table by its name, and the last summary's day since 1970."""

    troubles: Mapping[str, FleetStatus] = field(default_factory=dict)
    day: int | None = None

    def as_json(self) -> str:
        return json.dumps({"troubles": dict(sorted(self.troubles.items())), "day": self.day})

    @classmethod
    def of_json(cls, text: str) -> Told:
        found = json.loads(text)
        return cls(troubles={name: FleetStatus(told) for name, told in found["troubles"].items()}, day=found["day"])


def troubled(tables: Sequence[TableStanding]) -> tuple[TableStanding, ...]:
    """Return the tables that failed or are paused, by name."""
    return tuple(sorted((table for table in tables if table.status in _SIGNS), key=lambda table: table.table))


def new_troubles(tables: Sequence[TableStanding], told: Told) -> tuple[TableStanding, ...]:
    """Return the tables whose trouble was not told."""
    return tuple(table for table in troubled(tables) if told.troubles.get(table.table) is not table.status)


def troubles_now(tables: Sequence[TableStanding], told: Told) -> Mapping[str, FleetStatus]:
    """Return what is told once the new troubles are. A table whose failed run is tried again stays among them."""
    now = {table.table: table.status for table in troubled(tables)}
    again = {
        table.table: FleetStatus.FAILED
        for table in tables
        if told.troubles.get(table.table) is FleetStatus.FAILED and _is_tried_again(table)
    }
    return {**again, **now}


def _is_tried_again(table: TableStanding) -> bool:
    return table.last_run is not None and table.last_run.outcome in (None, FleetOutcome.FAILED)


def troubles_message(catalog: str, tables: Sequence[TableStanding]) -> dict[str, object]:
    """Return the message about tables that failed or were paused."""
    counted = {status: sum(table.status is status for table in tables) for status in _SIGNS}
    said = [f"{count(number, 'table')} {_VERBS[status]}" for status, number in counted.items() if number]
    return slack.message(f"{catalog}: {', '.join(said)}", [_line(table) for table in tables])


def summary_message(catalog: str, found: FleetStatusAnswer, runs: Sequence[FleetRun], now_ms: int) -> dict[str, object]:
    """Return the summary of where the tables stand, and of the runs that ended yesterday (UTC), among `runs`."""
    troubles = troubled(found.tables)
    look = f", {len(troubles):,} failed or paused" if troubles else ""
    standing = ", ".join(f"{number:,} {name.lower().replace('_', ' ')}" for name, number in found.statuses.items())
    lines = [f"Tables: {standing or 'none'}.", _yesterday(runs, now_ms)]
    if found.bills:
        bill = found.bills[0]
        limit = "" if bill.month_budget_dollars is None else f" of {dollars(bill.month_budget_dollars)}"
        lines.append(f"All catalogs this month: {dollars(bill.month_dollars)}{limit}.")
    head = f"{catalog}: {count(sum(found.statuses.values()), 'table')}{look}"
    return slack.message(head, [*lines, *(_line(table) for table in troubles)])


def _yesterday(runs: Sequence[FleetRun], now_ms: int) -> str:
    day = day_of(now_ms) - 1
    ended = [run for run in runs if run.ended_ms is not None and day_of(run.ended_ms) == day]
    failed = sum(run.outcome is FleetOutcome.FAILED for run in ended)
    files = sum(run.files_removed for run in ended)
    told = f", {failed:,} of them failed" if failed else ""
    cost = dollars(sum(run.dollars for run in ended))
    date = at(day * DAY_MS).partition(" ")[0]
    return f"{date}: {count(len(ended), 'run')}{told}; {count(files, 'file')} fewer for {cost}."


def _line(table: TableStanding) -> str:
    return f"{_SIGNS[table.status]} *{slack.mrkdwn(table.table)}*: {slack.mrkdwn(table.sentence)}"
