"""The catalog's compare-and-swap on one table, and what changed there since a planning snapshot."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Sequence

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import AddSnapshotUpdate, RemoveSnapshotsUpdate, TableRequirement, TableUpdate

from regelate.adapters.iceberg.catalogs import commits_of
from regelate.adapters.iceberg.commit.expiry import expiry_updates, refs_taken
from regelate.adapters.iceberg.commit.head_contents import dangling_deletes, manifest_summaries
from regelate.adapters.iceberg.commit.producer import SnapshotProducer
from regelate.adapters.iceberg.commit.refs import ref_updates
from regelate.adapters.iceberg.commit.staging import naming, next_metadata_location
from regelate.adapters.iceberg.files.ledger import Elapsed
from regelate.adapters.iceberg.manifests import ManifestReader
from regelate.adapters.iceberg.metadata.consistency import check_succession
from regelate.adapters.iceberg.metadata.history import ancestry, superseded
from regelate.adapters.iceberg.metadata.pruning import key_pruner, partition_pruner
from regelate.adapters.iceberg.metadata.snapshot import branch_head, refs_of, snapshot_entries
from regelate.adapters.iceberg.metadata.tasks import Entries, check_metadata, check_readable
from regelate.adapters.iceberg.pyiceberg_errors import catalog_faults, is_locked, is_overtaken, refusal
from regelate.core.catalogs import Commits
from regelate.core.planning.plan import FileGroup
from regelate.core.policy.table_properties import MAPPING_PROPERTY, Use, refuse_unusable
from regelate.core.running.commit import Change, CommitRefused, ExpiryChange, Outcome, RefChange, SnapshotChange
from regelate.core.running.conflict import CommitWindow
from regelate.core.table.deletes import DeleteIndex
from regelate.core.table.head import Head
from regelate.core.table.table import (
    MAIN_BRANCH,
    DeleteContent,
    DeleteFile,
    FileScanTask,
    Partition,
    TableSnapshot,
    TableTotals,
)
from regelate.core.upkeep.manifests import ManifestSummary
from regelate.core.values import dataclass
from regelate.errors import InvariantViolated, Unavailable
from regelate.ports.files import Ledger

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Made:
    """The metadata files of one attempt, `staged` among them, which the catalog itself writes where it is not None."""

    snapshot_id: int | None
    paths: tuple[str, ...]
    staged: str | None


class IcebergCommitter:
    """Implements Committer for one branch of a table. Calls the catalog itself: PyIceberg's own retry loop may delete
    the manifests of a commit that landed (trap T7: a landed commit is cleaned up).

    `try_commit` answers LANDED; LOST when the catalog says that a requirement failed or another commit was first;
    UNDONE when a database that was asked once says so; CommitRefused when it says no to the request; UNKNOWN for
    everything else, because then nobody knows. The metadata files of a lost or refused attempt are deleted by
    `forget_lost`, which the loop calls once it has looked and not found the snapshot, nor need wait for it; those of an
    unknown attempt are kept.
    """

    def __init__(
        self, catalog: Catalog, table: Table, reader: ManifestReader, ledger: Ledger, ref: str = MAIN_BRANCH
    ) -> None:
        refuse_unusable(table.properties, Use.COMMIT)  # before any work that would be in vain
        self._catalog = catalog
        self._ledger = ledger
        self._ident = table.name()
        self._table = table
        self._reader = reader
        self._ref = ref
        self._seen_at_ms = int(time.time() * 1000)
        self._lost: list[_Made] = []
        """Of attempts that were answered with a conflict, or refused."""
        self._landed_as: TableMetadata | None = None
        self._since_head = Elapsed()
        self._head: tuple[TableMetadata, Head] | None = None
        """The head last described, which takes a while where it has many snapshots."""
        self._read_as = table.schema()
        self._read_by = table.properties.get(MAPPING_PROPERTY)
        self._last_column_id = table.metadata.last_column_id

    @property
    def table(self) -> Table:
        return self._table

    def new_snapshot_id(self) -> int:
        return self._table.metadata.new_snapshot_id()

    def head(self) -> Head:
        """Load the table anew. Errors: NotFound TABLE_NOT_FOUND, Unavailable CATALOG_UNAVAILABLE or
        CATALOG_INCONSISTENT."""
        since_head = Elapsed()
        with catalog_faults():
            found = self._catalog.load_table(self._ident)
        metadata = found.metadata
        check_succession(self._table.metadata, metadata, seen_at_ms=self._seen_at_ms)
        self._table, self._since_head = found, since_head
        if self._head is None or self._head[0] is not metadata:
            self._head = metadata, self._described(metadata)
        return self._head[1]

    def _described(self, metadata: TableMetadata) -> Head:
        at = branch_head(metadata, self._ref)
        return Head(
            uuid=str(metadata.table_uuid),
            format_version=metadata.format_version,
            snapshot_id=None if at is None else at.snapshot_id,
            sequence_number=getattr(metadata, "last_sequence_number", 0),
            schema_id=metadata.current_schema_id,
            metadata_location=self._table.metadata_location,
            snapshots=snapshot_entries(metadata),
            refs=refs_of(metadata),
            swaps_metadata=isinstance(self._catalog, MetastoreCatalog),
            ref=self._ref,
            name_mapping=metadata.properties.get(MAPPING_PROPERTY),
        )

    def totals(self) -> TableTotals:
        """Count live data files, bytes and manifests at the head last seen: from its summary, else from manifests."""
        snapshot = self._branch_head()
        if snapshot is None:
            return TableTotals(files=0, size_bytes=0, manifests=0)
        manifests = self._listed()
        summary = dict(snapshot.summary.additional_properties) if snapshot.summary else {}
        files, size = summary.get("total-data-files"), summary.get("total-files-size")
        deletes = summary.get("total-delete-files", "")
        if files is not None and size is not None and deletes == "0":
            return TableTotals(files=int(files), size_bytes=int(size), manifests=len(manifests))
        entries = Entries(self._table.metadata, self._table.io, self._reader)
        sizes = [data_file.size_bytes for _, data_file in entries.data_files(manifests)]
        return TableTotals(files=len(sizes), size_bytes=sum(sizes), manifests=len(manifests))

    def adder(self, paths: Sequence[str]) -> int | None:
        """Return the snapshot that added one of these data files, if any of them is live at the head last seen."""
        wanted = set(paths)
        found = (
            entry.snapshot_id
            for manifest in self._listed()
            if wanted and manifest.content == ManifestContent.DATA
            for entry in self._reader.entries(self._table.io, manifest)
            if entry.data_file.file_path in wanted
        )
        return next(found, None)

    def bearer(self, sequence_number: int) -> int | None:
        """Return the snapshot that bears this sequence number, as far as manifests of the head last seen show it."""
        head = self._branch_head()
        return self._reader.bearer(self._table.io, head.manifest_list, sequence_number) if head is not None else None

    def lost_refs(self, change: ExpiryChange, made_on: str) -> tuple[str, ...] | None:
        """Return refs that a landed expiry took with it although they were made after it was decided (trap T8: an
        expiry takes new refs with it).

        `made_on`: the metadata that it was decided on. A catalog that validates here refuses such a commit. A REST
        server does not, but the metadata log names what the commit was applied to: of its answer, or where that was
        lost, of the head last seen. None where the log does not reach back to it, so that nobody can say.
        """
        if commits_of(self._catalog) is not Commits.SERVER:
            return ()
        return refs_taken(self._landed_as or self._table.metadata, self._table.io, change, made_on)

    def manifests(self) -> tuple[ManifestSummary, ...]:
        """Describe the manifests of the head last seen. Errors: Unsupported UNSUPPORTED_TABLE for format version 3."""
        check_metadata(self._table.metadata)
        listed = self._listed()
        return manifest_summaries(self._table.metadata, listed, self._reader.unreadable_in_java(self._table.io, listed))

    def dangling_deletes(self) -> frozenset[str]:
        """Return the delete files of the head last seen that apply to no live data file.

        Errors: Unsupported UNSUPPORTED_TABLE for deletion vectors and format version 3.
        """
        check_metadata(self._table.metadata)
        return dangling_deletes(Entries(self._table.metadata, self._table.io, self._reader), self._listed())

    def _branch_head(self) -> Snapshot | None:
        return branch_head(self._table.metadata, self._ref)

    def _listed(self) -> tuple[ManifestFile, ...]:
        head = self._branch_head()
        return self._reader.manifests(self._table.io, head.manifest_list) if head else ()

    def live_tasks(self, rows: object | None = None, key: Sequence[str] = ()) -> tuple[FileScanTask, ...]:
        """Return the live files of the head last seen, with their deletes; with `rows`, those that may hold their
        keys."""
        metadata, manifests = self._table.metadata, self._listed()
        entries = Entries(metadata, self._table.io, self._reader)
        index = DeleteIndex(entries.delete_files(manifests))
        pruner = key_pruner(rows, key, metadata) if rows is not None else None
        tasks: list[FileScanTask] = []
        for entry, data_file in entries.data_files(manifests):
            if pruner is None or pruner.may_match(entry.data_file):
                check_readable(data_file)
                tasks.append(FileScanTask(data_file=data_file, deletes=index.applicable(data_file)))
        return tuple(tasks)

    def small_files(self, partitions: Collection[Partition], below_bytes: int) -> tuple[FileScanTask, ...]:
        """Return the live files of some partitions that are smaller, at the head last seen, with their deletes."""
        metadata, manifests = self._table.metadata, self._listed()
        entries = Entries(metadata, self._table.io, self._reader)
        index = DeleteIndex(entries.delete_files(manifests))
        may_hold = partition_pruner(partitions, metadata)
        return tuple(
            FileScanTask(data_file=data_file, deletes=index.applicable(data_file))
            for manifest in manifests
            if may_hold(manifest)
            for _, data_file in entries.data_files((manifest,))
            if data_file.size_bytes < below_bytes and data_file.partition in partitions
        )

    def window(self, base: TableSnapshot, groups: Sequence[FileGroup]) -> CommitWindow:
        """Compare the live files of the planning snapshot with those of the head last seen, for the planned groups."""
        metadata = self._table.metadata
        head = self._branch_head()
        base_id = base.snapshot_id
        if base_id is None:
            raise InvariantViolated("NO_BASE", "a rewrite was planned on a table without a snapshot")
        lost_specs = frozenset(g.partition.spec_id for g in groups) - metadata.specs().keys()
        # with a lost spec there is no telling what a partition is: the judge has to refuse
        manifests = () if lost_specs else self._listed()
        entries = Entries(metadata, self._table.io, self._reader)
        live_deletes = {d.path: d for d in entries.delete_files(manifests)}
        known = {d.path for d in base.delete_files}
        new_deletes = tuple(d for path, d in live_deletes.items() if path not in known)
        return CommitWindow(
            ancestry=ancestry(metadata, head, base_id),
            same_table=str(metadata.table_uuid) == base.uuid,
            base_snapshot_id=base_id,
            base_sequence_number=base.sequence_number,
            head_snapshot_id=head.snapshot_id if head else None,
            missing_inputs=_missing_inputs(base, groups, manifests, entries),
            new_deletes=new_deletes,
            missing_deletes=frozenset(known - live_deletes.keys()),
            referenced=self._referenced(d for d in new_deletes if _needs_reading(d, groups)),
            returned_fields=frozenset(
                i for i in metadata.schema().field_ids - self._read_as.field_ids if i <= self._last_column_id
            ),
            lost_specs=lost_specs,
            other_names=metadata.properties.get(MAPPING_PROPERTY) != self._read_by,
        )

    def _referenced(self, deletes: Iterable[DeleteFile]) -> dict[str, frozenset[str]]:
        """Read which data files these deletes name; one that cannot be read may name any."""
        found: dict[str, frozenset[str]] = {}
        for delete in deletes:
            try:
                with self._table.io.new_input(delete.path).open() as source:
                    paths = pq.read_table(source, columns=["file_path"])["file_path"]
                found[delete.path] = frozenset(paths.unique().to_pylist())
            except (OSError, pa.ArrowException, KeyError) as error:
                log.warning("cannot read the new delete file %s: %s", delete.path, error)
        return found

    def try_commit(self, head: Head, change: Change) -> Outcome | CommitRefused:
        """Make one attempt on the head last seen (`head` must be that one).

        Errors: Unsupported UNSUPPORTED_TABLE when the table is of a format meanwhile that we cannot write;
        InvalidRequest INVALID_TABLE_PROPERTY when it has properties meanwhile that no commit can use; Unavailable
        RUN_TOO_OLD when the time is over within which the change may be sent. Then nothing was sent, and no file stays.
        """
        if head.metadata_location != self._table.metadata_location:
            raise InvariantViolated("STALE_HEAD", "an attempt was made on another head than the one judged")
        check_metadata(self._table.metadata)  # another engine may have upgraded the table since it was planned
        refuse_unusable(self._table.properties, Use.COMMIT)  # or given it properties at which PyIceberg stops
        staged = next_metadata_location(self._catalog, self._table)
        others = () if staged is None else (staged,)
        self._ledger.keep_alive()
        if isinstance(change, SnapshotChange):
            producer = SnapshotProducer(self._table, self._reader, self._ledger, others, ref=self._ref)
            try:
                with catalog_faults():
                    produced = producer.produce(change)
                self._ledger.keep_alive()
                self._check_in_time(change)
            except BaseException:  # nothing was sent, so nothing names these files
                self._delete(producer.written)
                raise
            made = _Made(snapshot_id=change.snapshot_id, paths=(*produced.written, *others), staged=staged)
            return self._send(produced.updates, produced.requirements, made)
        if isinstance(change, ExpiryChange):
            local = commits_of(self._catalog) is not Commits.SERVER
            updates, requirements = expiry_updates(self._table.metadata, change, validates_locally=local)
            self._ledger.record(others)
            return self._send(updates, requirements, _Made(snapshot_id=None, paths=others, staged=staged))
        if isinstance(change, RefChange):
            updates, requirements = ref_updates(self._table.metadata, change)
            self._ledger.record(others)
            return self._send(updates, requirements, _Made(snapshot_id=None, paths=others, staged=staged))
        raise InvariantViolated("UNKNOWN_CHANGE", f"no rule commits a {type(change).__name__}")

    def _send(
        self,
        updates: tuple[TableUpdate, ...],
        requirements: tuple[TableRequirement, ...],
        made: _Made,
    ) -> Outcome | CommitRefused:
        self._landed_as = None
        try:
            with naming(self._catalog, updates, made.staged):
                response = self._catalog.commit_table(self._table, requirements, updates)
        except CommitFailedException as error:
            log.info("attempt lost: %s", error)
            self._lost.append(made)
            return Outcome.UNDONE if commits_of(self._catalog) is Commits.TRANSACTION else Outcome.LOST
        except Exception as error:  # noqa: BLE001  a timeout, a dropped connection: it may have landed
            refused = refusal(error)
            if refused is not None:  # which may be about a second sending of a commit that has landed
                log.info("attempt refused: %s", refused)
                self._lost.append(made)
                return CommitRefused(error=refused)
            if is_overtaken(error):  # another branch took our number: this process saw it, and wrote nothing
                log.info("attempt lost: %s", error)
                self._lost.append(made)
                return Outcome.UNDONE
            if is_locked(error):
                log.info("attempt lost: %s", error)
                self._lost.append(made)
                return Outcome.UNDONE
            log.warning("attempt with unknown outcome: %s: %s", type(error).__name__, error)
            self._ledger.owe()
            return Outcome.UNKNOWN
        if not _holds(response.metadata, self._table.metadata, updates):
            log.warning("the answer to a commit does not show it: %s", response.metadata_location)
            self._ledger.owe()
            return Outcome.UNKNOWN
        self._landed_as = response.metadata
        self._delete(superseded(self._table.metadata, response.metadata))
        return Outcome.LANDED

    def _check_in_time(self, change: SnapshotChange) -> None:
        """The last thing before the request: until then the process may have been suspended at any point."""
        age_ms = self._since_head() * 1000
        if change.send_within_ms is not None and age_ms > change.send_within_ms:
            raise Unavailable(
                "RUN_TOO_OLD",
                f"this run was out of touch for {age_ms / 1000:.0f} s, and what it brings back may be deleted by now; "
                "nothing was committed",
            )

    def forget_lost(self, landed: int | None = None) -> None:
        """Delete the metadata files of attempts that are known not to have landed (law 8: clean up only what did not
        land).

        `landed`: the snapshot that was found in the table although its attempt was answered with a no (T7: a landed
        commit is cleaned up, T39: a refused commit that landed). An expiry has no snapshot to be found by: what the
        table last seen is made of stays in any case.
        """
        lost, self._lost = self._lost, []
        live = {self._table.metadata_location, *(e.metadata_file for e in self._table.metadata.metadata_log)}
        paths = [path for made in lost if made.snapshot_id is None or made.snapshot_id != landed for path in made.paths]
        self._delete(path for path in paths if path not in live)

    def leave_lost(self) -> None:
        """Keep them, and the ledger's word of them, for a sweep: a request that needs them may be under way.

        The next loop of the same operation knows nothing of them, and may not forget them either.
        """
        lost, self._lost = self._lost, []
        if any(made.paths for made in lost):  # an expiry over REST has none
            self._ledger.owe()

    def _delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            try:
                self._table.io.delete(path)
            except FileNotFoundError:
                continue
            except Exception as error:  # noqa: BLE001  clean-up never makes a commit look failed
                log.warning("cannot delete %s: %s", path, error)
                self._ledger.owe()


def _holds(answered: TableMetadata, base: TableMetadata, updates: Iterable[TableUpdate]) -> bool:
    """Say whether the catalog's answer to a commit is about our table, with our snapshot in it."""
    listed = {s.snapshot_id for s in answered.snapshots}
    added = {u.snapshot.snapshot_id for u in updates if isinstance(u, AddSnapshotUpdate)}
    gone = {i for u in updates if isinstance(u, RemoveSnapshotsUpdate) for i in u.snapshot_ids}
    return answered.table_uuid == base.table_uuid and added - gone <= listed


def _missing_inputs(
    base: TableSnapshot, groups: Sequence[FileGroup], manifests: Sequence[ManifestFile], entries: Entries
) -> frozenset[str]:
    """An input is live while its manifest is still listed; else it must be found in a manifest that is new since."""
    listed = {m.manifest_path for m in manifests}
    moved = {t.data_file.path for g in groups for t in g.tasks if t.data_file.manifest_path not in listed}
    if not moved:
        return frozenset()
    fresh = [m for m in manifests if m.content == ManifestContent.DATA and m.manifest_path not in base.manifest_paths]
    return frozenset(moved - {data_file.path for _, data_file in entries.data_files(fresh)})


def _needs_reading(delete: DeleteFile, groups: Sequence[FileGroup]) -> bool:
    """Only a position delete of a planned partition that does not say which file it is for: others cannot hit one."""
    if delete.content is not DeleteContent.POSITION or delete.exact_reference is not None:
        return False
    return any(delete.partition == group.partition for group in groups)
