"""WRITE: encode the whole request, write its files, commit once, and now and then look for small files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from regelate.core.planning.plan import plan_compaction
from regelate.core.planning.trigger import check_is_due
from regelate.core.policy.policy import digest
from regelate.core.requests import WriteMode
from regelate.core.running.commit import SnapshotChange
from regelate.core.running.given_rows import GivenRows
from regelate.core.table.head import Head
from regelate.core.table.table import MAIN_BRANCH, SnapshotEntry, run_summary
from regelate.core.values import dataclass
from regelate.errors import InvalidRequest, keeps_files
from regelate.operations.committing.attempt import Attempted, attempt
from regelate.operations.writing.command import Incoming, SmallFileCheck, WriteCommand, WriteTools
from regelate.operations.writing.replacement import TAKING_SECONDS, Neighbours, Replacement, replacement, standing
from regelate.ports.files import RowWriter

__all__ = ["RECORDS_WRITTEN", "SmallFileCheck", "WriteCommand", "WriteResult", "WriteTools", "write"]

CHECK_SECONDS = 2.0
"""Time cap of the small-file check; a write never waits longer for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteResult:
    records_written: int
    snapshot_id: int | None
    compaction_recommended: bool = False
    small_files_count: int | None = None
    already_done: bool = False
    """The run had landed before: by an earlier request, or by another copy of this one while it was under way."""
    check_fault: str | None = None
    """The code of why small files could not be looked for, such as a table property that cannot be used."""
    files_taken_along: int = 0
    bytes_taken_along: int = 0
    optimized_fault: str | None = None
    """The code of why small neighbours were left alone though the table asks for them."""


def write(tools: WriteTools, command: WriteCommand) -> WriteResult:
    """Write records all-or-nothing and commit them in one snapshot.

    Errors: InvalidRequest (422, the first faults by row and column; IDEMPOTENCY_KEY_REUSED; nothing written),
    Conflict COMMIT_CONFLICT, TABLE_REPLACED, REF_DROPPED or (where stored values are kept) SCHEMA_CHANGED,
    CommitStateUnknown. Zero rows commit nothing. An upsert or overwrite that loses a race is computed anew on the new
    head, so it never rests on rows that changed meanwhile.
    """
    head = tools.committer.head()
    request_digest = _digest(tools.rows, command, head.ref) if command.repeatable else None
    earlier = head.run(command.run_id)
    if earlier is not None:
        earlier.check_request(request_digest)
        written = int(earlier.summary.get(RECORDS_WRITTEN, 0))
        files, size = _taken(earlier.summary)
        return WriteResult(
            records_written=written,
            snapshot_id=earlier.snapshot_id,
            already_done=True,
            files_taken_along=files,
            bytes_taken_along=size,
        )
    incoming = _incoming(tools, command)
    if not incoming.count:
        return WriteResult(records_written=0, snapshot_id=None)
    neighbours = _neighbours(tools, command)
    done = _committed(tools, command, request_digest, incoming, neighbours)
    check = _checked(tools, done)
    files, size = _taken(done.landed.summary if isinstance(done.landed, SnapshotChange) else {})
    return WriteResult(
        records_written=incoming.count,
        snapshot_id=done.snapshot_id,
        compaction_recommended=check.recommended,
        small_files_count=check.small_files,
        already_done=done.found_earlier,
        check_fault=check.fault,
        files_taken_along=files,
        bytes_taken_along=size,
        optimized_fault=neighbours.fault,
    )


RECORDS_WRITTEN = "regelate.records-written"
"""Summary property: an upsert also adds the rows that it carried over, so `added-records` would say too many."""


FILES_TAKEN_ALONG, BYTES_TAKEN_ALONG = "regelate.files-taken-along", "regelate.bytes-taken-along"
"""Summary properties: the small neighbours that an optimized write took along."""


def _taken(summary: Mapping[str, str]) -> tuple[int, int]:
    return int(summary.get(FILES_TAKEN_ALONG, 0)), int(summary.get(BYTES_TAKEN_ALONG, 0))


def _neighbours(tools: WriteTools, command: WriteCommand) -> Neighbours:
    """Return what takes neighbours along: nothing where all files of the partitions go, or the table has it otherwise.

    A property that cannot be read takes none, and fails no write.
    """
    found = Neighbours(tools=tools, optimized=None, deadline=tools.clock.monotonic() + TAKING_SECONDS)
    if command.mode is not WriteMode.OVERWRITE_PARTITIONS:
        try:
            found.optimized = tools.optimized()
        except InvalidRequest as fault:
            found.fault = fault.code
    return found


def _incoming(tools: WriteTools, command: WriteCommand) -> Incoming:
    partial: GivenRows | None = None
    if command.keeps:
        given = tools.rows.given(command.rows, command.key)
        rows, partial = given.rows, given if given.absent else None
    elif isinstance(command.rows, Sequence):
        rows = tools.rows.encode(command.rows)
    else:
        rows = tools.rows.coerce(command.rows)
    if command.mode is WriteMode.UPSERT:
        tools.rows.check_key(rows, command.key)
    if partial is not None:
        return Incoming(rows=rows, count=partial.count, partial=partial)
    added = tools.rows.write(rows, max_partitions=command.max_partitions)
    return Incoming(rows=rows, count=sum(f.record_count for f in added), added=added)


def _digest(writer: RowWriter, command: WriteCommand, ref: str) -> str:
    branch = [] if ref == MAIN_BRANCH else [ref]
    keeps = [{"missing_columns": command.missing.value}] if command.keeps else []
    return digest(json.dumps([command.mode.value, command.key, writer.digest(command.rows), *branch, *keeps]))


def _committed(
    tools: WriteTools, command: WriteCommand, request_digest: str | None, incoming: Incoming, neighbours: Neighbours
) -> Attempted:
    summary = {**run_summary(command.run_id, request_digest), RECORDS_WRITTEN: str(incoming.count)}
    made: list[Replacement] = []

    def current(head: Head) -> Replacement:
        if command.mode is WriteMode.APPEND and neighbours.optimized is None:
            return Replacement(head, own=incoming.added)
        if not made or (not made[-1].is_for(head) and command.mode is not WriteMode.APPEND):
            made.append(replacement(tools, command, incoming, neighbours, head))
        elif not made[-1].is_for(head):
            made.append(standing(tools, made[-1], head))
        return made[-1]

    def decide(head: Head) -> SnapshotChange:
        """Make a change of its own for every attempt: what is found in the table later says which files landed."""
        found = current(head)
        taken = [task.data_file.size_bytes for task in found.taken]
        told = {FILES_TAKEN_ALONG: str(len(taken)), BYTES_TAKEN_ALONG: str(sum(taken))} if taken else {}
        is_append = command.mode is WriteMode.APPEND and not found.removed
        return SnapshotChange(
            operation="append" if is_append else "overwrite",
            snapshot_id=tools.committer.new_snapshot_id(),
            summary={**summary, **told},
            added=found.added,
            removed={t.data_file.path: t.data_file.manifest_path for t in found.removed},
            removed_entries=len(found.removed),
        )

    def written() -> list[str]:
        return [f.path for f in (*incoming.added, *(new for m in made for new in m.made))]

    try:
        done = attempt(tools.committer, tools.clock, decide, run_id=command.run_id, table_uuid=tools.table_uuid)
    except Exception as error:
        if not keeps_files(error):
            tools.rows.discard(written())
        raise
    kept = {f.path for f in done.landed.added} if isinstance(done.landed, SnapshotChange) else set()
    tools.rows.discard([path for path in written() if path not in kept | done.uncertain])
    return done


@dataclass(frozen=True, slots=True, kw_only=True)
class _Checked:
    """What a look for small files found; nothing where it was not due."""

    recommended: bool = False
    small_files: int | None = None
    fault: str | None = None


def _checked(tools: WriteTools, done: Attempted) -> _Checked:
    """Look for small files when this commit's position crossed a multiple of the interval; never fail the write."""
    if done.found_earlier:
        return _Checked()
    try:
        check = tools.check()
        if check.interval < 1 or not _due(done, check.interval):
            return _Checked()
        deadline = tools.clock.monotonic() + CHECK_SECONDS
        snapshot = tools.fresh_reader().read(check.policy, deadline=deadline)
        plan = plan_compaction(snapshot, check.policy)
    except InvalidRequest as error:
        return _Checked(fault=error.code)
    except Exception:  # noqa: BLE001  the write has landed: who is told that it failed may write it twice
        return _Checked()
    return _Checked(recommended=bool(plan.groups), small_files=sum(t.small_files for t in snapshot.totals))


def _due(done: Attempted, interval: int) -> bool:
    head, change = done.head_before, done.landed
    if not isinstance(change, SnapshotChange):
        return False
    own = SnapshotEntry(
        snapshot_id=change.snapshot_id,
        parent_id=head.snapshot_id,
        sequence_number=head.sequence_number + 1 if head.format_version > 1 else 0,
        timestamp_ms=0,
        operation=change.operation,
        summary=change.summary,
    )
    return check_is_due((*head.snapshots, own), head.format_version, change.snapshot_id, interval)
