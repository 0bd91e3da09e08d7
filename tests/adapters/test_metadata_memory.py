"""What metadata weighs in memory: caches by bytes, plans by the file, commits by nothing. Counted, never timed."""

from __future__ import annotations

import gc
import io
import struct
import tracemalloc
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pyiceberg.avro.decoder import new_decoder
from pyiceberg.avro.encoder import BinaryEncoder
from pyiceberg.avro.reader import BinaryReader, IntegerReader, MapReader, OptionReader, StructReader
from pyiceberg.avro.writer import BinaryWriter, IntegerWriter, MapWriter, OptionWriter, StructWriter
from pyiceberg.manifest import ManifestEntry, ManifestEntryStatus
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StructType

from regelate.adapters.iceberg.manifests import ManifestReader
from regelate.adapters.iceberg.metadata import partitions
from regelate.adapters.iceberg.metadata.byte_cache import ByteCache
from regelate.adapters.iceberg.metadata.entry_order import SortedEntries
from regelate.adapters.iceberg.metadata.packed_maps import PackedMap, copying, cut, spanning, unpacked
from regelate.adapters.iceberg.metadata.partitions import partition_of
from regelate.adapters.iceberg.session import TableSession
from regelate.adapters.parquet.iceberg_footer import as_iceberg_writes
from regelate.core.policy.policy import CompactionPolicy
from regelate.core.running.commit import Outcome, SnapshotChange
from regelate.core.running.rewrite import NewDataFile
from regelate.core.table.table import ColumnMetrics
from tests.support.iceberg_tables import live_entries
from tests.support.lake import Lake

EVERY_COLUMN = {"write.metadata.metrics.max-inferred-column-defaults": "1000"}
KB = 1024
BY_FIRST = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "c1"))


def wide(lake: Lake, columns: int, spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC) -> Table:
    schema = Schema(*(NestedField(i, f"c{i}", LongType()) for i in range(1, columns + 1)))
    return lake.table(schema, spec=spec, properties=EVERY_COLUMN)


def described(table: Table, count: int, values: tuple[Any, ...] = ()) -> tuple[NewDataFile, ...]:
    """Files of which only metadata will ever be read; no two say the same of a column."""
    ids = [f.field_id for f in table.schema().fields]

    def bound(number: int) -> dict[int, bytes]:
        return {i: struct.pack("<q", number * i) for i in ids}

    return tuple(
        NewDataFile(
            path=f"{table.location()}/data/{uuid.uuid4()}.parquet",
            partition=partition_of(table.spec(), table.schema(), values),
            record_count=100_000 + n,
            size_bytes=10_000 + n,
            metrics=ColumnMetrics(
                value_counts=dict.fromkeys(ids, 100_000 + n),
                null_counts=dict.fromkeys(ids, n),
                lower_bounds=bound(n),
                upper_bounds=bound(n + 1000),
            ),
            column_sizes={i: 5_000 + i + n for i in ids},
            split_offsets=(4,),
        )
        for n in range(count)
    )


def commit(lake: Lake, *, added: tuple[NewDataFile, ...] = (), removed: tuple[str, ...] = ()) -> None:
    """Add or remove files in one commit, with nothing cached."""
    committer = TableSession(lake.other_client(), "db.t", ManifestReader(0), annotate=as_iceberg_writes).committer
    change = SnapshotChange(
        operation="append" if added else "overwrite",
        snapshot_id=committer.new_snapshot_id(),
        summary={},
        added=added,
        removed=dict.fromkeys(removed, ""),
        removed_entries=len(removed),
    )
    assert committer.try_commit(committer.head(), change) is Outcome.LANDED


@contextmanager
def traced() -> Iterator[Callable[[], tuple[int, int]]]:
    """Yield what says how many bytes were held, and at most, above those at the start."""
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()

    def above() -> tuple[int, int]:
        gc.collect()
        now, peak = tracemalloc.get_traced_memory()
        return now - before, peak - before

    try:
        yield above
    finally:
        tracemalloc.stop()


def read_all(reader: ManifestReader, table: Table) -> int:
    head = table.current_snapshot()
    assert head is not None
    manifests = reader.manifests(table.io, head.manifest_list)
    return sum(1 for manifest in manifests for _ in reader.entries(table.io, manifest))


# --- caches -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("columns", "most_bytes"), [(1, 2_000), (20, 2_600), (200, 8_500)])
def test_an_entry_in_the_cache_weighs_what_the_cache_says(lake: Lake, columns: int, most_bytes: int) -> None:
    """40,000 entries of 200 columns, whole in memory, would be 340 MB; before they were packed, 2 GB."""
    table = wide(lake, columns, BY_FIRST)
    commit(lake, added=described(table, 200, (2**40,)))
    table.refresh()
    read_all(ManifestReader(0), table)
    reader = ManifestReader()
    with traced() as above:
        assert read_all(reader, table) == 200
        held, _ = above()
    assert held <= reader.cached_bytes <= 1.35 * held, (held, reader.cached_bytes)
    assert held / 200 <= most_bytes


def test_the_cache_never_holds_more_bytes_than_it_may_and_forgets_what_was_asked_for_longest_ago(lake: Lake) -> None:
    table = wide(lake, 200)
    for _ in range(12):
        commit(lake, added=described(table, 10))
    reader, whole = ManifestReader(700 * KB), ManifestReader()
    read_all(ManifestReader(0), table.refresh())
    with traced() as above:
        assert read_all(reader, table) == 120
        held, _ = above()
    assert read_all(whole, table) == 120
    assert held <= reader.cached_bytes <= 700 * KB < 0.9 * whole.cached_bytes


def test_what_would_push_out_everything_else_is_read_again_each_time(lake: Lake) -> None:
    """One manifest of more than an eighth of the cache: its entries come one by one, and none is kept."""
    table = wide(lake, 20)
    commit(lake, added=described(table, 400))
    reader = ManifestReader(400 * KB)
    read_all(ManifestReader(0), table.refresh())
    with traced() as above:
        assert read_all(reader, table) == 400
        assert read_all(reader, table) == 400
        held, _ = above()
    assert held < 20 * KB
    assert reader.cached_bytes < 5 * KB


def test_a_cache_by_bytes_keeps_its_account() -> None:
    cache: ByteCache[str, str] = ByteCache(800)
    for key in "abcdefgh":
        cache.put(key, key.upper(), 99)
    assert cache.get("a") == "A"
    cache.put("i", "I", 99)
    assert (cache.get("b"), cache.get("a"), len(cache), cache.held_bytes) == (None, "A", 8, 792)
    cache.put("a", "other", 99)
    cache.put("large", "x", 100)
    assert (cache.get("a"), cache.get("large"), cache.held_bytes) == ("A", None, 792)


def test_partitions_are_kept_once_however_often_a_table_is_loaded(lake: Lake) -> None:
    """Each load makes new objects of the same spec and schema."""
    table = wide(lake, 2, BY_FIRST)
    commit(lake, added=tuple(new for n in range(40) for new in described(table, 1, (2**50 + n,))))
    kept = []
    for _ in range(3):
        session = TableSession(lake.other_client(), "db.t", ManifestReader(0), annotate=as_iceberg_writes)
        assert len(session.reader.read(CompactionPolicy()).totals) == 40
        kept.append((len(partitions._kept), partitions._kept.held_bytes))
    assert kept[0] == kept[1] == kept[2]


def test_a_partition_weighs_no_more_than_is_accounted_for() -> None:
    spec, schema = BY_FIRST, Schema(NestedField(1, "c1", LongType()))
    known = partitions.Partitions(spec, schema)
    known.of((2**49,))
    before = partitions._kept.held_bytes
    with traced() as above:
        for n in range(500):
            known.of((2**49 + 1 + n,))
        held, _ = above()
    assert held <= 1.1 * (partitions._kept.held_bytes - before), (held, partitions._kept.held_bytes - before)


# --- plans and commits ------------------------------------------------------------------------------------------------


def more(peaks: list[int], entries: int) -> float:
    """Bytes that each of so many further entries takes at most: what one block takes is in both peaks."""
    return (peaks[1] - peaks[0]) / entries


def test_a_candidate_weighs_no_more_however_many_columns_it_has(lake: Lake) -> None:
    """Of a manifest its bytes are held while it is read, of its entries a path and a few numbers."""
    table = wide(lake, 40)
    peaks: list[int] = []
    for _ in range(2):
        commit(lake, added=described(table, 300))
        session = TableSession(lake.other_client(), "db.t", ManifestReader(0), annotate=as_iceberg_writes)
        session.reader.read(CompactionPolicy())
        with traced() as above:
            snapshot = session.reader.read(CompactionPolicy())
            held, peak = above()
        peaks.append(peak)
    assert len(snapshot.candidates) == 600
    assert held / 600 < 700
    assert more(peaks, 300) < 1_000


def test_a_commit_streams_the_entries_of_the_manifests_that_it_edits(lake: Lake) -> None:
    """One file goes from each of two manifests, which become one: the others of theirs go through one by one."""
    table, peaks = wide(lake, 40), list[int]()
    for entries in (520, 1_040):
        made = [described(table, entries // 2) for _ in range(2)]
        for added in made:
            commit(lake, added=added)
        with traced() as above:
            commit(lake, removed=tuple(added[100].path for added in made))
            peaks.append(above()[1])
    assert len(live_entries(table.refresh())) == 1_556
    assert more(peaks, 520) < 1_500, peaks


def test_entries_are_sorted_in_as_much_memory_as_is_given(lake: Lake) -> None:
    """A rewrite of manifests reads them again rather than hold what does not fit."""
    table = wide(lake, 20, BY_FIRST)
    commit(lake, added=tuple(new for n in (3, 1, 2) for new in described(table, 120, (n,))))
    head = table.refresh().current_snapshot()
    assert head is not None
    (manifest,) = ManifestReader().manifests(table.io, head.manifest_list)
    readings: list[int] = []

    def read() -> Iterator[ManifestEntry]:
        readings.append(1)
        yield from ManifestReader(0).entries(table.io, manifest)

    whole = [[e.data_file.file_path for e in part] for part in SortedEntries(read).parts(7)]
    assert len(readings) == 1
    few = SortedEntries(read, 240 * KB)
    parts = [[e.data_file.file_path for e in part] for part in few.parts(7)]
    assert parts == whole
    assert (len(few), len(readings), [len(part) for part in parts]) == (360, 6, [52, 52, 52, 51, 51, 51, 51])
    order = {e.data_file.file_path: (e.data_file.partition[0], n) for n, e in enumerate(read())}
    flat = [order[path] for part in whole for path in part]
    assert flat == sorted(flat)


def test_statistics_come_through_a_commit_as_they_were(lake: Lake) -> None:
    table = wide(lake, 5)
    added = described(table, 30)
    commit(lake, added=added)
    before = {e.data_file.file_path: e.data_file for e in live_entries(table.refresh())}
    commit(lake, removed=(added[7].path,))
    after = {e.data_file.file_path: e.data_file for e in live_entries(table.refresh())}
    assert len(after) == 29
    for path, entry in after.items():
        assert list(map(_plain, entry._data)) == list(map(_plain, before[path]._data))


def _plain(value: Any) -> Any:
    return dict(value) if hasattr(value, "items") else value


# --- packed maps ------------------------------------------------------------------------------------------------------

NUMBERS = MapReader(IntegerReader(), IntegerReader())
TEXTS = MapReader(IntegerReader(), BinaryReader())


class _Row(Record):
    """A record of two maps and a number."""


def _encoded(values: tuple[Any, ...]) -> bytes:
    out = io.BytesIO()
    writer = StructWriter(
        (
            (0, OptionWriter(MapWriter(IntegerWriter(), IntegerWriter()))),
            (1, OptionWriter(MapWriter(IntegerWriter(), BinaryWriter()))),
            (2, IntegerWriter()),
        )
    )
    copying(writer).write(BinaryEncoder(out), Record(*values))
    return out.getvalue()


def _packed(block: bytes) -> Record:
    fields = ((0, OptionReader(NUMBERS)), (1, OptionReader(TEXTS)), (2, IntegerReader()))
    found = spanning(StructReader(fields, _Row, StructType())).read(new_decoder(block))
    cut(found._data, block)
    return found


@pytest.mark.parametrize(
    ("numbers", "texts"),
    [
        ({}, {}),
        (None, None),
        ({1: 0, 200: 2**62, 3: -1}, {1: b"", 2147483546: b"\x00\xff" * 70}),
        ({i: i * i for i in range(300)}, {i: bytes([i % 256]) * i for i in range(300)}),
    ],
)
def test_packed_maps_read_and_write_as_plain_ones(numbers: Any, texts: Any) -> None:
    block = _encoded((numbers, texts, 7))
    found = _packed(block)
    assert (found[2], unpacked(found[0]), unpacked(found[1])) == (7, numbers or {}, texts or {})
    assert _encoded(tuple(found._data)) == block
    if numbers:
        assert isinstance(found[0], PackedMap)
        assert (found[0] == numbers, len(found[0]), found[0].get(-9), set(found[0])) == (
            True,
            len(numbers),
            None,
            set(numbers),
        )


def test_a_map_in_several_blocks_with_their_sizes_is_read_and_copied_as_it_is() -> None:
    """Avro allows writers a negative count, followed by the size of the block in bytes."""
    numbers = b"\x02" + b"\x03\x08\x02\x04\x06\x08" + b"\x02\x0a\x0c" + b"\x00"  # [1: 2, 3: 4], [5: 6]
    texts = b"\x02" + b"\x01\x06\x02\x02a" + b"\x02\x04\x00" + b"\x00"  # [1: a], [2: empty]
    found = _packed(numbers + texts + b"\x0e")
    assert (dict(found[0]), dict(found[1]), found[2]) == ({1: 2, 3: 4, 5: 6}, {1: b"a", 2: b""}, 7)
    again = _packed(_encoded(tuple(found._data)))
    assert (dict(again[0]), dict(again[1]), again[2]) == ({1: 2, 3: 4, 5: 6}, {1: b"a", 2: b""}, 7)


def test_t50_decoded_statistics_take_six_times_their_bytes_and_lose_the_sign_of_a_number() -> None:
    """200 columns: PyIceberg's readers make tuples and dicts of them. Ours keeps the bytes until somebody looks."""
    block = _encoded(({i: 100_000 + i for i in range(1, 201)}, {i: struct.pack("<q", i) for i in range(1, 201)}, 7))
    reader = StructReader(
        ((0, OptionReader(NUMBERS)), (1, OptionReader(TEXTS)), (2, IntegerReader())), _Row, StructType()
    )
    with traced() as above:
        decoded = [reader.read(new_decoder(block)) for _ in range(20)]
        theirs, _ = above()
    with traced() as above:
        packed = [_packed(block) for _ in range(20)]
        ours, _ = above()
    assert dict(decoded[0][0]) == dict(packed[0][0])
    assert theirs > 6 * 20 * len(block) > 4 * ours, (theirs, ours, len(block))
    negative = _encoded(({1: -1}, None, 7))
    assert dict(reader.read(new_decoder(negative))[0]) == {1: 2**64 - 1}
    assert dict(_packed(negative)[0]) == {1: -1}


def test_entries_that_went_are_told_and_counted_in_their_manifest(lake: Lake) -> None:
    table = wide(lake, 2)
    added = described(table, 3)
    commit(lake, added=added)
    commit(lake, removed=(added[1].path,))
    head = table.refresh().current_snapshot()
    assert head is not None
    (manifest,) = head.manifests(table.io)
    entries = manifest.fetch_manifest_entry(table.io, discard_deleted=False)
    kept, gone = ManifestEntryStatus.EXISTING, ManifestEntryStatus.DELETED
    assert {(e.data_file.file_path, e.status) for e in entries} == {
        (added[0].path, kept),
        (added[1].path, gone),
        (added[2].path, kept),
    }
    assert (manifest.existing_files_count, manifest.deleted_files_count) == (2, 1)
