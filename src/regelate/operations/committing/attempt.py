"""The one attempt loop: every commit of this service goes through it.

Refresh, look for our own snapshot, judge, try; a lost attempt is tried again on the new head, an unknown or refused
one is looked up first (law 8: clean up only what did not land). PyIceberg's own loops are not used: see docs/traps.md,
T6: new deletes are looked for from the head, T7: a landed commit is cleaned up, and T10: an append fails an overwrite.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from regelate.core.running.commit import Change, Outcome
from regelate.core.table.head import Head
from regelate.errors import Conflict
from regelate.operations.committing.sent import BASE_DELAY_SECONDS, LOOKS, Attempted, Sent, snapshot_id_of
from regelate.ports.clock import Clock
from regelate.ports.commit import Committer

__all__ = ["BASE_DELAY_SECONDS", "LOOKS", "MAX_ATTEMPTS", "MAX_DELAY_SECONDS", "MAX_RACES", "Attempted", "attempt"]

MAX_ATTEMPTS = 5
"""On a head that does not move: refused or unanswered, and nobody else came in between."""
MAX_RACES = 16
"""Before patience is asked for. Who loses to a commit of another is right on the next head too; beside twenty writers
five are not enough."""
MAX_DELAY_SECONDS = 1.6
"""The pause before jitter, from the fifth attempt on."""


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

    Errors: Conflict COMMIT_CONFLICT when every attempt lost, TABLE_REPLACED when the table is another one, REF_DROPPED
    when its branch is gone; what the catalog refused a commit with; what `decide` raises; CommitStateUnknown when
    nobody knows, and then only: after any other error no attempt of this loop is in the table. With `keeps_files` one
    may still come: nothing is deleted then.
    """
    sent = Sent(committer, clock)
    try:
        return _attempt(sent, decide, run_id, table_uuid, patience_seconds, jitter)
    finally:
        sent.close()


def _attempt(
    sent: Sent,
    decide: Callable[[Head], Change | None],
    run_id: str | None,
    table_uuid: str | None,
    patience_seconds: float,
    jitter: Callable[[], float],
) -> Attempted:
    committer, clock = sent.committer, sent.clock
    head = committer.head()
    number = stuck = 0
    patient_until = clock.monotonic() + patience_seconds
    while True:
        earlier = sent.found(head, run_id)
        if earlier is not None:
            return replace(earlier, attempts=number)
        sent.check_refused(head)
        if stuck == MAX_ATTEMPTS or (number >= MAX_RACES and clock.monotonic() >= patient_until):
            break
        with sent.guarding(head):
            _check_same(head, table_uuid)
            head.check_ref()
            change = decide(head)
        if change is None:
            sent.check_closed(head)
            uncertain = sent.uncertain()
            return Attempted(landed=None, snapshot_id=None, attempts=number, head_before=head, uncertain=uncertain)
        with sent.guarding(head):
            outcome = committer.try_commit(head, change)
        if outcome is Outcome.LANDED:
            sent.landed(change)
            return Attempted(
                landed=change,
                snapshot_id=snapshot_id_of(change),
                attempts=number + 1,
                head_before=head,
                uncertain=sent.uncertain(),
            )
        sent.add(change, head, outcome)
        clock.sleep(min(BASE_DELAY_SECONDS * 2**number, MAX_DELAY_SECONDS) * (0.5 + jitter()))
        before, head = head, sent.look()
        number, stuck = number + 1, stuck + (head.metadata_location == before.metadata_location)
    sent.check_closed(head)
    raise sent.given_up(f"other writers committed first, {number} times in a row; try again", attempts=number)


def _check_same(head: Head, table_uuid: str | None) -> None:
    if table_uuid is not None and head.uuid != table_uuid:
        raise Conflict(
            "TABLE_REPLACED",
            "the table was dropped and made again meanwhile; look at it first, nothing was done to it",
            retryable=False,
        )
