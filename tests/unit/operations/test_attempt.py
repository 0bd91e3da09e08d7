"""The attempt loop: what it takes for landed, lost and unknown, and what it leaves behind (law 8)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from regelate.core.running.commit import Change, ExpiryChange, Outcome, SnapshotChange
from regelate.core.running.rewrite import NewDataFile
from regelate.core.table.head import Head
from regelate.core.table.table import RUN_ID
from regelate.errors import CommitStateUnknown, Conflict, NotFound, Unavailable, keeps_files
from regelate.operations.committing.attempt import (
    BASE_DELAY_SECONDS,
    LOOKS,
    MAX_ATTEMPTS,
    MAX_DELAY_SECONDS,
    MAX_RACES,
    Attempted,
    attempt,
)
from regelate.operations.committing.sent import STAYING, SentAttempt
from tests.unit.operations.fakes import NO_METRICS, CountingClock, MemoryCommitter, MemoryTable, partition

LANDS = ("lost", "lost-as-conflict")


@pytest.fixture
def table() -> MemoryTable:
    made = MemoryTable()
    made.append("x", [1, 2])
    return made


def run(
    committer: MemoryCommitter,
    clock: CountingClock | None = None,
    run_id: str | None = "run",
    decide: Any = None,
    patience_seconds: float = 0.0,
) -> Attempted:
    """Commit an empty snapshot of this run, with an id of its own on every attempt."""

    def empty(head: Head) -> Change:
        summary = {} if run_id is None else {RUN_ID: run_id}
        return SnapshotChange(operation="append", snapshot_id=committer.new_snapshot_id(), summary=summary)

    return attempt(
        committer,
        clock or CountingClock(),
        decide or empty,
        run_id=run_id,
        patience_seconds=patience_seconds,
        jitter=lambda: 0.5,
    )


def snapshots_of_the_run(table: MemoryTable) -> list[int]:
    return [s.snapshot_id for s in table.log if s.run_id == "run"]


def test_the_first_attempt_lands_without_waiting(table: MemoryTable) -> None:
    clock, committer = CountingClock(), MemoryCommitter(table)
    done = run(committer, clock)
    assert (done.attempts, done.found_earlier, done.snapshot_id) == (1, False, table.head_id)
    assert clock.sleeps == []


@pytest.mark.parametrize("refusals", range(MAX_ATTEMPTS))
def test_a_lost_race_is_tried_again_with_growing_waits(table: MemoryTable, refusals: int) -> None:
    clock, committer = CountingClock(), MemoryCommitter(table, script=["refused"] * refusals)
    done = run(committer, clock)
    assert done.attempts == committer.attempts == refusals + 1
    assert clock.sleeps == [pytest.approx(BASE_DELAY_SECONDS * 2**n) for n in range(refusals)]
    assert len(snapshots_of_the_run(table)) == 1


def test_a_race_lost_to_real_commits_lands_on_the_head_that_won(table: MemoryTable) -> None:
    committer = MemoryCommitter(table, meanwhile=[lambda: table.append("x", [3])] * 3)
    done = run(committer)
    assert done.attempts == 4
    assert [s.operation for s in table.log] == ["append"] * 5
    assert table.rows() == {("p=x", 1): 1, ("p=x", 2): 1, ("p=x", 3): 3}


@pytest.mark.parametrize("races", range(1, MAX_RACES + 1))
def test_who_loses_to_commits_of_others_goes_on_longer_than_on_a_head_that_does_not_move(
    table: MemoryTable, races: int
) -> None:
    clock, committer = CountingClock(), MemoryCommitter(table, meanwhile=[lambda: table.append("x", [3])] * races)
    if races < MAX_RACES:
        assert run(committer, clock).attempts == races + 1
    else:
        with pytest.raises(Conflict):
            run(committer, clock)
    assert (committer.attempts, len(clock.sleeps)) == (min(races + 1, MAX_RACES), races)
    assert max(clock.sleeps) <= MAX_DELAY_SECONDS * 1.5


def test_what_is_dear_to_make_again_loses_races_as_long_as_its_patience_lasts(table: MemoryTable) -> None:
    races = [lambda: table.append("x", [3])] * 100
    clock, committer = CountingClock(), MemoryCommitter(table, meanwhile=races[: 2 * MAX_RACES])
    assert run(committer, clock, patience_seconds=60).attempts == 2 * MAX_RACES + 1
    assert clock.seconds < 60
    clock, committer = CountingClock(), MemoryCommitter(table, meanwhile=races)
    with pytest.raises(Conflict):
        run(committer, clock, run_id="another", patience_seconds=60)
    assert 60 <= clock.seconds < 60 + 1.5 * MAX_DELAY_SECONDS


def test_patience_is_not_for_a_head_that_does_not_move(table: MemoryTable) -> None:
    committer = MemoryCommitter(table, script=["refused"] * 9)
    with pytest.raises(Conflict):
        run(committer, patience_seconds=60)
    assert committer.attempts == MAX_ATTEMPTS


def test_after_five_lost_races_the_caller_may_plan_again(table: MemoryTable) -> None:
    committer = MemoryCommitter(table, script=["refused"] * 9)
    with pytest.raises(Conflict) as caught:
        run(committer)
    assert (caught.value.code, caught.value.retryable, committer.attempts) == ("COMMIT_CONFLICT", True, MAX_ATTEMPTS)
    assert snapshots_of_the_run(table) == []


@pytest.mark.parametrize(
    ("script", "kept", "forgets"),
    [
        (["refused"] * 9, True, 1),
        (["undone"] * 9, False, MAX_ATTEMPTS + 1),
        (["undone", "refused", *["undone"] * 9], True, 2),
    ],
)
def test_t39_a_conflict_that_the_head_does_not_show_may_be_with_a_request_of_ours_under_way(
    table: MemoryTable, script: Sequence[str], kept: bool, forgets: int
) -> None:
    """A lock of the server's that our first sending holds. A database was asked once, and has answered."""
    committer = MemoryCommitter(table, script=script)
    with pytest.raises(Conflict) as caught:
        run(committer)
    assert (keeps_files(caught.value), committer.left, committer.forgotten) == (kept, int(kept), forgets)


def test_t39_such_an_attempt_is_ruled_out_by_the_next_that_lands(table: MemoryTable) -> None:
    committer = MemoryCommitter(table, script=["refused"])
    assert run(committer).snapshot_id == table.head_id
    assert (committer.spared, committer.left) == ([None, table.head_id], 0)


@pytest.mark.parametrize("fault", [ValueError("a bug"), Unavailable("STORAGE_UNAVAILABLE", "a store")])
def test_t39_no_other_error_takes_the_files_of_such_an_attempt_away(table: MemoryTable, fault: Exception) -> None:
    committer = MemoryCommitter(table, script=["refused"])
    decisions: list[Any] = [_empty, _raiser(fault)]
    with pytest.raises(type(fault)) as caught:
        run(committer, decide=lambda head: decisions.pop(0)(committer))
    assert (keeps_files(caught.value), committer.left) == (True, 1)


def test_t39_whatever_ends_the_loop_says_that_such_an_attempt_may_be_under_way(table: MemoryTable) -> None:
    committer = MemoryCommitter(table, script=["refused"])
    decisions: list[Any] = [_empty, _raiser(Unavailable("STORAGE_UNAVAILABLE", "a store"))]
    with pytest.raises(Unavailable, match=f"a store; {STAYING}"):
        run(committer, decide=lambda head: decisions.pop(0)(committer))


def test_t39_a_younger_metadata_file_with_the_same_snapshot_rules_no_attempt_out(table: MemoryTable) -> None:
    """A client that swaps metadata files checks and replaces what it finds when it sends, not what was judged."""
    base = replace(MemoryCommitter(table).head(), swaps_metadata=True)
    change = SnapshotChange(operation="append", snapshot_id=7, summary={})
    sent = SentAttempt(change=change, head=base, outcome=Outcome.UNKNOWN)
    assert sent.is_on(replace(base, metadata_location="with another tag"))
    assert not sent.is_on(replace(base, metadata_location="with another snapshot", snapshot_id=8))


def test_a_commit_to_another_branch_rules_an_attempt_out_by_its_number(table: MemoryTable) -> None:
    base = MemoryCommitter(table).head()
    change = SnapshotChange(operation="append", snapshot_id=7, summary={})
    sent = SentAttempt(change=change, head=base, outcome=Outcome.UNKNOWN)
    assert not sent.is_on(replace(base, sequence_number=base.sequence_number + 1))
    assert replace(sent, head=replace(base, format_version=1)).is_on(replace(base, sequence_number=9))
    expiry = replace(sent, change=ExpiryChange(snapshot_ids=(1,)))
    assert expiry.is_on(replace(base, sequence_number=base.sequence_number + 1))


@pytest.mark.parametrize("ref", ["main", "side"])
def test_an_attempt_whose_branch_went_elsewhere_is_over_once_its_number_is_taken(table: MemoryTable, ref: str) -> None:
    """Branches are put elsewhere and back, or dropped and made again, and no number is taken by that."""
    base = replace(MemoryCommitter(table).head(), ref=ref)
    change = SnapshotChange(operation="append", snapshot_id=7, summary={})
    sent = SentAttempt(change=change, head=base, outcome=Outcome.UNKNOWN)
    for away in (replace(base, snapshot_id=None), replace(base, snapshot_id=1)):
        assert not sent.is_over(away)
        assert sent.is_over(replace(away, sequence_number=base.sequence_number + 1))
        assert sent.is_over(replace(away, uuid="another table"))
        assert replace(sent, head=replace(base, swaps_metadata=True)).is_over(replace(away, swaps_metadata=True))


@pytest.mark.parametrize("takes_number", [False, True])
def test_t39_a_conflict_with_a_rollback_proves_nothing_of_another_sending(
    table: MemoryTable, takes_number: bool
) -> None:
    """Main may be put back on the base; while the number is free, the first sending fits then, and needs its files."""
    earlier = table.head_id
    assert earlier is not None
    table.append("x", [3])

    def roll_back() -> None:
        if takes_number:
            table.append("x", [4])
        table.roll_back(earlier)

    committer = MemoryCommitter(table, script=["refused"])
    committer.before_look = [roll_back]
    decisions: list[Any] = [_empty, _raiser(Conflict("BASE_NOT_ANCESTOR", "rolled back"))]
    with pytest.raises(Conflict, match="rolled back") as caught:
        run(committer, decide=lambda head: decisions.pop(0)(committer))
    assert (keeps_files(caught.value), committer.left) == (not takes_number, int(not takes_number))


@pytest.mark.parametrize("step", ["refused", "dead"])
def test_an_attempt_that_a_rollback_left_is_ruled_out_once_another_is_seen_to_have_its_number(
    table: MemoryTable, step: str
) -> None:
    earlier = table.head_id
    assert earlier is not None
    table.append("x", [3])
    committer = MemoryCommitter(table, script=[step])
    committer.before_look = [lambda: table.roll_back(earlier)]
    committer.meanwhile = [lambda: None, lambda: table.append("x", [4])]
    decisions: list[Any] = [_empty, _empty, _raiser(Conflict("BASE_NOT_ANCESTOR", "rolled back"))]
    with pytest.raises(Conflict, match="rolled back") as caught:
        run(committer, decide=lambda head: decisions.pop(0)(committer))
    assert (keeps_files(caught.value), committer.left) == (False, 0)


def test_t39_under_format_1_such_an_attempt_fits_again_after_a_rollback() -> None:
    table = MemoryTable(format_version=1)
    table.append("x", [1, 2])
    committer = MemoryCommitter(table, script=["refused"], meanwhile=[lambda: None, lambda: table.append("x", [3])])
    done = run(committer, decide=with_file(committer, table))
    assert (done.snapshot_id, done.uncertain, committer.left) == (table.head_id, {"ours"}, 1)


@pytest.mark.parametrize("loss", LANDS)
@pytest.mark.parametrize("number", range(1, MAX_ATTEMPTS + 1))
@pytest.mark.parametrize("run_id", ["run", None])
def test_t7_a_commit_whose_reply_was_lost_is_found_and_never_made_twice(
    table: MemoryTable, loss: str, number: int, run_id: str | None
) -> None:
    committer = MemoryCommitter(table, script=["refused"] * (number - 1) + [loss])
    done = run(committer, run_id=run_id)
    assert (done.attempts, committer.attempts, done.found_earlier) == (number, number, False)
    assert done.snapshot_id == table.head_id
    assert isinstance(done.landed, SnapshotChange)
    assert done.landed.snapshot_id == table.head_id
    assert len(table.log) == 2
    assert committer.spared[-1] == table.head_id


@pytest.mark.parametrize("loss", LANDS)
def test_a_landed_commit_is_found_under_the_commits_of_others(table: MemoryTable, loss: str) -> None:
    committer = MemoryCommitter(table, script=[loss])
    seen: list[bool] = []
    head, look = committer.head, iter([lambda: None, lambda: table.append("x", [9])])

    def late() -> Head:
        next(look, lambda: None)()
        seen.append(True)
        return head()

    committer.head = late  # type: ignore[method-assign]
    done = run(committer)
    assert done.snapshot_id == snapshots_of_the_run(table)[0] != table.head_id
    assert len(seen) == 2


@pytest.mark.parametrize(("step", "attempts"), [("late", 1), ("later", 2)])
def test_an_attempt_under_way_that_lands_late_is_the_one_that_counts(
    table: MemoryTable, step: str, attempts: int
) -> None:
    """A second attempt then fails on it: its own id says which of the two is in the table."""
    committer = MemoryCommitter(table, script=[step])
    done = run(committer)
    assert (done.snapshot_id, committer.attempts) == (table.head_id, attempts)
    assert isinstance(done.landed, SnapshotChange)
    assert done.landed.snapshot_id == table.head_id
    assert len(snapshots_of_the_run(table)) == 1


def test_an_attempt_of_unknown_outcome_is_tried_again_and_lands_once(table: MemoryTable) -> None:
    committer = MemoryCommitter(table, script=["dead", "dead"])
    done = run(committer)
    assert (done.attempts, len(snapshots_of_the_run(table))) == (3, 1)


@pytest.mark.parametrize("last", ["dead", "late", *LANDS, "refused"])
def test_what_cannot_be_looked_up_is_unknown(table: MemoryTable, last: str) -> None:
    clock, committer = CountingClock(), MemoryCommitter(table, script=[last])
    committer.heads_left = 1
    with pytest.raises(CommitStateUnknown) as caught:
        run(committer, clock)
    assert caught.value.keeps_files
    assert len(clock.sleeps) == LOOKS + 1
    assert committer.forgotten <= 1


def test_an_attempt_that_may_still_arrive_is_unknown_when_the_attempts_are_used_up(table: MemoryTable) -> None:
    with pytest.raises(CommitStateUnknown):
        run(MemoryCommitter(table, script=["dead"] * MAX_ATTEMPTS))


def test_an_attempt_that_can_no_longer_arrive_is_lost(table: MemoryTable) -> None:
    """The head moved past its base: the compare-and-swap cannot succeed any more."""
    committer = MemoryCommitter(
        table, script=["dead"] * MAX_RACES, meanwhile=[lambda: table.append("x", [3])] * MAX_RACES
    )
    with pytest.raises(Conflict) as caught:
        run(committer)
    assert caught.value.code == "COMMIT_CONFLICT"


@pytest.mark.parametrize("fault", [ValueError("a bug"), Unavailable("STORAGE_UNAVAILABLE", "a store")])
def test_a_fault_while_an_attempt_may_still_arrive_is_unknown_and_else_itself(
    table: MemoryTable, fault: Exception
) -> None:
    for script, expected in (["dead"], CommitStateUnknown), (["refused"], type(fault)):
        decisions: list[Any] = [_empty, _raiser(fault)]
        committer = MemoryCommitter(table, script=script)
        with pytest.raises(expected):
            run(committer, decide=lambda head, todo=decisions, c=committer: todo.pop(0)(c))


def _empty(committer: MemoryCommitter) -> Change:
    return SnapshotChange(operation="append", snapshot_id=committer.new_snapshot_id(), summary={})


def _raiser(fault: Exception) -> Any:
    def fails(committer: MemoryCommitter) -> Change:
        raise fault

    return fails


@pytest.mark.parametrize(("script", "expected"), [(["refused"], NotFound), (["dead"], CommitStateUnknown)])
def test_a_table_that_is_gone_afterwards(table: MemoryTable, script: Sequence[str], expected: type[Exception]) -> None:
    """After refusals it was dropped; after an attempt of unknown outcome it may have been renamed with our commit."""
    committer = MemoryCommitter(table, script=script, meanwhile=[lambda: setattr(table, "dropped", True)])
    with pytest.raises(expected):
        run(committer)


@pytest.mark.parametrize("looks", [1, LOOKS - 1])
def test_a_look_that_finds_no_table_is_not_believed_while_another_may_find_it(table: MemoryTable, looks: int) -> None:
    """The commit landed and was answered with a conflict (trap T7); a gateway then answers 404 for a while."""
    committer = MemoryCommitter(table, script=["lost-as-conflict"])
    committer.denied_looks = looks
    done = run(committer)
    assert [done.snapshot_id] == snapshots_of_the_run(table)
    assert committer.spared[-1] == done.snapshot_id


def test_of_attempts_with_the_same_files_the_one_that_landed_is_found_where_only_the_head_is_shown() -> None:
    """Format 1 has no numbers to tell them apart, and none that would keep the others out: their manifests stay."""
    table = MemoryTable(head_only=True, format_version=1)
    table.append("x", [1, 2])
    committer = MemoryCommitter(table, script=["refused", "dead", "lost-as-conflict"])
    done = run(committer, decide=with_file(committer, table))
    assert [done.snapshot_id] == snapshots_of_the_run(table)
    assert (committer.forgotten, committer.left) == (1, 1)


def test_of_attempts_with_the_same_files_the_one_that_landed_is_found_under_the_commit_of_another() -> None:
    table = MemoryTable(head_only=True, format_version=1)
    table.append("x", [1, 2])
    committer = MemoryCommitter(table, script=["refused", "dead", "lost-as-conflict"])
    committer.before_look = [lambda: None, lambda: None, lambda: table.append("x", [3])]
    done = run(committer, decide=with_file(committer, table))
    assert [done.snapshot_id] == snapshots_of_the_run(table)
    assert (committer.forgotten, committer.left) == (1, 1)


@pytest.mark.parametrize("loss", LANDS)
def test_t16_the_first_commit_of_a_v1_table_is_found_under_the_commit_of_another(loss: str) -> None:
    """The other's snapshot is shown as if it were the first: that ours is not there may not be read from it."""
    table = MemoryTable(head_only=True, format_version=1)
    committer = MemoryCommitter(table, script=[loss])
    committer.before_look = [lambda: table.append("x", [3])]
    done = run(committer, decide=with_file(committer, table))
    assert ([done.snapshot_id], committer.attempts) == (snapshots_of_the_run(table), 1)
    assert committer.spared[-1] == done.snapshot_id


@pytest.mark.parametrize("loss", LANDS)
def test_t16_a_commit_of_a_v1_table_is_found_although_an_upgrade_gave_the_first_number_to_another(loss: str) -> None:
    """Before the upgrade nobody had a number: who bears the first one says nothing of a commit made then."""
    table = MemoryTable(head_only=True, format_version=1)
    table.append("x", [1])
    committer = MemoryCommitter(table, script=[loss])

    def upgrade() -> None:
        table.format_version, table.last_sequence_number = 2, 0
        table.append("x", [3])

    committer.before_look = [upgrade]
    done = run(committer, decide=with_file(committer, table))
    assert ([done.snapshot_id], committer.attempts) == (snapshots_of_the_run(table), 1)


@pytest.mark.parametrize(("answer", "is_known"), [("undone", True), ("refused", False), ("dead", False)])
def test_t16_a_first_commit_that_no_manifest_tells_of_did_not_land_only_if_a_database_says_so(
    answer: str, is_known: bool
) -> None:
    table = MemoryTable(head_only=True, format_version=1)
    committer = MemoryCommitter(table, script=[answer])
    committer.before_look = [lambda: table.append("x", [3])]
    if is_known:
        assert run(committer, decide=with_file(committer, table)).snapshot_id == table.head_id
    else:
        with pytest.raises(CommitStateUnknown):
            run(committer, decide=with_file(committer, table))


def with_file(committer: MemoryCommitter, table: MemoryTable) -> Any:
    """Return a `decide` that adds one data file, the same on every attempt."""
    added = NewDataFile(path="ours", partition=partition("x"), record_count=1, size_bytes=1, metrics=NO_METRICS)
    table.storage["ours"] = [7]
    return lambda head: SnapshotChange(
        operation="append", snapshot_id=committer.new_snapshot_id(), summary={RUN_ID: "run"}, added=(added,)
    )


@pytest.mark.parametrize("loss", LANDS)
@pytest.mark.parametrize("has_files", [True, False])
def test_a_commit_that_landed_and_expired_before_the_look_is_not_made_twice(
    table: MemoryTable, loss: str, has_files: bool
) -> None:
    """Expiry cuts the parent of what came after: a history that seems to begin there must not be believed."""
    committer, clock = MemoryCommitter(table, script=[loss]), CountingClock()

    def others_go_on(seconds: float) -> None:
        clock.sleep = lambda more: None  # type: ignore[method-assign]
        mine = snapshots_of_the_run(table)
        table.append("x", [8])
        table.expire([table.log[0].snapshot_id, *mine])

    clock.sleep = others_go_on  # type: ignore[method-assign]
    if has_files:
        done = run(committer, clock, decide=with_file(committer, table))
        assert isinstance(done.landed, SnapshotChange)
    else:
        with pytest.raises(CommitStateUnknown):
            run(committer, clock)
    assert (committer.attempts, snapshots_of_the_run(table)) == (1, [])


def test_a_fault_while_only_our_files_can_tell_is_unknown(table: MemoryTable) -> None:
    """The commit landed and expired, and the manifests that would say so cannot be read."""
    committer, clock = MemoryCommitter(table, script=["lost"]), CountingClock()

    def others_go_on(seconds: float) -> None:
        mine = snapshots_of_the_run(table)
        table.append("x", [8])
        table.expire(mine)

    def fails(paths: object) -> bool:
        raise Unavailable("STORAGE_UNAVAILABLE", "no route")

    clock.sleep = others_go_on  # type: ignore[method-assign]
    committer.bearer = committer.adder = fails  # type: ignore[method-assign]
    with pytest.raises(CommitStateUnknown):
        run(committer, clock, decide=with_file(committer, table))


def test_an_attempt_that_a_later_head_ruled_out_is_never_reported_as_landed(table: MemoryTable) -> None:
    """The second attempt landed and expired: its files say so, and the first, with the same files, is not it."""
    committer, clock = MemoryCommitter(table, script=["dead", "lost"]), CountingClock()
    ids: list[int] = []

    def others_go_on(seconds: float) -> None:
        mine = snapshots_of_the_run(table)
        ids.extend(mine)
        table.append("x", [8])
        table.expire(mine)

    clock.sleep = others_go_on  # type: ignore[method-assign]
    done = run(committer, clock, decide=with_file(committer, table))
    assert [done.snapshot_id] == ids


def test_a_run_that_landed_before_this_call_is_found_and_commits_nothing(table: MemoryTable) -> None:
    first = run(MemoryCommitter(table))
    committer = MemoryCommitter(table)
    again = run(committer)
    assert (again.found_earlier, again.landed, again.snapshot_id) == (True, None, first.snapshot_id)
    assert committer.attempts == 0


def test_the_same_run_that_lands_elsewhere_during_the_loop_is_not_taken_for_ours(table: MemoryTable) -> None:
    committer = MemoryCommitter(table, meanwhile=[lambda: run(MemoryCommitter(table))])
    done = run(committer)
    assert (done.found_earlier, done.landed) == (True, None)
    assert len(snapshots_of_the_run(table)) == 1


def test_nothing_to_commit_commits_nothing(table: MemoryTable) -> None:
    committer = MemoryCommitter(table)
    done = run(committer, decide=lambda head: None)
    assert (done.landed, done.snapshot_id, committer.attempts) == (None, None, 0)


@pytest.mark.parametrize("loss", ["ok", "lost", "lost-as-conflict"])
def test_an_expiry_whose_reply_was_lost_is_recognised_by_what_is_gone(table: MemoryTable, loss: str) -> None:
    table.append("x", [3])
    oldest = table.log[0].snapshot_id
    done = run(
        MemoryCommitter(table, script=[loss]),
        run_id=None,
        decide=lambda head: ExpiryChange(snapshot_ids=(oldest,)) if len(head.snapshots) > 1 else None,
    )
    assert isinstance(done.landed, ExpiryChange)
    assert [s.snapshot_id for s in table.log] == [table.head_id]
