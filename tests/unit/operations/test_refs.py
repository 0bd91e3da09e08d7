"""Tags and rollbacks move what they judged and nothing else, whatever the catalog answers and whoever comes between."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from regelate.errors import CommitStateUnknown, Conflict, InvalidRequest, NotFound, RegelateError
from regelate.operations.refs import RollbackAnswer, create_tag, drop_tag, rollback
from tests.unit.operations.fakes import CountingClock, MemoryCommitter, MemoryTable

LANDS = ("lost", "lost-as-conflict", "late")
Act = Callable[[MemoryTable], object]


@pytest.fixture
def table() -> MemoryTable:
    made = MemoryTable()
    for number in range(3):
        made.append("x", [number])
    return made


def tagged(committer: MemoryCommitter, name: str = "v1", snapshot_id: int | None = None) -> bool:
    return create_tag(committer, CountingClock(), name, snapshot_id=snapshot_id, max_age_ms=None).created


def back(committer: MemoryCommitter, snapshot_id: int | None, keep_tag: str | None = None) -> RollbackAnswer:
    return rollback(committer, CountingClock(), snapshot_id=snapshot_id, as_of_ms=None, keep_tag=keep_tag)


def test_a_tag_keeps_the_head_or_any_snapshot_that_is_listed_and_repeating_it_is_no_fault(table: MemoryTable) -> None:
    first = table.log[0].snapshot_id
    assert tagged(MemoryCommitter(table))
    assert tagged(MemoryCommitter(table), "old", first)
    assert table.tags == {"v1": table.head_id, "old": first}
    assert not tagged(MemoryCommitter(table), "old", first)
    with pytest.raises(Conflict) as caught:
        tagged(MemoryCommitter(table), "old")
    assert (caught.value.code, caught.value.retryable, table.tags["old"]) == ("REF_EXISTS", False, first)


@pytest.mark.parametrize("name", ["", "main", "123", "undo-5", "a\nb", "x" * 129])
def test_a_name_that_means_something_else_is_refused_before_the_catalog_is_asked(name: str, table: MemoryTable) -> None:
    committer = MemoryCommitter(table)
    committer.heads_left = 0
    with pytest.raises(InvalidRequest, match="INVALID_IDENTIFIER"):
        tagged(committer, name)


def test_what_is_not_listed_cannot_be_tagged(table: MemoryTable) -> None:
    for committer, wanted in ((MemoryCommitter(table), 7), (MemoryCommitter(MemoryTable()), None)):
        with pytest.raises(NotFound, match="SNAPSHOT_NOT_FOUND"):
            tagged(committer, snapshot_id=wanted)


@pytest.mark.parametrize("answer", LANDS)
def test_a_tag_that_landed_is_found_whatever_was_answered(answer: str, table: MemoryTable) -> None:
    committer = MemoryCommitter(table, script=[answer])
    assert tagged(committer)
    assert (table.tags, committer.attempts) == ({"v1": table.head_id}, 1)


def test_an_append_meanwhile_does_not_disturb_a_tag(table: MemoryTable) -> None:
    head = table.head_id
    committer = MemoryCommitter(table, meanwhile=[lambda: table.append("x", [9])])
    assert tagged(committer)
    assert table.tags == {"v1": head}


def test_two_who_make_one_tag_on_two_snapshots_do_not_overwrite_each_other(table: MemoryTable) -> None:
    first = table.log[0].snapshot_id
    committer = MemoryCommitter(table, meanwhile=[lambda: table.tags.update(v1=first)])
    with pytest.raises(Conflict, match="REF_EXISTS"):
        tagged(committer)
    assert table.tags == {"v1": first}


def test_a_tag_is_dropped_also_one_of_an_undo_and_a_branch_is_not(table: MemoryTable) -> None:
    table.tags = {"undo-1000": table.log[0].snapshot_id, "v1": table.log[1].snapshot_id}
    dropped = drop_tag(MemoryCommitter(table), CountingClock(), "undo-1000")
    assert (dropped.snapshot_id, table.tags) == (table.log[0].snapshot_id, {"v1": table.log[1].snapshot_id})
    for name in ("undo-1000", "main"):
        with pytest.raises(NotFound, match="REF_NOT_FOUND"):
            drop_tag(MemoryCommitter(table), CountingClock(), name)


@pytest.mark.parametrize("answer", LANDS)
def test_a_drop_that_landed_is_found_whatever_was_answered(answer: str, table: MemoryTable) -> None:
    table.tags = {"v1": table.log[0].snapshot_id}
    assert drop_tag(MemoryCommitter(table, script=[answer]), CountingClock(), "v1").dropped
    assert table.tags == {}


def test_a_tag_that_was_moved_meanwhile_is_not_dropped(table: MemoryTable) -> None:
    first, second, _ = (s.snapshot_id for s in table.log)
    table.tags = {"v1": first}
    committer = MemoryCommitter(table, meanwhile=[lambda: table.tags.update(v1=second)])
    with pytest.raises(Conflict, match="COMMIT_CONFLICT"):
        drop_tag(committer, CountingClock(), "v1")
    assert table.tags == {"v1": second}


def test_main_goes_back_and_what_it_leaves_is_named_and_kept_where_that_is_asked_for(table: MemoryTable) -> None:
    first, second, third = (s.snapshot_id for s in table.log)
    answer = back(MemoryCommitter(table), first, "before-the-rollback")
    assert table.head_id == first
    assert table.tags == {"before-the-rollback": third}
    assert answer == RollbackAnswer(
        rolled_back=True,
        snapshot_id=first,
        previous_snapshot_id=third,
        snapshots_left=2,
        left_snapshot_ids=(third, second),
        tag="before-the-rollback",
    )
    again = back(MemoryCommitter(table), first, "another")
    assert (again.rolled_back, again.tag, table.tags) == (False, None, {"before-the-rollback": third})


def test_a_time_names_the_newest_snapshot_of_mains_history_that_is_not_younger(table: MemoryTable) -> None:
    entry = table.log[1]
    committer = MemoryCommitter(table)
    rollback(committer, CountingClock(), snapshot_id=None, as_of_ms=entry.timestamp_ms, keep_tag=None)
    assert table.head_id == next(s.snapshot_id for s in reversed(table.log) if s.timestamp_ms <= entry.timestamp_ms)
    with pytest.raises(NotFound, match="SNAPSHOT_NOT_FOUND"):
        rollback(committer, CountingClock(), snapshot_id=None, as_of_ms=-1, keep_tag=None)


def test_only_an_ancestor_of_main_is_a_way_back(table: MemoryTable) -> None:
    first, _, third = (s.snapshot_id for s in table.log)
    back(MemoryCommitter(table), first)
    for wanted, code in ((third, "SNAPSHOT_NOT_ANCESTOR"), (7, "SNAPSHOT_NOT_FOUND")):
        with pytest.raises(RegelateError, match=code):
            back(MemoryCommitter(table), wanted)
    with pytest.raises(NotFound, match="SNAPSHOT_NOT_FOUND"):
        back(MemoryCommitter(MemoryTable()), 7)
    assert table.head_id == first


@pytest.mark.parametrize("answer", LANDS)
def test_a_rollback_that_landed_is_found_whatever_was_answered(answer: str, table: MemoryTable) -> None:
    first = table.log[0].snapshot_id
    committer = MemoryCommitter(table, script=[answer])
    assert back(committer, first).rolled_back
    assert (table.head_id, committer.attempts) == (first, 1)


def test_what_somebody_commits_meanwhile_is_not_taken_back_unseen(table: MemoryTable) -> None:
    first = table.log[0].snapshot_id
    committer = MemoryCommitter(table, meanwhile=[lambda: table.append("x", [9])])
    with pytest.raises(Conflict) as caught:
        back(committer, first, "kept")
    assert (caught.value.code, caught.value.retryable, committer.attempts) == ("COMMIT_CONFLICT", True, 1)
    assert (table.head_id, table.tags) == (table.log[-1].snapshot_id, {})
    assert sum(table.rows().values()) == 4


def test_a_tag_to_keep_that_is_there_already_stops_the_rollback(table: MemoryTable) -> None:
    first, second, third = (s.snapshot_id for s in table.log)
    table.tags = {"kept": second}
    with pytest.raises(Conflict, match="REF_EXISTS"):
        back(MemoryCommitter(table), first, "kept")
    assert (table.head_id, table.tags) == (third, {"kept": second})


def test_a_request_that_nobody_answered_is_sent_again_and_the_first_can_do_no_harm_when_it_arrives(
    table: MemoryTable,
) -> None:
    first, second, third = (s.snapshot_id for s in table.log)
    committer = MemoryCommitter(table, script=["dead", "later"])
    assert back(committer, second).rolled_back
    assert (table.head_id, committer.attempts) == (second, 3)
    committer.arrive("later")
    assert (table.head_id, table.log[-1].snapshot_id, first) == (second, third, table.log[0].snapshot_id)


def test_where_the_catalog_cannot_be_looked_at_after_a_lost_answer_nobody_knows(table: MemoryTable) -> None:
    committer = MemoryCommitter(table, script=["lost"])
    committer.heads_left = 2
    with pytest.raises(CommitStateUnknown):
        back(committer, table.log[0].snapshot_id)
