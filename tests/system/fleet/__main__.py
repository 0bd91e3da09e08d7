"""`make fleet-sim`: 10,000 tables of 50 tenants for 30 days, under the fleet's own rule and three others.

Ends with 1 where a law was broken. What was promised of speed and of files per dollar is only told, met or not.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import sys
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time

from regelate.adapters.records.sqlite_fleet import SqliteFleet
from tests.system.fleet.report import Report, laws_broken, report
from tests.system.fleet.rivals import ANYBODY, autocomp, illest_first, month_of, oracle, sweep
from tests.system.fleet.trial import Fleet, dollars_to_cure, policy_for
from tests.system.fleet.world import born

SMALL, SMALL_TENANTS = 200, 10
SWEEP_JOBS = 60
"""Ten an hour."""


def main() -> int:
    options = _options()
    dollars = dollars_a_day(options, options.tables, options.tenants)
    fresh = partial(born, options.seed, options.tables, options.tenants)
    tables = fresh()
    fleet = Fleet(tables, policy_for(tables, dollars))
    ours = fleet.live(options.days, options.hours)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    reading = seconds_to_read(fleet)
    rivals = []
    for name, rule, jobs in (
        ("AutoComp's, 0.7 / 0.3", autocomp, None),
        ("illest first", illest_first, SWEEP_JOBS),
        ("SWEEP's of today", sweep, None),
    ):
        free = month_of(fresh(), rule, {ANYBODY: ours.dollars}, options.days, jobs=jobs)
        held = month_of(fresh(), rule, ours.paid, options.days, jobs=jobs)
        rivals.append((name, free, held))
    few = born(options.seed, SMALL, SMALL_TENANTS)
    few_dollars = dollars_a_day(options, SMALL, SMALL_TENANTS)
    small = Fleet(few, policy_for(few, few_dollars)).live(options.days, options.hours)
    best = oracle(born(options.seed, SMALL, SMALL_TENANTS), small.paid, options.days)
    found = Report(
        measured=f"{datetime.now(UTC).date()}, {os.cpu_count()} processors, Python {platform.python_version()}",
        tables=options.tables,
        tenants=options.tenants,
        days=options.days,
        hours=options.hours,
        dollars_per_day=dollars,
        memory_mb=memory,
        read_seconds=reading,
        ours=ours,
        autocomp=rivals[0],
        illest=rivals[1],
        sweep=rivals[2],
        small=small,
        oracle=best,
    )
    text = report(found)
    print(text)
    if options.write:
        Path(options.write).write_text(text + "\n")
    broken = [*laws_broken(ours), *laws_broken(small)]
    print(*broken, sep="\n", file=sys.stderr)
    return 1 if broken else 0


def seconds_to_read(fleet: Fleet) -> float:
    """Return how many seconds of a processor it takes to read the whole fleet from SQLite, as it is before a plan."""
    with TemporaryDirectory() as folder:
        store = SqliteFleet(Path(folder) / "fleet.db")
        for state in fleet.states:
            store.change(state.table_uuid, partial(lambda kept, _: kept, state))
        begun = process_time()
        assert store.states() == tuple(fleet.states)
        return process_time() - begun


def dollars_a_day(options: argparse.Namespace, tables: int, tenants: int) -> float:
    """Return the day's part of a share of what it would cost to cure all that a month brings, at its end."""
    fleet = born(options.seed, tables, tenants)
    for table in fleet:
        table.live_to(options.days * 24.0)
    return dollars_to_cure(fleet) * options.budget / options.days


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.system.fleet", description=__doc__)
    parser.add_argument("--tables", type=int, default=10_000)
    parser.add_argument("--tenants", type=int, default=50)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--hours", type=float, default=4.0, help="between two proposals")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--budget", type=float, default=0.1, help="as a share of what curing everything would cost")
    parser.add_argument("--write", help="a file for the table")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
