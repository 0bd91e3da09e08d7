"""A fleet's budgets hold, its tenants take turns, and each of its tables stands somewhere for a reason that is told."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regelate.core.fleet.candidates import (
    SHORT,
    Candidate,
    Worker,
    candidates_of,
    measured_pace,
    scores,
    weight_of_gain,
)
from regelate.core.fleet.conditions import parse_condition
from regelate.core.fleet.dealing import LEAST_SECONDS, SET_ASIDE
from regelate.core.fleet.list_prices import ListPrice
from regelate.core.fleet.observation import OverwriteRate
from regelate.core.fleet.operation import FleetOperation, FleetOutcome, FleetStatus, FleetTrigger, PauseKind
from regelate.core.fleet.policy import Budgets, FleetPolicy, OperationLayer, PolicyLayer, QuietWindow
from regelate.core.fleet.proposals import Proposals, Verdict
from regelate.core.fleet.propose import propose
from regelate.core.fleet.state import FleetState, Pause, TableState
from regelate.core.table.time_ranges import DAY_MS, HOUR_MS
from tests.unit.core.fleet_values import MB, NOW_MS, ended, ill, live_run, table

TENANTS = ("acme", "bolt", "core")
COMPACT = FleetOperation.COMPACT.value


@st.composite
def a_table(draw: st.DrawFn, number: int) -> TableState:
    name, tenant = f"t{number}", draw(st.sampled_from(TENANTS))
    names = {"tenant": tenant, "catalog": draw(st.sampled_from(["lake", "sea"]))}
    files = draw(st.integers(0, 3_000))
    seen = ill(
        name,
        files,
        **names,
        candidate_bytes=files * draw(st.integers(1, 64)) * MB,
        files_after=draw(st.integers(0, files)),
        snapshots=1000,
        expirable_snapshots=draw(st.integers(0, 1000)),
        manifests=100,
        manifests_after=draw(st.integers(1, 100)),
        delete_files=draw(st.integers(0, 50)),
        deleting_files=draw(st.integers(0, 50)),
        deleting_bytes=draw(st.integers(0, 10**10)),
        managed_by=draw(st.none() | st.just("Amazon S3 Tables")) if number % 7 == 0 else None,
        reads_per_day=draw(st.none() | st.floats(0, 1000)),
    )
    state = table(seen)
    if number % 5 == 0 and draw(st.booleans()):
        state = replace(state, observation=None)
    for past in range(draw(st.sampled_from([0, 0, 1, 2]))):
        run = live_run(f"run-{past}", predicted_dollars=draw(st.sampled_from([0.0, 0.0001, 0.001])))
        outcome = draw(st.sampled_from(FleetOutcome))
        state = state.queued(run).settled(ended(run, outcome, ended_ms=NOW_MS - draw(st.integers(0, DAY_MS))))
    if draw(st.integers(0, 9)) == 9:
        state = state.paused(Pause(kind=PauseKind.ASKED, reason="by anna", since_ms=NOW_MS))
    if draw(st.integers(0, 5)) == 5:
        state = state.queued(
            live_run("live", predicted_dollars=0.0001, max_dollars=draw(st.sampled_from([0.0, 0.0002])))
        )
        state = state.started(NOW_MS) if draw(st.booleans()) else state
    return state


@st.composite
def a_fleet(draw: st.DrawFn) -> FleetState:
    return FleetState(
        tables=tuple(draw(a_table(number)) for number in range(draw(st.sampled_from([12, 6, 3, 1, 0])))),
        files_quota=draw(st.sampled_from([{}, {"acme": 1000, "bolt": 10**6}])),
    )


BUDGETS = st.builds(
    Budgets,
    dollars_per_day=st.sampled_from([None, None, None, 0.001, 0.003, 0.01, 0.05, 0.0, 1e-320]),
    gb_seconds_per_day=st.sampled_from([None, None, None, None, 30.0, 150.0, 1500.0, 0.0]),
    dollars_per_month=st.sampled_from([None, None, None, None, None, 0.005, 0.5]),
)
POLICIES = st.builds(
    FleetPolicy,
    budgets=BUDGETS,
    tenant_budgets=st.dictionaries(st.sampled_from(TENANTS), BUDGETS),
    default_tenant_budgets=st.none() | BUDGETS,
    max_running=st.sampled_from([8, 4, 2, 1]),
    max_running_per_catalog=st.sampled_from([None, None, 3, 1]),
    layers=st.lists(
        st.builds(
            PolicyLayer,
            decided_by=st.just("defaults of regelate.yaml"),
            operations=st.dictionaries(
                st.sampled_from([operation.value for operation in FleetOperation]),
                st.builds(
                    OperationLayer, enabled=st.sampled_from([None, True, True, False]), decided_by=st.just("line 3")
                ),
            ),
            max_cost_per_day=st.sampled_from([None, None, 0.001, 0.0]),
            max_cost_per_run=st.sampled_from([None, None, 0.0005, 0.0]),
        ),
        max_size=1,
    ).map(tuple),
)


def verdict_of(proposals: Proposals, name: str = "t") -> Verdict:
    (found,) = (verdict for verdict in proposals.verdicts if verdict.ident == f"db.{name}")
    return found


def only(state: TableState, policy: FleetPolicy | None = None) -> Verdict:
    return verdict_of(propose(FleetState(tables=(state,)), policy or FleetPolicy(), NOW_MS))


def spent_of(tables: tuple[TableState, ...], now_ms: int = NOW_MS) -> tuple[float, float, float]:
    """Dollars and GB-seconds of the day, dollars of the month: of runs that ended and of live ones."""
    spent = [state.spent.on(now_ms) for state in tables]
    live = [state.live for state in tables if state.live is not None]
    return (
        sum(s.day_dollars for s in spent) + sum(run.dollars for run in live),
        sum(s.day_gb_seconds for s in spent) + sum(run.gb_seconds for run in live),
        sum(s.month_dollars for s in spent) + sum(run.dollars for run in live),
    )


def carried_out(state: FleetState, proposals: Proposals) -> FleetState:
    """The fleet with each proposal queued."""
    runs = {
        p.candidate.table_uuid: p.run(f"run-{p.rank}", asked_by="fleet", trigger=FleetTrigger.SCHEDULE, now_ms=NOW_MS)
        for p in proposals.proposed
    }
    queued = [t.queued(runs[t.table_uuid]) if t.table_uuid in runs else t for t in state.tables]
    return replace(state, tables=tuple(queued))


@given(a_fleet(), POLICIES)
def test_no_budget_is_exceeded_by_what_is_set_aside(state: FleetState, policy: FleetPolicy) -> None:
    proposals = propose(state, policy, NOW_MS)
    after = carried_out(state, proposals)
    served = {p.candidate.tenant for p in proposals.proposed}
    whose = [(policy.budgets, after.tables, bool(served))]
    for tenant in TENANTS:
        of_tenant = tuple(t for t in after.tables if t.tenant == tenant)
        whose.append((policy.budgets_of(tenant), of_tenant, tenant in served))
    for budgets, tables, got_some in whose:
        limits = (budgets.dollars_per_day, budgets.gb_seconds_per_day, budgets.dollars_per_month)
        for spent, limit in zip(spent_of(tables), limits, strict=True):
            assert not got_some or limit is None or spent <= limit * (1 + 1e-6) + 1e-9
    for proposal in proposals.proposed:
        allowed = policy.for_table(proposal.candidate.catalog, proposal.candidate.ident)
        assert proposal.max_dollars <= (allowed.max_cost_per_run or 1e9) * (1 + 1e-6)


@pytest.mark.parametrize("tenants", [1, 3])
@pytest.mark.parametrize(
    ("budgets", "limit"),
    [
        (Budgets(dollars_per_day=0.003), (0.003, 1e9, 1e9)),
        (Budgets(gb_seconds_per_day=90.0), (1e9, 90.0, 1e9)),
        (Budgets(dollars_per_month=0.003), (1e9, 1e9, 0.003)),
    ],
)
def test_many_together_exceed_a_budget_as_little_as_one(
    budgets: Budgets, limit: tuple[float, float, float], tenants: int
) -> None:
    state = FleetState(tables=tuple(table(ill(f"t{n}", 2000, tenant=TENANTS[n % tenants])) for n in range(6)))
    for policy in (FleetPolicy(budgets=budgets), FleetPolicy(default_tenant_budgets=budgets)):
        after = carried_out(state, propose(state, policy, NOW_MS))
        mine = (
            after.tables if policy.default_tenant_budgets is None else [t for t in after.tables if t.tenant == "acme"]
        )
        spent = spent_of(tuple(mine))
        assert all(found <= most * (1 + 1e-9) for found, most in zip(spent, limit, strict=True))
        assert any(found >= most * 0.9 for found, most in zip(spent, limit, strict=True))


@given(a_fleet(), POLICIES)
def test_of_a_table_one_run_is_live_and_of_a_fleet_as_many_as_it_may(state: FleetState, policy: FleetPolicy) -> None:
    proposals = propose(state, policy, NOW_MS)
    live = Counter(t.catalog for t in state.tables if t.live is not None)
    running = Counter(t.catalog for t in carried_out(state, proposals).tables if t.live is not None)
    assert running.total() == live.total() + len(proposals.proposed)
    assert running.total() <= max(policy.max_running, live.total())
    for catalog, number in running.items():
        assert number <= max(policy.max_running_per_catalog or 99, live[catalog])


@given(a_fleet(), POLICIES)
def test_every_table_has_one_status_and_a_sentence(state: FleetState, policy: FleetPolicy) -> None:
    proposals = propose(state, policy, NOW_MS)
    assert [verdict.table_uuid for verdict in proposals.verdicts] == [t.table_uuid for t in state.tables]
    proposed = {p.candidate.table_uuid for p in proposals.proposed}
    for verdict, of in zip(proposals.verdicts, state.tables, strict=True):
        assert verdict.sentence.endswith(".")
        assert verdict.sentence[0].isupper() or verdict.sentence.split()[0] in {o.value for o in FleetOperation}
        assert (verdict.status in (FleetStatus.QUEUED, FleetStatus.RUNNING)) == (of.live is not None)
        assert verdict.table_uuid not in proposed or verdict.status is FleetStatus.DUE
        assert verdict.eligible_ms is None or verdict.eligible_ms >= NOW_MS or verdict.status is FleetStatus.HEALTHY


@given(a_fleet(), POLICIES, st.randoms(use_true_random=False))
def test_the_same_fleet_gets_the_same_whatever_its_order(state: FleetState, policy: FleetPolicy, rand: object) -> None:
    assert propose(state, policy, NOW_MS) == propose(state, policy, NOW_MS)
    shuffled = list(state.tables)
    rand.shuffle(shuffled)  # type: ignore[attr-defined]
    other = propose(replace(state, tables=tuple(shuffled)), policy, NOW_MS)
    chosen = [(p.candidate.table_uuid, p.operation) for p in propose(state, policy, NOW_MS).proposed]
    assert [(p.candidate.table_uuid, p.operation) for p in other.proposed] == chosen


@given(
    st.lists(st.integers(1, 12), min_size=2, max_size=6),
    st.integers(1, 12),
    st.integers(10, 500),
)
def test_tenants_with_as_much_to_do_take_turns(tables: list[int], places: int, files: int) -> None:
    """One tenant's many bad tables never starve the others: none gets a second run before all got a first one."""
    state = FleetState(
        tables=tuple(
            table(ill(f"t{tenant}-{number}", files, tenant=f"x{tenant}"))
            for tenant, owned in enumerate(tables)
            for number in range(owned)
        )
    )
    proposals = propose(state, FleetPolicy(max_running=places), NOW_MS)
    runs = Counter(proposal.candidate.tenant for proposal in proposals.proposed)
    assert runs.total() == min(places, sum(tables))
    for tenant, owned in enumerate(tables):
        for other in runs:
            assert runs[f"x{tenant}"] >= min(owned, runs[other] - 1)


def test_who_used_most_of_the_last_hour_comes_last() -> None:
    busy = live_run("run-0")
    tables = [table(ill(f"{tenant}{n}", tenant=tenant)) for tenant in ("acme", "bolt") for n in range(2)]
    spent = tables[0].queued(busy).settled(ended(busy, ended_ms=NOW_MS - HOUR_MS // 2))
    earlier = tables[2].queued(busy).settled(ended(busy, ended_ms=NOW_MS - 2 * HOUR_MS))
    state = FleetState(tables=(spent, tables[1], earlier, tables[3]))
    (first,) = propose(state, FleetPolicy(max_running=1), NOW_MS).proposed
    assert first.candidate.tenant == "bolt"


def test_a_tenant_not_served_today_keeps_its_first_share_of_the_fleets_day() -> None:
    many = [table(ill(f"a{n}", 4000, tenant="acme")) for n in range(40)]
    late = table(ill("late", 400, tenant="bolt"), pause=Pause(kind=PauseKind.ASKED, reason="x", since_ms=0))
    policy = FleetPolicy(budgets=Budgets(dollars_per_day=0.1), max_running=100)
    state = FleetState(tables=(*many, late))
    proposals = propose(state, policy, NOW_MS)
    assert 0.08 < sum(p.max_dollars for p in proposals.proposed) <= 0.095 + 1e-9
    now_well = replace(
        carried_out(state, proposals), tables=(*carried_out(state, proposals).tables[:-1], late.resumed())
    )
    served = propose(now_well, policy, NOW_MS).proposed[0]
    assert served.candidate.tenant == "bolt"


def ranks(*tables: TableState) -> list[str]:
    proposals = propose(FleetState(tables=tables), FleetPolicy(max_running=99), NOW_MS)
    return [proposal.candidate.ident for proposal in proposals.proposed]


@given(st.integers(20, 5_000), st.integers(1, 20), st.integers(0, 2), st.integers(1, 64))
def test_a_table_that_gets_worse_never_loses_rank_against_an_equal_one(
    files: int, worse: int, way: int, mb: int
) -> None:
    size = {"candidate_bytes": files * mb * MB // 8}
    after = -(-files // 128)
    told = [
        {"files": files * worse, "files_after": after, **size},
        {"files": files * worse, "files_after": after * worse, "candidate_bytes": size["candidate_bytes"] * worse},
        {"files": files, "files_after": 0, **size},
    ][way]
    equal = ill("equal", files, **size)
    seen = ill("a-worse", **told)
    first = next(candidates_of(table(equal), measured_pace(())))
    second = next(candidates_of(table(seen), measured_pace(())))
    low, high = scores([first, second], {})
    assert high >= low - 1e-9
    proposed = propose(FleetState(tables=(table(equal), table(seen))), FleetPolicy(max_running=1), NOW_MS).proposed
    assert proposed[0].candidate.ident == "db.a-worse"


def candidate(state: TableState, operation: FleetOperation = FleetOperation.COMPACT) -> Candidate:
    (found,) = (c for c in candidates_of(state, measured_pace((state,))) if c.operation is operation)
    return found


def test_without_a_quota_the_order_is_that_of_gain_per_dollar() -> None:
    found = [candidate(table(ill(f"t{n}", files))) for n, files in enumerate((7, 60, 600, 6000))]
    found.append(candidate(table(ill("wide", 600, candidate_bytes=10**12))))
    by_score = [c.ident for _, c in sorted(zip(scores(found, {}), found, strict=True), key=lambda one: -one[0])]
    assert by_score == [c.ident for c in sorted(found, key=lambda c: -c.opens_per_dollar)]


def test_a_tenant_at_its_quota_pays_more_for_files() -> None:
    assert [weight_of_gain(used, 100) for used in (0, 50, 100, 500)] == [0.5, 0.75, 1.0, 1.0]
    assert weight_of_gain(10**9, None) == 0.5
    large, cheap = ill("large", 5_000, candidate_bytes=10**13), ill("cheap", 50)
    state = FleetState(tables=(table(large), table(cheap)))
    policy = FleetPolicy(max_running=1)
    assert propose(state, policy, NOW_MS).proposed[0].candidate.ident == "db.cheap"
    full = replace(state, files_quota={"acme": 5_000})
    assert propose(full, policy, NOW_MS).proposed[0].candidate.ident == "db.large"


def test_partitions_of_one_file_each_are_no_gain() -> None:
    scattered = table(ill("t", 400, partitions=400, files_after=400))
    assert list(candidates_of(scattered, measured_pace(()))) == []
    assert verdict_of(propose(FleetState(tables=(scattered,)), FleetPolicy(), NOW_MS)).status is FleetStatus.HEALTHY


def test_reads_that_are_known_rank_and_what_is_not_known_counts_as_usual() -> None:
    seen = [("never", 0.0), ("seldom", 10.0), ("often", 1000.0), ("unknown", None)]
    tables = [table(ill(name, reads_per_day=reads)) for name, reads in seen]
    order = ranks(*tables)
    assert order == ["db.often", "db.seldom", "db.unknown"]
    often = candidate(tables[2])
    assert often.benefit_per_day is not None
    assert often.benefit_per_day == pytest.approx(1000 * 396 * (0.1 * 2 * 0.0000166667 + 0.0000004), rel=1e-6)
    assert candidate(tables[3]).benefit_per_day is None
    assert candidate(table(ill("part", reads_per_day=1.0, files_per_read=40.0))).opens == pytest.approx(39.6)


def test_a_rewrite_that_readers_do_not_save_in_a_month_waits_for_more_readers_or_a_quota() -> None:
    dear = ill(files=400, candidate_bytes=400 * 60 * MB, files_after=200)
    told = only(table(dear))
    assert told.status is FleetStatus.HEALTHY
    assert "readers do not save in 30 days: it is read once a day, as is believed of it" in told.sentence
    assert only(table(replace(dear, reads_per_day=50.0))).status is FleetStatus.DUE
    assert only(table(ill(reads_per_day=0.0))).status is FleetStatus.HEALTHY
    full = FleetState(tables=(table(dear),), files_quota={"acme": 450})
    assert propose(full, FleetPolicy(), NOW_MS).proposed[0].operation is FleetOperation.COMPACT


def test_what_is_overwritten_soon_is_worth_less() -> None:
    still = candidate(table(ill()))
    soon = candidate(table(ill(overwrites=(OverwriteRate(age_hours=24, probability=0.75),))))
    assert (still.risk, soon.risk) == (0.0, 0.75)
    assert soon.opens == pytest.approx(still.opens / 4)
    busy = candidate(table(ill(commit_kinds=(("append", 1), ("overwrite", 3)), commits_per_hour=600.0)))
    assert 0.5 < busy.risk < 0.9


def test_the_pace_of_the_fleet_corrects_the_model() -> None:
    state = table(ill())
    for number in range(8):
        run = live_run(f"run-{number}", model_seconds=100.0, predicted_seconds=100.0)
        state = state.queued(run).settled(ended(run, actual_seconds=200.0, ended_ms=NOW_MS - DAY_MS))
    pace = measured_pace((state,))
    assert pace.factor(FleetOperation.COMPACT, 1) == pytest.approx(2.0, abs=0.01)
    assert pace.factor(FleetOperation.EXPIRE, 0) == pace.overall == pytest.approx(2.0, abs=0.01)
    assert measured_pace(()).factor(FleetOperation.EXPIRE, 0) == 1.0
    assert pace.error == 1.0
    fresh, measured = candidate(table(ill())), candidate(state)
    assert measured.seconds == pytest.approx(fresh.seconds * pace.factor(FleetOperation.COMPACT, 1))


def paced(*ratios: float, operation: FleetOperation = FleetOperation.EXPIRE, model: float = 1.0) -> TableState:
    """A table whose runs took so many times what the model had said."""
    state = table(ill(f"past-{operation}"))
    for number, ratio in enumerate(ratios):
        run = live_run(f"run-{number}", operation=operation, model_seconds=model, predicted_seconds=model)
        state = state.queued(run).settled(ended(run, actual_seconds=model * ratio, ended_ms=NOW_MS - DAY_MS))
    return state


def test_three_short_runs_are_believed_and_one_that_waited_is_not() -> None:
    quick = measured_pace([paced(0.05, 0.06, 0.05)])
    assert quick.factor(FleetOperation.EXPIRE, SHORT) == pytest.approx(0.06)
    assert measured_pace([paced(0.05)]).factor(FleetOperation.EXPIRE, SHORT) > 0.2
    waited = measured_pace([paced(0.05, 0.05, 0.05, 0.06, 9.0)])
    assert waited.factor(FleetOperation.EXPIRE, SHORT) == pytest.approx(0.06)


def test_quick_work_on_metadata_makes_no_rewrite_cheaper_that_was_measured() -> None:
    slow = paced(1.5, 1.5, 1.5, 1.5, operation=FleetOperation.COMPACT, model=50.0)
    pace = measured_pace([paced(*[0.05] * 8), slow])
    assert pace.factor(FleetOperation.COMPACT, 1) == pytest.approx(1.5)
    assert pace.factor(FleetOperation.APPLY_DELETES, 1) == pytest.approx(1.5)  # it rewrites as a COMPACT does
    assert pace.factor(FleetOperation.REWRITE_MANIFESTS, SHORT) == pytest.approx(0.05)


def test_a_run_that_does_not_fit_is_done_in_part_and_ends_there() -> None:
    state = FleetState(tables=(table(ill("t", 20_000)),))
    (whole,) = propose(state, FleetPolicy(), NOW_MS).proposed
    assert (whole.candidate.share, whole.max_files) == (1.0, None)
    half = FleetPolicy(default_tenant_budgets=Budgets(dollars_per_day=whole.max_dollars / 2))
    proposals = propose(state, half, NOW_MS)
    (part,) = proposals.proposed
    assert part.max_dollars == pytest.approx(whole.max_dollars / 2)
    assert 0.45 < part.candidate.share < 0.5
    assert part.max_files == pytest.approx(20_000 * part.candidate.share, abs=1)
    assert f"{part.candidate.share:.0%} of the work" in verdict_of(proposals).sentence
    assert part.max_seconds == pytest.approx(part.candidate.seconds * SET_ASIDE)


def test_a_table_with_several_things_to_do_takes_one_place() -> None:
    sick = ill("sick", expirable_snapshots=900, snapshots=1000, manifests=500, manifests_after=1)
    state = FleetState(tables=(table(sick), table(ill("other", 10))))
    proposals = propose(state, FleetPolicy(max_running=2), NOW_MS)
    assert {proposal.candidate.ident for proposal in proposals.proposed} == {"db.sick", "db.other"}


def test_gb_seconds_are_a_budget_of_their_own() -> None:
    state = FleetState(tables=(table(ill("a")), table(ill("b", tenant="bolt"))))
    needed = candidate(state.tables[0]).gb_seconds * SET_ASIDE
    policy = FleetPolicy(budgets=Budgets(gb_seconds_per_day=needed * 1.01), default_tenant_budgets=Budgets())
    proposals = propose(state, policy, NOW_MS)
    assert len(proposals.proposed) == 1
    (left,) = (v for v in proposals.verdicts if v.status is FleetStatus.OVER_BUDGET)
    assert "GB-seconds of the fleet's day" in left.sentence


def test_a_month_that_is_spent_comes_back_on_the_first() -> None:
    run = live_run(predicted_dollars=1.0, max_dollars=1.0)
    state = table(ill()).queued(run).settled(ended(run, ended_ms=NOW_MS - DAY_MS))
    told = only(state, FleetPolicy(default_tenant_budgets=Budgets(dollars_per_month=1.0)))
    assert told.status is FleetStatus.OVER_BUDGET
    assert told.sentence.endswith("$0 is left of the month of tenant acme; a new month begins at 2024-11-01 00:00 UTC.")


def test_an_operation_that_is_off_or_waits_is_told_with_its_line() -> None:
    off = PolicyLayer(operations={COMPACT: OperationLayer(enabled=False, decided_by="line 4 of regelate.yaml")})
    told = only(table(ill()), FleetPolicy(layers=(off,)))
    assert told.status is FleetStatus.DISABLED
    assert "line 4 of regelate.yaml" in told.sentence
    when = OperationLayer(when=parse_condition("files > 1000"), decided_by="line 5 of regelate.yaml")
    waits = FleetPolicy(layers=(PolicyLayer(operations={COMPACT: when}),))
    told = only(table(ill()), waits)
    assert told.status is FleetStatus.HEALTHY
    assert "files > 1000" in told.sentence
    assert only(table(ill(files=2000)), waits).status is FleetStatus.DUE


def test_a_quiet_window_cools_until_its_end() -> None:
    window = QuietWindow(start=time(11), end=time(14))
    told = only(table(ill()), FleetPolicy(quiet_windows=(window,)))
    assert (told.status, told.eligible_ms) == (FleetStatus.COOLING, NOW_MS + 2 * HOUR_MS)


@pytest.mark.parametrize("account", ["dollars_per_day", "dollars_per_month", "gb_seconds_per_day"])
def test_what_others_have_spent_cannot_be_told_from_what_a_tenant_is_told(account: str) -> None:
    """Of a table with 70,000 snapshots to let go, which costs some $0.04 and 700 GB-seconds, and none of it in part."""
    policy = FleetPolicy(budgets=Budgets(**{account: 1000.0 if account == "gb_seconds_per_day" else 1.0}))
    mine = table(ill("mine", 8, tenant="acme", files_after=8, snapshots=70_000, expirable_snapshots=70_000))
    told = []
    for share in (0.98, 0.99):
        busy = live_run("run-0")
        paid = ended(busy, actual_dollars=share, actual_gb_seconds=1000 * share)
        spent = table(ill("other", tenant="bolt")).queued(busy).settled(paid)
        told.append(propose(FleetState(tables=(spent, mine)), policy, NOW_MS).verdicts[1])
    assert [verdict.status for verdict in told] == [FleetStatus.OVER_BUDGET] * 2
    assert told[0].sentence != told[1].sentence
    assert told[0].told(private=True) == told[1].told(private=True)
    assert "not enough is left of the" in told[0].told(private=True)


@pytest.mark.parametrize("dollars", [None, 0.0003, 0.01])
def test_a_run_is_ended_in_time_for_what_one_may_cost_and_not_before_its_prediction(dollars: float | None) -> None:
    policy = FleetPolicy(layers=(PolicyLayer(max_cost_per_run=dollars),))
    (proposal,) = propose(FleetState(tables=(table(ill(files=100)),)), policy, NOW_MS).proposed
    candidate = proposal.candidate
    assert proposal.max_seconds >= candidate.seconds
    beyond = Worker().dollars(proposal.max_seconds - candidate.seconds, 0, 0)
    assert dollars is None or candidate.dollars + beyond <= dollars * (1 + 1e-9)
    assert (proposal.max_seconds == LEAST_SECONDS) == (dollars != 0.0003)


def test_a_list_price_is_by_gigabyte_file_and_run_of_rewrites_only() -> None:
    price = ListPrice(name="them", per_gb=0.01, per_million_files=2.0, per_run=0.5, source="a bill", as_of="2026-11-01")
    rewrite = replace(candidate(table(ill())), read_bytes=3 * 10**9, read_files=1_000_000)
    expiry = replace(rewrite, operation=FleetOperation.EXPIRE)
    assert price.dollars([rewrite, expiry]) == pytest.approx(6 * 0.01 + 2.0 + 0.5)
    assert price.dollars([expiry]) == 0.0
