"""CREATE_TAG, DROP_TAG and ROLLBACK: what a name of a table points at, each in one commit of refs alone.

Every ref that is judged is a requirement of the commit: what somebody else did meanwhile is a conflict, and never
overwritten. No file is written or deleted.
"""

from __future__ import annotations

from dataclasses import replace

from regelate.core.running.commit import RefChange
from regelate.core.table.head import Head
from regelate.core.table.names import check_tag
from regelate.core.table.table import MAIN_BRANCH, RefKind, SnapshotEntry, SnapshotRef
from regelate.core.values import dataclass
from regelate.errors import Conflict, NotFound
from regelate.operations.committing.attempt import attempt
from regelate.ports.clock import Clock
from regelate.ports.commit import Committer

LISTED = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTagAnswer:
    """`created` is false where the tag was there already, on the same snapshot."""

    created: bool
    tag: str
    snapshot_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DropTagAnswer:
    """`snapshot_id` is what the tag was on: from now on the next expiry may take it."""

    dropped: bool
    tag: str
    snapshot_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackAnswer:
    """`rolled_back` is false where `main` was there already. `left_snapshot_ids` are up to a hundred, newest first."""

    rolled_back: bool
    snapshot_id: int
    previous_snapshot_id: int
    snapshots_left: int
    left_snapshot_ids: tuple[int, ...]
    tag: str | None


def create_tag(
    committer: Committer, clock: Clock, name: str, *, snapshot_id: int | None, max_age_ms: int | None
) -> CreateTagAnswer:
    """Give a snapshot a name, which keeps it from expiry: for ever, or until the snapshot is `max_age_ms` old.

    `snapshot_id` None: the head of `main` as it is now. Errors: InvalidRequest INVALID_IDENTIFIER; NotFound
    SNAPSHOT_NOT_FOUND; Conflict REF_EXISTS, COMMIT_CONFLICT.
    """
    check_tag(name)
    first = committer.head()
    wanted = SnapshotRef(
        name=name, kind=RefKind.TAG, snapshot_id=_listed(first, snapshot_id).snapshot_id, max_ref_age_ms=max_age_ms
    )

    def decide(head: Head) -> RefChange | None:
        _listed(head, wanted.snapshot_id)
        known = _ref(head, name)
        if known is None:
            return RefChange(set_refs=(wanted,), expected=((name, None),))
        if known == wanted:
            return None
        what = f"{known.kind.value} on snapshot {known.snapshot_id}"
        raise Conflict("REF_EXISTS", f"{name} is there already, a {what}; drop it first", retryable=False, ref=name)

    done = attempt(committer, clock, decide, table_uuid=first.uuid)
    return CreateTagAnswer(created=done.landed is not None, tag=name, snapshot_id=wanted.snapshot_id)


def drop_tag(committer: Committer, clock: Clock, name: str) -> DropTagAnswer:
    """Take a tag away, whoever made it. Errors: NotFound REF_NOT_FOUND, also for a branch; Conflict COMMIT_CONFLICT."""
    first = committer.head()
    known = _tag(first, name)

    def decide(head: Head) -> RefChange | None:
        if _tag(head, name) != known:
            raise Conflict("COMMIT_CONFLICT", f"the tag {name} was moved meanwhile; look at it, and repeat")
        return RefChange(removed=(name,), expected=((name, known.snapshot_id),))

    attempt(committer, clock, decide, table_uuid=first.uuid)
    return DropTagAnswer(dropped=True, tag=name, snapshot_id=known.snapshot_id)


def rollback(
    committer: Committer, clock: Clock, *, snapshot_id: int | None, as_of_ms: int | None, keep_tag: str | None
) -> RollbackAnswer:
    """Let `main` be an earlier snapshot of its history again: by id, or the newest one that is not younger than a time.

    What was committed since stays readable by id until it expires, and by the tag `keep_tag` for as long as that is
    there. Errors: NotFound SNAPSHOT_NOT_FOUND; Conflict SNAPSHOT_NOT_ANCESTOR, REF_EXISTS, and COMMIT_CONFLICT where
    somebody else has moved `main` meanwhile: what they committed is not taken back unseen.
    """
    if keep_tag is not None:
        check_tag(keep_tag)
    first = committer.head()
    if first.snapshot_id is None:
        raise NotFound("SNAPSHOT_NOT_FOUND", "the table has no snapshot; there is nothing to go back to")
    lineage = tuple(first.lineage())
    target = _by_time(lineage, as_of_ms) if as_of_ms is not None else _ancestor(first, lineage, snapshot_id)
    left = tuple(s.snapshot_id for s in lineage[: lineage.index(target)])
    answer = RollbackAnswer(
        rolled_back=bool(left),
        snapshot_id=target.snapshot_id,
        previous_snapshot_id=first.snapshot_id,
        snapshots_left=len(left),
        left_snapshot_ids=left[:LISTED],
        tag=keep_tag if left else None,
    )
    if not left:
        return answer
    change = _rolling_back(first, target, keep_tag)

    def decide(head: Head) -> RefChange:
        if head.snapshot_id != first.snapshot_id:
            raise Conflict("COMMIT_CONFLICT", "main was moved meanwhile; look at what came, and repeat the request")
        return change

    attempt(committer, clock, decide, table_uuid=first.uuid)
    return answer


def _rolling_back(head: Head, target: SnapshotEntry, keep_tag: str | None) -> RefChange:
    main = _ref(head, MAIN_BRANCH) or SnapshotRef(name=MAIN_BRANCH, kind=RefKind.BRANCH, snapshot_id=target.snapshot_id)
    set_refs = [replace(main, snapshot_id=target.snapshot_id)]
    expected: list[tuple[str, int | None]] = [(MAIN_BRANCH, head.snapshot_id)]
    if keep_tag is not None and head.snapshot_id is not None:
        if _ref(head, keep_tag) is not None:
            raise Conflict(
                "REF_EXISTS", f"{keep_tag} is there already; name another tag", retryable=False, ref=keep_tag
            )
        set_refs.append(SnapshotRef(name=keep_tag, kind=RefKind.TAG, snapshot_id=head.snapshot_id))
        expected.append((keep_tag, None))
    return RefChange(set_refs=tuple(set_refs), expected=tuple(expected))


def _listed(head: Head, snapshot_id: int | None) -> SnapshotEntry:
    wanted = head.snapshot_id if snapshot_id is None else snapshot_id
    found = next((s for s in head.snapshots if s.snapshot_id == wanted), None)
    if found is None:
        told = (
            "the table has no snapshot yet"
            if wanted is None
            else f"the table has no snapshot {wanted}, or it has expired"
        )
        raise NotFound("SNAPSHOT_NOT_FOUND", told)
    return found


def _ancestor(head: Head, lineage: tuple[SnapshotEntry, ...], snapshot_id: int | None) -> SnapshotEntry:
    found = _listed(head, snapshot_id)
    if found not in lineage:
        raise Conflict(
            "SNAPSHOT_NOT_ANCESTOR",
            f"snapshot {found.snapshot_id} is not in main's history, as far as that is listed: to go there is no way "
            "back; read it with QUERY, or set it with Spark (set_current_snapshot)",
            retryable=False,
            snapshot_id=found.snapshot_id,
        )
    return found


def _by_time(lineage: tuple[SnapshotEntry, ...], as_of_ms: int) -> SnapshotEntry:
    found = next((s for s in lineage if s.timestamp_ms <= as_of_ms), None)
    if found is None:
        raise NotFound("SNAPSHOT_NOT_FOUND", f"main's history, as far as it is listed, begins after {as_of_ms} ms")
    return found


def _ref(head: Head, name: str) -> SnapshotRef | None:
    return next((ref for ref in head.refs if ref.name == name), None)


def _tag(head: Head, name: str) -> SnapshotRef:
    known = _ref(head, name)
    if known is None or known.kind is not RefKind.TAG:
        told = "is a branch, and stays" if known is not None else "is no tag of this table"
        raise NotFound("REF_NOT_FOUND", f"{name[:80]!a} {told}; DESCRIBE_TABLE lists its refs", ref=name[:80])
    return known
