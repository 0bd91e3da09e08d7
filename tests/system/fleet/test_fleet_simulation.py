"""A small fleet lives for some days by its own rule: no law is broken, and its money is well spent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from regelate.adapters.records.sqlite_fleet import SqliteFleet
from regelate.core.fleet.policy import Budgets
from tests.system.fleet.report import Report, laws_broken, report
from tests.system.fleet.rivals import ANYBODY, autocomp, illest_first, month_of, oracle, sweep
from tests.system.fleet.trial import Fleet, Outcome, dollars_to_cure, policy_for
from tests.system.fleet.world import Table, Writer, born

TABLES, TENANTS, DAYS = 200, 10, 5


def dollars_a_day(share: float, seed: int = 1) -> float:
    fleet = born(seed, TABLES, TENANTS)
    for table in fleet:
        table.live_to(DAYS * 24.0)
    return dollars_to_cure(fleet) * share / DAYS


def lived(share: float, seed: int = 1) -> Outcome:
    tables = born(seed, TABLES, TENANTS)
    return Fleet(tables, policy_for(tables, dollars_a_day(share, seed))).live(DAYS, 4.0)


@pytest.mark.parametrize("seed", [1, 2])
def test_no_law_is_broken_and_an_oracle_does_little_better(seed: int) -> None:
    ours = lived(0.1, seed)
    assert laws_broken(ours) == []
    assert ours.served_days > TENANTS * (DAYS - 2)
    best = oracle(born(seed, TABLES, TENANTS), ours.paid, DAYS)
    assert ours.files_removed >= 0.75 * best.files_removed
    assert ours.files_removed <= best.files_removed


def test_the_rule_gets_more_for_the_same_money_than_autocomps() -> None:
    ours = lived(0.1)
    rival = month_of(born(1, TABLES, TENANTS), autocomp, ours.paid, DAYS)
    assert rival.dollars <= ours.dollars * 1.000001
    assert ours.files_per_dollar > rival.files_per_dollar


def test_for_the_same_money_a_sweep_gets_less_and_by_the_score_that_it_had_least() -> None:
    ours, money = lived(0.1), {}
    for rule in (sweep, illest_first):
        money[rule] = month_of(born(1, TABLES, TENANTS), rule, {ANYBODY: ours.dollars}, DAYS)
        assert money[rule].dollars == pytest.approx(ours.dollars)
    assert ours.files_per_dollar > money[sweep].files_per_dollar > money[illest_first].files_per_dollar


def test_a_fleet_remembered_in_sqlite_lives_as_one_in_memory(tmp_path: Path) -> None:
    lives = []
    for store in (None, SqliteFleet(tmp_path / "fleet.db")):
        tables = born(1, 40, 4)
        lives.append(Fleet(tables, policy_for(tables, 0.05), store).live(2, 4.0))
    in_memory, stored = lives
    assert in_memory.runs > 20
    assert (stored.files_removed, stored.dollars, stored.runs) == pytest.approx(
        (in_memory.files_removed, in_memory.dollars, in_memory.runs)
    )
    assert stored.statuses == in_memory.statuses
    assert laws_broken(stored) == []


def test_a_broken_law_is_seen() -> None:
    tables = born(1, 20, 2)
    policy = policy_for(tables, 0.01)
    fleet = Fleet(tables, policy)
    fleet.live(1, 4.0)
    fleet.policy = replace(policy, tenant_budgets={t: Budgets(dollars_per_day=1e-9) for t in policy.tenant_budgets})
    fleet._judge()
    assert any("on day 0" in broken for broken in laws_broken(fleet.found))
    assert laws_broken(Outcome(loops=1, unsaid=2, unserved=["acme on day 3"])) == [
        "not served: acme on day 3",
        "1 loops",
        "2 verdicts without a sentence",
    ]


def test_a_merge_leaves_what_lies_alone_and_loses_no_bytes() -> None:
    for table in born(3, 300, 5):
        files, size, removable = table.files, table.size_bytes, table.removable
        assert table.merge(1.0) == pytest.approx(removable)
        assert table.files == pytest.approx(files - removable)
        assert table.size_bytes == pytest.approx(size)
        assert table.small >= -1e-6


def test_writers_bring_files_and_the_dormant_none() -> None:
    for table in born(4, 100, 5):
        before = table.files
        table.live_to(24.0)
        assert (table.files > before) == (table.writer is not Writer.DORMANT)


def test_the_report_says_what_was_not_met() -> None:
    ours = lived(0.1)
    money = {ANYBODY: ours.dollars}
    rivals = [
        (name, month_of(fleet(), rule, money, DAYS), month_of(fleet(), rule, ours.paid, DAYS))
        for name, rule in (("auto", autocomp), ("ill", illest_first), ("sweep", sweep))
    ]
    text = report(
        Report(
            measured="today",
            tables=TABLES,
            tenants=TENANTS,
            days=DAYS,
            hours=4.0,
            dollars_per_day=1.0,
            memory_mb=400.0,
            read_seconds=1.0,
            ours=ours,
            autocomp=rivals[0],
            illest=rivals[1],
            sweep=rivals[2],
            small=ours,
            oracle=oracle(fleet(), ours.paid, DAYS),
        )
    )
    assert "| memory <= 300 MB | 400 MB, the simulated tables included | NO |" in text
    assert "| no tenant over its budget, ever | 0 times | yes |" in text


def fleet() -> list[Table]:
    return born(1, TABLES, TENANTS)
