"""The list of files that one expiry made unreachable: how long it can be undone, and what may be deleted when."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from regelate.core.upkeep.reachability import StoredFile, plan_reclaim
from regelate.core.values import dataclass

UNDO_ALLOWANCE_MS = 15 * 60 * 1000
"""Nothing is deleted for so long after the grace: an undo that began within it has then long ended."""
COMMIT_ALLOWANCE_MS = 15 * 60 * 1000
"""A list without files is left alone for so long: its expiry may be about to commit, and would find no list then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantine:
    """One expiry's list. `recorded_ms`: when it was written before the commit, by the store's clock; completing it
    changes nothing about that. `grace_ms` 0: no undo was promised.

    `files` is None where the expiry died between its commit and its list: then the snapshots say what to look at.
    """

    undo_id: str
    table_uuid: str
    metadata_location: str
    snapshot_ids: tuple[int, ...]
    recorded_ms: int
    grace_ms: int
    files: tuple[StoredFile, ...] | None = None

    @property
    def size_bytes(self) -> int:
        return sum(f.size_bytes for f in self.files or ())

    @property
    def undo_until_ms(self) -> int:
        return self.recorded_ms + self.grace_ms

    @property
    def deletable_ms(self) -> int:
        after_undo = self.undo_until_ms + min(UNDO_ALLOWANCE_MS, self.grace_ms)
        return after_undo if self.files is not None else max(after_undo, self.recorded_ms + COMMIT_ALLOWANCE_MS)

    def send_allowance_ms(self, now_ms: int) -> int:
        """Return how long after `now_ms`, the store's time, an undo that was judged then may be sent.

        Half of what lies between the grace and the first deletion is left to the request on its way.
        """
        return self.undo_until_ms + min(UNDO_ALLOWANCE_MS, self.grace_ms) // 2 - now_ms

    def is_due(self, now_ms: int) -> bool:
        """Say whether its files may be deleted; `now_ms` is the store's time."""
        return now_ms >= self.deletable_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Restoration:
    """What an undone expiry brings back, as the specification writes it (JSON texts); snapshots oldest first.

    Each snapshot gets a tag of its own, so that the next expiry does not take it again at once.
    """

    snapshots: tuple[tuple[int, str], ...]
    refs: tuple[tuple[str, str], ...] = ()
    statistics: tuple[str, ...] = ()
    partition_statistics: tuple[str, ...] = ()

    @property
    def snapshot_ids(self) -> tuple[int, ...]:
        return tuple(snapshot_id for snapshot_id, _ in self.snapshots)


def plan_deletion(unreachable: Sequence[StoredFile], needed: Collection[str]) -> tuple[StoredFile, ...]:
    """Return the files of a list to delete now: unreachable, and needed by no expiry that can still be undone.

    An expiry lists only what nothing else reached at its time. What later snapshots reached too is listed by a later
    expiry, whose grace may be shorter, and an undo of the first one needs it just as much.
    """
    return plan_reclaim({f.path: f.size_bytes for f in unreachable}, needed)
