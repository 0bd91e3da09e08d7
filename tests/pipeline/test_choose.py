"""From metadata to CALLs: what core leaves alone, Spark is not asked to take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from regelate.core.policy.policy import CompactionPolicy, Selection
from regelate.core.table.table import DeleteContent
from regelate.pipeline.choose import PARTITIONS_PER_CALL, both, choose
from regelate.pipeline.metadata import POSITION_PATH_FIELD, Entry, Manifests, head_of, table_snapshot

KB = 1024
POLICY = {"target_file_size_bytes": 100 * KB, "min_file_size_bytes": 75 * KB, "max_file_size_bytes": 180 * KB}
METADATA: dict[str, Any] = {
    "format-version": 2,
    "table-uuid": "u",
    "location": "file:///t",
    "current-schema-id": 0,
    "schemas": [{"schema-id": 0, "type": "struct", "fields": [{"id": 1, "name": "day", "type": "date"}]}],
    "default-spec-id": 0,
    "partition-specs": [
        {"spec-id": 0, "fields": [{"name": "day", "transform": "identity", "source-id": 1, "field-id": 1000}]}
    ],
    "default-sort-order-id": 0,
    "current-snapshot-id": 7,
    "snapshots": [{"snapshot-id": 7, "sequence-number": 3, "timestamp-ms": 5, "summary": {"operation": "append"}}],
    "refs": {"main": {"snapshot-id": 7, "type": "branch"}},
}


def entry(number: int, day: int, size: int, **more: Any) -> Entry:
    fields: dict[str, Any] = {
        "path": f"f{number}", "content": 0, "file_format": "PARQUET", "spec_id": 0, "partition": {1000: day},
        "record_count": 10, "size_bytes": size, "sequence_number": 1, "snapshot_id": 7,
    }  # fmt: skip
    return Entry(**{**fields, **more})


def choice(
    entries: Sequence[Entry], deletes: Sequence[Entry] = (), matching: frozenset[str] | None = None, **knobs: Any
) -> Any:
    policy = CompactionPolicy(**{**POLICY, **knobs})
    snapshot = table_snapshot("ns.t", METADATA, Manifests(data=entries, deletes=deletes, matching=matching), policy)
    return choose(snapshot, METADATA, policy, catalog="c")


def small(day: int, count: int, first: int = 0) -> list[Entry]:
    return [entry(first + i, day, KB) for i in range(count)]


def test_where_both_planners_agree_no_partition_is_named() -> None:
    found = choice([*small(0, 6), *small(1, 6, 10), *small(2, 1, 20), entry(30, 3, 90 * KB)])
    assert [len(g.tasks) for g in found.plan.groups] == [6, 6]
    assert found.wheres == (None,)


def test_a_table_without_work_gets_no_call() -> None:
    assert choice([entry(1, 0, 90 * KB)]).wheres == ()


def test_a_partition_that_core_leaves_alone_and_spark_would_take_is_left_out() -> None:
    unmergeable = [entry(10 + i, 1, 60 * KB) for i in range(6)]
    found = choice([*small(0, 6), *unmergeable])
    assert found.wheres == ("`day` = DATE '1970-01-01'",)


def test_a_large_file_that_would_not_split_well_is_left_out() -> None:
    found = choice([*small(0, 6), entry(10, 1, 185 * KB)], min_file_size_bytes=99 * KB)
    assert [s.reason.value for s in found.plan.skipped] == ["nothing-to-split"]
    assert found.wheres == ("`day` = DATE '1970-01-01'",)


def test_a_selection_by_time_names_its_partitions() -> None:
    two_days = 2 * 24 * 3600 * 1000
    found = choice([*small(0, 6), *small(5, 6, 10)], selection=Selection.TIME_SERIES, now_ms=two_days)
    assert found.wheres == ("`day` = DATE '1970-01-01'",)


def test_a_partition_filter_names_its_partitions_beside_the_callers_filter() -> None:
    found = choice(
        [*small(0, 6), *small(1, 6, 10)], partition_filters=((("day", "1970-01-02"),),), where="day > 'x' -- y"
    )
    assert found.wheres == ("(\nday > 'x' -- y\n) AND (`day` = DATE '1970-01-02')",)


def test_files_that_cannot_match_the_callers_filter_are_not_chosen() -> None:
    found = choice([*small(0, 6), *small(1, 6, 10)], matching=frozenset(f"f{i}" for i in range(6)), where="w")
    assert [g.partition.path for g in found.plan.groups] == ["day=1970-01-01"]
    assert found.wheres == ("w",)


def test_many_partitions_are_named_some_at_a_time() -> None:
    days = PARTITIONS_PER_CALL + 5
    entries = [e for day in range(days) for e in small(day, 5, day * 10)]
    found = choice(entries, selection=Selection.PARTITION)
    assert len(found.wheres) == 2
    assert sum(where.count("DATE") for where in found.wheres) == days


def test_files_of_an_older_spec_are_left_to_sparks_own_rule_with_a_note() -> None:
    old = {"spec-id": 1, "fields": []}
    metadata = {**METADATA, "default-spec-id": 1, "partition-specs": [*METADATA["partition-specs"], old]}
    policy = CompactionPolicy(**POLICY, selection=Selection.PARTITION)
    snapshot = table_snapshot("ns.t", metadata, Manifests(data=small(0, 6)), policy)
    found = choose(snapshot, metadata, policy, catalog="c")
    assert found.wheres == (None,)
    assert "older partition spec" in found.notes[0]


@given(st.text(alphabet="ab-/* \n'", max_size=10))
def test_a_callers_comment_never_swallows_our_part(where: str) -> None:
    line = both(where, "`p` = 1").splitlines()[-1]
    assert line.endswith("AND (`p` = 1)")


def test_deletes_apply_as_the_specification_says() -> None:
    named = entry(90, 0, KB, content=1, record_count=9, sequence_number=2, referenced_lower="f1", referenced_upper="f1")
    elsewhere = entry(91, 1, KB, content=2, equality_ids=(1,), sequence_number=2)
    everywhere = entry(92, 0, KB, content=2, equality_ids=(1,), sequence_number=1)
    found = choice([entry(1, 0, 90 * KB), entry(2, 0, 90 * KB)], deletes=[named, elsewhere, everywhere])
    (group,) = found.plan.groups
    assert [t.data_file.path for t in group.tasks] == ["f1"]
    assert [d.content for d in group.tasks[0].deletes] == [DeleteContent.POSITION]
    assert POSITION_PATH_FIELD == 2147483546


def test_a_table_without_a_snapshot_is_told_apart() -> None:
    assert head_of({"current-snapshot-id": -1}) is None
    assert head_of({}) is None
    empty = {**METADATA, "current-snapshot-id": -1, "snapshots": [], "refs": {}}
    snapshot = table_snapshot("ns.t", empty, Manifests(), CompactionPolicy())
    assert choose(snapshot, empty, CompactionPolicy(), catalog="c").plan.reason == "NO_SNAPSHOT"
