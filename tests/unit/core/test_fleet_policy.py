"""What the operators of a fleet allow: which layer wins, which globs match, and when it is quiet."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regelate.core.fleet.conditions import parse_condition
from regelate.core.fleet.operation import FleetOperation
from regelate.core.fleet.policy import (
    BUILT_IN,
    Budgets,
    FleetPolicy,
    OperationLayer,
    PolicyLayer,
    PolicyRule,
    QuietWindow,
    Scope,
    quiet_until,
    unmatched,
)
from regelate.errors import InvalidRequest

OFF = PolicyLayer(decided_by="a line", operations={"compact": OperationLayer(enabled=False, decided_by="a line")})
NIGHT = QuietWindow(days=(4,), start=time(22), end=time(6))


def rule(scope: Scope, glob: str, layer: PolicyLayer = OFF) -> PolicyRule:
    return PolicyRule(scope=scope, glob=glob, layers=(layer,))


def said(enabled: bool | None, decided_by: str, when: str | None = None) -> PolicyLayer:
    condition = None if when is None else parse_condition(when)
    operation = OperationLayer(enabled=enabled, when=condition, decided_by=decided_by)
    return PolicyLayer(decided_by=decided_by, operations={"compact": operation})


def at(day: int, hour: int, minute: int = 0) -> float:
    """Seconds since 1970 of a time in November 2026, whose 2nd is a Monday."""
    return datetime(2026, 11, day, hour, minute, tzinfo=UTC).timestamp()


def test_without_a_file_everything_is_allowed_but_what_deletes_files_that_no_metadata_names() -> None:
    found = FleetPolicy().for_table("glue", "sales.orders")
    assert set(found.operations) == {operation.value for operation in FleetOperation}
    assert {name for name, policy in found.operations.items() if not policy.enabled} == {"remove-orphan-files"}
    assert {policy.decided_by for policy in found.operations.values()} == {BUILT_IN}
    assert FleetPolicy().budgets_of("anybody") == Budgets()


def test_what_is_nearer_to_the_table_wins_and_says_which_line_decided() -> None:
    policy = FleetPolicy(
        layers=(said(True, "defaults", "files > 1"),),
        rules=(
            rule(Scope.TABLES, "sales.*", said(True, "tables")),
            rule(Scope.NAMESPACES, "sales", said(False, "namespaces", "files > 3")),
            rule(Scope.CATALOGS, "glue", said(None, "catalogs", "files > 2")),
        ),
    )
    found = policy.for_table("glue", "sales.orders").operations["compact"]
    assert (found.enabled, found.decided_by) == (True, "tables")
    assert found.when is not None
    assert found.when.text == "files > 3"
    assert policy.for_table("rest", "other.orders").operations["compact"].decided_by == "defaults"
    catalog = policy.for_table("glue", "other.orders").operations["compact"]
    assert (catalog.enabled, catalog.decided_by) == (True, "catalogs")


def test_of_two_globs_in_one_section_the_later_one_wins_however_they_begin() -> None:
    for first, second in [("sales.*", "*.orders"), ("*.orders", "sales.*"), ("sales.o?ders", "sales.orders")]:
        rules = (rule(Scope.TABLES, first, said(False, "first")), rule(Scope.TABLES, second, said(True, "second")))
        assert FleetPolicy(rules=rules).for_table("c", "sales.orders").operations["compact"].decided_by == "second"


def test_a_table_that_is_switched_off_stays_off_until_something_nearer_switches_it_on() -> None:
    off, on = PolicyLayer(decided_by="off", enabled=False), PolicyLayer(decided_by="on", enabled=True)
    below = said(True, "compact: on")
    rules = (rule(Scope.NAMESPACES, "a", off), rule(Scope.TABLES, "a.*", below), rule(Scope.TABLES, "a.b", on))
    found = FleetPolicy(rules=rules).for_table("c", "a.x").operations
    assert {(policy.enabled, policy.decided_by) for policy in found.values()} == {(False, "off")}
    again = FleetPolicy(rules=rules).for_table("c", "a.b").operations
    assert again["compact"].enabled
    assert not again["remove-orphan-files"].enabled


@pytest.mark.parametrize(
    ("field", "far", "near", "expected"),
    [
        ("max_cost_per_day", 5.0, 0.0, 0.0),
        ("max_cost_per_day", 5.0, None, 5.0),
        ("max_cost_per_run", 5.0, 1.0, 1.0),
        ("quiet_windows", (NIGHT,), None, (NIGHT,)),
        ("quiet_windows", (NIGHT,), (), ()),
        ("compact_options", {"a": 1, "b": 1}, {"b": 2}, {"a": 1, "b": 2}),
    ],
)
def test_every_other_key_is_inherited_until_it_is_said_again(field: str, far: Any, near: Any, expected: Any) -> None:
    layers = [PolicyLayer(**({} if value is None else {field: value})) for value in (far, near)]
    policy = FleetPolicy(layers=(layers[0],), rules=(rule(Scope.TABLES, "*", layers[1]),))
    assert getattr(policy.for_table("c", "a.b"), field) == expected


def test_the_fleets_own_quiet_windows_hold_for_every_table_beside_its_own() -> None:
    own = QuietWindow(start=time(1), end=time(2))
    policy = FleetPolicy(quiet_windows=(NIGHT,), layers=(PolicyLayer(quiet_windows=(own,)),))
    assert policy.for_table("c", "a.b").quiet_windows == (NIGHT, own)


@pytest.mark.parametrize(
    ("glob", "catalog", "ident", "matches"),
    [
        ("sales.orders", "c", "sales.orders", True),
        ("sales.orders", "c", "sales.orders_2", False),
        ("sales.orders", "c", "xsales.orders", False),
        ("sales.*", "c", "sales.eu.orders", True),
        ("*.orders", "c", "sales.orders", True),
        ("*", "c", "sales.orders", True),
        ("s?les.orders", "c", "sales.orders", True),
        ("SALES.orders", "c", "sales.orders", False),
        ("sales.[a-z]*", "c", "sales.orders", False),
        ("sales.[x]", "c", "sales.[x]", True),
        ("sales.o*\n", "c", "sales.orders\n", True),
        ("glue/sales.*", "glue", "sales.orders", True),
        ("glue/sales.*", "rest", "sales.orders", False),
        ("g*/sales.*", "glue", "sales.orders", True),
        ("glue/*", "glue2", "sales.orders", False),
    ],
)
def test_a_glob_names_what_it_reads_like(glob: str, catalog: str, ident: str, matches: bool) -> None:
    found = FleetPolicy(rules=(rule(Scope.TABLES, glob),)).for_table(catalog, ident)
    assert found.operations["compact"].enabled is not matches


@pytest.mark.parametrize(
    ("scope", "name"), [(Scope.CATALOGS, "glue"), (Scope.NAMESPACES, "a.b"), (Scope.TABLES, "a.b.c")]
)
def test_each_section_is_held_against_its_own_name(scope: Scope, name: str) -> None:
    assert not FleetPolicy(rules=(rule(scope, name),)).for_table("glue", "a.b.c").operations["compact"].enabled
    for other in {"glue", "a.b", "a.b.c"} - {name}:
        assert FleetPolicy(rules=(rule(scope, other),)).for_table("glue", "a.b.c").operations["compact"].enabled


def test_an_ident_without_a_namespace_is_refused() -> None:
    with pytest.raises(InvalidRequest) as refused:
        FleetPolicy().for_table("glue", "orders")
    assert refused.value.code == "INVALID_IDENTIFIER"


NAMES = st.text(alphabet="ab._", min_size=1, max_size=6)


@given(st.lists(st.text(alphabet="ab.*?", min_size=1, max_size=5), max_size=8), NAMES, NAMES)
def test_the_index_finds_the_rules_that_asking_each_alone_finds(globs: list[str], namespace: str, table: str) -> None:
    ident = f"{namespace}.{table.replace('.', '')}x"
    rules = tuple(rule(Scope.TABLES, glob, said(False, str(at))) for at, glob in enumerate(globs))
    alone = [one for one in rules if not FleetPolicy(rules=(one,)).for_table("c", ident).operations["compact"].enabled]
    together = FleetPolicy(rules=rules).for_table("c", ident).operations["compact"]
    expected = alone[-1].layers[0].decided_by if alone else BUILT_IN
    assert together.decided_by == expected
    assert unmatched(FleetPolicy(rules=rules), [("c", ident)]) == tuple(one for one in rules if one not in alone)


def test_the_globs_that_name_no_table_are_told() -> None:
    rules = tuple(
        rule(*one) for one in [(Scope.CATALOGS, "glue"), (Scope.NAMESPACES, "stagin_*"), (Scope.TABLES, "*.x")]
    )
    tables = [("glue", "staging_1.orders"), ("rest", "sales.x")]
    assert unmatched(FleetPolicy(rules=rules), tables) == (rules[1],)
    assert unmatched(FleetPolicy(rules=rules), []) == rules


@pytest.mark.parametrize(
    ("now", "ends"),
    [
        (at(6, 21, 59), None),  # a Friday
        (at(6, 22), at(7, 6)),
        (at(6, 23, 59), at(7, 6)),
        (at(7, 0), at(7, 6)),
        (at(7, 5, 59), at(7, 6)),
        (at(7, 6), None),
        (at(7, 22), None),
        (at(6, 5), None),
    ],
)
def test_a_window_over_midnight_belongs_to_the_day_on_which_it_begins(now: float, ends: float | None) -> None:
    assert NIGHT.covers(now) is (ends is not None)
    assert NIGHT.ends(now) == (now if ends is None else ends)


def test_a_window_that_ends_when_it_starts_takes_the_whole_day() -> None:
    monday = QuietWindow(days=(0,), start=time(0), end=time(0))
    assert [monday.covers(at(day, hour)) for day, hour in [(1, 23), (2, 0), (2, 23), (3, 0)]] == [
        False,
        True,
        True,
        False,
    ]
    assert monday.ends(at(2, 12)) == at(3, 0)


def test_quiet_lasts_until_the_last_of_windows_that_follow_each_other() -> None:
    first, second = QuietWindow(start=time(1), end=time(3)), QuietWindow(start=time(3), end=time(5))
    assert quiet_until([second, first], at(3, 2)) == at(3, 5)
    assert quiet_until([second, first], at(3, 5)) is None
    assert quiet_until([], at(3, 5)) is None


def test_quiet_without_a_gap_is_told_to_end_all_the_same() -> None:
    always = QuietWindow(start=time(0), end=time(0))
    until = quiet_until([always], at(3, 5))
    assert until is not None
    assert at(10, 5) < until < at(13, 5)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Budgets(dollars_per_day=-0.01),
        lambda: Budgets(gb_seconds_per_day=float("nan")),
        lambda: Budgets(dollars_per_month=float("inf")),
        lambda: PolicyLayer(max_cost_per_day=-1.0),
        lambda: PolicyLayer(max_cost_per_run=-1.0),
        lambda: QuietWindow(days=(), start=time(1), end=time(2)),
        lambda: QuietWindow(days=(7,), start=time(1), end=time(2)),
        lambda: FleetPolicy(max_running=0),
        lambda: FleetPolicy(max_running_per_catalog=0),
    ],
)
def test_what_cannot_be_meant_cannot_be_built(wrong: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r"no amount|days|max_running"):
        wrong()


def test_a_tenant_has_its_own_budgets_or_those_of_all_others() -> None:
    own, others = Budgets(dollars_per_day=8.0), Budgets(dollars_per_day=1.0)
    policy = FleetPolicy(tenant_budgets={"acme": own}, default_tenant_budgets=others)
    assert (policy.budgets_of("acme"), policy.budgets_of("umbrella")) == (own, others)


def test_ten_thousand_tables_under_a_thousand_globs_are_held_against_few_of_them() -> None:
    """What makes it fast is that a name meets only the globs that begin as it does; no clock has to say so."""
    rules = tuple(rule(Scope.TABLES, f"ns{number}.*_raw") for number in range(1000))
    policy = FleetPolicy(rules=rules)
    tables = [("c", f"ns{number % 1000}.t{number}_raw") for number in range(10_000)]
    found = [policy.for_table(*table) for table in tables]
    assert not any(one.operations["compact"].enabled for one in found)
    assert len({id(one) for one in found}) == 1000, "tables that share their rules share what holds for them"


def test_a_policy_that_is_copied_with_other_rules_goes_by_those() -> None:
    first = FleetPolicy(rules=(rule(Scope.TABLES, "a.*"),))
    assert not first.for_table("c", "a.b").operations["compact"].enabled
    assert replace(first, rules=()).for_table("c", "a.b").operations["compact"].enabled
    assert pickle.loads(pickle.dumps(first)) == first
    assert pickle.loads(pickle.dumps(first)).for_table("c", "a.x") == first.for_table("c", "a.x")
