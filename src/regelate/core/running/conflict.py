"""What others did since the planning snapshot, and which groups of ours still stand.

The judgement compares LIVE FILE SETS: planned inputs still live, no new delete for them, the deletes we applied still
there. It needs no history, so it holds where a catalog shows only the head (trap T16: only the head is shown); history
is only asked whether the planning snapshot is still an ancestor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import StrEnum

from regelate.core.planning.plan import FileGroup
from regelate.core.table.deletes import applies
from regelate.core.table.table import DeleteContent, DeleteFile, FileScanTask
from regelate.core.values import dataclass
from regelate.errors import Conflict


class Ancestry(StrEnum):
    ANCESTOR = "ancestor"
    """The planning snapshot is the head or one of its ancestors."""
    ROLLED_BACK = "rolled-back"
    """It is still in the metadata, but the head does not descend from it."""
    EXPIRED = "expired"
    """It is gone, and the history that is left does not reach it."""
    HEAD_ONLY = "head-only"
    """The catalog shows no history at all: only the live file sets can be compared."""


class DropCode(StrEnum):
    INPUT_REMOVED = "CONFLICT_INPUT_REMOVED"
    NEW_DELETE = "CONFLICT_NEW_DELETE"
    DELETE_REMOVED = "CONFLICT_DELETE_REMOVED"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitWindow:
    """Everything that changed between the planning snapshot and the head, for the planned groups.

    `missing_inputs`: planned data files no longer live. `new_deletes`: delete files live now and not at planning.
    `missing_deletes`: applied delete files no longer live. `referenced`: for new position deletes, the data file paths
    they name, where the adapter read them; absent = unknown, judged by their path range. `returned_fields`: ids of
    columns that were dropped when the rewrite read the table and are in the schema again, so the outputs lack them.
    `lost_specs`: ids of specs of planned groups that the table has given up. `other_names`: the name mapping by which
    files without field ids are read is another one by now.
    """

    ancestry: Ancestry
    same_table: bool
    base_snapshot_id: int
    base_sequence_number: int
    head_snapshot_id: int | None
    missing_inputs: frozenset[str] = frozenset()
    new_deletes: tuple[DeleteFile, ...] = ()
    missing_deletes: frozenset[str] = frozenset()
    referenced: Mapping[str, frozenset[str]] = field(default_factory=dict)
    returned_fields: frozenset[int] = frozenset()
    lost_specs: frozenset[int] = frozenset()
    other_names: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedGroup:
    group: FileGroup
    code: DropCode
    path: str
    """The file that decided it: the removed input, or the delete file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    kept: tuple[FileGroup, ...]
    dropped: tuple[DroppedGroup, ...]


def judge(groups: Sequence[FileGroup], window: CommitWindow) -> Verdict:
    """Keep the groups that the window leaves valid, drop the others with the file that decided it.

    Raises Conflict (TABLE_REPLACED, BASE_NOT_ANCESTOR, BASE_EXPIRED, SCHEMA_CHANGED, SPEC_CHANGED) when nothing can be
    judged and a new plan is due. No other schema change does harm, since outputs are read by field id; nor does another
    default spec, since outputs stay in that of their inputs.
    """
    if not window.same_table:
        raise Conflict(
            "TABLE_REPLACED", "the table was dropped and created again; plan again on the new one", retryable=False
        )
    if window.ancestry is Ancestry.ROLLED_BACK:
        raise Conflict(
            "BASE_NOT_ANCESTOR",
            f"snapshot {window.base_snapshot_id} is no longer in the history of the current one (was the table rolled "
            "back?); plan again",
            base=window.base_snapshot_id,
            head=window.head_snapshot_id,
        )
    if window.ancestry is Ancestry.EXPIRED:
        raise Conflict(
            "BASE_EXPIRED",
            f"snapshot {window.base_snapshot_id} was expired meanwhile; plan again",
            base=window.base_snapshot_id,
        )
    if window.returned_fields:
        raise Conflict(
            "SCHEMA_CHANGED",
            f"columns that were dropped came back meanwhile (field {min(window.returned_fields)}); plan again",
            field_ids=sorted(window.returned_fields),
        )
    if window.other_names:
        raise Conflict(
            "SCHEMA_CHANGED",
            "the table's name mapping was changed: files without field ids are read differently now; plan again",
        )
    if window.lost_specs:
        raise Conflict(
            "SPEC_CHANGED",
            f"partition spec {min(window.lost_specs)}, which planned files use, was removed from the table; plan again",
            spec_ids=sorted(window.lost_specs),
        )
    kept: list[FileGroup] = []
    dropped: list[DroppedGroup] = []
    for group in groups:
        reason = _spoiled(group, window)
        if reason is None:
            kept.append(group)
        else:
            dropped.append(DroppedGroup(group=group, code=reason[0], path=reason[1]))
    return Verdict(kept=tuple(kept), dropped=tuple(dropped))


def still_stands(read: Sequence[FileScanTask], live: Sequence[FileScanTask]) -> bool:
    """Say whether files that were read on an earlier head may be replaced by what was made of them on this one.

    Each must be live with the very deletes that it was read with. What was made gets the number of its commit, so that
    no delete of before applies to it: a new one of either kind spoils it, unlike in `judge`.
    """
    now = {task.data_file.path: task for task in live}
    return all(
        (found := now.get(task.data_file.path)) is not None
        and {d.path for d in found.deletes} == {d.path for d in task.deletes}
        for task in read
    )


def _spoiled(group: FileGroup, window: CommitWindow) -> tuple[DropCode, str] | None:
    for task in group.tasks:
        path = task.data_file.path
        if path in window.missing_inputs:
            return DropCode.INPUT_REMOVED, path
        gone = next((d.path for d in task.deletes if d.path in window.missing_deletes), None)
        if gone is not None:
            return DropCode.DELETE_REMOVED, gone
        for delete in window.new_deletes:
            if _hits(delete, task.data_file.path, window) and applies(delete, task.data_file):
                return DropCode.NEW_DELETE, delete.path
    return None


def _hits(delete: DeleteFile, path: str, window: CommitWindow) -> bool:
    """A younger equality delete still applies to the outputs, which keep the planning sequence number (law 4: the old
    sequence number stays).

    One that was re-written under an old sequence number would miss them, so it spoils the group.
    """
    if delete.content is DeleteContent.EQUALITY:
        return delete.sequence_number <= window.base_sequence_number
    known = window.referenced.get(delete.path)
    return True if known is None else path in known
