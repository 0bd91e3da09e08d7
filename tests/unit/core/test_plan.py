"""What is planned, what is left out and why; and that a finished plan leaves nothing to plan."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regelate.core.planning.packing import MAX_OVER_CAP
from regelate.core.planning.plan import (
    MOST_OUTPUT_FILES,
    CompactionPlan,
    FileGroup,
    PlanReason,
    SkipReason,
    achieved_ratio,
    plan_compaction,
)
from regelate.core.planning.selection import Reason, is_small
from regelate.core.policy.policy import MB, CompactionPolicy, JobOrder, Selection, Strategy
from regelate.core.running.slices import split
from regelate.core.table.table import RUN_ID, FileScanTask, SnapshotEntry
from regelate.errors import InvalidRequest
from tests.unit.core.model_table import (
    UNPARTITIONED,
    ModelTable,
    data_file,
    even,
    month,
    position_delete,
    predicted_bytes,
    sized_policy,
)

POLICY = sized_policy(100, min_input_files=3)
JANUARY, FEBRUARY, MARCH = month("2013-01"), month("2013-02"), month("2013-03")


def table_of(*sizes_mb: float) -> ModelTable:
    table = ModelTable()
    table.append([int(size * MB) for size in sizes_mb])
    return table


def plan_of(table: ModelTable, policy: CompactionPolicy = POLICY, ratio: float | None = None) -> CompactionPlan:
    return plan_compaction(table.photograph(policy), policy, size_ratio=ratio)


def shapes(plan: CompactionPlan) -> list[tuple[int, int]]:
    """(input files, output files) of each group."""
    return [(len(g.tasks), g.expected_output_files) for g in plan.groups]


def skips(plan: CompactionPlan) -> list[tuple[SkipReason, int]]:
    return [(s.reason, s.files) for s in plan.skipped]


@pytest.mark.parametrize(
    ("sizes_mb", "groups", "left", "reason"),
    [
        ([], [], [], PlanReason.NO_CANDIDATE),
        ([100, 120, 75, 180], [], [], PlanReason.NO_CANDIDATE),
        ([5], [], [(SkipReason.LONE_FILE, 1)], PlanReason.NO_CANDIDATE),
        ([5, 6], [], [(SkipReason.BELOW_MIN_INPUT_FILES, 2)], PlanReason.BELOW_THRESHOLD),
        ([5, 6, 100, 7], [(3, 1)], [], PlanReason.RECOMMENDED),
        ([70, 72, 74], [], [(SkipReason.NOTHING_TO_MERGE, 3)], PlanReason.NO_GROUPS),
        ([70, 30.5], [], [(SkipReason.NOTHING_TO_MERGE, 2)], PlanReason.NO_GROUPS),
        ([40, 45, 50], [(3, 1)], [], PlanReason.RECOMMENDED),
        ([181], [(1, 2)], [], PlanReason.RECOMMENDED),
        ([1000], [(1, 10)], [], PlanReason.RECOMMENDED),
        ([181, 5], [(2, 2)], [], PlanReason.RECOMMENDED),
        ([10] * 105, [(105, 10)], [], PlanReason.RECOMMENDED),
    ],
)
def test_sizes_in_megabytes_at_a_target_of_100_plan_to(
    sizes_mb: list[float], groups: list[tuple[int, int]], left: list[tuple[SkipReason, int]], reason: PlanReason
) -> None:
    plan = plan_of(table_of(*sizes_mb))
    assert (shapes(plan), skips(plan), plan.reason) == (groups, left, reason)


def test_two_files_above_one_target_together_are_merged_below_min_input_files() -> None:
    policy = replace(POLICY, min_input_files=5)
    assert shapes(plan_of(table_of(40, 60), policy)) == []
    assert shapes(plan_of(table_of(30, 40, 60), policy)) == [(3, 1)]


def test_a_table_without_a_snapshot_says_so() -> None:
    plan = plan_of(ModelTable())
    assert (plan.reason, plan.groups, plan.starting_snapshot_id) == (PlanReason.NO_SNAPSHOT, (), None)


def test_a_lone_small_file_per_partition_is_no_candidate() -> None:
    table = ModelTable()
    for partition in (JANUARY, FEBRUARY):
        table.append([5 * MB, 100 * MB], partition=partition)
    assert plan_of(table).reason is PlanReason.NO_CANDIDATE


def test_filters_and_selections_that_take_no_partition_are_named() -> None:
    table = ModelTable()
    table.append([5 * MB] * 4, partition=replace(JANUARY, ends_at_ms=0))
    table.append([5 * MB] * 4, partition=replace(FEBRUARY, ends_at_ms=10_000))
    none, some = (("month", "2031-01"),), (("month", "2013-02"),)
    quiet = replace(POLICY, selection=Selection.TIME_SERIES, quiet_window_seconds=20, now_ms=29_000)

    def told(policy: CompactionPolicy) -> tuple[PlanReason, list[str]]:
        plan = plan_of(table, policy)
        return plan.reason, [w.partition(";")[0].partition(":")[0] for w in plan.warnings]

    assert told(replace(POLICY, partition_filters=(some,))) == (PlanReason.RECOMMENDED, [])
    missing = "partition_filter month=2031-01 matches no partition"
    assert told(replace(POLICY, partition_filters=(none,))) == (PlanReason.NO_PARTITION, [missing])
    assert told(replace(POLICY, partition_filters=(none, some))) == (PlanReason.RECOMMENDED, [missing])
    assert (
        "there are month=2013-01, month=2013-02"
        in plan_of(table, replace(POLICY, partition_filters=(none,))).warnings[0]
    )
    assert told(quiet) == (PlanReason.RECOMMENDED, [])
    unquiet = "selection time-series takes no partition of 1"
    assert told(replace(quiet, partition_filters=(some,))) == (PlanReason.NO_PARTITION, [unquiet])
    assert told(replace(quiet, partition_filters=(none,))) == (PlanReason.NO_PARTITION, [missing])
    timeless = plan_of(table_of(5, 5, 5), quiet)
    assert (timeless.reason, "needs a partition field" in timeless.warnings[0]) == (PlanReason.NO_PARTITION, True)
    assert plan_of(ModelTable(), quiet).warnings == ()


def test_force_merges_any_two_candidates_and_touches_no_healthy_file() -> None:
    forced = replace(POLICY, force=True, min_input_files=5)
    assert shapes(plan_of(table_of(5, 6, 100), forced)) == [(2, 1)]
    assert shapes(plan_of(table_of(70, 72, 100), forced)) == [(2, 1)]
    assert plan_of(table_of(5, 100, 120), forced).reason is PlanReason.NO_CANDIDATE


def test_rewrite_all_takes_every_file_even_a_lone_one() -> None:
    assert shapes(plan_of(table_of(100, 120), replace(POLICY, rewrite_all=True))) == [(2, 2)]
    assert shapes(plan_of(table_of(100), replace(POLICY, rewrite_all=True))) == [(1, 1)]


def test_one_file_with_many_deleted_rows_is_a_group_and_takes_small_files_along() -> None:
    table = table_of(100, 5)
    deleted = data_file("x", 100 * MB, rows=1000, seq=0)
    table.add(FileScanTask(data_file=deleted, deletes=(position_delete("d", 400, of=deleted),)))
    plan = plan_of(table)
    assert shapes(plan) == [(2, 1)]
    assert plan.groups[0].reasons == ((Reason.DELETED_ROWS_RATIO, 1), (Reason.SMALL, 1))


def test_outputs_are_counted_without_the_rows_that_are_deleted() -> None:
    table = ModelTable()
    table.commit()
    for number in range(10):
        healthy = data_file(f"{number}", 100 * MB, rows=1000)
        table.add(FileScanTask(data_file=healthy, deletes=(position_delete(f"d{number}", 400, of=healthy),)))
    assert shapes(plan_of(table)) == [(10, 6)]


def test_files_of_one_partition_value_under_two_specs_are_never_in_one_group() -> None:
    table = ModelTable()
    table.append([MB] * 3, partition=month("2013-01", spec_id=0))
    table.append([MB] * 3, partition=month("2013-01", spec_id=1))
    assert [(g.partition.spec_id, len(g.tasks)) for g in plan_of(table).groups] == [(0, 3), (1, 3)]


def test_files_keep_table_order_whatever_the_order_of_the_manifests() -> None:
    table = ModelTable()
    for _ in range(4):
        table.append([MB, MB])
    snapshot = table.photograph(POLICY)
    plans = []
    for seed in range(3):
        shuffled = list(snapshot.candidates)
        random.Random(seed).shuffle(shuffled)
        plans.append(plan_compaction(replace(snapshot, candidates=tuple(shuffled)), POLICY))
    orders = [t.table_order for t in plans[0].groups[0].tasks]
    assert orders == sorted(orders)
    assert plans[0] == plans[1] == plans[2]


def test_partition_selection_leaves_a_partition_that_is_well_as_a_whole_and_force_takes_it() -> None:
    table = ModelTable()
    table.append([100 * MB] * 20 + [MB] * 3, partition=JANUARY)
    table.append([100 * MB] + [MB] * 5, partition=FEBRUARY)
    policy = replace(POLICY, selection=Selection.PARTITION)
    plan = plan_of(table, policy)
    assert [g.partition for g in plan.groups] == [FEBRUARY]
    assert skips(plan) == [(SkipReason.PARTITION_BELOW_THRESHOLD, 3)]
    assert len(plan_of(table, replace(policy, force=True)).groups) == 2


def test_a_table_whose_partitions_are_all_below_the_threshold_says_so() -> None:
    table = ModelTable()
    table.append([100 * MB] * 20 + [MB] * 3, partition=JANUARY)
    assert plan_of(table, replace(POLICY, selection=Selection.PARTITION)).reason is PlanReason.BELOW_THRESHOLD


def budgeted() -> ModelTable:
    table = ModelTable()
    for partition, files in ((JANUARY, 6), (FEBRUARY, 4), (MARCH, 3)):
        table.append([MB] * files, partition=partition)
    return table


@pytest.mark.parametrize(
    ("max_files", "taken", "deferred"),
    [
        (None, [6, 4, 3], []),
        (13, [6, 4, 3], []),
        (12, [6, 4], [3]),
        (9, [6, 3], [4]),
        (8, [6], [4, 3]),
        (7, [6], [4, 3]),
        (6, [6], [4, 3]),
        (5, [4], [6, 3]),
        (3, [3], [6, 4]),
        (2, [2], [4, 4, 3]),
        (1, [], [6, 4, 3]),
    ],
)
def test_max_files_cuts_a_group_of_small_outputs_only_where_nothing_else_fits(
    max_files: int | None, taken: list[int], deferred: list[int]
) -> None:
    plan = plan_of(budgeted(), replace(POLICY, max_files=max_files))
    cut = plan.cut_short
    assert (cut is not None) == (max_files == 2)
    if cut is not None:
        assert (cut.files, cut.of_files, cut.enough_files, cut.output_bytes) == (2, 6, 6, 2 * MB)
    assert [len(g.tasks) for g in plan.groups] == taken
    assert [len(g.tasks) for g in plan.deferred] == deferred
    assert [g.index for g in (*plan.groups, *plan.deferred)] == list(range(len(taken) + len(deferred)))
    assert plan.reason is (PlanReason.BUDGET_CAPPED if deferred else PlanReason.RECOMMENDED)


def test_a_group_is_never_cut_to_one_file_even_if_that_file_is_work_by_itself() -> None:
    plan = plan_of(table_of(200, 200), replace(POLICY, max_files=1))
    assert (shapes(plan), plan.reason) == ([], PlanReason.BUDGET_CAPPED)
    assert shapes(plan_of(table_of(200), replace(POLICY, max_files=1))) == [(1, 2)]


def test_max_files_cuts_a_large_group_where_its_piece_comes_out_right_sized() -> None:
    table = table_of(*[10] * 60)
    plan = plan_of(table, replace(POLICY, max_files=25))
    (group,) = plan.groups
    assert (len(group.tasks), plan.cut_short) == (25, None)
    assert group.expected_output_bytes / group.expected_output_files >= POLICY.min_file_size_bytes


def test_a_budget_rewrites_every_byte_once_where_pieces_come_out_right_sized_and_says_where_not() -> None:
    """A ladder of small pieces would rewrite the first files again with every run."""
    for max_files, told in ((20, False), (4, True)):
        table, capped, written = table_of(*[10] * 60), replace(POLICY, max_files=max_files), 0
        warned = False
        while (plan := plan_of(table, capped)).groups:
            warned |= plan.cut_short is not None
            written += plan.size_bytes
            table.apply(plan, even, capped)
        assert warned is told
        assert (written > 600 * MB) is told


def test_capped_runs_one_after_the_other_reach_the_same_end() -> None:
    table = table_of(*[10] * 40)
    capped = replace(POLICY, max_files=8)
    runs = 0
    while (plan := plan_of(table, capped)).groups:
        assert plan.files <= 8
        table.apply(plan, even, capped)
        runs += 1
        assert runs < 40
    assert sum(is_small(t.data_file.size_bytes, POLICY) for t in table.tasks) <= 1


@pytest.mark.parametrize(
    ("order", "partitions"),
    [
        (JobOrder.NONE, [JANUARY, FEBRUARY, MARCH]),
        (JobOrder.FILES_ASC, [MARCH, FEBRUARY, JANUARY]),
        (JobOrder.FILES_DESC, [JANUARY, FEBRUARY, MARCH]),
        (JobOrder.BYTES_ASC, [JANUARY, FEBRUARY, MARCH]),
        (JobOrder.BYTES_DESC, [MARCH, FEBRUARY, JANUARY]),
    ],
)
def test_groups_come_in_the_job_order(order: JobOrder, partitions: list[object]) -> None:
    table = ModelTable()
    table.append([MB] * 5, partition=JANUARY)
    table.append([2 * MB] * 4, partition=FEBRUARY)
    table.append([3 * MB] * 3, partition=MARCH)
    assert [g.partition for g in plan_of(table, replace(POLICY, job_order=order)).groups] == partitions


def test_the_plan_id_names_snapshot_table_policy_and_files_but_not_the_ratio() -> None:
    snapshot = table_of(*[30] * 20).photograph(POLICY)
    plan = plan_compaction(snapshot, POLICY)
    assert plan.plan_id.partition("-")[0] == "1"
    assert plan_compaction(snapshot, POLICY).plan_id == plan.plan_id
    shrunk = plan_compaction(snapshot, POLICY, size_ratio=0.5)
    assert shapes(shrunk) != shapes(plan)
    assert shrunk.plan_id == plan.plan_id
    fewer = replace(snapshot, candidates=snapshot.candidates[1:])
    others = [
        plan_compaction(fewer, POLICY),
        plan_compaction(replace(snapshot, uuid="other"), POLICY),
        plan_compaction(snapshot, replace(POLICY, compression_codec="snappy")),
        plan_compaction(replace(snapshot, snapshot_id=2), POLICY),
    ]
    assert len({plan.plan_id, *(other.plan_id for other in others)}) == 5


def test_files_that_shrink_by_half_are_written_into_half_as_many() -> None:
    assert shapes(plan_of(table_of(*[10] * 100))) == [(100, 10)]
    assert shapes(plan_of(table_of(*[10] * 100), ratio=0.5)) == [(100, 5)]
    assert plan_of(table_of(10), ratio=0.001).size_ratio == 0.1
    assert plan_of(table_of(10), ratio=99).size_ratio == 4.0


def test_neither_a_large_file_nor_one_of_ours_is_expected_to_shrink() -> None:
    assert shapes(plan_of(table_of(400), ratio=0.3)) == [(1, 4)]
    ours = ModelTable()
    ours.append([60 * MB, 60 * MB, 10 * MB, 10 * MB, 60 * MB])
    ours.log[0] = replace(ours.log[0], operation="replace", summary={RUN_ID: "r"})
    assert shapes(plan_of(ours, ratio=0.3)) == [(5, 2)]


def rewritten(removed_mb: float, added_mb: float, *, seq: int, **changed: object) -> SnapshotEntry:
    summary = {
        "removed-files-size": str(int(removed_mb * MB)),
        "added-files-size": str(int(added_mb * MB)),
        RUN_ID: "r",
    }
    entry = SnapshotEntry(
        snapshot_id=seq, parent_id=None, sequence_number=seq, timestamp_ms=seq, operation="replace", summary=summary
    )
    return replace(entry, **changed)  # type: ignore[arg-type]


def test_the_achieved_ratio_is_weighted_by_bytes_over_the_newest_five_of_our_rewrites() -> None:
    old = [rewritten(100, 100, seq=number) for number in range(1, 4)]
    new = [rewritten(10, 2, seq=number) for number in range(4, 8)]
    assert achieved_ratio(reversed([*old, *new])) == pytest.approx((100 + 4 * 2) / (100 + 4 * 10))


def test_rewrites_of_others_appends_tiny_and_untold_ones_say_nothing_about_the_ratio() -> None:
    told = rewritten(10, 5, seq=1)
    mute = [
        rewritten(10, 9, seq=2, summary={**told.summary, "removed-files-size": "about ten"}),
        rewritten(10, 9, seq=3, summary={RUN_ID: "r"}),
        rewritten(10, 9, seq=4, operation="append"),
        rewritten(0.9, 0.1, seq=5),
        rewritten(10, 9, seq=6, summary={k: v for k, v in told.summary.items() if k != RUN_ID}),
    ]
    assert achieved_ratio(mute) is None
    assert achieved_ratio([told, *mute]) == 0.5


def test_an_absurd_ratio_is_clamped() -> None:
    assert achieved_ratio([rewritten(100, 1, seq=1)]) == 0.1
    assert achieved_ratio([rewritten(1, 100, seq=1)]) == 4.0


def test_a_group_of_two_partitions_or_without_files_cannot_be_built() -> None:
    tasks = tuple(FileScanTask(data_file=data_file("a", 1, partition=p)) for p in (JANUARY, FEBRUARY))
    built = {"index": 0, "partition": JANUARY, "expected_output_files": 1}
    with pytest.raises(ValueError, match="2013-02"):
        FileGroup(tasks=tasks, **built)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no files"):
        FileGroup(tasks=(), **built)  # type: ignore[arg-type]


SIZES = st.one_of(st.integers(1, 74), st.integers(5, 40), st.integers(1, 400))
FEEDS = st.lists(
    st.tuples(st.sampled_from([JANUARY, FEBRUARY, UNPARTITIONED]), st.lists(SIZES, min_size=1, max_size=30)), max_size=8
)
POLICIES = st.builds(
    sized_policy,
    st.just(100),
    min_input_files=st.integers(1, 8),
    max_files_per_group=st.integers(2, 25),
    force=st.booleans(),
    job_order=st.sampled_from(JobOrder),
    strategy=st.sampled_from(Strategy),
)


def fed(feeds: list[tuple[object, list[int]]]) -> ModelTable:
    """A table of files of so many MB and a few bytes more, so that no two are alike."""
    table = ModelTable()
    for partition, sizes in feeds:
        table.append([size * MB + 997 * number for number, size in enumerate(sizes)], partition=partition)  # type: ignore[arg-type]
    return table


@given(feeds=FEEDS, policy=POLICIES, max_files=st.none() | st.integers(1, 40), ratio=st.none() | st.floats(0.05, 5))
def test_every_candidate_is_in_exactly_one_group_or_one_skip(
    feeds: list[tuple[object, list[int]]], policy: CompactionPolicy, max_files: int | None, ratio: float | None
) -> None:
    policy = replace(policy, max_files=max_files)
    snapshot = fed(feeds).photograph(policy)
    plan = plan_compaction(snapshot, policy, size_ratio=ratio)
    grouped = [t.data_file.path for g in (*plan.groups, *plan.deferred) for t in g.tasks]
    assert len(grouped) == len(set(grouped))
    assert set(grouped) <= {t.data_file.path for t in snapshot.candidates}
    assert len(grouped) + sum(s.files for s in plan.skipped) == len(snapshot.candidates)
    assert max_files is None or plan.files <= max_files
    assert bool(plan.groups or plan.deferred) == (plan.reason in (PlanReason.RECOMMENDED, PlanReason.BUDGET_CAPPED))
    for group in plan.groups:
        assert len(group.tasks) <= policy.max_files_per_group * MAX_OVER_CAP
        assert len(group.tasks) > 1 or group.reasons != ((Reason.SMALL, 1),)
        assert sum(count for _, count in group.reasons) == len(group.tasks)


@given(feeds=FEEDS, policy=POLICIES, ratio=st.none() | st.floats(0.1, 1.0), off=st.floats(0.9, 1.1))
def test_a_second_plan_is_empty_when_outputs_came_out_as_predicted_or_a_tenth_off(
    feeds: list[tuple[object, list[int]]], policy: CompactionPolicy, ratio: float | None, off: float
) -> None:
    policy = replace(policy, max_files_per_group=max(policy.max_files_per_group, 20))
    for factor in (1.0, off):
        table = fed(feeds)
        first = plan_of(table, policy, ratio)
        table.apply(first, lambda g, live, factor=factor: [int(s * factor) for s in even(g, live)], policy)
        second = plan_of(table, policy, ratio)
        if policy.force and factor != 1.0:  # it merges any two small files, also two that came out small: once
            table.apply(second, even, policy)
            second = plan_of(table, policy, ratio)
        assert second.groups == ()
        assert plan_of(table, policy).groups == ()


@given(feeds=FEEDS, policy=POLICIES, data=st.data())
def test_a_second_plan_is_empty_when_each_output_is_off_by_its_own_tenth(
    feeds: list[tuple[object, list[int]]], policy: CompactionPolicy, data: st.DataObject
) -> None:
    policy = replace(policy, max_files_per_group=max(policy.max_files_per_group, 20))
    table = fed(feeds)
    wobble = data.draw(st.randoms(use_true_random=False))
    table.apply(plan_of(table, policy), lambda g, n: [int(s * wobble.uniform(0.9, 1.1)) for s in even(g, n)], policy)
    assert plan_of(table, policy).groups == ()


@given(feeds=FEEDS, policy=POLICIES)
def test_a_second_plan_is_empty_when_groups_are_cut_at_file_borders(
    feeds: list[tuple[object, list[int]]], policy: CompactionPolicy
) -> None:
    policy = replace(policy, max_files_per_group=max(policy.max_files_per_group, 20))
    table = fed(feeds)
    table.apply(plan_of(table, policy), lambda group, _: [part.size_bytes for part in split(group)], policy)
    assert plan_of(table, policy).groups == ()


@given(feeds=FEEDS, policy=POLICIES, ratio=st.none() | st.floats(0.1, 1.0))
def test_after_a_full_run_each_partition_it_touched_has_at_most_one_small_file(
    feeds: list[tuple[object, list[int]]], policy: CompactionPolicy, ratio: float | None
) -> None:
    policy = replace(policy, max_files_per_group=max(policy.max_files_per_group, 20))
    table = fed(feeds)
    plan = plan_of(table, policy, ratio)
    written = table.apply(plan, even, policy)
    assert all(size <= policy.max_file_size_bytes for size in written)
    for partition in {g.partition for g in plan.groups}:
        small = [
            t for t in table.tasks if t.data_file.partition == partition and is_small(t.data_file.size_bytes, policy)
        ]
        assert len(small) <= 1
    if not plan.skipped:
        assert plan_of(table, policy, ratio).reason is PlanReason.NO_CANDIDATE


@pytest.mark.parametrize("total_mb", range(150, 190))
@pytest.mark.parametrize("off", [0.9, 1.0, 1.1])
def test_sizes_that_divide_badly_are_not_planned_again_either(total_mb: int, off: float) -> None:
    table = table_of(*[total_mb / 5] * 5)
    table.apply(plan_of(table), lambda g, live: [int(size * off) for size in even(g, live)], POLICY)
    assert plan_of(table).groups == ()


def test_a_thousand_small_files_beside_five_hundred_healthy_ones_are_one_run() -> None:
    policy = sized_policy(128, min_input_files=5)
    for size in (10_000, 60_000, 700_000):
        table = ModelTable()
        healthy = {f.path for f in table.append([128 * MB] * 500)}
        for _ in range(20):
            table.append([size] * 50)
        plan = plan_of(table, policy)
        assert plan.files == 1000
        assert not healthy & {path for g in plan.groups for path in g.paths}
        table.apply(plan, even, policy)
        assert plan_of(table, policy).reason is PlanReason.NO_CANDIDATE


def test_a_partition_of_ten_thousand_tiny_files_needs_one_run() -> None:
    policy = sized_policy(128)
    table = table_of(*[0.01] * 10_000)
    table.apply(plan_of(table, policy), even, policy)
    assert plan_of(table, policy).reason is PlanReason.NO_CANDIDATE
    assert len(table.tasks) == 1


def test_predicted_bytes_of_a_group_follow_the_ratio_for_its_small_files() -> None:
    table = table_of(10, 10, 10)
    plan = plan_of(table, ratio=0.5)
    assert predicted_bytes(plan.groups[0], plan, POLICY, table.log) == 15 * MB


def test_a_target_of_a_few_bytes_is_refused_where_it_would_make_files_without_end() -> None:
    policy = replace(POLICY, target_file_size_bytes=2_000, min_file_size_bytes=0, max_file_size_bytes=4_000)
    assert plan_of(table_of(4, 4), policy).expected_output_files <= MOST_OUTPUT_FILES
    with pytest.raises(InvalidRequest, match=r"INVALID_OPTION.*target-file-size-bytes = 2000: .* at most 10,000"):
        plan_of(table_of(40, 40), replace(policy, force=True, rewrite_all=True))
