"""`python -m tests.system.concurrency`: real processes on real catalogs; prints a table.

It fails on a wrong row, on a lost write, and where of all rewritten groups of a catalog fewer than 95 % landed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.servers.rest_catalog import rest_catalog
from tests.system.concurrency.trial import Report, Trial, run

ENOUGH = 0.95
"""Of the groups. Position deletes may hit some while they are rewritten: that depends on how often rows are deleted."""
HEAD = """\
| catalog | appenders | writes landed | deletes landed | groups landed | outputs wasted | wrong rows | rows | s |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |"""


@contextmanager
def catalog_of(kind: str, folder: Path) -> Iterator[Mapping[str, str]]:
    """Yield PyIceberg's properties of a catalog that lives in the folder."""
    if kind == "rest":
        with rest_catalog(folder) as uri:
            yield {"type": "rest", "uri": uri}
    else:
        uri = f"sqlite:///{folder}/catalog.db?timeout=30"
        yield {"type": "sql", "uri": uri, "warehouse": (folder / "warehouse").as_uri()}


def line(report: Report, seconds: float) -> str:
    shares = [f"{done}/{asked} ({done / asked:.1%})" if asked else "0" for done, asked in
              (report.writes, report.deletes, report.groups)]  # fmt: skip
    wasted, written = report.wasted
    waste = f"{wasted / 1024:.0f} of {written / 1024:.0f} KB"
    cells = (
        report.trial.catalog,
        report.trial.appenders,
        *shares,
        waste,
        report.wrong_rows,
        report.rows,
        f"{seconds:.0f}",
    )
    return f"| {' | '.join(str(cell) for cell in cells)} |"


def problems(report: Report) -> list[str]:
    found = [f"{name}: {ids[:10]}" for name, ids in
             (("lost", report.lost), ("doubled", report.doubled), ("returned", report.returned)) if ids]  # fmt: skip
    done, asked = report.writes
    if done < asked:
        found.append(f"{asked - done} writes failed: {[f for d in report.of('appender') for f in d.faults][:5]}")
    if report.unnamed_files and not any(d.perhaps for d in report.deeds):
        found.append(f"{report.unnamed_files} files that no snapshot names")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.system.concurrency", description=__doc__)
    parser.add_argument("--catalog", choices=("sqlite", "rest"), nargs="+", default=["sqlite", "rest"])
    parser.add_argument("--appenders", type=int, nargs="+", default=[2, 4, 8, 16])
    parser.add_argument("--writes", type=int, default=10, help="of each appender")
    parser.add_argument("--deletes", type=int, default=5, help="of each deleter")
    parser.add_argument("--faults", action="store_true", help="print every fault that an actor met")
    chosen = parser.parse_args()
    failed = False
    print(HEAD, flush=True)
    for kind in chosen.catalog:
        groups: list[tuple[int, int]] = []
        for number in chosen.appenders:
            with tempfile.TemporaryDirectory(prefix="regelate-") as name, catalog_of(kind, Path(name)) as catalog:
                trial = Trial(catalog=kind, appenders=number, writes=chosen.writes, deletes=chosen.deletes)
                begun = time.monotonic()
                report = run(trial, catalog, Path(name))
                print(line(report, time.monotonic() - begun), flush=True)
                wrong = problems(report)
                groups.append(report.groups)
                failed = failed or bool(wrong)
                told = [f"{d.role}: {f}" for d in report.deeds for f in d.faults] if chosen.faults else []
                print(*wrong, *told, sep="\n", end="\n" if wrong or told else "", file=sys.stderr)
        landed, rewritten = (sum(counts) for counts in zip(*groups, strict=True))
        if landed < ENOUGH * rewritten:
            failed = True
            print(f"{kind}: only {landed} of {rewritten} groups landed", file=sys.stderr)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
