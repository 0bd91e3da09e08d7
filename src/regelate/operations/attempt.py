"""The one attempt loop: every commit of this service goes through it.

Refresh, look for our own snapshot, judge, try; a lost attempt is tried again on the new head, an unknown one is
looked up first (law 8). PyIceberg's own loops are not used: see traps T6, T7 and T10 in docs/traps.md.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from regelate.errors import CommitStateUnknown, Conflict, NotFound
from regelate.ports import Change, Clock, Committer, ExpiryChange, Head, Outcome, SnapshotChange

MAX_ATTEMPTS = 5
"""On a head that does not move: refused or unanswered, and nobody else came in between."""
MAX_RACES = 16
"""Before patience is asked for. Who loses to a commit of another is right on the next head too; beside twenty writers
five are not enough."""
BASE_DELAY_SECONDS = 0.1
MAX_DELAY_SECONDS = 1.6
"""The pause before jitter, from the fifth attempt on."""
LOOKS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempted:
    """What a loop came to. `landed` is None when `decide` found nothing to commit.

    `found_earlier`: the run had landed before this call, so nothing was committed by it.
    """

    landed: Change | None
    snapshot_id: int | None
    attempts: int
    head_before: Head
    found_earlier: bool = False


def attempt(
    committer: Committer,
    clock: Clock,
    decide: Callable[[Head], Change | None],
    *,
    run_id: str | None = None,
    table_uuid: str | None = None,
    patience_seconds: float = 0.0,
    jitter: Callable[[], float] = random.random,
) -> Attempted:
    """Commit what `decide` makes of each head until it lands: at most 16 attempts, 5 of them on an unmoved head.

    They are 100 ms x 2^n apart, at most 1.6 s, with jitter. Races are lost beyond the sixteenth only while
    `patience_seconds` last, for what would be dear to make again. `table_uuid`: of the table that is meant, whatever
    stands under its name by then.

    Errors: Conflict COMMIT_CONFLICT when every attempt lost, TABLE_REPLACED when the table is another one; what
    `decide` raises; CommitStateUnknown when nobody knows, and then only: after any other error no attempt of this loop
    can be in the table.
    """
    sent = _Sent(committer, clock)
    head = committer.head()
    number = stuck = 0
    patient_until = clock.monotonic() + patience_seconds
    while True:
        earlier = sent.found(head, run_id)
        if earlier is not None:
            return replace(earlier, attempts=number)
        if stuck == MAX_ATTEMPTS or (number >= MAX_RACES and clock.monotonic() >= patient_until):
            break
        with sent.guarding(head):
            _check_same(head, table_uuid)
            change = decide(head)
        if change is None:
            sent.check_closed(head)
            return Attempted(landed=None, snapshot_id=None, attempts=number, head_before=head)
        with sent.guarding(head):
            outcome = committer.try_commit(head, change)
        if outcome is Outcome.LANDED:
            return Attempted(landed=change, snapshot_id=_snapshot_id(change), attempts=number + 1, head_before=head)
        sent.attempts.append(_Attempt(change=change, head=head, outcome=outcome))
        clock.sleep(min(BASE_DELAY_SECONDS * 2**number, MAX_DELAY_SECONDS) * (0.5 + jitter()))
        before, head = head, sent.look()
        number, stuck = number + 1, stuck + (head.metadata_location == before.metadata_location)
    sent.check_closed(head)
    raise Conflict("COMMIT_CONFLICT", f"lost {number} races against other writers; try again", attempts=number)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attempt:
    """An attempt that the catalog did not say had landed, and the head that it was made on."""

    change: Change
    head: Head
    outcome: Outcome


@dataclass
class _Sent:
    """What this loop has sent so far, and what a later head says of it (law 8)."""

    committer: Committer
    clock: Clock
    attempts: list[_Attempt] = field(default_factory=list)

    def found(self, head: Head, run_id: str | None) -> Attempted | None:
        """Look for what landed although nobody said so; clean up after attempts that are known to be lost."""
        landed = self._landed(head)
        if landed is not None:
            self.committer.forget_lost(landed=_snapshot_id(landed.change))
            return Attempted(
                landed=landed.change,
                snapshot_id=_snapshot_id(landed.change),
                attempts=0,
                head_before=landed.head,
            )
        run = head.run(run_id) if run_id is not None else None
        self.attempts = [a for a in self.attempts if a.head.snapshot_id == head.snapshot_id]  # the others are ruled out
        if not self._open(head):
            self.committer.forget_lost()
        if run is None:
            return None
        return Attempted(landed=None, snapshot_id=run.snapshot_id, attempts=0, head_before=head, found_earlier=True)

    def _landed(self, head: Head) -> _Attempt | None:
        listed = {s.snapshot_id for s in head.snapshots}
        for sent in self.attempts:
            if isinstance(sent.change, ExpiryChange):
                if _expired(head, sent.change):  # also after a conflict, which may be about our own commit (trap T7)
                    return sent
            elif sent.change.snapshot_id in listed or self._hidden(head, sent.change, sent.head):
                return sent
        return None

    def _hidden(self, head: Head, change: SnapshotChange, base: Head) -> bool:
        """Say whether a change is in the table though its snapshot is not listed: expired since, or never shown (T16).

        A sequence number is given once: where another snapshot has the one that would have been ours, we are not in the
        table. Where it is not listed, manifests may still tell who bears it, and our files that we are in it; without
        either nobody knows.
        """
        if head.uuid != base.uuid or head.shows_next(base):
            return False
        try:
            bearer = self.committer.bearer(base.sequence_number + 1)
            if bearer is not None:
                return bearer == change.snapshot_id
            if self.committer.holds_any([f.path for f in change.added]):
                return True
        except Exception as error:
            raise self.unknown() from error
        raise self.unknown()

    def _open(self, head: Head) -> bool:
        """Say whether an attempt of unknown outcome could still land: its base is still the head.

        Once the head has moved past that base without our snapshot, the compare-and-swap cannot succeed any more.
        """
        return any(a.outcome is Outcome.UNKNOWN and a.head.snapshot_id == head.snapshot_id for a in self.attempts)

    def check_closed(self, head: Head, cause: Exception | None = None) -> None:
        if self._open(head):
            raise self.unknown() from cause

    @contextmanager
    def guarding(self, head: Head) -> Iterator[None]:
        """Let no other error hide that an earlier attempt may still land."""
        try:
            yield
        except Exception as error:
            self.check_closed(head, error)
            raise

    def look(self) -> Head:
        """Refresh after an attempt. Where that fails, even a conflict that the catalog reported proves nothing.

        A client that sends again after a lost reply is told of a conflict with its own commit (trap T7). Only a table
        that is gone, after attempts that were all refused, is what it seems; one of unknown outcome may have been
        renamed since.
        """
        cause: Exception | None = None
        for number in range(LOOKS):
            try:
                return self.committer.head()
            except NotFound as error:
                if all(a.outcome is Outcome.LOST for a in self.attempts):
                    self.committer.forget_lost()
                    raise
                cause = error
            except Exception as error:  # noqa: BLE001  whatever keeps us from looking, we have not looked
                cause = error
            self.clock.sleep(BASE_DELAY_SECONDS * 2**number)
        raise self.unknown() from cause

    def unknown(self) -> CommitStateUnknown:
        return CommitStateUnknown(
            "COMMIT_STATE_UNKNOWN",
            "the catalog did not say whether the commit landed; look for the snapshot before trying again",
            snapshot_id=_snapshot_id(self.attempts[-1].change) if self.attempts else None,
        )


def _check_same(head: Head, table_uuid: str | None) -> None:
    if table_uuid is not None and head.uuid != table_uuid:
        raise Conflict(
            "TABLE_REPLACED",
            "the table was dropped and made again meanwhile; look at it first, nothing was done to it",
            retryable=False,
        )


def _expired(head: Head, change: ExpiryChange) -> bool:
    listed = {s.snapshot_id for s in head.snapshots}
    names = {r.name for r in head.refs}
    return not listed.intersection(change.snapshot_ids) and not names.intersection(change.ref_names)


def _snapshot_id(change: Change) -> int | None:
    return change.snapshot_id if isinstance(change, SnapshotChange) else None
