"""WRITE: encode the whole request, write its files, commit once, and now and then look for small files."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from regelate.core.planning.plan import plan_compaction
from regelate.core.planning.trigger import check_is_due
from regelate.core.policy.policy import CompactionPolicy, digest
from regelate.core.requests import MissingColumns, WriteMode
from regelate.core.running.commit import SnapshotChange
from regelate.core.running.given_rows import GivenRows
from regelate.core.running.merging import merges
from regelate.core.running.rewrite import NewDataFile
from regelate.core.table.head import Head
from regelate.core.table.table import MAIN_BRANCH, FileScanTask, SnapshotEntry, run_summary
from regelate.errors import Conflict, InvalidRequest, Unsupported, keeps_files
from regelate.operations.committing.attempt import Attempted, attempt
from regelate.ports.clock import Clock
from regelate.ports.commit import Committer
from regelate.ports.engine import KeyRewriter
from regelate.ports.files import RowWriter
from regelate.ports.table import TableReader

CHECK_SECONDS = 2.0
"""Time cap of the small-file check; a write never waits longer for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteCommand:
    """Rows are JSON records, or an Arrow table. `key` identifies a row for upsert, and `missing` says what becomes of
    columns that they do not name. `run_id` makes a repeat land once. `repeatable`: it is the caller's, and stands for
    these rows only. `max_partitions`: of the table that they may belong to; None: however many."""

    rows: object
    run_id: str
    repeatable: bool = False
    mode: WriteMode = WriteMode.APPEND
    key: tuple[str, ...] = ()
    missing: MissingColumns = MissingColumns.NULL
    max_partitions: int | None = None

    @property
    def keeps(self) -> bool:
        """Whether it keeps what the table stores in columns that the rows do not name."""
        return self.mode is WriteMode.UPSERT and self.missing is MissingColumns.KEEP


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallFileCheck:
    """When a write looks for small files, and by which policy. `interval` 0 never looks."""

    interval: int
    policy: CompactionPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteTools:
    table_uuid: str
    """Of the table whose schema the rows are encoded against: what they must be committed to."""
    rows: RowWriter
    committer: Committer
    clock: Clock
    check: Callable[[], SmallFileCheck]
    """Resolved only after the commit: a malformed table property must not fail a write."""
    fresh_reader: Callable[[], TableReader]
    """A reader of the table as it is after the commit; only called when a check is due."""
    keys: Callable[[], KeyRewriter]
    """Made only for an upsert: it opens an engine."""


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
        return WriteResult(records_written=written, snapshot_id=earlier.snapshot_id, already_done=True)
    incoming = _incoming(tools, command)
    if not incoming.count:
        return WriteResult(records_written=0, snapshot_id=None)
    done = _committed(tools, command, request_digest, incoming)
    check = _checked(tools, done)
    return WriteResult(
        records_written=incoming.count,
        snapshot_id=done.snapshot_id,
        compaction_recommended=check.recommended,
        small_files_count=check.small_files,
        already_done=done.found_earlier,
        check_fault=check.fault,
    )


RECORDS_WRITTEN = "regelate.records-written"
"""Summary property: an upsert also adds the rows that it carried over, so `added-records` would say too many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Incoming:
    """The rows of the request. `added`: their files, which are right on every head; none where the rows are `partial`:
    what they lack differs from head to head."""

    rows: object
    count: int
    added: tuple[NewDataFile, ...] = ()
    partial: GivenRows | None = None


def _incoming(tools: WriteTools, command: WriteCommand) -> _Incoming:
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
        return _Incoming(rows=rows, count=partial.count, partial=partial)
    added = tools.rows.write(rows, max_partitions=command.max_partitions)
    return _Incoming(rows=rows, count=sum(f.record_count for f in added), added=added)


@dataclass
class _Replacement:
    """What an upsert or overwrite replaces on one head; made anew when the head has moved.

    Also by a commit without a snapshot: a column that came back with the schema is not in what was carried over.
    `added`: all files of the request, with its own rows or what was carried over; `made`: those that are right on this
    head only, its own rows among them where they were partial.
    """

    metadata_location: str
    removed: tuple[FileScanTask, ...] = ()
    added: tuple[NewDataFile, ...] = ()
    made: tuple[NewDataFile, ...] = ()

    def is_for(self, head: Head) -> bool:
        return self.metadata_location == head.metadata_location


def _digest(writer: RowWriter, command: WriteCommand, ref: str) -> str:
    branch = [] if ref == MAIN_BRANCH else [ref]
    keeps = [{"missing_columns": command.missing.value}] if command.keeps else []
    return digest(json.dumps([command.mode.value, command.key, writer.digest(command.rows), *branch, *keeps]))


def _committed(tools: WriteTools, command: WriteCommand, request_digest: str | None, incoming: _Incoming) -> Attempted:
    added = incoming.added
    summary = {**run_summary(command.run_id, request_digest), RECORDS_WRITTEN: str(incoming.count)}
    made: list[_Replacement] = []

    def decide(head: Head) -> SnapshotChange:
        """Make a change of its own for every attempt: what is found in the table later says which files landed."""
        snapshot_id = tools.committer.new_snapshot_id()
        if command.mode is WriteMode.APPEND:
            return SnapshotChange(operation="append", snapshot_id=snapshot_id, summary=summary, added=added)
        if not made or not made[-1].is_for(head):
            made.append(_replacement(tools, command, incoming, head))
        current = made[-1]
        return SnapshotChange(
            operation="overwrite",
            snapshot_id=snapshot_id,
            summary=summary,
            added=current.added,
            removed={t.data_file.path: t.data_file.manifest_path for t in current.removed},
            removed_entries=len(current.removed),
        )

    try:
        done = attempt(tools.committer, tools.clock, decide, run_id=command.run_id, table_uuid=tools.table_uuid)
    except Exception as error:
        if not keeps_files(error):
            tools.rows.discard([f.path for f in (*added, *(new for m in made for new in m.made))])
        raise
    kept = {f.path for f in done.landed.added} if isinstance(done.landed, SnapshotChange) else set()
    every = [f.path for f in (*added, *(new for m in made for new in m.made))]
    tools.rows.discard([path for path in every if path not in kept | done.uncertain])
    return done


def _replacement(tools: WriteTools, command: WriteCommand, incoming: _Incoming, head: Head) -> _Replacement:
    if command.mode is WriteMode.UPSERT:
        return _replaced_rows(tools, command, incoming, head)
    partitions = {f.partition for f in incoming.added}
    tasks = tools.committer.live_tasks()
    specs = {p.spec_id for p in partitions}
    other = next((t.data_file for t in tasks if t.data_file.partition.spec_id not in specs), None)
    if other is not None:
        raise Unsupported(
            "UNSUPPORTED_TABLE",
            "overwrite_partitions: files of an older partition spec are live and cannot be told apart by the new one; "
            "compact the table or use upsert",
            path=other.path,
        )
    removed = tuple(t for t in tasks if t.data_file.partition in partitions)
    return _Replacement(head.metadata_location, removed, incoming.added)


def _replaced_rows(tools: WriteTools, command: WriteCommand, incoming: _Incoming, head: Head) -> _Replacement:
    if command.keeps and head.schema_id != tools.rows.schema_id:
        raise Conflict("SCHEMA_CHANGED", "the columns of the table were changed meanwhile; repeat the request")
    rows, key = incoming.rows, command.key
    tasks = tools.committer.live_tasks(rows, key)
    rewriter = tools.keys() if tasks else None
    touched = rewriter.touched(tasks, rows, key) if rewriter is not None else ()
    own = incoming.added
    if incoming.partial is not None:
        replaced = [t.task for t in touched]
        stored = rewriter.stored(replaced, rows, key, incoming.partial.absent) if rewriter and touched else None
        filled = tools.rows.fill(incoming.partial, stored, key)
        own = tools.rows.write(filled, max_partitions=command.max_partitions)
    made_here = own if incoming.partial is not None else ()
    target = tools.rows.target_bytes
    planned = merges(touched, own, target)
    try:
        carried = rewriter.merge(planned, rows, key, target_bytes=target) if rewriter and planned else ()
    except BaseException:
        with suppress(OSError):  # the fault to report is the first one; what stays behind is an orphan
            tools.rows.discard([f.path for f in made_here])
        raise
    merged = {f.path for merge in planned for f in merge.fresh}
    new = tuple(f for files in carried for f in files)
    return _Replacement(
        head.metadata_location,
        removed=tuple(t.task for t in touched),
        added=(*(f for f in own if f.path not in merged), *new),
        made=(*made_here, *new),
    )


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
