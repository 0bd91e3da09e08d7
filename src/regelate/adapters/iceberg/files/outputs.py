"""Output files of one run: named before they exist, described from their own footers, deleted by exact path."""

from __future__ import annotations

import itertools
import logging
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import NullOrder, SortDirection
from pyiceberg.transforms import IdentityTransform

from regelate.adapters.iceberg.files.footer_metrics import MetricsPlan
from regelate.adapters.iceberg.pyiceberg_errors import storage_faults
from regelate.adapters.iceberg.s3.file_io import S3FileIO
from regelate.adapters.iceberg.s3.settings import is_s3
from regelate.adapters.iceberg.tables.schema import columns_of
from regelate.core.policy.policy import SortField
from regelate.core.policy.table_properties import Use, refuse_unusable, with_known_metrics
from regelate.core.policy.targets import target_suffix
from regelate.core.running.rewrite import NewDataFile, OutputTarget
from regelate.core.table.schema import Column
from regelate.core.table.storage import is_remote
from regelate.core.table.table import Partition
from regelate.errors import Unavailable
from regelate.ports.files import Ledger

log = logging.getLogger(__name__)
Annotate = Callable[[str, Sequence[Column], str], None]
"""Gives the local file of these columns, and of the schema with this JSON, the footer that Iceberg's writer gives."""


@dataclass(frozen=True)
class _PartitionPath:
    """What a location provider asks of a partition key."""

    path: str

    def to_path(self) -> str:
        return self.path


class TableOutputs:
    """Implements OutputFiles for one table and one run. A local warehouse is written in place, without a copy.

    Errors: InvalidRequest INVALID_TABLE_PROPERTY for properties by which no file can be named.
    """

    def __init__(
        self,
        metadata: TableMetadata,
        io: FileIO,
        ledger: Ledger,
        *,
        run_id: str,
        folder: Path,
        annotate: Annotate,
    ) -> None:
        refuse_unusable(metadata.properties, Use.COMMIT)
        self._metadata = metadata
        self._io = io
        self._ledger = ledger
        self._run_id = run_id
        self._folder = folder
        self._counter = itertools.count()
        self._locations = load_location_provider(metadata.location, metadata.properties)
        self._metrics = MetricsPlan(metadata.schema(), with_known_metrics(metadata.properties))
        self._annotate = annotate
        self._columns = columns_of(metadata.schema())
        self._schema_json = _json(metadata.schema())

    def reserve(self, partitions: Sequence[Partition], *, target_bytes: int | None = None) -> tuple[OutputTarget, ...]:
        """Name the next outputs, one per partition given, and enter them in the ledger, all in one entry.

        `target_bytes`: what a COMPACT makes them for; their names say it. Nothing else is created but the folders on a
        local disk.
        """
        targets = tuple(self._target(partition, target_suffix(target_bytes)) for partition in partitions)
        self._ledger.record(t.location for t in targets)
        with storage_faults():
            for folder in {Path(t.local_path).parent for t in targets}:
                folder.mkdir(parents=True, exist_ok=True)
        return targets

    def _target(self, partition: Partition, suffix: str) -> OutputTarget:
        name = f"{next(self._counter):05d}-{self._run_id}{suffix}"
        key = _PartitionPath(partition.path) if partition.path else None
        location = self._locations.new_data_location(name, key)  # type: ignore[arg-type]
        local = local_path(location)
        path = local if local is not None else self._folder / name
        return OutputTarget(location=location, local_path=str(path), partition=partition)

    def publish(self, target: OutputTarget, *, sort_order_id: int | None) -> NewDataFile:
        """Bring a written output to its location, check its size there and describe it from its footer.

        Whoever wrote it, its footer first becomes the one that Iceberg's own writer would have given it.
        """
        self._ledger.keep_alive()
        with storage_faults():
            self._annotate(target.local_path, self._columns, self._schema_json)
        size = Path(target.local_path).stat().st_size
        footer = pq.read_metadata(target.local_path)
        if local_path(target.location) is None:
            with (
                storage_faults(),
                Path(target.local_path).open("rb") as source,
                self._io.new_output(target.location).create(overwrite=True) as sink,  # the name is new
            ):
                shutil.copyfileobj(source, sink, 8 * 1024 * 1024)
            Path(target.local_path).unlink()
        self._confirm(target.location, size)
        metrics = self._metrics.of(footer)
        return NewDataFile(
            path=target.location,
            partition=target.partition,
            record_count=footer.num_rows,
            size_bytes=size,
            metrics=metrics.columns,
            column_sizes=metrics.column_sizes,
            split_offsets=metrics.split_offsets,
            sort_order_id=sort_order_id,
        )

    def _confirm(self, location: str, size: int) -> None:
        """Look at what was stored: an upload that says it succeeded is not believed."""
        if isinstance(self._io, S3FileIO) and is_s3(location):
            self._io.confirm(location, size)
            return
        with storage_faults():
            stored = len(self._io.new_input(location))
        if stored != size:
            raise Unavailable(
                "STORAGE_INCONSISTENT", f"{location} has {stored} bytes after an upload of {size}", status=502
            )

    def open(self, location: str) -> BinaryIO:
        """Open a file of the table's store, such as a published output where it lies, for reading."""
        return cast(BinaryIO, self._io.new_input(location).open())

    def discard(self, locations: Sequence[str]) -> None:
        """Delete outputs of this run that no commit names (law 8: clean up only what did not land).

        What cannot be deleted is logged and left to a sweep: a commit that landed must not look failed for it.
        """
        for location in locations:
            if self._run_id not in location:
                raise ValueError(f"{location} is not an output of run {self._run_id}")
            try:
                self._io.delete(location)
            except FileNotFoundError:
                continue
            except Exception as error:  # noqa: BLE001
                log.warning("cannot delete the unused output %s: %s", location, error)
                self._ledger.owe()

    def sort_order_id(self, fields: Sequence[SortField]) -> int | None:
        """Find the table's sort order that equals these fields; None when the table has no such order."""
        wanted = [(f.column, f.descending, f.nulls_first) for f in fields]
        schema = self._metadata.schema()
        for order in self._metadata.sort_orders:
            known = [
                (
                    schema.find_column_name(f.source_id),
                    f.direction == SortDirection.DESC,
                    f.null_order == NullOrder.NULLS_FIRST,
                )
                for f in order.fields
                if isinstance(f.transform, IdentityTransform)
            ]
            if wanted and len(known) == len(order.fields) and known == wanted:
                return order.order_id
        return None


def local_path(location: str) -> Path | None:
    """Return the path on this machine that a location names, or None when it is an object store's."""
    if location.startswith("file:"):
        return Path("/" + location[len("file:") :].lstrip("/"))
    return None if is_remote(location) else Path(location)


def _json(schema: Schema) -> str:
    """Return a schema as Java writes it: identifier fields only where there are any."""
    return schema.model_dump_json(exclude=None if schema.identifier_field_ids else {"identifier_field_ids"})
