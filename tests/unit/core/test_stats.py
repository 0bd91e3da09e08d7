"""What the world is told: exactly these names, and sums that agree with one another."""

from __future__ import annotations

import json

from regelate.core.planning.plan import CompactionPlan, FileGroup, plan_compaction
from regelate.core.policy.policy import MB
from regelate.core.running.rewrite import NewDataFile, RewriteResult
from regelate.core.running.stats import CompactionStats, PhaseSeconds, summarise
from regelate.core.table.table import ColumnMetrics, TableSnapshot
from tests.unit.core.model_table import ModelTable, month, sized_policy

POLICY = sized_policy(100, min_input_files=3)
SECONDS = PhaseSeconds(plan=0.5, rewrite=2.0, verify=0.25, commit=0.125, expire=1.0)
METRICS = ColumnMetrics(value_counts={}, null_counts={}, lower_bounds={}, upper_bounds={})

NAMES = [
    *("files_before", "files_after", "files_compacted", "files_removed", "files_added"),
    *("bytes_before", "bytes_after", "bytes_saved", "bytes_spliced", "row_groups_before", "row_groups_after"),
    *("snapshots_expired", "compaction_time_ms", "small_files_remaining"),
    *("engine", "groups", "groups_deferred", "rows", "delete_files_removed", "manifests_before", "manifests_after"),
    *("bytes_freed", "bytes_quarantined", "undo_id", "deletable_at", "commit_attempts", "dropped_groups", "seconds"),
]


def result(group: FileGroup, *sizes_mb: int, deleted: int = 0) -> RewriteResult:
    rows = (group.rows - deleted) // len(sizes_mb)
    added = tuple(
        NewDataFile(
            path=f"out-{group.index}-{n}",
            partition=group.partition,
            record_count=rows,
            size_bytes=mb * MB,
            metrics=METRICS,
        )
        for n, mb in enumerate(sizes_mb)
    )
    return RewriteResult(group=group, added=added, rows_deleted=deleted)


def planned() -> tuple[TableSnapshot, CompactionPlan]:
    table = ModelTable()
    table.append([10 * MB] * 20 + [100 * MB] * 2, partition=month("2013-01"))
    table.append([10 * MB] * 5, partition=month("2013-02"))
    table.append([10 * MB], partition=month("2013-03"))
    snapshot = table.photograph(POLICY)
    return snapshot, plan_compaction(snapshot, POLICY)


def stats_of(landed: list[RewriteResult], snapshot: TableSnapshot, plan: CompactionPlan) -> CompactionStats:
    return summarise(
        snapshot,
        plan,
        landed,
        POLICY,
        files_after=7,
        bytes_after=440 * MB,
        manifests_after=2,
        commit_attempts=2,
        dropped_groups=0,
        delete_files_removed=3,
        snapshots_expired=4,
        bytes_freed=5,
        seconds=SECONDS,
    )


def test_a_full_run_is_summed_up() -> None:
    snapshot, plan = planned()
    first, second = plan.groups
    stats = stats_of([result(first, 90, 90), result(second, 40, deleted=1000)], snapshot, plan)
    assert (stats.files_before, stats.bytes_before, stats.manifests_before) == (28, 460 * MB, 3)
    assert (stats.files_compacted, stats.files_removed, stats.files_added, stats.groups) == (25, 25, 3, 2)
    assert stats.bytes_saved == (250 - 220) * MB
    assert stats.rows == 24_000
    assert stats.small_files_remaining == 2, "the lone one, and the tail of 40 MB"
    assert stats.compaction_time_ms == 3875.0
    assert (stats.engine, stats.groups_deferred) == ("duckdb", 0)


def test_files_after_follow_from_files_before_where_nobody_else_wrote() -> None:
    snapshot, plan = planned()
    stats = stats_of([result(plan.groups[0], 90, 90), result(plan.groups[1], 40)], snapshot, plan)
    assert stats.files_before - stats.files_removed + stats.files_added == 6


def test_only_what_landed_counts_and_outputs_above_max_count_as_remaining() -> None:
    snapshot, plan = planned()
    stats = stats_of([result(plan.groups[0], 181)], snapshot, plan)
    assert (stats.files_compacted, stats.groups) == (20, 1)
    assert stats.small_files_remaining == 26 - 20 + 1


def test_outputs_larger_than_their_inputs_save_a_negative_number_of_bytes() -> None:
    snapshot, plan = planned()
    assert stats_of([result(plan.groups[1], 51)], snapshot, plan).bytes_saved == -1 * MB


def test_the_stats_have_exactly_the_documented_names_in_their_order_and_are_json() -> None:
    snapshot, plan = planned()
    shown = stats_of([result(plan.groups[0], 100, 100)], snapshot, plan).as_dict()
    assert list(shown) == NAMES
    assert list(json.loads(json.dumps(shown))["seconds"]) == ["plan", "rewrite", "verify", "commit", "expire"]
