"""The second phase of an expiry: delete what nothing reaches and no undo needs, once the grace of its list is over."""

from __future__ import annotations

from collections.abc import Collection, Sequence, Set

from regelate.core.upkeep.quarantine import Quarantine, plan_deletion
from regelate.core.upkeep.reachability import StoredFile
from regelate.core.values import dataclass
from regelate.ports.files import Reclaimer


@dataclass(frozen=True, slots=True, kw_only=True)
class Reclaimed:
    """What a second phase deleted for good. `waiting`: lists whose grace is not over."""

    files_deleted: int = 0
    bytes_freed: int = 0
    lists: int = 0
    waiting: int = 0


def finish_expiry(reclaimer: Reclaimer) -> Reclaimed:
    """The second phase: delete what lies in quarantine lists whose grace is over, then the lists.

    Deleted is only what the latest metadata still does not reach and no undo can still need; a list of which something
    is needed stays until that is over. Call it after the table's head was loaded. Errors: NotAllowed GC_DISABLED when
    the table forbids deletion by now, or shares its files: the lists stay then.
    """
    lists = reclaimer.quarantines()
    if not lists:
        return Reclaimed()
    reclaimer.check_allowed()
    now_ms = reclaimer.now_ms()
    due = [q for q in lists if q.is_due(now_ms)]
    if not due:
        return Reclaimed(waiting=len(lists))
    reclaimer.check_unshared()
    done = delete_due(reclaimer, due, lists, now_ms)
    finished = sum(d.lists for d in done)
    return Reclaimed(
        files_deleted=sum(d.files_deleted for d in done),
        bytes_freed=sum(d.bytes_freed for d in done),
        lists=finished,
        waiting=len(lists) - finished,
    )


def delete_due(
    reclaimer: Reclaimer, due: Sequence[Quarantine], lists: Sequence[Quarantine], now_ms: int
) -> list[Reclaimed]:
    """Delete the files of the due lists that nothing reaches and no undo can still need; `now_ms` is the store's time.

    Lists are looked at before the table is and once more afterwards: an undo brings its snapshots back and then drops
    its list, an expiry writes its list and then takes the snapshots. One that slept for longer than its grace writes
    it anew before it tries again: its time runs from there.
    """
    found = reclaimer.unreachable(due)
    again = {q.undo_id: q for q in reclaimer.quarantines()}
    anew = {q.undo_id for q in due if _is_anew(q, again.get(q.undo_id), now_ms)}
    left = [(q, files) for q, files in zip(due, found, strict=True) if q.undo_id not in anew]
    done = {q.undo_id for q, _ in left}
    waiting = {q.undo_id: q for q in (*lists, *again.values()) if q.undo_id not in done}
    needed = _needed(reclaimer, tuple(waiting.values()), now_ms, {f.path for _, files in left for f in files})
    for listed, files in left:
        if listed.files is None and files:
            reclaimer.complete(listed, files)
    return [_delete(reclaimer, listed, files, needed) for listed, files in left]


def _is_anew(listed: Quarantine, again: Quarantine | None, now_ms: int) -> bool:
    return again is not None and again.recorded_ms > listed.recorded_ms and not again.is_due(now_ms)


def _needed(reclaimer: Reclaimer, lists: Sequence[Quarantine], now_ms: int, paths: Set[str]) -> frozenset[str]:
    undoable = [q for q in lists if not q.is_due(now_ms)]
    return reclaimer.needed(undoable, paths) if undoable and paths else frozenset()


def _delete(reclaimer: Reclaimer, listed: Quarantine, left: Sequence[StoredFile], needed: Collection[str]) -> Reclaimed:
    planned = plan_deletion(left, needed)
    deleted = reclaimer.delete(planned)
    finished = len(planned) == len(left)
    if finished:
        reclaimer.drop(listed.undo_id)
    return Reclaimed(files_deleted=len(deleted), bytes_freed=sum(f.size_bytes for f in deleted), lists=int(finished))
