"""A table as its catalog shows it now: which snapshots and refs there are, and what a branch says of a run."""

from __future__ import annotations

from collections.abc import Iterator

from regelate.core.table.table import MAIN_BRANCH, PLAN_ID, RefKind, SnapshotEntry, SnapshotRef
from regelate.core.values import dataclass
from regelate.errors import Conflict

SOURCE_ID = "source-snapshot-id"


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The table as the catalog shows it now, as far as the attempt loop needs it.

    `snapshot_id`: what the branch `ref` is on; None where `main` is empty, or another branch is gone.
    `sequence_number`: the last one given, on whatever branch. `schema_id`: of the table's current schema.
    `name_mapping`: its text, by which files without field ids are read.
    """

    uuid: str
    format_version: int
    snapshot_id: int | None
    sequence_number: int
    schema_id: int
    metadata_location: str
    snapshots: tuple[SnapshotEntry, ...]
    refs: tuple[SnapshotRef, ...]
    swaps_metadata: bool = False
    """A commit puts its metadata file in the place of the very one that it was made on (SQL, Glue)."""
    ref: str = MAIN_BRANCH
    name_mapping: str | None = None

    @property
    def main_id(self) -> int | None:
        """What main is on, whichever branch is looked at."""
        if self.ref == MAIN_BRANCH:
            return self.snapshot_id
        return next((ref.snapshot_id for ref in self.refs if ref.name == MAIN_BRANCH), None)

    def reads_like(self, other: Head) -> bool:
        """Say whether a data file has the same rows and columns here as on another head of the table."""
        return (self.schema_id, self.name_mapping) == (other.schema_id, other.name_mapping)

    def check_ref(self) -> None:
        """Raise Conflict REF_DROPPED where the branch is gone."""
        branches = {ref.name for ref in self.refs if ref.kind is RefKind.BRANCH}
        if self.ref != MAIN_BRANCH and self.ref not in branches:
            message = f"the branch {self.ref[:80]!a} was dropped meanwhile; nothing was committed: make it again first"
            raise Conflict("REF_DROPPED", message, retryable=False, ref=self.ref[:80])

    def shows_next(self, base: Head) -> bool:
        """Say whether the commit that came right after `base` is listed, or none came: nothing else made on it landed.

        From format 2 on each snapshot takes the next sequence number. In a v1 table the history must lead back to the
        base. A snapshot without a parent proves nothing: expiry cuts parents, and some catalogs never show them (trap
        T16: only the head is shown). So nothing leads back to a table that was empty.
        """
        if base.format_version > 1:
            number = base.sequence_number
            return self.sequence_number == number or any(s.sequence_number == number + 1 for s in self.snapshots)
        if base.snapshot_id is None:
            return self.snapshot_id is None
        parents = {s.snapshot_id: s.parent_id for s in self.snapshots}
        at = self.snapshot_id
        while at is not None and at != base.snapshot_id:
            at = parents.get(at)
        return at == base.snapshot_id

    def run(self, run_id: str) -> SnapshotEntry | None:
        """Find the snapshot that this run committed, if the branch still holds it.

        One that a rollback took out of its history is listed until it expires, and counts no more. Where that
        history is cut, by an expiry or by a catalog that shows no parents (trap T16: only the head is shown), a
        snapshot from before the cut counts.
        """
        return self._held([s for s in self.snapshots if s.run_id == run_id])

    def plan(self, plan_id: str) -> SnapshotEntry | None:
        """Find a snapshot that a run of this plan committed, if the branch still holds it."""
        return self._held([s for s in self.snapshots if s.summary.get(PLAN_ID) == plan_id])

    def _held(self, found: list[SnapshotEntry]) -> SnapshotEntry | None:
        if not found:
            return None
        lineage = list(self.lineage())
        behind = self._with_picked({s.snapshot_id for s in lineage})
        return next((s for s in found if s.snapshot_id in behind or _may_be_before(s, lineage)), None)

    def any_run(self, run_id: str) -> SnapshotEntry | None:
        """Find the snapshot that this run committed wherever in the history it stands."""
        return next((s for s in self.snapshots if s.run_id == run_id), None)

    def lineage(self) -> Iterator[SnapshotEntry]:
        """Yield the branch's snapshots from the head back, as far as parents are listed."""
        by_id = {s.snapshot_id: s for s in self.snapshots}
        at = self.snapshot_id
        while at is not None and at in by_id:
            found = by_id.pop(at)
            yield found
            at = found.parent_id

    def _with_picked(self, snapshot_ids: set[int]) -> set[int]:
        """Return these snapshots and those whose changes cherry-picks brought to them (Iceberg's `SnapshotSummary`)."""
        sources = {s.snapshot_id: s.summary.get(SOURCE_ID, "") for s in self.snapshots}
        found, fresh = set(snapshot_ids), snapshot_ids
        while fresh:
            fresh = {int(text) for i in fresh if (text := sources.get(i, "")).isdecimal()} - found
            found |= fresh
        return found


def _may_be_before(snapshot: SnapshotEntry, lineage: list[SnapshotEntry]) -> bool:
    """Say whether a snapshot may be an ancestor of the oldest one that is shown. Numbers and times rise along a
    lineage."""
    if not lineage:
        return False
    oldest = lineage[-1]
    return (snapshot.sequence_number, snapshot.timestamp_ms) <= (oldest.sequence_number, oldest.timestamp_ms)
