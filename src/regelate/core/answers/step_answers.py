"""What expiry, maintenance and its steps answer."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Literal

from regelate.core.answers.compaction import CompactAnswer
from regelate.core.answers.json import Json
from regelate.core.values import dataclass
from regelate.errors import ErrorDetail


class Step(StrEnum):
    """The steps of MAINTAIN in the safe order: what a step leaves over, a later one clears away."""

    COMPACT = "compact"
    DANGLING_DELETES = "dangling_deletes"
    MANIFESTS = "manifests"
    EXPIRE = "expire"
    ORPHANS = "orphans"
    RECLAIM = "reclaim"


class StepStatus(StrEnum):
    DONE = "DONE"
    NOTHING_TO_DO = "NOTHING_TO_DO"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpireSnapshotsAnswer:
    """What was removed, or would be in a dry run. `bytes_freed` is gone for good, `bytes_quarantined` is not yet.

    The answer to an undo names the restored snapshots in `snapshot_ids`.
    """

    dry_run: bool
    snapshots_expired: int
    snapshot_ids: tuple[int, ...]
    refs_removed: tuple[str, ...]
    files_deleted: int
    bytes_freed: int
    files_quarantined: int
    bytes_quarantined: int
    undo_id: str | None
    undo_until: str | None
    deletable_at: str | None
    snapshots_restored: int
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanFile:
    """`modified_at`: the store's time of its last change."""

    path: str
    size_bytes: int
    modified_at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveOrphanFilesAnswer:
    """`orphans` lists the first hundred. `young_files` are unreachable too, but may belong to a commit under way."""

    dry_run: bool
    orphan_files: int
    orphan_bytes: int
    young_files: int
    files_deleted: int
    bytes_freed: int
    orphans: tuple[OrphanFile, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteManifestsAnswer:
    """What was rewritten, or would be on a dry run."""

    dry_run: bool
    manifests_before: int
    manifests_after: int
    manifests_replaced: int
    manifests_created: int
    entries: int
    commits: int
    snapshot_id: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DanglingDeletesAnswer:
    """The result of MAINTAIN's step `dangling_deletes`."""

    dry_run: bool
    delete_files_removed: int
    snapshot_id: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReclaimAnswer:
    """The result of MAINTAIN's step `reclaim`."""

    files_deleted: int
    bytes_freed: int
    expiries_finished: int
    expiries_waiting: int


StepResultAnswer = (
    CompactAnswer
    | DanglingDeletesAnswer
    | RewriteManifestsAnswer
    | ExpireSnapshotsAnswer
    | RemoveOrphanFilesAnswer
    | ReclaimAnswer
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepAnswer:
    """`result` is what the step's own operation answers; null where it failed, and `error` says why."""

    step: Step
    status: StepStatus
    seconds: float
    result: Mapping[str, Json] | None
    error: ErrorDetail | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintainAnswer:
    """PARTIAL where a step failed, or did only a part of its work."""

    status: Literal["COMPLETED", "PARTIAL"]
    dry_run: bool
    steps: tuple[StepAnswer, ...]
    bytes_freed: int
    warnings: tuple[str, ...]
