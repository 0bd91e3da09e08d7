"""One warehouse in a folder, the whole service over it, and hooks between its steps."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.typedef import Record

from regelate.core.answers import answer_fields
from regelate.core.requests import CompactRequest
from regelate.errors import Conflict
from regelate.operations.compacting.compact import CompactionTools
from regelate.service.facade import Service
from regelate.settings import load_settings
from regelate.tenancy import Address
from tests.support.built import Built, ChangeTools
from tests.support.iceberg_tables import (
    Rows,
    add_data_files,
    append,
    arrow_rows,
    live_data_files,
    live_entries,
    local_path,
    make_catalog,
    make_table,
)
from tests.support.table_model import model_rows

Hook = Callable[[], None]
Answer = dict[str, Any]


class Steps:
    """What a test does between the steps of one COMPACT: `between` once, when all outputs are written and nothing is
    committed; `change` may change what the COMPACT works with."""

    def __init__(self) -> None:
        self.between: Hook | None = None
        self.change: ChangeTools | None = None

    def tools(self, tools: CompactionTools) -> CompactionTools:
        changed = tools if self.change is None else self.change(tools)
        return replace(changed, engine=_HookedEngine(changed.engine, self))


class _HookedEngine:
    """A rewrite engine that lets the test act when all outputs are written and nothing is committed."""

    def __init__(self, engine: Any, steps: Steps) -> None:
        self._engine = engine
        self._steps = steps

    def achieved_ratio(self, *arguments: Any) -> float:
        return float(self._engine.achieved_ratio(*arguments))

    def fingerprints(self, *arguments: Any) -> Any:
        return self._engine.fingerprints(*arguments)

    def rewrite(self, *arguments: Any, **options: Any) -> Any:
        found = self._engine.rewrite(*arguments, **options)
        hook, self._steps.between = self._steps.between, None
        if hook is not None:
            hook()
        return found


class Lake:
    """A folder with a SQLite catalog; tables are made by plain PyIceberg and compacted by the service."""

    def __init__(self, folder: Path, **given: Any) -> None:
        """`given` is what the service is built with (`tests.support.built`)."""
        self.folder = folder
        self.steps = Steps()
        settings = load_settings({"REGELATE_HOME": str(folder), "REGELATE_SPARK": "none"})
        self.built = Built(settings, change=self.steps.tools, **given)
        self.catalog: SqlCatalog = self.built.catalog()

    @property
    def service(self) -> Service:
        return self.built.service

    def other_client(self) -> SqlCatalog:
        """Open the same catalog as another program would."""
        return make_catalog(self.folder, "local")

    def table(
        self,
        schema: Schema,
        *batches: Rows,
        spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        properties: Mapping[str, str] | None = None,
        format_version: int = 2,
        ident: str = "db.t",
    ) -> Table:
        """Make a table and append the batches, one snapshot each."""
        made = make_table(self.catalog, ident, schema, spec, properties, format_version)
        for batch in batches:
            append(made, batch)
        return made

    def compact(
        self,
        table: Table | str,
        *,
        between: Hook | None = None,
        tools: ChangeTools | None = None,
        key: str | None = None,
        **request: Any,
    ) -> Answer:
        """Run one COMPACT; `between` runs once when the outputs are written and nothing is committed yet."""
        self.steps.between, self.steps.change = between, tools
        try:
            asked = CompactRequest(idempotency_key=key, **request)
            return answer_fields(self.service.compactions.compact(address(table), asked))
        finally:
            self.steps.between = self.steps.change = None

    def compact_or_conflict(self, table: Table | str, **request: Any) -> str:
        """Run one COMPACT and return its status, or the code of its conflict."""
        try:
            return str(self.compact(table, **request)["status"])
        except Conflict as conflict:
            return conflict.code

    def write(self, table: Table | str, records: Sequence[Mapping[str, object]], **how: Any) -> Answer:
        """Run one WRITE; `how` takes mode, key and idempotency_key."""
        options: dict[str, Any] = {"mode": "append", "key": (), "idempotency_key": None, **how}
        return answer_fields(self.service.writes.write(address(table), records, **options))

    def expire(
        self,
        table: Table | str,
        *,
        hours: float | None = None,
        keep: int | None = None,
        grace: float | None = 0,
        dry_run: bool = False,
    ) -> Answer:
        """Run one EXPIRE_SNAPSHOTS, deleting files at once unless a grace is given; None is the configured one."""
        found = self.service.upkeep.expire_snapshots(
            address(table), retention_hours=hours, min_snapshots_to_keep=keep, grace_hours=grace, dry_run=dry_run
        )
        return answer_fields(found)

    def undo(self, table: Table | str, undo_id: str) -> Answer:
        return answer_fields(self.service.upkeep.undo_expiry(address(table), undo_id))

    def assert_rows_kept(self, table: Table, **request: Any) -> Answer:
        """COMPACT with `force`, and check that it landed and that the independent reader sees the same rows."""
        before = model_rows(table)
        answer = self.compact(table, **{"force": True, **request})
        assert answer["status"] == "COMPLETED", answer
        assert model_rows(table) == before
        return answer


def add_file(
    table: Table,
    content: Rows,
    partition: Record | None = None,
    *,
    metrics: bool = True,
    field_ids: bool = True,
) -> str:
    """Write one data file with PyArrow, whatever its content, append it, and return its path."""
    table.refresh()
    file = make_file(table, content, partition, metrics=metrics, field_ids=field_ids)
    add_data_files(table, [file])
    return file.file_path


def make_file(
    table: Table,
    content: Rows,
    partition: Record | None = None,
    *,
    metrics: bool = True,
    field_ids: bool = True,
    name: str | None = None,
) -> DataFile:
    """Write one data file of the table's current spec and describe it.

    PyIceberg's own append writes no empty file, and no partition of a transform without its native library.
    """
    rows = arrow_rows(table, content)
    rows = rows.cast(schema_to_pyarrow(table.schema(), include_field_ids=field_ids))
    path = f"{table.location()}/data/{name or uuid.uuid4()}.parquet"
    local_path(path).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, local_path(path))
    measured = data_file_statistics_from_parquet_metadata(
        footer(path),
        compute_statistics_plan(table.schema(), table.properties),
        parquet_path_to_id_mapping(table.schema()),
    ).to_serialized_dict()
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=partition or Record(),
        file_size_in_bytes=local_path(path).stat().st_size,
        **(measured if metrics else {"record_count": rows.num_rows}),
    )
    file.spec_id = table.metadata.default_spec_id
    return file


def in_table_order(table: Table) -> list[str]:
    """Return the live data files in the order in which they came into the table."""
    entries = live_entries(table.refresh())
    return [
        e.data_file.file_path for e in sorted(entries, key=lambda e: (e.sequence_number or 0, e.data_file.file_path))
    ]


def address(table: Table | str) -> Address:
    ident = table if isinstance(table, str) else ".".join(table.name())
    return Address(tenant_id="default", catalog="local", ident=ident, table=ident.rpartition(".")[2])


def small(target: int = 100_000, **more: str) -> dict[str, str]:
    """Options under which files of a few hundred kilobytes are healthy."""
    return {"target-file-size-bytes": str(target), "min-file-size-bytes": str(int(target * 0.75)),
            "max-file-size-bytes": str(int(target * 1.8)), **more}  # fmt: skip


def own_outputs(table: Table, before: Sequence[str]) -> list[str]:
    """Return the live data files that were not live before."""
    return sorted({f.file_path for f in live_data_files(table.refresh())} - set(before))


def footer(location: str) -> pq.FileMetaData:
    return pq.read_metadata(local_path(location))


def sequence_numbers(table: Table) -> dict[str, int]:
    """Return the data sequence number of every live data file."""
    return {e.data_file.file_path: e.sequence_number or 0 for e in live_entries(table.refresh())}


def recount(table: Table) -> dict[str, int]:
    """Count from the manifests what a snapshot summary says in its totals."""
    files = live_data_files(table.refresh())
    return {
        "total-data-files": len(files),
        "total-records": sum(f.record_count for f in files),
        "total-files-size": sum(f.file_size_in_bytes for f in files),
    }
