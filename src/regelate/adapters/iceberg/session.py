"""One loaded table for the length of one operation: every port of the Iceberg side, over ONE table handle."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from pyiceberg.catalog import Catalog
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import NullOrder, SortDirection
from pyiceberg.transforms import IdentityTransform

from regelate.adapters.iceberg.catalogs import open_table
from regelate.adapters.iceberg.cleanup.neighbours import Neighbours
from regelate.adapters.iceberg.cleanup.orphans import TableOrphans
from regelate.adapters.iceberg.cleanup.reclaim import SnapshotReclaimer
from regelate.adapters.iceberg.commit.committer import IcebergCommitter
from regelate.adapters.iceberg.commit.manifest_writing import TARGET_SIZE, TARGET_SIZE_DEFAULT
from regelate.adapters.iceberg.files.inputs import TableInputs
from regelate.adapters.iceberg.files.ledger import LONGEST_RUN_SECONDS, RunLedger
from regelate.adapters.iceberg.files.outputs import Annotate, TableOutputs, local_path
from regelate.adapters.iceberg.files.store import own_folder
from regelate.adapters.iceberg.files.view import GroupViewWriter
from regelate.adapters.iceberg.manifests import ManifestReader
from regelate.adapters.iceberg.metadata.snapshot import SnapshotReader, check_branch
from regelate.adapters.iceberg.s3.access import access_of
from regelate.adapters.iceberg.s3.file_io import S3FileIO
from regelate.adapters.iceberg.tables.properties import is_inside
from regelate.adapters.iceberg.tables.schema import check_size
from regelate.core.fleet.observation import other_manager
from regelate.core.policy.option_values import codec
from regelate.core.policy.options import CODEC_PROPERTY
from regelate.core.policy.policy import SortField
from regelate.core.policy.targets import stored_bytes
from regelate.core.table.storage import ObjectStoreAccess
from regelate.core.table.table import MAIN_BRANCH, TOTAL_FILES, told_total
from regelate.errors import RegelateError

if TYPE_CHECKING:
    from regelate.adapters.iceberg.cleanup.dead_runs import TableLedgers
    from regelate.adapters.iceberg.rows import IcebergRowWriter
    from regelate.adapters.iceberg.scan import SnapshotScan


class TableSession:
    """Loads a table once and hands out its ports; `folder` is a private folder that the caller removes.

    One session is one run: its files bear the `run_token`, and are in its ledger for as long as it is not known what
    became of them.
    """

    def __init__(
        self,
        catalog: Catalog,
        ident: str,
        manifests: ManifestReader,
        folder: Path | None = None,
        *,
        annotate: Annotate,
        longest_run_seconds: float = LONGEST_RUN_SECONDS,
        survey: Callable[[], Catalog] | None = None,
        ref: str = MAIN_BRANCH,
    ) -> None:
        """`annotate` gives every output its footer (adapters/parquet). `ref`: the branch to work on.

        `survey` opens the catalog to see the metadata of every table, where `catalog` itself may not.
        """
        self.catalog = catalog
        self._survey = survey or (lambda: catalog)
        self._ident = ident
        self._manifests = manifests
        self.folder = folder or Path(tempfile.gettempdir())
        self.run_token = uuid.uuid4().hex
        self._annotate = annotate
        self._longest_run_seconds = longest_run_seconds
        self.table = open_table(catalog, ident)
        self._ref = ref
        check_size(self.table.schema())
        check_branch(self.table.metadata, ref)

    @contextmanager
    def run(self) -> Iterator[TableSession]:
        """Close the ledger at the end of an operation that knows what became of its files.

        It knows when it answers, and when it raises an error of ours that does not keep files (law 8: clean up only
        what did not land). After anything else, an interruption or a bug, the entries stay for a sweep.
        """
        try:
            yield self
        except RegelateError as error:
            if not error.keeps_files:
                self.ledger.close()
            raise
        self.ledger.close()

    @cached_property
    def ledger(self) -> RunLedger:
        metadata = self.table.metadata
        return RunLedger(
            self.table.io,
            own_folder(metadata).rpartition("/")[0],
            table_uuid=str(metadata.table_uuid),
            run=self.run_token,
            lives_seconds=self._longest_run_seconds,
        )

    @property
    def properties(self) -> Mapping[str, str]:
        return self.table.metadata.properties

    @property
    def metadata_location(self) -> str:
        """Where the metadata is that this session was loaded from."""
        return self.table.metadata_location

    @property
    def managed_by(self) -> str | None:
        """Who else looks after this table; None where nobody is seen."""
        from regelate.adapters.iceberg.tables.optimizers import optimizers_of  # nobody but a fleet asks

        metadata, optimizers = self.table.metadata, optimizers_of(self.catalog, self._ident)
        return other_manager(metadata.properties, metadata.location, optimizers=optimizers)

    def keeps_metadata_at(self, location: str) -> bool:
        """Say whether a file lies where the metadata of this table does."""
        return is_inside(location, self.metadata_location.rpartition("/")[0])

    @property
    def head_id(self) -> int | None:
        return None if self.table.current_snapshot() is None else self.table.metadata.current_snapshot_id

    @property
    def head_files(self) -> int | None:
        """How many data files the summary of the head says that there are; None where it does not."""
        return told_total(self._head_summary, TOTAL_FILES)

    @property
    def stored_bytes(self) -> int:
        """Bytes of the table's files, as its head tells them; 0 where that does not."""
        return stored_bytes(self._head_summary)

    @property
    def _head_summary(self) -> Mapping[str, str]:
        head = self.table.current_snapshot()
        return {} if head is None or head.summary is None else head.summary.additional_properties

    @property
    def is_local(self) -> bool:
        """Whether every file that this table names by its own location or properties lies on this machine."""
        named = (self.table.metadata.location, *(v for k, v in self.properties.items() if k.endswith(".path")))
        return all(local_path(location) is not None for location in named)

    @property
    def store_access(self) -> ObjectStoreAccess | None:
        """What an engine needs to read this table's files; None where they are not on S3."""
        return access_of(self.table)

    def renewed_access(self) -> ObjectStoreAccess | None:
        """Return other credentials for an engine that was refused; None where there are none, or were some before."""
        return access_of(self.table) if isinstance(self.table.io, S3FileIO) and self.table.io.store.renew() else None

    @property
    def compression_codec(self) -> str:
        return codec(CODEC_PROPERTY, self.properties.get(CODEC_PROPERTY, "zstd"))

    @property
    def manifest_target_bytes(self) -> int:
        return int(self.properties.get(TARGET_SIZE, TARGET_SIZE_DEFAULT))

    @property
    def sort_fields(self) -> tuple[SortField, ...]:
        """The table's own sort order as a policy takes it; empty when it is unsorted or sorted by a transform."""
        order, schema = self.table.sort_order(), self.table.schema()
        if not all(isinstance(f.transform, IdentityTransform) for f in order.fields):
            return ()
        return tuple(
            SortField(
                column=str(schema.find_column_name(f.source_id)),
                descending=f.direction == SortDirection.DESC,
                nulls_first=f.null_order == NullOrder.NULLS_FIRST,
            )
            for f in order.fields
        )

    @property
    def uuid(self) -> str:
        return str(self.table.metadata.table_uuid)

    @cached_property
    def reader(self) -> SnapshotReader:
        return SnapshotReader(self.table, self._manifests, self._ref)

    def fresh_reader(self) -> SnapshotReader:
        """Return a reader of the table as the catalog shows it now."""
        return SnapshotReader(open_table(self.catalog, self._ident), self._manifests, self._ref)

    @cached_property
    def committer(self) -> IcebergCommitter:
        return IcebergCommitter(self.catalog, self.table, self._manifests, self.ledger, self._ref)

    @cached_property
    def outputs(self) -> TableOutputs:
        return self._outputs(self.table.metadata, self.run_token)

    def outputs_of(self, metadata: TableMetadata) -> TableOutputs:
        """Return outputs of a later state of the table: its columns may have other places. `outputs` discards them."""
        return self._outputs(metadata, f"{self.run_token}-{uuid.uuid4().hex[:8]}")

    def _outputs(self, metadata: TableMetadata, run_id: str) -> TableOutputs:
        return TableOutputs(
            metadata, self.table.io, self.ledger, run_id=run_id, folder=self.folder, annotate=self._annotate
        )

    @property
    def rows(self) -> IcebergRowWriter:
        from regelate.adapters.iceberg.rows import IcebergRowWriter  # what no other verb needs is not loaded for it

        return IcebergRowWriter(self.table.metadata, self.outputs)

    def scan(self, snapshot_id: int | None = None, as_of_ms: int | None = None, ref: str | None = None) -> SnapshotScan:
        """Return the table at a snapshot id, a time in milliseconds, a branch or tag, or (all None) at its head."""
        from regelate.adapters.iceberg.scan import SnapshotScan

        folder = self.folder / "views"
        return SnapshotScan(self.table, self._manifests, folder, snapshot_id=snapshot_id, as_of_ms=as_of_ms, ref=ref)

    @property
    def ledgers(self) -> TableLedgers:
        """Those of every run, for a sweep; `ledger` is that of this one."""
        from regelate.adapters.iceberg.cleanup.dead_runs import TableLedgers

        return TableLedgers(self.catalog, self._ident, self._manifests)

    @cached_property
    def inputs(self) -> TableInputs:
        return TableInputs(self.table.io)

    @cached_property
    def views(self) -> GroupViewWriter:
        return GroupViewWriter(self.table.metadata, self.table.io, self.folder / "views")

    def views_of(self, metadata: TableMetadata) -> GroupViewWriter:
        """Return views of a later state of the table, for work that follows the head."""
        return GroupViewWriter(metadata, self.table.io, self.folder / "views")

    @property
    def orphans(self) -> TableOrphans:
        """Load the table anew. Not cached: Python 3.11 lets one thread at a time into a cached property of a class."""
        return TableOrphans(lambda: open_table(self.catalog, self._ident), self._manifests, Neighbours(self._survey))

    @cached_property
    def reclaimer(self) -> SnapshotReclaimer:
        return SnapshotReclaimer(
            lambda: open_table(self.catalog, self._ident),
            lambda: self.committer.table,
            self._manifests,
            Neighbours(self._survey),
        )
