"""What is to be committed on a table's head, and what the catalog said of an attempt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum

from regelate.core.running.rewrite import NewDataFile
from regelate.core.table.table import SnapshotRef
from regelate.core.upkeep.manifests import ManifestGroup
from regelate.core.upkeep.quarantine import Restoration
from regelate.core.values import dataclass
from regelate.errors import RegelateError


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotChange:
    """One snapshot to commit on top of a head. Removed data files (path -> the manifest that listed it at planning)
    must be live there, in exactly `removed_entries` manifest entries; `base_manifests` are the manifests known at
    planning to hold none of them, which need no second look.

    `data_sequence_number` is set for rewrites (law 4: the old sequence number stays): the added files then carry it;
    None inherits the new one. `restored` comes back in the same commit, which may be sent for `send_within_ms` after
    its head was loaded: later what it brings back may be gone.
    """

    operation: str
    snapshot_id: int
    summary: Mapping[str, str]
    added: tuple[NewDataFile, ...] = ()
    removed: Mapping[str, str] = field(default_factory=dict)
    removed_entries: int = 0
    base_manifests: frozenset[str] = frozenset()
    dropped_delete_paths: frozenset[str] = frozenset()
    data_sequence_number: int | None = None
    restored: Restoration | None = None
    send_within_ms: int | None = None
    manifest_groups: tuple[ManifestGroup, ...] = ()
    """Manifests of the head to write anew. Such a change adds and removes no file."""

    def __post_init__(self) -> None:
        if self.operation == "replace" and self.added and not self.removed:
            raise ValueError(f"a replace that adds {len(self.added)} files and removes none would add rows")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiryChange:
    """Snapshots and refs to remove; every ref seen at planning must still be what it was."""

    snapshot_ids: tuple[int, ...]
    ref_names: tuple[str, ...] = ()
    expected_refs: tuple[SnapshotRef, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RefChange:
    """Refs to set and to remove. `expected`: what each of them must be on, None for one that must not be there."""

    set_refs: tuple[SnapshotRef, ...] = ()
    removed: tuple[str, ...] = ()
    expected: tuple[tuple[str, int | None], ...] = ()

    def is_shown(self, refs: tuple[SnapshotRef, ...]) -> bool:
        """Say whether a table with these refs is as after this change."""
        names = {ref.name for ref in refs}
        return set(self.set_refs) <= set(refs) and not names.intersection(self.removed)


Change = SnapshotChange | ExpiryChange | RefChange


class Outcome(StrEnum):
    LANDED = "landed"
    LOST = "lost"
    """By a conflict. One that the head does not show may be with another sending of the same request."""
    UNDONE = "undone"
    """By a conflict or a lock of the database that keeps the catalog, which was asked once: nothing of it was done."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRefused:
    """The catalog said no to the request as such. Of an earlier sending of the same request that says nothing."""

    error: RegelateError
