"""What was promised and what came out, as a table in Markdown."""

from __future__ import annotations

from dataclasses import dataclass

from tests.system.fleet.trial import Outcome

SECONDS, MEMORY_MB = 2.0, 300.0
FREE, HELD = "free to spend on any tenant", "held to the same money of each tenant"
TIMES_AUTOCOMP, TIMES_ILLEST, TIMES_SWEEP, OF_ORACLE = 1.5, 3.0, 1.0, 0.9


Rival = tuple[str, Outcome, Outcome]
"""A rule's name, and what it does free to spend wherever it likes, and held to what each tenant has spent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    measured: str
    tables: int
    tenants: int
    days: int
    hours: float
    dollars_per_day: float
    memory_mb: float
    read_seconds: float
    ours: Outcome
    autocomp: Rival
    illest: Rival
    sweep: Rival
    small: Outcome
    oracle: Outcome


def laws_broken(found: Outcome) -> list[str]:
    """Return what may never happen and did: a budget exceeded, a tenant passed over, a loop, a table without a word."""
    loops = [f"{found.loops} loops"] if found.loops else []
    unsaid = [f"{found.unsaid} verdicts without a sentence"] if found.unsaid else []
    return [*found.over_budget, *(f"not served: {who}" for who in found.unserved), *loops, *unsaid]


def report(found: Report) -> str:
    """Return the table in Markdown."""
    ours, slowest = found.ours, max(found.ours.propose_seconds)
    usual = sorted(ours.propose_seconds)[len(ours.propose_seconds) // 2]
    best = found.small.files_removed / max(found.oracle.files_removed, 1e-9)
    served = f"{len(ours.unserved)} of {len(ours.unserved) + ours.served_days} tenants' days without a run"
    rows = [
        ("proposing takes <= 2 s of a processor", f"{usual:.2f} s, at most {slowest:.2f} s", slowest <= SECONDS),
        ("memory <= 300 MB", f"{found.memory_mb:.0f} MB, the simulated tables included", found.memory_mb <= MEMORY_MB),
        ("no tenant over its budget, ever", f"{len(ours.over_budget)} times", not ours.over_budget),
        ("every tenant with an ill table is served every day", served, not ours.unserved),
        (
            "no table is compacted in a loop",
            f"{ours.loops} loops; of one table at most {ours.most_compactions_a_day} rewrites a day",
            not ours.loops,
        ),
        ("every table has a sentence", f"{ours.unsaid} of {ours.verdicts:,} verdicts without", not ours.unsaid),
        *_against(ours, found.autocomp, TIMES_AUTOCOMP),
        *_against(ours, found.illest, TIMES_ILLEST),
        *_against(ours, found.sweep, TIMES_SWEEP),
        ("files per dollar within 10 % of an oracle (200 tables)", f"{best:.0%} of it", best >= OF_ORACLE),
    ]
    lines = [
        "# fleet_sim: What does a fleet that looks after itself get for its money?",
        "",
        f"`make fleet-sim`, {found.measured}. "
        f"{found.tables:,} tables of {found.tenants} tenants, {found.days} days, a proposal every {found.hours:g} h, "
        f"${found.dollars_per_day:.2f} a day.",
        "",
        "| promised | came out | met |",
        "| --- | --- | --- |",
        *(f"| {promise} | {came} | {'yes' if met else 'NO'} |" for promise, came, met in rows),
        "",
        "| rule | tables | files removed | dollars | files per dollar | runs |",
        "| --- | --- | --- | --- | --- | --- |",
        *(
            f"| {name} | {tables:,} | {of.files_removed:,.0f} | {of.dollars:,.2f} | {of.files_per_dollar:,.0f} "
            f"| {of.runs:,} |"
            for name, tables, of in (
                ("the fleet's own", found.tables, ours),
                *(
                    (f"{name}, {how}", found.tables, of)
                    for name, free, held in (found.autocomp, found.illest, found.sweep)
                    for how, of in ((FREE, free), (HELD, held))
                ),
                ("the fleet's own", 200, found.small),
                ("an oracle's", 200, found.oracle),
            )
        ),
        "",
        f"Runs by operation: {', '.join(f'{name} {count:,}' for name, count in sorted(ours.by_operation.items()))}. "
        f"Looks at tables: {ours.looks:,}. Expiry and manifests took ${ours.upkeep_dollars:.2f} on top, "
        "which no rival pays. Illest first is what SWEEP did before there were fleets: by a score that stops rising at "
        f"100 files of a partition, ten jobs an hour, with which it spent ${found.illest[1].dollars:.2f} of "
        f"${ours.dollars:.2f}. SWEEP of today ranks by the share of files that would go, and may begin here what the "
        "money pays for. "
        f"Reading the fleet from SQLite took {found.read_seconds:.1f} s of a processor.",
    ]
    return "\n".join(lines)


def _against(ours: Outcome, rival: Rival, times: float) -> list[tuple[str, str, bool]]:
    name, free, held = rival
    found = [(how, ours.files_per_dollar / max(of.files_per_dollar, 1e-9)) for how, of in ((FREE, free), (HELD, held))]
    return [
        (f"files per dollar >= {times:g} x {name}, {how}", f"{ratio:.2f} x", ratio >= times) for how, ratio in found
    ]
