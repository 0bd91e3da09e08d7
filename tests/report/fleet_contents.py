"""A fleet to look at: many tables in every state, with names that nobody should have given."""

from __future__ import annotations

import random

from regelate.core.fleet.operation import FleetOperation, FleetOutcome, FleetStatus
from regelate.core.planning.health import PointsLost
from regelate.report.fleet.contents import BacklogPoint, FleetContents, RunLine, SpendLine, TableLine

NOW_MS = 1_795_410_000_000
HOUR_MS = 3_600_000
HOSTILE = (
    "</script><script>document.documentElement.dataset.hacked='yes'</script>",
    "<img src=x onerror=\"document.documentElement.dataset.hacked='yes'\">",
    "' onmouseover='x' \" onfocus=\" autofocus &lt;b&gt; <!-- <script>",
    "</script x <!-- <script x <svg onload=\"document.documentElement.dataset.hacked='yes'\" ",
    "sales.\u202eredro\u2028\u0000\ud800",
)


def table(number: int, **said: object) -> TableLine:
    """A table that has `number` files to rewrite."""
    chosen = random.Random(number)
    known: dict[str, object] = {
        "catalog": "glue",
        "table": f"sales.orders_{number:05}",
        "tenant": f"tenant_{number % 50:02}",
        "status": list(FleetStatus)[number % len(FleetStatus)],
        "sentence": f"It waits for reason {number}.",
        "lost": PointsLost(files=chosen.uniform(0, 60), deletes=chosen.uniform(0, 25), metadata=chosen.uniform(0, 15)),
        "next_ms": NOW_MS + chosen.randrange(30 * 24 * HOUR_MS),
        "backlog_files": number,
        "backlog_bytes": number * 1024**2,
        "cost_dollars": number / 1000,
    }
    return TableLine(**{**known, **said})  # type: ignore[arg-type]


def run(number: int, **said: object) -> RunLine:
    """A run `number` hours ago, which cost a tenth more than predicted."""
    known: dict[str, object] = {
        "started_ms": NOW_MS - number * HOUR_MS,
        "catalog": "glue",
        "table": f"sales.orders_{number:05}",
        "operation": list(FleetOperation)[number % len(FleetOperation)],
        "outcome": FleetOutcome.DONE,
        "asked_by": "the schedule",
        "predicted_dollars": 0.01 * (number + 1),
        "actual_dollars": 0.011 * (number + 1),
        "files_before": 100 + number,
        "files_after": 3,
        "bytes_before": 10 * 1024**2,
        "bytes_after": 9 * 1024**2,
    }
    return RunLine(**{**known, **said})  # type: ignore[arg-type]


def fleet(tables: int, *, runs: int = 40) -> FleetContents:
    """So many ordinary tables, and one for each hostile name."""
    hostile = [
        table(
            n, table=name, tenant=name, sentence=name, catalog=name, lost=PointsLost(files=60, deletes=25, metadata=10)
        )
        for n, name in enumerate(HOSTILE)
    ]
    return FleetContents(
        made_ms=NOW_MS,
        title=HOSTILE[0],
        tables=(*hostile, *map(table, range(tables))),
        whole=SpendLine(name="fleet", day_dollars=14.2, day_budget=20.0),
        spend=tuple(
            SpendLine(name=name, day_dollars=n / 10, day_budget=1.0, month_dollars=2.0)
            for n, name in enumerate([*HOSTILE, *(f"tenant_{n:02}" for n in range(20))])
        ),
        runs=(run(0, table=HOSTILE[0], asked_by=HOSTILE[1], reason=HOSTILE[2]), *map(run, range(1, runs))),
        backlog=tuple(
            BacklogPoint(at_ms=NOW_MS - n * 6 * HOUR_MS, files=50 * n, size_bytes=n * 1024**3, tables=n)
            for n in range(120)
        ),
    )
