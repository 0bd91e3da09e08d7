"""A table in memory that keeps the real commit rules: compare-and-swap, sequence numbers, deletes, refs, history.

Rows are numbers. What is visible is worked out from files and deletes as the specification says it, so that a wrong
commit shows as wrong rows. Storage is one dict: a file that was deleted is gone.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from regelate.core.measures.measures import Compacted
from regelate.core.planning.plan import FileGroup
from regelate.core.planning.selection import classify, is_small
from regelate.core.policy.policy import GB, CompactionPolicy, PlacementPolicy
from regelate.core.running.commit import Change, ExpiryChange, Outcome, RefChange
from regelate.core.running.conflict import Ancestry, CommitWindow
from regelate.core.running.rewrite import Fingerprint, NewDataFile, RewriteResult
from regelate.core.table.deletes import DeleteIndex
from regelate.core.table.head import Head
from regelate.core.table.input_metrics import InputMetrics
from regelate.core.table.table import (
    ColumnMetrics,
    DataFile,
    DeleteContent,
    DeleteFile,
    FileScanTask,
    Partition,
    PartitionTotals,
    RefKind,
    SnapshotEntry,
    SnapshotRef,
    TableSnapshot,
    TableTotals,
)
from regelate.core.upkeep.manifests import ManifestSummary
from regelate.core.upkeep.quarantine import Quarantine, Restoration
from regelate.core.upkeep.reachability import StoredFile
from regelate.errors import Conflict, InvariantViolated, NotFound, Unavailable
from regelate.operations.compacting.compact import CompactionTools

NO_METRICS = ColumnMetrics(value_counts={}, null_counts={}, lower_bounds={}, upper_bounds={})
BYTES_PER_ROW = 10


def partition(name: str) -> Partition:
    return Partition(spec_id=0, values=(name,), path=f"p={name}", source_values={"p": name})


@dataclass(frozen=True)
class State:
    """The live files of one snapshot."""

    files: Mapping[str, DataFile] = field(default_factory=dict)
    deletes: Mapping[str, DeleteFile] = field(default_factory=dict)


class MemoryTable:
    """One table, its storage, and every actor's way to change it.

    `head_only`: its catalog shows no snapshot but the head, and that without a parent (trap T16). `swaps_metadata`: a
    client of its catalog swaps metadata files.
    """

    def __init__(self, *, head_only: bool = False, format_version: int = 2) -> None:
        self.head_only = head_only
        self.swaps_metadata = False
        self.format_version = format_version
        self.bearers: dict[int, int] = {}
        self.uuid = "uuid-1"
        self.storage: dict[str, list[int]] = {}
        self.positions: dict[str, dict[str, set[int]]] = {}
        self.keys: dict[str, set[int]] = {}
        self.log: list[SnapshotEntry] = []
        self.states: dict[int | None, State] = {None: State()}
        self.tags: dict[str, int] = {}
        self.expired: dict[int, SnapshotEntry] = {}
        self.head_id: int | None = None
        self.version = 0
        self.last_sequence_number = 0
        self.dropped = False
        self._ids = itertools.count(1000)

    # --- reading ---

    @property
    def state(self) -> State:
        return self.states[self.head_id]

    def new_id(self) -> int:
        return next(self._ids)

    def tasks(self, state: State | None = None) -> list[FileScanTask]:
        found = state or self.state
        index = DeleteIndex(found.deletes.values())
        return [FileScanTask(data_file=f, deletes=index.applicable(f)) for f in found.files.values()]

    def rows(self, state: State | None = None) -> Counter[tuple[str, int]]:
        """Every visible row with its partition, as any reader must see it."""
        return Counter((task.data_file.partition.path, row) for task in self.tasks(state) for row in self.visible(task))

    def visible(self, task: FileScanTask) -> list[int]:
        path = task.data_file.path
        gone = {n for d in task.deletes for n in self.positions.get(d.path, {}).get(path, set())}
        keys = {k for d in task.deletes for k in self.keys.get(d.path, set())}
        return [row for n, row in enumerate(self.storage[path]) if n not in gone and row not in keys]

    @property
    def shown(self) -> tuple[SnapshotEntry, ...]:
        """The snapshots that the catalog shows."""
        if not self.head_only:
            return tuple(self.log)
        return tuple(replace(s, parent_id=None) for s in self.log if s.snapshot_id == self.head_id)

    def head(self) -> Head:
        if self.dropped:
            raise NotFound("TABLE_NOT_FOUND", "dropped")
        refs = [SnapshotRef(name=n, kind=RefKind.TAG, snapshot_id=i) for n, i in self.tags.items()]
        if self.head_id is not None:
            refs.append(SnapshotRef(name="main", kind=RefKind.BRANCH, snapshot_id=self.head_id))
        return Head(
            uuid=self.uuid,
            format_version=self.format_version,
            snapshot_id=self.head_id,
            sequence_number=self.last_sequence_number if self.format_version > 1 else 0,
            schema_id=0,
            metadata_location=f"v{self.version}",
            snapshots=self.shown,
            refs=tuple(refs),
            swaps_metadata=self.swaps_metadata,
        )

    def photograph(self, policy: CompactionPolicy, snapshot_id: int | None = None) -> TableSnapshot:
        """Return the table as the real reader would, at its head or at a snapshot."""
        at = self.head_id if snapshot_id is None else snapshot_id
        if at is not None and at not in (s.snapshot_id for s in self.log):
            raise NotFound("SNAPSHOT_NOT_FOUND", f"snapshot {at} is not in the table (expired?)")
        state = self.states[at]
        index = DeleteIndex(state.deletes.values())
        tasks = [FileScanTask(data_file=f, deletes=index.applicable(f)) for f in state.files.values()]
        entry = next((s for s in self.log if s.snapshot_id == at), None)
        return TableSnapshot(
            ident="db.t",
            uuid=self.uuid,
            format_version=2,
            location="memory://t",
            metadata_location=f"v{self.version}",
            snapshot_id=at,
            sequence_number=entry.sequence_number if entry else 0,
            timestamp_ms=entry.timestamp_ms if entry else 0,
            schema_id=0,
            spec_id=0,
            sort_order_id=0,
            candidates=tuple(t for t in tasks if classify(t.data_file, t.deletes, policy).selected),
            totals=_totals(tasks, policy),
            delete_references=dict(index.references),
            delete_files=tuple(state.deletes.values()),
            snapshots=self.shown,
        )

    # --- writing ---

    def commit(
        self,
        operation: str,
        *,
        add: Iterable[DataFile] = (),
        remove: Iterable[str] = (),
        add_deletes: Iterable[DeleteFile] = (),
        remove_deletes: Iterable[str] = (),
        summary: Mapping[str, str] | None = None,
        snapshot_id: int | None = None,
    ) -> int:
        """Add a snapshot on the head; files without a sequence number inherit the new one."""
        number, made = self.last_sequence_number + 1, snapshot_id or self.new_id()
        gone, dropped = set(remove), set(remove_deletes)
        files = {p: f for p, f in self.state.files.items() if p not in gone}
        deletes = {p: d for p, d in self.state.deletes.items() if p not in dropped}
        for new in add:
            files[new.path] = replace(new, sequence_number=new.sequence_number or number, snapshot_id=made)
        for delete in add_deletes:
            deletes[delete.path] = replace(delete, sequence_number=number, snapshot_id=made)
        self.log.append(
            SnapshotEntry(
                snapshot_id=made,
                parent_id=self.head_id,
                sequence_number=number,
                timestamp_ms=number,
                operation=operation,
                summary=summary or {},
            )
        )
        self.states[made] = State(files, deletes)
        self.bearers[number] = made
        self.head_id, self.last_sequence_number = made, number
        self.version += 1
        return made

    def append(self, name: str, rows: Sequence[int]) -> str:
        path = f"data/{self.new_id()}"
        self.storage[path] = list(rows)
        self.commit("append", add=[data_file(path, partition(name), len(rows))])
        return path

    def delete_at(self, path: str, positions: Iterable[int], *, exact: bool = True) -> None:
        delete = f"deletes/{self.new_id()}"
        self.positions[delete] = {path: set(positions)}
        home = self.state.files[path].partition
        bounds = {"referenced_lower": path, "referenced_upper": path} if exact else {}
        self.commit("delete", add_deletes=[_delete(delete, DeleteContent.POSITION, home, **bounds)])

    def delete_keys(self, keys: Iterable[int], name: str | None = None) -> None:
        """Delete rows by key in one partition, or everywhere."""
        delete = f"deletes/{self.new_id()}"
        self.keys[delete] = set(keys)
        home = Partition(spec_id=9, values=(), path="") if name is None else partition(name)
        made = _delete(delete, DeleteContent.EQUALITY, home, equality_ids=(1,), is_global=name is None)
        self.commit("delete", add_deletes=[made])

    def overwrite_without(self, path: str) -> None:
        self.commit("overwrite", remove=[path])

    def roll_back(self, snapshot_id: int) -> None:
        self.head_id = snapshot_id
        self.version += 1

    def expire(self, snapshot_ids: Iterable[int]) -> None:
        gone = set(snapshot_ids)
        self.expired |= {s.snapshot_id: s for s in self.log if s.snapshot_id in gone}
        cut = [replace(s, parent_id=None) if s.parent_id in gone else s for s in self.log]
        self.log = [s for s in cut if s.snapshot_id not in gone]
        self.tags = {n: i for n, i in self.tags.items() if i not in gone}
        self.version += 1

    def make_again(self) -> None:
        """Drop the table and create another under its name."""
        self.uuid, self.log, self.head_id = "uuid-2", [], None
        self.version += 1


def data_file(path: str, home: Partition, rows: int, sequence_number: int = 0) -> DataFile:
    return DataFile(
        path=path,
        file_format="PARQUET",
        partition=home,
        record_count=rows,
        size_bytes=rows * BYTES_PER_ROW,
        sequence_number=sequence_number,
        snapshot_id=0,
    )


def _delete(path: str, content: DeleteContent, home: Partition, **more: Any) -> DeleteFile:
    return DeleteFile(
        path=path,
        file_format="PARQUET",
        content=content,
        partition=home,
        record_count=1,
        size_bytes=1,
        sequence_number=0,
        snapshot_id=0,
        **more,
    )


def _totals(tasks: Sequence[FileScanTask], policy: CompactionPolicy) -> tuple[PartitionTotals, ...]:
    by_partition: dict[Partition, list[FileScanTask]] = {}
    for task in tasks:
        by_partition.setdefault(task.data_file.partition, []).append(task)
    return tuple(
        PartitionTotals(
            partition=home,
            files=len(members),
            size_bytes=sum(t.data_file.size_bytes for t in members),
            rows=sum(t.data_file.record_count for t in members),
            delete_files=len({d.path for t in members for d in t.deletes}),
            candidate_files=sum(classify(t.data_file, t.deletes, policy).selected for t in members),
            small_files=sum(is_small(t.data_file.size_bytes, policy) for t in members),
            oldest_candidate_ms=None,
        )
        for home, members in by_partition.items()
    )


class MemoryHeads:
    """Implements HeadReader over a MemoryTable."""

    def __init__(self, table: MemoryTable) -> None:
        self.table = table

    def head(self) -> Head:
        return self.table.head()

    def totals(self) -> TableTotals:
        files = self.table.state.files.values()
        return TableTotals(files=len(files), size_bytes=sum(f.size_bytes for f in files), manifests=1)

    def adder(self, paths: Sequence[str]) -> int | None:
        return next((f.snapshot_id for path, f in self.table.state.files.items() if path in paths), None)

    def bearer(self, sequence_number: int) -> int | None:
        """What manifests show: while a file that a snapshot brought is live, its manifest entry names the snapshot."""
        if self.table.format_version == 1:
            return None
        made, state = self.table.bearers.get(sequence_number), self.table.state
        live = {f.snapshot_id for f in (*state.files.values(), *state.deletes.values())}
        return made if made in live or made == self.table.head_id else None

    def manifests(self) -> tuple[ManifestSummary, ...]:
        return ()

    def dangling_deletes(self) -> frozenset[str]:
        index = DeleteIndex(self.table.state.deletes.values())
        for data_file in self.table.state.files.values():
            index.applicable(data_file)
        return frozenset(path for path, count in index.references.items() if not count)

    def live_tasks(self, rows: object | None = None, key: Sequence[str] = ()) -> tuple[FileScanTask, ...]:
        return tuple(self.table.tasks())

    def window(self, base: TableSnapshot, groups: Sequence[FileGroup]) -> CommitWindow:
        table, state = self.table, self.table.state
        known = {d.path for d in base.delete_files}
        assert base.snapshot_id is not None
        return CommitWindow(
            ancestry=self._ancestry(base.snapshot_id),
            same_table=table.uuid == base.uuid,
            base_snapshot_id=base.snapshot_id,
            base_sequence_number=base.sequence_number,
            head_snapshot_id=table.head_id,
            missing_inputs=frozenset(p for g in groups for p in g.paths if p not in state.files),
            new_deletes=tuple(d for p, d in state.deletes.items() if p not in known),
            missing_deletes=frozenset(known - state.deletes.keys()),
        )

    def _ancestry(self, base_id: int) -> Ancestry:
        by_id = {s.snapshot_id: s for s in self.table.shown}
        at = self.table.head_id
        if self.table.head_only and at != base_id:
            return Ancestry.HEAD_ONLY
        while at is not None and at in by_id:
            if at == base_id:
                return Ancestry.ANCESTOR
            at = by_id[at].parent_id
        return Ancestry.ROLLED_BACK if base_id in by_id else Ancestry.EXPIRED


class MemoryCommitter(MemoryHeads):
    """Implements Committer over a MemoryTable.

    `script` says how each attempt goes: `ok` (the default), `refused`, `dead` (sent into the void), `lost` and
    `lost-as-conflict` (it lands, the answer does not or is wrong), `late` and `later` (nobody knows; it arrives just
    before the next look, or just before the next attempt, and lands if its base is still the head). `meanwhile` acts
    between the look at the head and the attempt, `before_look` between an attempt and the look after it.
    `heads_left`: looks that work; those after them fail. `taken`: refs that a landed expiry took with it.
    """

    def __init__(
        self, table: MemoryTable, *, script: Sequence[str] = (), meanwhile: Sequence[Callable[[], object]] = ()
    ) -> None:
        super().__init__(table)
        self.script = list(script)
        self.meanwhile = list(meanwhile)
        self.attempts = 0
        self.heads_left: int | None = None
        self.before_look: list[Callable[[], object]] = []
        self.denied_looks = 0
        """So many looks after an attempt are told that there is no such table."""
        self.taken: tuple[str, ...] = ()
        self.forgotten = self.left = 0
        self.spared: list[int | None] = []
        self._under_way: dict[str, list[tuple[Head, Change]]] = {"late": [], "later": []}

    def new_snapshot_id(self) -> int:
        return self.table.new_id()

    def head(self) -> Head:
        self.arrive("late")
        if self.attempts and self.denied_looks:
            self.denied_looks -= 1
            raise NotFound("TABLE_NOT_FOUND", "said a gateway")
        if self.attempts and self.before_look:
            self.before_look.pop(0)()
        if self.heads_left is not None:
            if self.heads_left <= 0:
                raise Unavailable("CATALOG_UNAVAILABLE", "no route")
            self.heads_left -= 1
        return super().head()

    def arrive(self, step: str) -> None:
        """Let attempts that were under way reach the catalog now."""
        waiting, self._under_way[step] = self._under_way[step], []
        for head, change in waiting:
            if self._fits(head, change):
                self._apply(change)

    def lost_refs(self, change: ExpiryChange, made_on: str) -> tuple[str, ...] | None:
        return self.taken

    def try_commit(self, head: Head, change: Change) -> Outcome:
        self.attempts += 1
        if self.meanwhile:
            self.meanwhile.pop(0)()
        self.arrive("later")
        step = self.script.pop(0) if self.script else "ok"
        if step in self._under_way:
            self._under_way[step].append((head, change))
            return Outcome.UNKNOWN
        if step == "dead":
            return Outcome.UNKNOWN
        if step == "undone":
            return Outcome.UNDONE
        if step == "refused" or not self._fits(head, change):
            return Outcome.LOST
        self._apply(change)
        return {"lost": Outcome.UNKNOWN, "lost-as-conflict": Outcome.LOST}.get(step, Outcome.LANDED)

    def _fits(self, head: Head, change: Change) -> bool:
        if isinstance(change, RefChange):  # stands on its refs alone, whatever else was committed
            found = {ref.name: ref.snapshot_id for ref in self.table.head().refs}
            return head.uuid == self.table.uuid and all(found.get(name) == i for name, i in change.expected)
        return not self.table.dropped and (head.uuid, head.snapshot_id) == (self.table.uuid, self.table.head_id)

    def _apply(self, change: Change) -> None:
        table = self.table
        if isinstance(change, ExpiryChange):
            table.expire(change.snapshot_ids)
            return
        if isinstance(change, RefChange):
            table.tags = {name: i for name, i in table.tags.items() if name not in change.removed}
            for ref in change.set_refs:
                if ref.kind is RefKind.TAG:
                    table.tags[ref.name] = ref.snapshot_id
                else:
                    table.roll_back(ref.snapshot_id)
            table.version += 1
            return
        if change.restored is not None:
            table.log = [*(table.expired[i] for i in change.restored.snapshot_ids), *table.log]
            table.tags |= {f"undo-{i}": i for i in change.restored.snapshot_ids}
        missing = set(change.removed) - table.state.files.keys()
        if missing:
            raise InvariantViolated("INPUT_NOT_LIVE", str(missing))
        if change.removed_entries != len(change.removed):
            raise Conflict("INPUT_LISTED_TWICE", "not in this table")
        added = [
            replace(data_file(f.path, f.partition, f.record_count), sequence_number=change.data_sequence_number or 0)
            for f in change.added
        ]
        table.commit(
            change.operation,
            add=added,
            remove=change.removed,
            remove_deletes=change.dropped_delete_paths,
            summary=change.summary,
            snapshot_id=change.snapshot_id,
        )

    def leave_lost(self) -> None:
        self.left += 1

    def forget_lost(self, landed: int | None = None) -> None:
        self.forgotten += 1
        self.spared.append(landed)


class MemoryReader:
    """Implements TableReader over a MemoryTable."""

    def __init__(self, table: MemoryTable) -> None:
        self._table = table

    def properties(self) -> Mapping[str, str]:
        return {}

    def read(
        self, policy: CompactionPolicy, *, snapshot_id: int | None = None, deadline: float | None = None
    ) -> TableSnapshot:
        return self._table.photograph(policy, snapshot_id)

    def explain(self, policy: CompactionPolicy) -> Any:
        return ((t.data_file, classify(t.data_file, t.deletes, policy)) for t in self._table.tasks())

    def input_metrics(self, snapshot: TableSnapshot, groups: Sequence[FileGroup]) -> dict[int, InputMetrics]:
        """Files of this table are described by their numbers of rows alone."""
        found = {group.index: InputMetrics(snapshot.column_types) for group in groups}
        for group in groups:
            for task in group.tasks:
                found[group.index].add(None, task.data_file.record_count)
        return found


class MemoryEngine:
    """Implements RewriteEngine: writes the visible rows of each group into one file.

    `between` acts when all is written. `faults` spoil groups by index; `loses_deletes` writes deleted rows too, as a
    view that lost its delete files would.
    """

    def __init__(
        self,
        table: MemoryTable,
        *,
        between: Callable[[], object] = lambda: None,
        faults: Mapping[int, Exception] | None = None,
        loses_deletes: bool = False,
    ) -> None:
        self._table = table
        self._between = between
        self._faults = faults or {}
        self._loses_deletes = loses_deletes
        self.written: list[str] = []

    def achieved_ratio(self, group: FileGroup, policy: CompactionPolicy) -> float:
        return 1.0

    def rewrite(
        self, groups: Sequence[FileGroup], policy: CompactionPolicy, *, progress: Any = None
    ) -> tuple[tuple[RewriteResult, ...], tuple[tuple[FileGroup, Exception], ...]]:
        results = tuple(self._result(g) for g in groups if g.index not in self._faults)
        failed = tuple((g, self._faults[g.index]) for g in groups if g.index in self._faults)
        self._between()
        return results, failed

    def fingerprints(self, result: RewriteResult) -> tuple[Fingerprint, Fingerprint]:
        stored = (row for added in result.added for row in self._table.storage[added.path])
        read = (row for task in result.group.tasks for row in self._table.visible(task))
        return _fingerprint(read), _fingerprint(stored)

    def _result(self, group: FileGroup) -> RewriteResult:
        table = self._table
        visible = sum(len(table.visible(t)) for t in group.tasks)
        tasks = [replace(t, deletes=()) for t in group.tasks] if self._loses_deletes else group.tasks
        rows = [row for t in tasks for row in table.visible(t)]
        added: tuple[NewDataFile, ...] = ()
        if rows:
            path = f"outputs/{table.new_id()}"
            table.storage[path] = rows
            self.written.append(path)
            added = (
                NewDataFile(
                    path=path,
                    partition=group.partition,
                    record_count=len(rows),
                    size_bytes=len(rows) * BYTES_PER_ROW,
                    metrics=NO_METRICS,
                ),
            )
        return RewriteResult(group=group, added=added, rows_deleted=group.rows - visible)


def _fingerprint(rows: Iterable[int]) -> Fingerprint:
    return sum((Fingerprint(rows=1, total=hash((row, "row"))) for row in rows), Fingerprint())


class MemoryOutputs:
    """Implements what a compaction asks of OutputFiles: discarding."""

    def __init__(self, table: MemoryTable) -> None:
        self._table = table

    def reserve(self, home: Partition) -> Any:
        raise AssertionError("the engine in memory names its outputs itself")

    def publish(self, target: Any, *, sort_order_id: int | None) -> NewDataFile:
        raise AssertionError("the engine in memory describes its outputs itself")

    def open(self, location: str) -> Any:
        raise AssertionError("the engine in memory reads its outputs itself")

    def discard(self, locations: Sequence[str]) -> None:
        for location in locations:
            self._table.storage.pop(location, None)

    def sort_order_id(self, fields: Sequence[Any]) -> int | None:
        return None


@dataclass
class MemoryReclaimer:
    """Implements Reclaimer: every expired snapshot leaves one file of 100 bytes. `fault` is what it raises instead.

    `store_ms` is the store's time, `reached` names files that the table reaches again, `shared` what a walk through the
    catalog finds.
    """

    fault: Exception | None = None
    shared: Exception | None = None
    store_ms: int = 0
    reached: set[str] = field(default_factory=set)
    lists: dict[str, Quarantine] = field(default_factory=dict)
    deleted: list[str] = field(default_factory=list)
    walks: int = 0

    def check_allowed(self) -> None:
        if self.fault is not None:
            raise self.fault

    def check_unshared(self) -> None:
        self.walks += 1
        if self.shared is not None:
            raise self.shared

    def record(self, undo_id: str, change: ExpiryChange, *, grace_ms: int, created_ms: int) -> None:
        self.lists[undo_id] = Quarantine(
            undo_id=undo_id,
            table_uuid="uuid-1",
            metadata_location="v",
            snapshot_ids=change.snapshot_ids,
            recorded_ms=self.store_ms,
            grace_ms=grace_ms,
        )

    def list_files(self, undo_id: str) -> Quarantine:
        listed = self.lists[undo_id]
        self.lists[undo_id] = replace(listed, files=self._files(listed))
        return self.lists[undo_id]

    def complete(self, listed: Quarantine, files: Sequence[StoredFile]) -> None:
        self.lists[listed.undo_id] = replace(listed, files=tuple(files))

    def _files(self, listed: Quarantine) -> tuple[StoredFile, ...]:
        return tuple(StoredFile(path=f"snapshot {i}", size_bytes=100) for i in listed.snapshot_ids)

    def drop(self, undo_id: str) -> None:
        self.lists.pop(undo_id, None)

    def quarantines(self) -> tuple[Quarantine, ...]:
        return tuple(self.lists.values())

    def now_ms(self) -> int:
        return self.store_ms

    def within(self, spend: Callable[[int], None]) -> MemoryReclaimer:
        return self

    def oldest(self) -> tuple[int, Quarantine | None]:
        return len(self.lists), next(iter(self.lists.values()), None)

    def unreachable(self, lists: Sequence[Quarantine]) -> tuple[tuple[StoredFile, ...], ...]:
        return tuple(
            tuple(f for f in listed.files or self._files(listed) if f.path not in self.reached) for listed in lists
        )

    def needed(self, lists: Sequence[Quarantine], paths: Collection[str]) -> frozenset[str]:
        return frozenset(paths).intersection(f.path for listed in lists for f in self._files(listed))

    def delete(self, files: Sequence[StoredFile]) -> tuple[StoredFile, ...]:
        gone = tuple(f for f in files if f.path not in self.deleted)
        self.deleted += [f.path for f in gone]
        return gone

    def restoration(self, undo_id: str) -> Restoration:
        return Restoration(snapshots=tuple((i, "") for i in self.lists[undo_id].snapshot_ids))


@dataclass
class CountingClock:
    """A clock that moves only when somebody sleeps."""

    seconds: float = 0.0
    sleeps: list[float] = field(default_factory=list)

    def now_ms(self) -> int:
        return int(self.seconds * 1000)

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.seconds += seconds


class Told:
    """Implements Telemetry: keeps what it was told."""

    def __init__(self) -> None:
        self.occurrences: list[Any] = []
        self.spans: list[tuple[str, dict[str, Any]]] = []

    @property
    def stats(self) -> list[Any]:
        return [told.stats for told in self.occurrences if isinstance(told, Compacted)]

    def tell(self, occurrence: Any) -> None:
        self.occurrences.append(occurrence)

    def span(self, name: str, **attributes: Any) -> Any:
        self.spans.append((name, attributes))
        return nullcontext()


def tools_for(table: MemoryTable, **given: Any) -> CompactionTools:
    """Return the ports of a MemoryTable; any of them may be given."""
    ports: dict[str, Any] = {
        "reader": MemoryReader(table),
        "engine": MemoryEngine(table),
        "outputs": MemoryOutputs(table),
        "committer": MemoryCommitter(table),
        "reclaimer": MemoryReclaimer(),
        "telemetry": Told(),
        "clock": CountingClock(),
        "placement": PlacementPolicy(memory_bytes=4 * GB, threads=2),
        **given,
    }
    return CompactionTools(**ports)
