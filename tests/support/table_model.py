"""An independent reader of Iceberg tables with deletes: what every test of a rewrite compares with.

PyIceberg reads each data file alone, without deletes; which deletes apply, and what they remove, is worked out here in
Python from the specification ("Scan planning"), with nothing of the package under test.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import DataFile, DataFileContent, ManifestContent, ManifestEntry
from pyiceberg.table import FileScanTask, StaticTable, Table
from pyiceberg.transforms import VoidTransform

from tests.support.iceberg_tables import local_path

FIELD_ID = b"PARQUET:field_id"


def model_rows(table: Table | str, snapshot_id: int | None = None) -> list[str]:
    """Return every row as a text, sorted: equal for the same multiset, with -0.0 unlike 0.0 and NaN like NaN."""
    opened = StaticTable.from_metadata(table) if isinstance(table, str) else table.refresh()
    return sorted(repr(row) for row in _rows(opened, snapshot_id))


def model_count(table: Table) -> int:
    return sum(1 for _ in _rows(table.refresh(), None))


def _rows(table: Table, snapshot_id: int | None) -> Iterator[tuple[object, ...]]:
    snapshot = table.current_snapshot() if snapshot_id is None else table.snapshot_by_id(snapshot_id)
    if snapshot is None:
        return
    live: dict[ManifestContent, list[ManifestEntry]] = defaultdict(list)
    for manifest in snapshot.manifests(table.io):
        live[manifest.content] += manifest.fetch_manifest_entry(table.io)
    for entry in live[ManifestContent.DATA]:
        yield from _file_rows(table, entry, live[ManifestContent.DELETES])


def _file_rows(table: Table, entry: ManifestEntry, deletes: list[ManifestEntry]) -> Iterator[tuple[object, ...]]:
    scan = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())
    content = scan.to_table([FileScanTask(entry.data_file)])
    gone = _deleted_positions(entry, deletes)
    keys = [_keys(table, d.data_file, content) for d in deletes if _equality_applies(table, d, entry)]
    columns = [column.to_pylist() for column in content.columns]
    for position, row in enumerate(zip(*columns, strict=True)):
        if position not in gone and not any(values[position] in wanted for values, wanted in keys):
            yield row


def _deleted_positions(entry: ManifestEntry, deletes: list[ManifestEntry]) -> set[int]:
    found: set[int] = set()
    for delete in deletes:
        file = delete.data_file
        if (
            file.content == DataFileContent.POSITION_DELETES
            and (delete.sequence_number or 0) >= (entry.sequence_number or 0)
            and _home(file) == _home(entry.data_file)
        ):
            content = pq.read_table(local_path(file.file_path))
            pairs = zip(content["file_path"].to_pylist(), content["pos"].to_pylist(), strict=True)
            found |= {position for path, position in pairs if path == entry.data_file.file_path}
    return found


def _equality_applies(table: Table, delete: ManifestEntry, entry: ManifestEntry) -> bool:
    file = delete.data_file
    if file.content != DataFileContent.EQUALITY_DELETES:
        return False
    younger = (delete.sequence_number or 0) > (entry.sequence_number or 0)
    everywhere = all(isinstance(f.transform, VoidTransform) for f in table.specs()[file.spec_id].fields)
    return younger and (everywhere or _home(file) == _home(entry.data_file))


def _home(file: DataFile) -> tuple[int, str]:
    return file.spec_id, repr([file.partition[i] for i in range(len(file.partition))])


def _keys(
    table: Table, delete: DataFile, content: pa.Table
) -> tuple[list[tuple[object, ...]], set[tuple[object, ...]]]:
    """Return the key of every row of a data file, and the keys that a delete file names."""
    stored = pq.read_table(local_path(delete.file_path))
    named = {int(field.metadata[FIELD_ID]): field.name for field in _leaves(stored.schema)}
    rows, wanted = [], []
    for field_id in delete.equality_ids or ():
        rows.append(_values(content, table.schema().find_column_name(field_id) or "", table))
        wanted.append(stored[named[field_id]].to_pylist())
    return [_comparable(k) for k in zip(*rows, strict=True)], {_comparable(k) for k in zip(*wanted, strict=True)}


def _comparable(key: tuple[object, ...]) -> tuple[object, ...]:
    """Floats by their text, as Iceberg compares them: NaN equals NaN, and -0.0 is not 0.0."""
    return tuple(repr(part) if isinstance(part, float) else part for part in key)


def _leaves(schema: pa.Schema) -> Iterator[pa.Field]:
    for field in schema:
        if field.metadata and FIELD_ID in field.metadata:
            yield field


def _values(content: pa.Table, name: str, table: Table) -> list[object]:
    if name in content.column_names:
        return list(content[name].to_pylist())
    raise LookupError(f"{name} is no top-level column of {table.name()}")
