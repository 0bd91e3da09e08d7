"""What others did while we rewrote: which groups still stand, and when nothing can be judged."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regelate.core.planning.plan import FileGroup
from regelate.core.running.conflict import Ancestry, CommitWindow, DropCode, judge
from regelate.core.table.deletes import applies
from regelate.core.table.table import DeleteContent, DeleteFile, FileScanTask
from regelate.errors import Conflict
from tests.unit.core.model_table import UNPARTITIONED, data_file, equality_delete, month, position_delete

BASE = 5
JANUARY, FEBRUARY = month("2013-01"), month("2013-02")
A1, A2 = data_file("a1", 10, partition=JANUARY, seq=1), data_file("a2", 10, partition=JANUARY, seq=4)
B1 = data_file("b1", 10, partition=FEBRUARY, seq=3)
OLD = position_delete("old", 1, of=A1)
QUIET = CommitWindow(
    ancestry=Ancestry.ANCESTOR, same_table=True, base_snapshot_id=50, base_sequence_number=BASE, head_snapshot_id=51
)


def group(index: int, *tasks: FileScanTask) -> FileGroup:
    return FileGroup(
        index=index,
        partition=tasks[0].data_file.partition,
        tasks=tasks,
        expected_output_files=1,
    )


GROUPS = (
    group(0, FileScanTask(data_file=A1, deletes=(OLD,)), FileScanTask(data_file=A2)),
    group(1, FileScanTask(data_file=B1)),
)


def positions(path: str = "new", *, seq: int = 6, **given_values: Any) -> DeleteFile:
    values = {"referenced_lower": None, "referenced_upper": None, **given_values}
    return replace(position_delete(path, 1, of=A1), sequence_number=seq, **values)


def equality(path: str = "new", *, seq: int = 6, **given_values: Any) -> DeleteFile:
    return replace(equality_delete(path, 1, of=A1), sequence_number=seq, **given_values)


def drops(**changes: Any) -> list[tuple[int, DropCode, str]]:
    """Return what a window with these changes drops, as (group, code, path); the other groups must be kept."""
    verdict = judge(GROUPS, replace(QUIET, **changes))
    gone = [d.group.index for d in verdict.dropped]
    assert [g.index for g in verdict.kept] == [g.index for g in GROUPS if g.index not in gone]
    return [(d.group.index, d.code, d.path) for d in verdict.dropped]


def test_a_quiet_window_keeps_every_group() -> None:
    assert drops() == []


@pytest.mark.parametrize("ancestry", [Ancestry.ANCESTOR, Ancestry.HEAD_ONLY])
def test_a_group_that_lost_an_input_is_dropped(ancestry: Ancestry) -> None:
    assert drops(ancestry=ancestry, missing_inputs=frozenset({"a2"})) == [(0, DropCode.INPUT_REMOVED, "a2")]


def test_a_group_whose_applied_delete_was_removed_is_dropped() -> None:
    found = drops(missing_deletes=frozenset({"old", "of nobody"}))
    assert found == [(0, DropCode.DELETE_REMOVED, "old")]


@pytest.mark.parametrize(
    ("delete", "referenced", "hit"),
    [
        (positions(), {}, True),
        (positions(referenced_lower="a2", referenced_upper="a2"), {}, True),
        (positions(referenced_lower="a0", referenced_upper="a9"), {}, True),
        (positions(referenced_lower="a3", referenced_upper="a9"), {}, False),
        (positions(), {"new": frozenset({"a9"})}, False),
        (positions(), {"new": frozenset({"a2", "a9"})}, True),
        (positions(), {"another": frozenset({"a9"})}, True),
        (positions(seq=0), {}, False),
        (positions(partition=month("2013-03")), {}, False),
    ],
)
def test_a_new_position_delete_drops_the_group_of_a_file_that_it_may_name(
    delete: DeleteFile, referenced: dict[str, frozenset[str]], hit: bool
) -> None:
    found = drops(new_deletes=(delete,), referenced=referenced)
    assert found == ([(0, DropCode.NEW_DELETE, "new")] if hit else [])


@pytest.mark.parametrize("is_global", [False, True])
def test_a_younger_equality_delete_spoils_nothing(is_global: bool) -> None:
    partition = UNPARTITIONED if is_global else JANUARY
    assert drops(new_deletes=(equality(seq=BASE + 1, partition=partition, is_global=is_global),)) == []


@pytest.mark.parametrize(("seq", "dropped"), [(1, []), (2, [0]), (3, [0]), (4, [0, 1]), (BASE, [0, 1])])
def test_an_equality_delete_written_anew_under_an_old_number_drops_the_groups_it_reaches(
    seq: int, dropped: list[int]
) -> None:
    delete = equality(seq=seq, partition=UNPARTITIONED, is_global=True)
    assert drops(new_deletes=(delete,)) == [(index, DropCode.NEW_DELETE, "new") for index in dropped]


def test_within_a_group_the_first_file_decides_and_a_lost_input_goes_before_deletes() -> None:
    everything: dict[str, Any] = {"missing_deletes": frozenset({"old"}), "new_deletes": (positions(),)}
    assert drops(**everything, missing_inputs=frozenset({"a1"})) == [(0, DropCode.INPUT_REMOVED, "a1")]
    assert drops(**everything, missing_inputs=frozenset({"a2"})) == [(0, DropCode.DELETE_REMOVED, "old")]
    assert drops(new_deletes=everything["new_deletes"], missing_inputs=frozenset({"a2"})) == [
        (0, DropCode.NEW_DELETE, "new")
    ]


SPOILED: dict[str, Any] = {"missing_inputs": frozenset({"a1", "b1"})}
REPLACED: dict[str, Any] = {"same_table": False}
BACK: dict[str, Any] = {"returned_fields": frozenset({9, 3})}
LOST: dict[str, Any] = {"lost_specs": frozenset({0})}
OTHER_NAMES: dict[str, Any] = {"other_names": True}


@pytest.mark.parametrize(
    ("changes", "code", "retryable"),
    [
        ({**SPOILED, **REPLACED, **BACK, "ancestry": Ancestry.EXPIRED}, "TABLE_REPLACED", False),
        ({**SPOILED, **REPLACED, **BACK, "ancestry": Ancestry.ROLLED_BACK}, "TABLE_REPLACED", False),
        ({**SPOILED, **BACK, "ancestry": Ancestry.ROLLED_BACK}, "BASE_NOT_ANCESTOR", True),
        ({**SPOILED, **BACK, "ancestry": Ancestry.EXPIRED}, "BASE_EXPIRED", True),
        ({**SPOILED, **BACK}, "SCHEMA_CHANGED", True),
        ({**SPOILED, **LOST}, "SPEC_CHANGED", True),
        ({**SPOILED, **OTHER_NAMES}, "SCHEMA_CHANGED", True),
        ({**SPOILED, **LOST, **BACK}, "SCHEMA_CHANGED", True),
        ({**SPOILED, **LOST, "ancestry": Ancestry.EXPIRED}, "BASE_EXPIRED", True),
        ({**BACK, "ancestry": Ancestry.HEAD_ONLY}, "SCHEMA_CHANGED", True),
    ],
)
def test_where_nothing_can_be_judged_the_whole_commit_conflicts(
    changes: dict[str, Any], code: str, retryable: bool
) -> None:
    with pytest.raises(Conflict) as refused:
        drops(**changes)
    assert (refused.value.code, refused.value.retryable) == (code, retryable)


def test_the_conflict_names_what_decided_it() -> None:
    with pytest.raises(Conflict) as refused:
        drops(ancestry=Ancestry.ROLLED_BACK)
    assert refused.value.details == {"base": 50, "head": 51}
    with pytest.raises(Conflict) as refused:
        drops(**BACK)
    assert refused.value.details == {"field_ids": [3, 9]}


@st.composite
def windows(draw: st.DrawFn) -> CommitWindow:
    deletes = []
    for number in range(draw(st.integers(0, 3))):
        make = draw(st.sampled_from([positions, equality]))
        partition = draw(st.sampled_from([JANUARY, FEBRUARY]))
        deletes.append(make(f"new{number}", seq=draw(st.integers(0, 8)), partition=partition))
    named = st.sets(st.sampled_from(["a1", "a2", "b1", "else"])).map(frozenset)
    return replace(
        QUIET,
        missing_inputs=draw(named),
        missing_deletes=draw(st.sampled_from([frozenset(), frozenset({"old"})])),
        new_deletes=tuple(deletes),
        referenced=draw(st.dictionaries(st.sampled_from(["new0", "new1", "new2"]), named)),
    )


@given(window=windows())
def test_a_kept_group_loses_no_delete_and_brings_no_row_back(window: CommitWindow) -> None:
    verdict = judge(GROUPS, window)
    kept, dropped = list(verdict.kept), [d.group for d in verdict.dropped]
    assert sorted([*kept, *dropped], key=lambda g: g.index) == list(GROUPS)
    for task in [t for g in kept for t in g.tasks]:
        path = task.data_file.path
        assert path not in window.missing_inputs
        assert not any(d.path in window.missing_deletes for d in task.deletes)
        for delete in window.new_deletes:
            named = window.referenced.get(delete.path)
            names = delete.content is DeleteContent.EQUALITY or named is None or path in named
            if applies(delete, task.data_file) and names:
                # It reaches the outputs too: they carry the planning snapshot's sequence number.
                assert delete.content is DeleteContent.EQUALITY
                assert delete.sequence_number > window.base_sequence_number
    for drop in verdict.dropped:
        paths = {t.data_file.path for t in drop.group.tasks}
        if drop.code is DropCode.INPUT_REMOVED:
            assert drop.path in paths & window.missing_inputs
        elif drop.code is DropCode.DELETE_REMOVED:
            assert drop.path in window.missing_deletes
        else:
            assert drop.path in {d.path for d in window.new_deletes}
