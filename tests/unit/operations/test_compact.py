"""COMPACT as a whole over a table in memory, with an auditor that counts rows after every interleaving."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regelate.core.policy.policy import CompactionPolicy, PlacementPolicy, RetentionPolicy, Verify
from regelate.core.requests import CompactRequest
from regelate.core.running.placement import PlacementReason
from regelate.errors import (
    CommitStateUnknown,
    Conflict,
    DataUnavailable,
    InvalidRequest,
    InvariantViolated,
    NotAllowed,
    NotFound,
    RegelateError,
    ResourceExhausted,
    Unavailable,
)
from regelate.operations.compacting.compact import CompactCommand, CompactOutcome, Status, compact
from tests.unit.operations.fakes import (
    CountingClock,
    MemoryCommitter,
    MemoryEngine,
    MemoryReclaimer,
    MemoryTable,
    Told,
    tools_for,
)

POLICY = CompactionPolicy(
    target_file_size_bytes=1000, min_file_size_bytes=750, max_file_size_bytes=1800, min_input_files=2
)
OUTPUT = "outputs/"


def command(**given_values: Any) -> CompactCommand:
    return CompactCommand(**{"policy": POLICY, "run_id": "run", **given_values})


@pytest.fixture
def table() -> MemoryTable:
    """Three small files in x (rows 0-14) and three in y (100-114)."""
    return filled()


def filled() -> MemoryTable:
    table = MemoryTable()
    for i in range(3):
        table.append("x", range(5 * i, 5 * i + 5))
        table.append("y", range(100 + 5 * i, 105 + 5 * i))
    return table


def files_of(table: MemoryTable, name: str) -> list[str]:
    return [p for p, f in table.state.files.items() if f.partition.path == f"p={name}"]


def outputs(table: MemoryTable) -> set[str]:
    return {path for path in table.storage if path.startswith(OUTPUT)}


def live_outputs(table: MemoryTable) -> set[str]:
    return {p for state in table.states.values() for p in state.files if p.startswith(OUTPUT)}


# --- the straight line ------------------------------------------------------------------------------------------------


def test_groups_are_rewritten_into_one_replace_snapshot_and_the_world_is_told_once(table: MemoryTable) -> None:
    before, told = table.rows(), Told()
    outcome = compact(tools_for(table, telemetry=told), command())
    assert (outcome.status, outcome.reason, outcome.compacted) == (Status.COMPLETED, "RECOMMENDED", True)
    assert table.rows() == before
    assert [s.operation for s in table.log] == ["append"] * 6 + ["replace"]
    assert {f.sequence_number for f in table.state.files.values()} == {6}
    assert outcome.snapshot_id == table.head_id
    assert outcome.stats is not None
    assert told.stats == [outcome.stats]
    assert [name for name, _ in told.spans] == ["plan", "execute", "commit"]
    assert (outcome.stats.files_before, outcome.stats.files_after, outcome.stats.rows) == (6, 2, 30)


@pytest.mark.parametrize(("parts", "probes"), [("xxxx", 1), ("xy", 0)], ids=["several of one", "one of each"])
def test_groups_that_one_partition_has_several_of_are_cut_by_the_size_that_outputs_really_have(
    parts: str, probes: int
) -> None:
    """Without it, what compresses well would come out small, and the next run would find work again (law 11)."""
    table = MemoryTable()
    for number, name in enumerate(parts * 500):
        table.append(name, [number])
    size = sum(f.size_bytes for f in table.state.files.values()) // len(parts)
    policy = CompactionPolicy(
        target_file_size_bytes=size, min_file_size_bytes=size * 3 // 4, max_file_size_bytes=size * 2, min_input_files=2
    )
    asked: list[int] = []
    tools = tools_for(table)
    cast(Any, tools.engine).achieved_ratio = lambda group, policy: asked.append(len(group.tasks)) or 0.25
    outcome = compact(tools, command(policy=policy))
    assert len(asked) == probes
    assert outcome.plan is not None
    assert len(outcome.plan.groups) == (1 if probes else 2)


def test_a_dry_run_writes_and_commits_nothing(table: MemoryTable) -> None:
    outcome = compact(tools_for(table), command(dry_run=True))
    assert (outcome.status, outcome.compacted) == (Status.PLANNED, False)
    assert outcome.plan is not None
    assert len(outcome.plan.groups) == 2
    assert (len(table.log), outputs(table)) == (6, set())


def test_a_run_with_nothing_to_merge_expires_all_the_same_and_says_so(table: MemoryTable) -> None:
    compact(tools_for(table), command())
    kept = RetentionPolicy(max_snapshot_age_ms=1, min_snapshots_to_keep=1)
    clock = CountingClock(seconds=100.0)
    done = compact(tools_for(table, clock=clock), command(run_id="other", retention=kept))
    assert (done.status, done.reason, done.compacted) == (Status.NOTHING_TO_DO, "NO_CANDIDATE", False)
    assert done.stats is not None
    assert (done.stats.snapshots_expired, done.stats.files_compacted, done.stats.groups) == (6, 0, 0)
    assert (done.stats.files_before, done.stats.files_after) == (2, 2)
    assert len(table.log) == 1
    again = compact(tools_for(table, clock=clock), command(run_id="third", retention=kept))
    assert (again.status, again.stats) == (Status.NOTHING_TO_DO, None)


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_plan_above_max_cost_is_refused_on_a_dry_run_too_and_its_price_is_told(
    table: MemoryTable, dry_run: bool
) -> None:
    plan = compact(tools_for(table), command(dry_run=True))
    assert plan.estimate is not None
    dollars = plan.estimate.dollars
    assert dollars > 0
    with pytest.raises(InvalidRequest) as caught:
        compact(tools_for(table), command(dry_run=dry_run, request=CompactRequest(max_cost=dollars * 0.9)))
    assert (caught.value.code, caught.value.details["estimated_dollars"]) == ("COST_LIMIT_EXCEEDED", round(dollars, 6))
    allowed = compact(tools_for(table), command(dry_run=dry_run, request=CompactRequest(max_cost=dollars * 1.1)))
    assert allowed.status is (Status.PLANNED if dry_run else Status.COMPLETED)


def test_a_second_run_finds_nothing_to_do(table: MemoryTable) -> None:
    compact(tools_for(table), command())
    again = compact(tools_for(table), command(run_id="other"))
    assert (again.status, again.reason, again.compacted) == (Status.NOTHING_TO_DO, "NO_CANDIDATE", False)
    assert len(table.log) == 7


def test_the_plan_of_a_dry_run_is_executed_and_another_is_refused(table: MemoryTable) -> None:
    plan = compact(tools_for(table), command(dry_run=True)).plan
    assert plan is not None
    with pytest.raises(Conflict) as caught:
        compact(tools_for(table), command(plan_id=plan.plan_id[:-1] + ("0" if plan.plan_id[-1] != "0" else "1")))
    assert caught.value.code == "PLAN_CHANGED"
    assert compact(tools_for(table), command(plan_id=plan.plan_id)).status is Status.COMPLETED


def planned(table: MemoryTable) -> str:
    plan = compact(tools_for(table), command(dry_run=True)).plan
    assert plan is not None
    return plan.plan_id


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_plan_that_was_executed_is_already_done_and_nothing_is_rewritten(table: MemoryTable, dry_run: bool) -> None:
    plan_id = planned(table)
    first = compact(tools_for(table), command(plan_id=plan_id))
    written = outputs(table)
    again = compact(tools_for(table, engine=None), command(run_id="other", plan_id=plan_id, dry_run=dry_run))
    assert (again.status, again.reason) == (Status.ALREADY_DONE, "PLAN_ALREADY_COMMITTED")
    assert again.snapshot_id == first.snapshot_id
    assert outputs(table) == written


def test_a_plan_whose_files_others_have_rewritten_is_refused_before_any_work(table: MemoryTable) -> None:
    plan_id = planned(table)
    table.append("x", [77])
    table.append("y", [78])
    compact(tools_for(table), command())
    with pytest.raises(Conflict, match="all 2 groups") as caught:
        compact(tools_for(table, engine=None), command(run_id="other", plan_id=plan_id))
    assert (caught.value.code, caught.value.retryable) == ("PLAN_CHANGED", False)


def test_of_a_plan_of_which_others_changed_a_part_the_rest_is_done(table: MemoryTable) -> None:
    plan_id = planned(table)
    table.overwrite_without(files_of(table, "x")[0])
    before = table.rows()
    done = compact(tools_for(table), command(plan_id=plan_id))
    assert (done.status, done.reason) == (Status.PARTIAL, "CONFLICT_INPUT_REMOVED")
    assert done.stats is not None
    assert (done.stats.groups, done.stats.dropped_groups) == (1, 1)
    assert "was dropped: CONFLICT_INPUT_REMOVED" in done.warnings[0]
    assert table.rows() == before


def test_a_plan_whose_snapshot_has_expired_is_changed_or_was_executed(table: MemoryTable) -> None:
    fresh, plan_id = filled(), planned(table)
    for one in (table, fresh):
        one.append("x", [77])
    compact(tools_for(table), command(plan_id=plan_id))
    for one in (table, fresh):
        one.expire([int(plan_id.split("-")[0])])
    assert compact(tools_for(table), command(run_id="other", plan_id=plan_id)).status is Status.ALREADY_DONE
    with pytest.raises(Conflict, match="has expired; plan again") as caught:
        compact(tools_for(fresh), command(plan_id=plan_id))
    assert caught.value.code == "PLAN_CHANGED"


def test_a_run_id_that_another_request_has_used_is_refused(table: MemoryTable) -> None:
    compact(tools_for(table), command(request_digest="one"))
    assert compact(tools_for(table), command(request_digest="one")).status is Status.ALREADY_DONE
    assert compact(tools_for(table), command()).status is Status.ALREADY_DONE, "an earlier version did not say"
    with pytest.raises(InvalidRequest) as caught:
        compact(tools_for(table), command(request_digest="another"))
    assert (caught.value.code, caught.value.status) == ("IDEMPOTENCY_KEY_REUSED", 422)


def test_a_run_that_landed_before_is_already_done_and_reads_nothing(table: MemoryTable) -> None:
    first = compact(tools_for(table), command())
    table.append("x", [77])
    table.append("x", [78])
    again = compact(tools_for(table, reader=None), command())
    assert (again.status, again.snapshot_id) == (Status.ALREADY_DONE, first.snapshot_id)


def test_what_is_too_large_or_too_dear_is_refused_before_any_work(table: MemoryTable) -> None:
    tiny = PlacementPolicy(memory_bytes=1, threads=1, max_in_process_bytes=10)
    with pytest.raises(ResourceExhausted) as large:
        compact(tools_for(table, placement=tiny), command())
    assert large.value.code == PlacementReason.TOO_LARGE.value
    with pytest.raises(InvalidRequest) as dear:
        compact(tools_for(table), command(request=CompactRequest(max_cost=1e-9)))
    assert (dear.value.code, dear.value.status) == ("COST_LIMIT_EXCEEDED", 422)
    assert outputs(table) == set()


def test_max_files_leaves_groups_for_another_run_and_says_so(table: MemoryTable) -> None:
    policy = CompactionPolicy(
        target_file_size_bytes=1000, min_file_size_bytes=750, max_file_size_bytes=1800, min_input_files=2, max_files=3
    )
    first = compact(tools_for(table), command(policy=policy))
    assert (first.status, first.reason) == (Status.PARTIAL, "BUDGET_CAPPED")
    second = compact(tools_for(table), command(policy=policy, run_id="next"))
    assert second.status is Status.COMPLETED
    assert len(table.state.files) == 2


# --- faults -----------------------------------------------------------------------------------------------------------

MISSING = DataUnavailable("DATA_FILE_MISSING", "data/1 is missing", path="data/1")


def test_a_group_that_cannot_be_read_is_left_out_with_its_reason(table: MemoryTable) -> None:
    before = table.rows()
    outcome = compact(tools_for(table, engine=MemoryEngine(table, faults={0: MISSING})), command())
    assert (outcome.status, outcome.reason) == (Status.PARTIAL, "DATA_FILE_MISSING")
    assert "data/1 is missing" in outcome.warnings[0]
    assert outcome.stats is not None
    assert (outcome.stats.groups, outcome.stats.dropped_groups) == (1, 1)
    assert (len(files_of(table, "x")), len(files_of(table, "y"))) == (3, 1)
    assert table.rows() == before


def test_when_no_group_can_be_read_the_first_fault_is_the_answer(table: MemoryTable) -> None:
    other = DataUnavailable("DATA_FILE_CORRUPT", "x")
    with pytest.raises(DataUnavailable) as caught:
        compact(tools_for(table, engine=MemoryEngine(table, faults={0: MISSING, 1: other})), command())
    assert caught.value is MISSING
    assert len(table.log) == 6


def test_a_fault_of_no_known_kind_is_ours_and_spoils_one_group(table: MemoryTable) -> None:
    outcome = compact(tools_for(table, engine=MemoryEngine(table, faults={1: ZeroDivisionError("x")})), command())
    assert (outcome.status, outcome.reason) == (Status.PARTIAL, "ENGINE_FAULT")


def test_an_engine_that_forgets_deletes_is_refused_before_the_commit(table: MemoryTable) -> None:
    """Law 7."""
    table.delete_at(files_of(table, "x")[0], [0])
    before = table.rows()
    outcome = compact(tools_for(table, engine=MemoryEngine(table, loses_deletes=True)), command())
    assert (outcome.status, outcome.reason) == (Status.PARTIAL, "ROWS_NOT_CONSERVED")
    assert table.rows() == before
    assert outputs(table) == live_outputs(table)
    with pytest.raises(InvariantViolated):
        compact(tools_for(table, engine=MemoryEngine(table, loses_deletes=True)), command(run_id="again"))
    assert outputs(table) == live_outputs(table)


def test_strict_refuses_another_value_and_fast_does_not_look(table: MemoryTable) -> None:
    """Law 7: as many rows as before, and one of them changed."""

    def engine() -> MemoryEngine:
        made = MemoryEngine(table, between=lambda: table.storage[made.written[-1]].__setitem__(0, 999))
        return made

    before = table.rows()
    outcome = compact(tools_for(table, engine=engine()), command(verify=Verify.STRICT))
    assert (outcome.status, outcome.reason) == (Status.PARTIAL, "ROWS_CHANGED")
    assert table.rows() == before
    assert outputs(table) == live_outputs(table)
    fast = compact(tools_for(table, engine=engine()), command(run_id="again"))
    assert fast.status is Status.COMPLETED
    assert table.rows() != before


# --- expiry afterwards ------------------------------------------------------------------------------------------------

AT_ONCE = RetentionPolicy(max_snapshot_age_ms=1)
"""Every snapshot but the newest is older than this for a clock that says one hour."""


def test_snapshots_expire_after_the_commit_and_their_files_are_reclaimed(table: MemoryTable) -> None:
    reclaimer = MemoryReclaimer()
    tools = tools_for(table, reclaimer=reclaimer, clock=CountingClock(seconds=3600))
    outcome = compact(tools, command(retention=replace(AT_ONCE, grace_ms=0)))
    assert outcome.stats is not None
    assert (outcome.stats.snapshots_expired, outcome.stats.bytes_freed) == (6, 600)
    assert (outcome.stats.bytes_quarantined, outcome.stats.undo_id, outcome.stats.deletable_at) == (0, None, None)
    assert [s.snapshot_id for s in table.log] == [table.head_id]
    assert (len(reclaimer.deleted), reclaimer.lists) == (6, {})


def test_a_compaction_tells_what_waits_in_quarantine_and_how_to_undo_it(table: MemoryTable) -> None:
    reclaimer = MemoryReclaimer(store_ms=1_000_000)
    tools = tools_for(table, reclaimer=reclaimer, clock=CountingClock(seconds=3600))
    outcome = compact(tools, command(retention=AT_ONCE))
    assert outcome.stats is not None
    assert (outcome.stats.bytes_freed, outcome.stats.bytes_quarantined) == (0, 600)
    assert [outcome.stats.undo_id] == list(reclaimer.lists)
    assert outcome.stats.deletable_at == "1970-01-02T00:31:40Z"
    assert (reclaimer.deleted, reclaimer.walks) == ([], 0)


@pytest.mark.parametrize(
    "fault", [NotAllowed("GC_DISABLED", "gc.enabled=false"), Conflict("COMMIT_CONFLICT", "x"), OSError("a store")]
)
def test_whatever_goes_wrong_with_expiry_the_landed_compaction_is_a_success(
    table: MemoryTable, fault: Exception
) -> None:
    tools = tools_for(table, reclaimer=MemoryReclaimer(fault=fault), clock=CountingClock(seconds=3600))
    outcome = compact(tools, command(retention=AT_ONCE))
    assert (outcome.status, outcome.compacted) == (Status.COMPLETED, True)
    assert "not expired" in outcome.warnings[0]


# --- interleavings, audited -------------------------------------------------------------------------------------------

ACTORS = ("append", "delete_at", "delete_keys", "delete_everywhere", "overwrite", "rival", "tag")
STEPS = ("ok", "refused", "dead", "lost", "lost-as-conflict", "late", "later")


@dataclass
class World:
    """A table, and the rows that a reader must see after everything the actors did."""

    table: MemoryTable = field(default_factory=filled)
    rows: Counter[tuple[str, int]] = field(default_factory=Counter)
    next_row: int = 1000
    rivals: int = 0

    def __post_init__(self) -> None:
        self.rows = self.table.rows()

    def act(self, actor: str, number: int) -> None:
        """Let one actor do one thing to the table, and do the same to the model."""
        table = self.table
        live = sorted(table.state.files)
        path = live[number % len(live)] if live else None
        name = "xy"[number % 2]
        if actor == "append":
            self.next_row += 2
            table.append(name, [self.next_row, number % 15])
            self.rows.update([(f"p={name}", self.next_row), (f"p={name}", number % 15)])
        elif actor == "delete_at" and path is not None:
            before = self.visible(path)
            table.delete_at(path, [number % len(table.storage[path]), 999], exact=bool(number % 3))
            self.rows.subtract(before - self.visible(path))
        elif actor in ("delete_keys", "delete_everywhere"):
            keys = {number % 15, 100 + number % 15}
            only = name if actor == "delete_keys" else None
            table.delete_keys(keys, only)
            for where, row in list(self.rows):
                if row in keys and only in (None, where[2:]):
                    del self.rows[where, row]
        elif actor == "overwrite" and path is not None:
            self.rows.subtract(self.visible(path))
            table.overwrite_without(path)
        elif actor == "rival":
            self.rivals += 1
            compact(tools_for(table), command(run_id=f"rival-{self.rivals}"))
        elif actor == "tag" and table.head_id is not None:
            table.tags[f"tag-{number}"] = table.head_id

    def visible(self, path: str) -> Counter[tuple[str, int]]:
        task = next(t for t in self.table.tasks() if t.data_file.path == path)
        return Counter((task.data_file.partition.path, row) for row in self.table.visible(task))

    def audit(self) -> None:
        """No row lost, doubled or back from the dead; no file gone that any snapshot names."""
        assert self.table.rows() == +self.rows
        for state in self.table.states.values():
            assert set(state.files) <= set(self.table.storage)


actions = st.lists(st.tuples(st.sampled_from(ACTORS), st.integers(0, 60)), max_size=4)


@given(
    before=actions,
    between=actions,
    during=st.lists(actions, max_size=3),
    after=st.lists(actions, max_size=3),
    script=st.lists(st.sampled_from(STEPS), max_size=5),
    looks=st.none() | st.integers(2, 4),
    head_only=st.booleans(),
)
def test_no_interleaving_loses_doubles_or_resurrects_a_row(
    before: Sequence[Any],
    between: Sequence[Any],
    during: Sequence[Sequence[Any]],
    after: Sequence[Sequence[Any]],
    script: Sequence[str],
    looks: int | None,
    head_only: bool,
) -> None:
    """Others act before, after the rewrite and between every look at the head and every attempt; replies are lost."""
    world = World()
    world.table.head_only = head_only
    run(world, before)
    committer = MemoryCommitter(
        world.table, script=script, meanwhile=[lambda todo=todo: run(world, todo) for todo in during]
    )
    committer.before_look = [lambda todo=todo: run(world, todo) for todo in after]
    committer.heads_left = looks
    engine = MemoryEngine(world.table, between=lambda: run(world, between))
    outcome: CompactOutcome | RegelateError
    try:
        outcome = compact(tools_for(world.table, committer=committer, engine=engine), command())
    except RegelateError as error:
        outcome = error
    world.audit()
    assert not isinstance(outcome, InvariantViolated)
    if not isinstance(outcome, CommitStateUnknown):
        left_behind = set(engine.written) - live_outputs(world.table)
        assert not left_behind & set(world.table.storage)
    for step in ("late", "later"):  # what is still under way arrives when we are long gone
        committer.arrive(step)
    world.audit()
    committer.heads_left = None
    again = compact(tools_for(world.table), command(run_id="afterwards"))
    assert again.status in (Status.COMPLETED, Status.NOTHING_TO_DO)
    world.audit()


def run(world: World, todo: Sequence[tuple[str, int]]) -> None:
    for actor, number in todo:
        world.act(actor, number)


@given(
    between=st.lists(
        st.tuples(st.sampled_from(("delete_keys", "append", "delete_everywhere")), st.integers(0, 60)), max_size=5
    )
)
def test_equality_deletes_and_appends_meanwhile_never_drop_a_group(between: Sequence[Any]) -> None:
    """Trap T9: the outputs keep the planning snapshot's sequence number, so such deletes still reach them (law 4)."""
    world = World()
    engine = MemoryEngine(world.table, between=lambda: run(world, between))
    outcome = compact(tools_for(world.table, engine=engine), command())
    assert outcome.status is Status.COMPLETED
    world.audit()


# --- the base is gone -------------------------------------------------------------------------------------------------


def rolled_back(table: MemoryTable) -> None:
    table.roll_back(table.log[2].snapshot_id)


def base_expired(table: MemoryTable) -> None:
    base = table.head_id
    assert base is not None
    table.append("x", [1])
    table.expire([base])


def dropped(table: MemoryTable) -> None:
    table.dropped = True


@pytest.mark.parametrize(
    ("meanwhile", "kind", "code"),
    [
        (rolled_back, Conflict, "BASE_NOT_ANCESTOR"),
        (base_expired, Conflict, "BASE_EXPIRED"),
        (MemoryTable.make_again, Conflict, "TABLE_REPLACED"),
        (dropped, NotFound, "TABLE_NOT_FOUND"),
    ],
)
def test_where_nothing_can_be_judged_nothing_is_committed_and_no_output_stays(
    table: MemoryTable, meanwhile: Callable[[MemoryTable], None], kind: type[RegelateError], code: str
) -> None:
    engine = MemoryEngine(table, between=lambda: meanwhile(table))
    with pytest.raises(kind) as caught:
        compact(tools_for(table, engine=engine), command())
    assert caught.value.code == code
    assert outputs(table) == set()
    assert len(engine.written) == 2


def test_a_compaction_never_triggers_another(table: MemoryTable) -> None:
    """Row 61: two hundred runs after each other commit once."""
    for i in range(200):
        compact(tools_for(table), command(run_id=f"run-{i}"))
    assert [s.operation for s in table.log].count("replace") == 1


# --- too much for this machine (rows 54 and 55) -----------------------------------------------------------------------


class SmallEngine(MemoryEngine):
    """An engine that runs out of memory or disk over more than `most` files at once."""

    def __init__(self, table: MemoryTable, code: str, most: int) -> None:
        super().__init__(table)
        self.code, self.most = code, most
        self.calls: list[list[int]] = []

    def rewrite(self, groups: Any, policy: Any, *, progress: Any = None) -> Any:
        self.calls.append([len(group.tasks) for group in groups])
        self._faults = {g.index: ResourceExhausted(self.code, "full") for g in groups if len(g.tasks) > self.most}
        return super().rewrite(groups, policy, progress=progress)


@pytest.mark.parametrize("code", ["OUT_OF_MEMORY", "LOCAL_STORAGE_FULL"])
def test_a_group_that_is_too_much_is_rewritten_in_halves_one_after_the_other(code: str) -> None:
    world = World()
    engine = SmallEngine(world.table, code, most=2)
    outcome = compact(tools_for(world.table, engine=engine), command())
    assert outcome.status is Status.COMPLETED
    first, *halves = engine.calls
    assert max(first) > 2
    assert all(len(call) == 1 for call in halves)
    assert sum(n[0] for n in halves) == sum(n for n in first if n > 2)
    world.audit()


@pytest.mark.parametrize("code", ["OUT_OF_MEMORY", "LOCAL_STORAGE_FULL"])
def test_what_is_too_much_in_halves_too_is_refused_after_one_retry(code: str) -> None:
    world = World()
    engine = SmallEngine(world.table, code, most=0)
    with pytest.raises(ResourceExhausted) as caught:
        compact(tools_for(world.table, engine=engine), command())
    assert (caught.value.code, caught.value.status) == (code, 507)
    assert len(engine.calls) == 1 + 2 * len(engine.calls[0])
    world.audit()


def test_a_half_that_cannot_even_begin_leaves_no_output_of_the_other_groups_behind() -> None:
    """The ledger cannot be written any more: what another group made must land, or go, but not be forgotten."""
    world = World()

    class NoLedger(MemoryEngine):
        def rewrite(self, groups: Any, policy: Any, *, progress: Any = None) -> Any:
            if self.written:
                raise Unavailable("STORAGE_UNAVAILABLE", "no ledger")
            self._faults = {g.index: ResourceExhausted("OUT_OF_MEMORY", "full") for g in groups[1:]}
            return super().rewrite(groups, policy, progress=progress)

    engine = NoLedger(world.table)
    outcome = compact(tools_for(world.table, engine=engine), command())
    assert (outcome.status, outcome.reason) == (Status.PARTIAL, "STORAGE_UNAVAILABLE")
    assert len(engine.written) == 1
    assert set(engine.written) <= set(world.table.state.files)
    world.audit()
