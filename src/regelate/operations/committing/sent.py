"""The attempts that a loop has sent and not seen land, and what a later head says of them (law 8: clean up only what
did not land)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from regelate.core.running.commit import Change, CommitRefused, ExpiryChange, Outcome, RefChange, SnapshotChange
from regelate.core.table.head import Head
from regelate.errors import CommitStateUnknown, Conflict, InvalidRequest, NotFound, RegelateError, keep_files
from regelate.ports.clock import Clock
from regelate.ports.commit import Committer

BASE_DELAY_SECONDS = 0.1
LOOKS = 5
STAYING = "its files stay until a sweep, for a request that may still be under way"
LOOKING_SECONDS = 30.0
"""Spent on waiting for answers to looks, no other is begun: a catalog that hangs would take its whole timeout each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempted:
    """What a loop came to. `landed` is None when `decide` found nothing to commit.

    `found_earlier`: the run had landed before this call, so nothing was committed by it. `uncertain`: data files that
    an earlier attempt of this loop may still bring into the table; they are not to be deleted.
    """

    landed: Change | None
    snapshot_id: int | None
    attempts: int
    head_before: Head
    found_earlier: bool = False
    uncertain: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class SentAttempt:
    """An attempt that the catalog did not say had landed, and the head that it was made on."""

    change: Change
    head: Head
    outcome: Outcome | CommitRefused

    @property
    def is_unknown(self) -> bool:
        return self.outcome is Outcome.UNKNOWN

    @property
    def is_in_doubt(self) -> bool:
        """Whether a sending of it may still be under way while its base is the head: nobody answered, another one was
        turned away at the door, or met a conflict that the head does not show, with the first perhaps (trap T39: a
        refused commit that landed).

        A request that was refused for what it says is refused whenever it comes.
        """
        is_final = isinstance(self.outcome, CommitRefused) and isinstance(self.outcome.error, InvalidRequest)
        return not is_final and self.outcome is not Outcome.UNDONE

    def is_on(self, head: Head) -> bool:
        """Say whether its base still is what a commit is made on.

        Also where a client of the catalog swaps metadata files: it checks the requirements on the file that it finds
        when it sends, and that may be a younger one than was judged, with another tag or property. A commit to another
        branch leaves the base where it is and takes the sequence number.
        """
        return self.head.snapshot_id == head.snapshot_id and not self._number_is_taken(head)

    def is_over(self, head: Head) -> bool:
        """Say of one whose base is not the head any more whether it can never land, whatever becomes of its branch.

        A branch is put elsewhere and back, by a rollback or dropped and made again, and no number is taken by that.
        """
        free = isinstance(self.change, SnapshotChange) and head.uuid == self.head.uuid
        return self.fits_once and (self.head.swaps_metadata or not free or self._number_is_taken(head))

    def _number_is_taken(self, head: Head) -> bool:
        numbered = self.head.format_version > 1 and self.head.snapshot_id is not None
        own = isinstance(self.change, SnapshotChange)
        return own and numbered and head.sequence_number > self.head.sequence_number

    @property
    def fits_once(self) -> bool:
        """Whether it can never land once its base is not the head any more, though a rollback makes it the head again.

        Its sequence number is taken then, or its metadata file is not the table's. Format 1 has no numbers, and a first
        snapshot may have any (Iceberg's `TableMetadata.Builder.addSnapshot`, trap T47: an overtaken commit fits again).
        A change of refs stands on those refs alone, and an expiry has no number: it stands on main.
        """
        if not isinstance(self.change, SnapshotChange):
            return self.head.swaps_metadata
        numbered = self.head.format_version > 1 and self.head.snapshot_id is not None
        return numbered or self.head.swaps_metadata


@dataclass
class Sent:
    """What a loop has sent so far, and what a later head says of it."""

    committer: Committer
    clock: Clock
    attempts: list[SentAttempt] = field(default_factory=list)
    """On the head last seen."""
    returning: list[SentAttempt] = field(default_factory=list)
    """In doubt on an older head, which fit again should the branch be put back on it."""
    last: SentAttempt | None = None

    def add(self, change: Change, head: Head, outcome: Outcome | CommitRefused) -> None:
        self.last = SentAttempt(change=change, head=head, outcome=outcome)
        self.attempts.append(self.last)

    def found(self, head: Head, run_id: str | None) -> Attempted | None:
        """Look for what landed although nobody said so; clean up after attempts that are known to be lost."""
        landed = self._landed(head)
        if landed is not None:
            self.landed(landed.change)
            return Attempted(
                landed=landed.change,
                snapshot_id=snapshot_id_of(landed.change),
                attempts=0,
                head_before=landed.head,
                uncertain=self.uncertain(),
            )
        run = head.run(run_id) if run_id is not None else None
        moved = [a for a in self.attempts if not a.is_on(head)]
        explained = self.last if self.last is not None and self.last.outcome is Outcome.LOST else None
        self.returning = [a for a in self.returning if not (a.is_over(head) and head.shows_next(a.head))]
        open_yet = [a for a in moved if a.is_in_doubt and not a.is_over(head)]
        self.returning += [a for a in open_yet if a is not explained or a.fits_once]  # a rollback explains no conflict
        self.attempts = [a for a in self.attempts if a.is_on(head)]  # the others are ruled out
        if not self.is_in_doubt:
            self.committer.forget_lost()
        if run is None:
            return None
        return Attempted(
            landed=None,
            snapshot_id=run.snapshot_id,
            attempts=0,
            head_before=head,
            found_earlier=True,
            uncertain=self.uncertain(),
        )

    def landed(self, change: Change) -> None:
        """Clean up after the others; those that fit once are ruled out by what landed."""
        every = (*self.attempts, *self.returning)
        self.attempts = []
        self.returning = [a for a in every if a.change is not change and a.is_in_doubt and not a.fits_once]
        if not self.is_in_doubt:
            self.committer.forget_lost(landed=snapshot_id_of(change))

    @property
    def is_in_doubt(self) -> bool:
        """Whether an attempt that is not known to have landed may still do so, now or after a rollback."""
        return any(a.is_in_doubt for a in (*self.attempts, *self.returning))

    def close(self) -> None:
        """Leave the files of attempts that may still land to a sweep."""
        if self.is_in_doubt:
            self.committer.leave_lost()

    def uncertain(self) -> frozenset[str]:
        """Return the data files of attempts that may still land, now or after a rollback."""
        doubtful = [a.change for a in (*self.attempts, *self.returning) if a.is_in_doubt]
        return frozenset(f.path for change in doubtful if isinstance(change, SnapshotChange) for f in change.added)

    def _landed(self, head: Head) -> SentAttempt | None:
        """Return the attempt that the head shows, or else one that it hides: all of them may bring the same files."""
        listed = {s.snapshot_id for s in head.snapshots}
        for sent in (*self.attempts, *self.returning):
            if snapshot_id_of(sent.change) in listed:
                return sent
        for sent in (*self.attempts, *self.returning):
            if isinstance(sent.change, RefChange) and sent.change.is_shown(head.refs):
                return sent
        for sent in self.attempts:
            if isinstance(sent.change, RefChange):
                continue
            if isinstance(sent.change, ExpiryChange):
                if _expired(head, sent.change):  # also after a conflict, which may be about our own commit
                    return sent
            elif self._hidden(head, sent.change, sent):
                return sent
        return None

    def _hidden(self, head: Head, change: SnapshotChange, sent: SentAttempt) -> bool:
        """Say whether a change is in the table though its snapshot is not listed: expired since, or never shown (trap
        T16: only the head is shown).

        A sequence number is given once: where another snapshot has the one that would have been ours, we are not in the
        table. Where it is not listed, manifests may still tell who bears it, and who added our files; without either
        nobody knows but the database that said no. Format 1 has no numbers, only the files: those that an upgrade gives
        out begin with what came after it.
        """
        base = sent.head
        if head.uuid != base.uuid or head.shows_next(base):
            return False
        try:
            bearer = self.committer.bearer(base.sequence_number + 1) if base.format_version > 1 else None
            if bearer is not None:
                return bearer == change.snapshot_id
            adder = self.committer.adder([f.path for f in change.added])
            if adder is not None and adder in {snapshot_id_of(a.change) for a in (*self.attempts, *self.returning)}:
                return adder == change.snapshot_id
        except Exception as error:
            raise self.unknown() from error
        if sent.outcome is Outcome.UNDONE:
            return False
        raise self.unknown()

    def check_closed(self, head: Head, cause: Exception | None = None) -> None:
        """Refuse to go on as if nothing were in the table while an attempt of unknown outcome may still land.

        Once the head has moved past its base without our snapshot, the compare-and-swap cannot succeed any more.
        """
        if any(a.is_unknown for a in self.returning) or any(a.is_unknown and a.is_on(head) for a in self.attempts):
            raise self.unknown(cause) from cause

    def check_refused(self, head: Head) -> None:
        """Answer a refusal by its name once a look has shown that nothing landed (trap T39: a refused commit that
        landed).

        One of the request is final on the metadata that it was about; where others have changed that, it is decided
        anew. Who was turned away for other reasons will be again. Should another sending of that commit, or of one
        before it, be under way, the error keeps the files for it: a sweep takes what is not needed.
        """
        last = self.last
        if last is None or not isinstance(last.outcome, CommitRefused):
            return
        if not last.is_in_doubt and head.metadata_location != last.head.metadata_location:
            return
        self.check_closed(head, last.outcome.error)
        raise self._refusal(last, last.outcome.error)

    def _refusal(self, sent: SentAttempt, error: RegelateError) -> RegelateError:
        told = "; the commit is not in the table"
        if self.is_in_doubt:
            told += f" now; {STAYING}"
        details = {"snapshot_id": snapshot_id_of(sent.change), **error.details}
        refused = type(error)(error.code, error.message + told, status=error.status, retryable=error.retryable)
        refused.details, refused.keeps_files = details, self.is_in_doubt
        refused.__cause__ = error
        return refused

    @contextmanager
    def guarding(self, head: Head) -> Iterator[None]:
        """Let no other error hide that an earlier attempt may still land, nor take its files away."""
        try:
            yield
        except Exception as error:
            self.check_closed(head, error)
            if self.is_in_doubt:
                keep_files(error)
                if isinstance(error, RegelateError):
                    error.message += f"; {STAYING}"
            raise

    def given_up(self, message: str, **details: Any) -> Conflict:
        """Return the error for a loop that came to its end without landing."""
        conflict = Conflict("COMMIT_CONFLICT", message, **details)
        if self.is_in_doubt:
            conflict = Conflict("COMMIT_CONFLICT", f"{message}; {STAYING}", **details)
            keep_files(conflict)
        return conflict

    def look(self) -> Head:
        """Refresh after an attempt. Where that fails, even a no that the catalog reported proves nothing.

        A client that sends again after a lost reply is told of a conflict with its own commit (trap T7: a landed commit
        is cleaned up). Only a table that is gone, after attempts that were all answered with a no, is what it seems;
        one of unknown outcome may have been renamed since. So may one that was refused: its files stay. One look that
        finds no table proves nothing either, for a gateway may say so: all of them have to.
        """
        cause: Exception | None = None
        is_gone = True
        waited = 0.0
        for number in range(LOOKS):
            began = self.clock.monotonic()
            try:
                return self.committer.head()
            except NotFound as error:
                cause = error
            except Exception as error:  # noqa: BLE001  whatever keeps us from looking, we have not looked
                cause, is_gone = error, False
            waited += self.clock.monotonic() - began
            if waited >= LOOKING_SECONDS:
                break
            self.clock.sleep(BASE_DELAY_SECONDS * 2**number)
        if is_gone and isinstance(cause, NotFound) and not any(a.is_unknown for a in self.attempts):
            before = [a for a in self.attempts if a is not self.last]  # a conflict that the head did not show
            no = self.last is not None and self.last.outcome in (Outcome.LOST, Outcome.UNDONE)
            if no and not any(a.is_in_doubt for a in (*before, *self.returning)):
                self.attempts = []
                self.committer.forget_lost()
            else:
                keep_files(cause)
            raise cause
        raise self.unknown(cause) from cause

    def unknown(self, cause: Exception | None = None) -> CommitStateUnknown:
        """Return the error that keeps every file; it names what was refused, or what kept us from looking."""
        known = [cause] if isinstance(cause, RegelateError) else []
        if self.last is not None and isinstance(self.last.outcome, CommitRefused):
            known.append(self.last.outcome.error)
        told: dict[str, Any] = {"cause": str(known[0])} if known else {}
        return CommitStateUnknown(
            "COMMIT_STATE_UNKNOWN",
            "the catalog did not say whether the commit landed; look for the snapshot before trying again",
            snapshot_id=snapshot_id_of(self.last.change) if self.last is not None else None,
            **told,
        )


def _expired(head: Head, change: ExpiryChange) -> bool:
    listed = {s.snapshot_id for s in head.snapshots}
    names = {r.name for r in head.refs}
    return not listed.intersection(change.snapshot_ids) and not names.intersection(change.ref_names)


def snapshot_id_of(change: Change) -> int | None:
    """Return the id of a change's own snapshot; an expiry has none."""
    return change.snapshot_id if isinstance(change, SnapshotChange) else None
