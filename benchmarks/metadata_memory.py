"""Tables of very many data files, of which only metadata exists but for a few, and the memory that they take."""

from __future__ import annotations

import gc
import struct
import time
import uuid
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.lake import MB, make_table, open_catalog, write_files

REAL_FILES = 100
ROWS = 500
IN_MANIFEST = 40_000
"""About what a manifest of Iceberg's target size (8 MB) holds."""
IN_BLOCK = 1_000
NUMBER = b"%012d"
PLACE = b"000000000000"
"""Where in a template record's path its number goes."""


def make_many(
    home: Path, entries: int, columns: int, *, real: int = REAL_FILES, in_manifest: int = IN_MANIFEST
) -> None:
    """Create `bench.events` of so many small files; the `real` first ones exist, spread over all manifests.

    So that a COMPACT of the first `real` files must edit every manifest of the table.
    """
    paths = write_files(home / "files", max(real, 1), ROWS)
    table = make_table(home, paths, commits=1)
    from pyiceberg.types import LongType

    with table.update_schema() as update:
        for number in range(len(table.schema().fields), columns):
            update.add_column(f"more_{number}", LongType())
    table = open_catalog(home).load_table("bench.events")
    snapshot_id = table.metadata.new_snapshot_id()
    templates, header, sync = entry_records(table, snapshot_id)
    *existing, synthetic = templates
    existing = existing[:real]
    count = -(-entries // in_manifest)
    listed, number = [], 0
    for index in range(count):
        own = existing[index::count]
        records = (*own, *numbered(synthetic, number, min(in_manifest, entries - index * in_manifest) - len(own)))
        path = f"{table.location()}/metadata/{uuid.uuid4()}-m0.avro"
        written = write_manifest_of(Path(path.removeprefix("file://")), header, sync, records)
        listed.append(listed_manifest(path, written, len(records), snapshot_id))
        number += len(records)
    commit_manifests(table, snapshot_id, listed, entries)


def numbered(template: bytes, first: int, count: int) -> Iterator[bytes]:
    before, after = template.split(PLACE)
    return (before + NUMBER % (first + n) + after for n in range(count))


def entry_records(table: Any, snapshot_id: int, file_bytes: int | None = None) -> tuple[list[bytes], bytes, bytes]:
    """Have PyIceberg write the entries of the real files and one more, which is to be `file_bytes` large; return
    records, header and sync marker."""
    from pyiceberg.avro.decoder import StreamingBinaryDecoder
    from pyiceberg.avro.file import META_SCHEMA, AvroFileHeader
    from pyiceberg.avro.resolver import construct_reader
    from pyiceberg.manifest import DataFile, ManifestEntry, ManifestEntryStatus, write_manifest

    live = [task.file for task in table.scan().plan_files()]
    ids = range(1, len(table.schema().fields) + 1)
    bounds = {i: struct.pack("<q", i * 1_000_003) for i in ids}
    made = DataFile.from_args(
        content=live[0].content,
        file_path=f"{table.location()}/data/{PLACE.decode()}-{uuid.uuid4()}.parquet",
        file_format=live[0].file_format,
        partition=live[0].partition,
        record_count=ROWS,
        file_size_in_bytes=file_bytes or live[0].file_size_in_bytes,
        column_sizes={i: 5_000 + i for i in ids},
        value_counts=dict.fromkeys(ids, ROWS),
        null_value_counts=dict.fromkeys(ids, 0),
        nan_value_counts=None,
        lower_bounds=bounds,
        upper_bounds=bounds,
        split_offsets=[4],
    )
    location = f"{table.location()}/metadata/template-{uuid.uuid4()}.avro"
    with write_manifest(2, table.spec(), table.schema(), table.io.new_output(location), snapshot_id, "gzip") as writer:
        for file, sequence_number in [*((f, 1) for f in live), (made, 2)]:
            writer.add_entry(
                ManifestEntry.from_args(
                    status=ManifestEntryStatus.EXISTING,
                    snapshot_id=table.metadata.current_snapshot_id,
                    sequence_number=sequence_number,
                    file_sequence_number=sequence_number,
                    data_file=file,
                )
            )
    data = Path(location.removeprefix("file://")).read_bytes()
    decoder = StreamingBinaryDecoder(data)
    header = construct_reader(META_SCHEMA, {-1: AvroFileHeader}).read(decoder)
    start, records = decoder.tell(), []
    while decoder.tell() < len(data):
        decoder.read_int()  # PyIceberg writes one record per block
        records.append(zlib.decompress(decoder.read_bytes(), -15))
        decoder.skip(len(header.sync))
    return records, data[:start], header.sync


def write_manifest_of(path: Path, header: bytes, sync: bytes, records: Sequence[bytes]) -> int:
    with path.open("wb") as out:
        out.write(header)
        for low in range(0, len(records), IN_BLOCK):
            block = records[low : low + IN_BLOCK]
            packer = zlib.compressobj(1, zlib.DEFLATED, -15)
            data = packer.compress(b"".join(block)) + packer.flush()
            out.write(_whole(len(block)) + _whole(len(data)) + data + sync)
        return out.tell()


def _whole(number: int) -> bytes:
    """Return a whole number, not negative, as Avro encodes it."""
    number <<= 1
    out = bytearray()
    while number > 0x7F:
        out.append((number & 0x7F) | 0x80)
        number >>= 7
    return bytes([*out, number])


def listed_manifest(path: str, length: int, entries: int, snapshot_id: int) -> Any:
    from pyiceberg.manifest import ManifestContent, ManifestFile

    return ManifestFile.from_args(
        manifest_path=path,
        manifest_length=length,
        partition_spec_id=0,
        content=ManifestContent.DATA,
        sequence_number=2,
        min_sequence_number=1,
        added_snapshot_id=snapshot_id,
        added_files_count=0,
        existing_files_count=entries,
        deleted_files_count=0,
        added_rows_count=0,
        existing_rows_count=entries * ROWS,
        deleted_rows_count=0,
        partitions=[],
        key_metadata=None,
    )


def commit_manifests(table: Any, snapshot_id: int, listed: Sequence[Any], entries: int) -> None:
    from pyiceberg.manifest import write_manifest_list
    from pyiceberg.table.refs import SnapshotRefType
    from pyiceberg.table.snapshots import Operation, Snapshot, Summary
    from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate

    parent = table.current_snapshot()
    location = f"{table.location()}/metadata/snap-{snapshot_id}-0-{uuid.uuid4()}.avro"
    with write_manifest_list(2, table.io.new_output(location), snapshot_id, parent.snapshot_id, 2, "gzip") as writer:
        writer.add_manifests(list(listed))
    totals = {"total-data-files": str(entries), "total-delete-files": "0", "total-files-size": str(entries * 10_000)}
    snapshot = Snapshot(
        snapshot_id=snapshot_id,
        parent_snapshot_id=parent.snapshot_id,
        sequence_number=2,
        timestamp_ms=table.metadata.last_updated_ms + 1,
        manifest_list=location,
        summary=Summary(Operation.APPEND, **totals),
        schema_id=table.metadata.current_schema_id,
    )
    moved = SetSnapshotRefUpdate(ref_name="main", type=SnapshotRefType.BRANCH, snapshot_id=snapshot_id)
    table.catalog.commit_table(table, (), (AddSnapshotUpdate(snapshot=snapshot), moved))


def compact_few(settings: Any, address: Any) -> dict[str, Any]:
    """Plan the whole table, compact the files that exist, commit; seconds by phase."""
    from regelate.core.answers import answer_fields
    from regelate.core.requests import CompactRequest
    from regelate.service.build import build

    service = build(settings)
    before = time.perf_counter()
    request = CompactRequest(target_file_size_mb=16, max_files=REAL_FILES, expire_snapshots=False)
    answer = service.compactions.compact(address, request)
    seconds = time.perf_counter() - before
    stats = answer_fields(answer)["stats"]
    return {"seconds": seconds, "status": answer.status.value, "compacted": stats["files_compacted"], "stats": stats}


def cached(home: Path, *_: str) -> dict[str, Any]:
    """Read every entry of the table, as a long-lived process would, and say what the cache then holds."""
    from regelate.adapters.iceberg.manifests import ManifestReader

    table = open_catalog(home).load_table("bench.events")
    head = table.current_snapshot()
    reader = ManifestReader()
    if head is None:
        raise SystemExit("the table is empty")
    manifests = reader.manifests(table.io, head.manifest_list)
    before, resident = time.perf_counter(), _resident_mb()
    entries = sum(1 for manifest in manifests for _ in reader.entries(table.io, manifest))
    seconds = time.perf_counter() - before
    return {
        "seconds": seconds,
        "entries": entries,
        "accounted_mb": reader.cached_bytes / MB,
        "resident_mb": _resident_mb() - resident,
    }


def _resident_mb() -> float:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / MB
