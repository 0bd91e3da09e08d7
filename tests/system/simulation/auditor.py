"""Looks at every commit the moment it happens, and at every object that is about to be deleted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from regelate.adapters.iceberg.manifests import ManifestReader
from regelate.adapters.iceberg.tables.properties import gc_enabled
from regelate.core.table.table import RUN_ID
from regelate.errors import RegelateError
from regelate.operations.committing.sent import STAYING
from tests.system.simulation import avro
from tests.system.simulation.books import Book, audit
from tests.system.simulation.catalog import CatalogKind, Server
from tests.system.simulation.photograph import Broken, Home, Photograph, photograph
from tests.system.simulation.rows import Row
from tests.system.simulation.scheduler import Actor, State
from tests.system.simulation.store import ObjectStore, PlainIO

ModelRows = dict[int, tuple[Row, Home]]
"""What a branch holds: row id -> the row, and the partition (of one spec) that it lives in."""
Intent = Callable[[ModelRows], ModelRows]

OWN_FOLDER = "/regelate/"
REPLACES = {"compact", "branch compact", "job part", "manifests", "dangling", "undo"}


@dataclass
class Landed:
    """One snapshot of a run that the catalog really has taken."""

    snapshot_id: int
    actor: str


@dataclass
class Auditor:
    """Knows what every snapshot must hold: what its parent held, changed by what its maker said beforehand."""

    server: Server
    store: ObjectStore
    events: Counter[str]
    intents: dict[str, Intent] = field(default_factory=dict)
    expected: dict[int, ModelRows] = field(default_factory=dict)
    photographs: dict[int, Photograph] = field(default_factory=dict)
    parents: dict[int, int | None] = field(default_factory=dict)
    """Of every snapshot there ever was: the head that it was made on."""
    heads: list[dict[str, int | None]] = field(default_factory=lambda: [{}])
    """Of every branch and tag, after every commit."""
    refs: dict[str, str] = field(default_factory=dict)
    """The branch that an actor of the service works on, by his name."""
    taken_refs: dict[str, set[str]] = field(default_factory=dict)
    """Refs that an expiry took although nothing said that it might, by the name of the actor who expires."""
    books: dict[int, Book] = field(default_factory=dict)
    landed: dict[str, list[Landed]] = field(default_factory=dict)
    """By run id, and by actor's name."""
    ever_referenced: set[str] = field(default_factory=set)
    ref_ages_ms: dict[str, int] = field(default_factory=dict)
    """How old a ref may grow, by the name of the actor who expires."""
    needed_by_gone: dict[int, set[str]] = field(default_factory=dict)
    """What readers of an expired snapshot would need."""
    statistics_ms: dict[str, int] = field(default_factory=dict)
    """When each statistics file came into the table."""
    belated: set[str] = field(default_factory=set)
    """Statistics files that other engines set when their snapshot was gone."""
    statistics_of_gone: dict[int, set[str]] = field(default_factory=dict)
    promised: list[tuple[int, int]] = field(default_factory=list)
    """Expired snapshots that somebody was told he can bring back, and until when (the store's time)."""

    def __post_init__(self) -> None:
        self._io = PlainIO(self.store)
        self._reader = ManifestReader()
        self.server.on_commit = self.committed
        self.store.on_delete = self.about_to_delete

    def head(self) -> Photograph | None:
        head = self.server.metadata.current_snapshot()
        return None if head is None else self.photographs[head.snapshot_id]

    def was_in(self, ref: str, snapshot_id: int, since_commit: int) -> bool:
        """Say whether a snapshot was of a branch's history at any time since the catalog had taken so many commits."""
        return any(snapshot_id in self._lineage(heads.get(ref)) for heads in self.heads[since_commit:])

    def rows_of(self, snapshot_id: int | None) -> ModelRows:
        return {} if snapshot_id is None else self.expected[snapshot_id]

    def committed(self, before: TableMetadata, after: TableMetadata, actor: Actor) -> None:
        self.heads.append({n: r.snapshot_id for n, r in after.refs.items()} | {"main": after.current_snapshot_id})
        if actor.is_ours and actor.state is State.DONE:
            self._check_announced(before, after, actor)
        known = {s.snapshot_id for s in before.snapshots}
        new = [s for s in after.snapshots if s.snapshot_id not in known]
        for snapshot in [s for s in new if s.snapshot_id in self.expected]:
            self._back_again(after, snapshot)
        for snapshot in [s for s in new if s.snapshot_id not in self.expected]:
            self._new_snapshot(before, after, snapshot.snapshot_id, actor)
        gone = known - {s.snapshot_id for s in after.snapshots}
        if gone and not new:
            self.events[f"took {'expire' if actor.kind == 'expire' else 'expire after compact'}"] += 1
            self.events["snapshots expired"] += len(gone)
        for snapshot_id in gone if self.server.kind is not CatalogKind.HEAD_ONLY else ():
            of_it = {p for p in statistics_of(before, snapshot_id) if self.statistics_ms[p] <= actor.started_ms}
            self.ever_referenced |= of_it
            self.statistics_of_gone[snapshot_id] = of_it
            self.needed_by_gone[snapshot_id] = self.photographs.pop(snapshot_id).paths | of_it
        self._check_statistics(after, actor)
        self._check_refs(before, after, actor, bool(new))
        if before.format_version > 1 and after.last_sequence_number < before.last_sequence_number:
            raise Broken("the sequence number went back")

    def _check_announced(self, before: TableMetadata, after: TableMetadata, actor: Actor) -> None:
        """What arrives when its sender has answered already may only be what the answer left open."""
        self.events["landed after the answer"] += 1
        error = actor.fault or actor.error
        if isinstance(error, RegelateError) and error.keeps_files:
            return
        if actor.may_return and actor.name in self.landed:  # and was rolled back: another sending of it fits again, T47
            return
        warnings = getattr(actor.answer, "warnings", ())
        makes_rows = len(after.snapshots) > len(before.snapshots)
        if not makes_rows and any("COMMIT_STATE_UNKNOWN" in w or STAYING in w for w in warnings):
            return
        raise Broken(f"a late request of {actor.name} landed; it had answered {error or actor.answer!r}")

    def _lineage(self, snapshot_id: int | None) -> set[int]:
        found: set[int] = set()
        while snapshot_id is not None:
            found.add(snapshot_id)
            snapshot_id = self.parents.get(snapshot_id)
        return found

    def _back_again(self, after: TableMetadata, snapshot: Snapshot) -> None:
        """An undone expiry brings back snapshots as they were; the promise is kept then."""
        self.promised = [(i, until_ms) for i, until_ms in self.promised if i != snapshot.snapshot_id]
        seen = photograph(after, snapshot, self.store, self._io, self._reader)
        self._check_rows(seen, self.expected[snapshot.snapshot_id], after, f"{snapshot.snapshot_id} came back")
        self._check_files(seen)
        self.photographs[snapshot.snapshot_id] = seen
        if not statistics_of(after, snapshot.snapshot_id) >= self.statistics_of_gone[snapshot.snapshot_id]:
            raise Broken(f"{snapshot.snapshot_id} came back without its statistics files")
        self.events["took undo"] += 1

    def _new_snapshot(self, before: TableMetadata, after: TableMetadata, snapshot_id: int, actor: Actor) -> None:
        snapshot = after.snapshot_by_id(snapshot_id)
        assert snapshot is not None
        assert snapshot.summary is not None
        branch = next(name for name, ref in after.refs.items() if ref.snapshot_id == snapshot_id)
        old = before.refs.get(branch)
        parent_id = old.snapshot_id if old is not None else None
        seen = photograph(after, snapshot, self.store, self._io, self._reader)
        operation = snapshot.summary.operation.value
        run_id = snapshot.summary.additional_properties.get(RUN_ID)
        self.parents[snapshot_id] = parent_id
        earlier = [found for found in self.landed.get(run_id or "", ()) if self._must_know(found, parent_id, actor)]
        if earlier:
            raise Broken(f"{run_id} landed twice: {earlier} and now {snapshot_id} by {actor.name}")
        if actor.kind in REPLACES and operation != "replace":
            raise Broken(f"{actor.name} came as {operation}: law 2")
        if actor.kind == "compact":
            beside = [a for a in self.server.scheduler.running if a.kind == "compact" and a is not actor]
            self.events["took two compactors"] += bool(beside)
        parent = self.photographs.get(parent_id) if parent_id is not None else None
        model = self._after(actor, operation, self.rows_of(parent_id), parent, seen, after)
        self.expected[snapshot_id] = model
        self.photographs[snapshot_id] = seen
        self.ever_referenced |= seen.paths
        self._check_rows(seen, model, after, f"{actor.name} committed {operation}")
        self._check_files(seen)
        self.books[snapshot_id] = audit(snapshot, after, self.books.get(parent_id), self.store, is_ours=actor.is_ours)  # type: ignore[arg-type]
        _check_totals(seen, snapshot.summary.additional_properties)
        number, last = snapshot.sequence_number, before.last_sequence_number if before.format_version > 1 else -1
        made_for_v1 = avro.read(self.store.get(snapshot.manifest_list)).meta.get("format-version") == "1"
        unnumbered = made_for_v1 and not number and last == 0  # upgraded on the way: PyIceberg's catalogs take it
        if last >= 0 and (number or 0) <= last and not unnumbered:
            raise Broken(f"sequence number {snapshot.sequence_number} after {before.last_sequence_number}")
        if parent is not None and snapshot.timestamp_ms < parent.snapshot.timestamp_ms:
            raise Broken("a snapshot is older than its parent")
        for name in (actor.name, run_id):
            if name is not None:
                self.landed.setdefault(name, []).append(Landed(snapshot_id, actor.name))

    def _must_know(self, found: Landed, parent_id: int | None, actor: Actor) -> bool:
        """Say whether who commits on this parent must know of a snapshot of his run.

        Of a job's part that another worker landed, a catalog without a history says so only while that is the head (it
        is documented): later the part is planned anew on what it left, as any other COMPACT is.
        """
        if self.server.kind is CatalogKind.HEAD_ONLY and actor.kind == "job part" and found.actor != actor.name:
            return found.snapshot_id == parent_id
        return found.snapshot_id in self._lineage(parent_id)

    def _after(
        self,
        actor: Actor,
        operation: str,
        rows: ModelRows,
        parent: Photograph | None,
        seen: Photograph,
        metadata: TableMetadata,
    ) -> ModelRows:
        """What must be there now. Rewritten files may forget columns that the schema does not have (only those): what
        they kept must be right, for the schema may have the column again."""
        model = dict(rows) if operation == "replace" else self.intents[actor.name](dict(rows))
        if actor.is_ours and parent is not None:
            schema = metadata.schema().field_ids
            now = {row.id: row for row in seen.rows}
            for path in parent.data_files.keys() - seen.data_files.keys():
                for _, row in parent.visible[path]:
                    if row.id in model:
                        was, home = model[row.id]
                        model[row.id] = (was.rewritten(now.get(row.id), schema), home)
        return model

    def _check_rows(self, seen: Photograph, model: ModelRows, metadata: TableMetadata, what: str) -> None:
        schema = metadata.schema().field_ids
        found = Counter(row.id for row in seen.rows)
        problems = []
        lost = model.keys() - found.keys()
        back = found.keys() - model.keys()
        doubled = [i for i, n in found.items() if n > 1]
        problems += [f"lost {sorted(lost)[:5]}"] if lost else []
        problems += [f"should not be there: {sorted(back)[:5]}"] if back else []
        problems += [f"doubled {sorted(doubled)[:5]}"] if doubled else []
        if not problems:
            changed = [r.id for r in seen.rows if r.within(schema) != model[r.id][0].within(schema)]
            problems += [f"changed {changed[:5]}"] if changed else []
        moved = [
            row.id
            for path, rows in seen.visible.items()
            for _, row in rows
            if row.id in model and model[row.id][1] != seen.data_files[path].home
        ]
        problems += [f"in another partition: {moved[:5]}"] if moved else []
        if problems:
            raise Broken(f"{what}: rows {'; '.join(problems)}")

    def _check_files(self, seen: Photograph) -> None:
        missing = [path for path in seen.paths if path not in self.store.objects]
        if missing:
            raise Broken(f"snapshot {seen.snapshot.snapshot_id} names objects that do not exist: {missing[:3]}")

    def _check_statistics(self, metadata: TableMetadata, actor: Actor) -> None:
        """No reference to what is gone, but what another engine sets after an expiry took its snapshot: no catalog
        refuses that. What came while an expiry was under way is neither promised back nor swept."""
        live = {s.snapshot_id for s in metadata.snapshots}
        for found in (*metadata.statistics, *metadata.partition_statistics):
            self.statistics_ms.setdefault(found.statistics_path, self.server.scheduler.now_ms)
            if found.snapshot_id not in live and not actor.is_ours:
                self.belated.add(found.statistics_path)
            if found.snapshot_id not in live and found.statistics_path not in self.belated:
                raise Broken(f"{found.statistics_path} is about snapshot {found.snapshot_id}, which is gone")
            if found.statistics_path not in self.store.objects:
                raise Broken(f"{found.statistics_path} is named by the metadata and gone")

    def _check_refs(self, before: TableMetadata, after: TableMetadata, actor: Actor, has_snapshot: bool) -> None:
        live = {s.snapshot_id for s in after.snapshots}
        broken = [name for name, ref in after.refs.items() if ref.snapshot_id not in live]
        if broken:
            raise Broken(f"refs without a snapshot: {broken}")
        if not actor.is_ours or actor.kind == "undo" or self.server.kind is CatalogKind.HEAD_ONLY:
            return
        own = self.refs[actor.name]
        old = {name: ref.snapshot_id for name, ref in before.refs.items()}
        new = {name: ref.snapshot_id for name, ref in after.refs.items()}
        if has_snapshot:
            if own != "main" and own not in old:
                raise Broken(f"{actor.name} made the branch {own} anew, which was dropped")
            old.pop(own, None)
            new.pop(own, None)
        else:
            limit = self.server.scheduler.now_ms - self.ref_ages_ms.get(actor.name, 2**63)
            ages = {s.snapshot_id: s.timestamp_ms for s in before.snapshots}
            old = {n: i for n, i in old.items() if n in new or n == "main" or ages[i] >= limit}
        taken = {name for name in old if name not in new}
        is_told = (
            self.server.kind is CatalogKind.REST and not has_snapshot and taken == {n for n, _ in _moved(old, new)}
        )
        if old != new and not is_told:
            raise Broken(f"{actor.name} changed refs: {_moved(old, new)}")
        if taken:  # a REST server cannot be asked to refuse: then whoever expired is told (`judge`)
            self.events["refs taken by expiry on REST"] += 1
            self.taken_refs.setdefault(actor.name, set()).update(taken)

    def promise(self, snapshot_ids: Iterable[int], until_ms: int) -> None:
        """Somebody was told that an expiry can be undone until then."""
        self.promised += [(i, until_ms) for i in snapshot_ids]

    def about_to_delete(self, path: str, who: str) -> None:
        metadata = self.server.metadata
        if path in self.ever_referenced and (self.server.has_twin or not gc_enabled(metadata.properties)):
            raise Broken(f"{who} deletes {path} although another table has it, or gc.enabled=false")
        if path == self.server.location or path in (e.metadata_file for e in metadata.metadata_log):
            raise Broken(f"{who} deletes {path}, a metadata file of the table")
        if path in all_statistics(metadata):
            raise Broken(f"{who} deletes {path}, a statistics file of the table")
        for snapshot in metadata.snapshots:
            if path in self.photographs[snapshot.snapshot_id].paths:
                raise Broken(f"{who} deletes {path}, which snapshot {snapshot.snapshot_id} needs")
        now_ms = self.server.scheduler.now_ms + self.store.skew_ms
        for snapshot_id, until_ms in self.promised:
            if now_ms <= until_ms and path in self.needed_by_gone.get(snapshot_id, ()):
                raise Broken(f"{who} deletes {path}, which an undo of {snapshot_id} needs until {until_ms}")
        self.events["objects deleted"] += 1

    def unreferenced(self, maker: str) -> list[str]:
        """Return objects of one maker that exist and never were part of the table, but for notes of the service."""
        known = self.ever_referenced | self.server.locations
        return [path for path in self.store.made_by(maker) if path not in known and OWN_FOLDER not in path]


def _moved(old: Mapping[str, int], new: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(set(old.items()) ^ set(new.items()))


def all_statistics(metadata: TableMetadata) -> set[str]:
    return {s.statistics_path for s in (*metadata.statistics, *metadata.partition_statistics)}


def statistics_of(metadata: TableMetadata, snapshot_id: int) -> set[str]:
    """Return the statistics files of one snapshot, those of its partitions too."""
    listed = (*metadata.statistics, *metadata.partition_statistics)
    return {s.statistics_path for s in listed if s.snapshot_id == snapshot_id}


def _check_totals(seen: Photograph, summary: Mapping[str, str]) -> None:
    data, deletes = seen.data_files.values(), seen.delete_files.values()
    counted = {
        "total-data-files": len(data),
        "total-delete-files": len(deletes),
        "total-records": sum(f.record_count for f in data),
        "total-files-size": sum(f.size_bytes for f in (*data, *deletes)),
        "total-position-deletes": sum(f.record_count for f in deletes if f.content.value == 1),
        "total-equality-deletes": sum(f.record_count for f in deletes if f.content.value == 2),
    }
    wrong = {name: (summary[name], n) for name, n in counted.items() if name in summary and int(summary[name]) != n}
    if wrong:
        raise Broken(f"the summary's totals are not what is there: {wrong}")
    if "total-records" not in summary:
        raise Broken("the summary has lost its totals")
