"""Dictionary lanes: plain files recoded by PyArrow, the same rows in the same order, or else by a query."""

from __future__ import annotations

import math
import random
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, FixedType, FloatType, LongType, NestedField, StringType

from regelate.adapters.duckdb import engine as engines
from regelate.adapters.duckdb import lanes as recoding
from regelate.adapters.duckdb.lanes import NoLane, check_indices
from regelate.adapters.parquet.chunks import META_DATA
from regelate.adapters.parquet.footer import COLUMNS, ROW_GROUPS, read_footer, replace_footer
from regelate.adapters.parquet.thrift import I64, LIST, STRUCT, Items, Struct
from regelate.adapters.parquet.thrift_reader import decode
from regelate.adapters.parquet.thrift_writer import encode
from regelate.core.planning import lanes
from regelate.errors import RegelateError
from tests.adapters.mutated_lanes import NO_LANE, REFUSED, SAME, mutations
from tests.support.iceberg_tables import duckdb_rows, live_data_files, live_data_paths, local_path, row_texts, rows
from tests.support.lake import Lake, in_table_order
from tests.support.writers import EVERY, WRITERS, add_written, by_duckdb, by_pyarrow, every

FLAT = Schema(*(field for field in EVERY.fields if field.field_id < 50))
NARROW = Schema(
    NestedField(1, "n", LongType()), NestedField(2, "text", StringType()), NestedField(3, "v", DoubleType())
)
BY_ARROW, BY_DUCKDB = "parquet-cpp-arrow", "DuckDB"


@pytest.fixture(autouse=True)
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lane pays for files of ten rows."""
    monkeypatch.setattr(lanes, "LANE_ROWS", 10)


def some(low: int, count: int) -> list[tuple[object, ...]]:
    return [(n, f"t{n % 9}", n / 4) for n in range(low, low + count)]


def compact(lake: Lake, table: Any, **request: Any) -> Any:
    answer = lake.compact(table, **{"force": True, "verify": "strict", **request})
    assert answer["status"] == "COMPLETED", answer
    return answer["stats"]


def writers_of(table: Any) -> set[str]:
    """Who wrote the live files, by what they say of themselves."""
    footers = [pq.read_metadata(local_path(path)).created_by for path in live_data_paths(table.refresh())]
    return {name for name in (BY_ARROW, BY_DUCKDB) for said in footers if name in said}


def column_of(table: Any, name: str) -> pa.ChunkedArray:
    return pa.chunked_array(
        [c for path in in_table_order(table) for c in pq.read_table(local_path(path)).column(name).chunks]
    )


@pytest.mark.parametrize("codec", ["zstd", "snappy", "uncompressed"])
@pytest.mark.parametrize("writer", WRITERS)
def test_a_lane_keeps_every_value_and_the_order_of_rows(lake: Lake, writer: str, codec: str) -> None:
    table = lake.table(FLAT, properties={"write.parquet.compression-codec": codec})
    names = [field.name for field in FLAT.fields]
    for low in (0, 300, 5_000):
        add_written(table, WRITERS[writer], every(low, low + 150).select(names), group=60, codec=codec)
    before = rows(table.refresh()), duckdb_rows(table), column_of(table, "n")
    compact(lake, table)
    assert writers_of(table) == {BY_ARROW}
    assert row_texts(rows(table.refresh())) == row_texts(before[0])
    assert row_texts(duckdb_rows(table)) == row_texts(before[1])
    assert column_of(table, "n").to_pylist() == before[2].to_pylist()


def test_the_sign_of_zero_and_the_bits_of_nan_survive(lake: Lake) -> None:
    schema = Schema(
        NestedField(1, "n", LongType()), NestedField(2, "d", DoubleType()), NestedField(3, "f", FloatType())
    )
    payload = struct.unpack("<d", bytes.fromhex("010000000000f87f"))[0]
    values = [0.0, -0.0, math.nan, payload, -math.inf] * 30
    table = lake.table(schema)
    for _ in range(2):
        add_written(table, by_pyarrow, [(n, v, v) for n, v in enumerate(values)], group=50)
    bits = [[v.hex() for v in column_of(table, name).to_pylist()] for name in ("d", "f")]
    compact(lake, table, verify="fast")
    assert writers_of(table) == {BY_ARROW}
    assert [[v.hex() for v in column_of(table, name).to_pylist()] for name in ("d", "f")] == bits


def test_required_columns_stay_required(lake: Lake) -> None:
    schema = Schema(NestedField(1, "n", LongType(), required=True), NestedField(2, "text", StringType(), required=True))
    table = lake.table(schema)
    for low in (0, 100):
        add_written(table, by_pyarrow, [(n, f"t{n % 3}") for n in range(low, low + 100)], group=100)
    compact(lake, table)
    (path,) = live_data_paths(table.refresh())
    assert [field.nullable for field in pq.read_schema(local_path(path))] == [False, False]
    assert column_of(table, "n").to_pylist() == list(range(200))


def test_files_from_before_a_rename_are_read_by_their_places(lake: Lake) -> None:
    table = lake.table(NARROW)
    add_written(table, by_pyarrow, some(0, 100), group=100)
    with table.update_schema() as change:
        change.rename_column("text", "v_")
        change.rename_column("v", "text")
    renamed = table.refresh()
    add_written(renamed, by_pyarrow, some(100, 100), group=100)
    compact(lake, renamed)
    assert writers_of(renamed) == {BY_ARROW}
    assert column_of(renamed, "v_").to_pylist() == [f"t{n % 9}" for n in range(200)]
    assert column_of(renamed, "text").to_pylist() == [n / 4 for n in range(200)]


def test_outputs_that_begin_and_end_within_files_hold_each_row_once(lake: Lake) -> None:
    table = lake.table(NARROW)
    chance = random.Random(1)
    for low in range(0, 5_000, 1_000):
        add_written(table, by_pyarrow, [(n, "", chance.random()) for n in range(low, low + 1_000)], group=170)
    compact(lake, table, options={"target-file-size-bytes": 25_000})
    assert len(live_data_paths(table.refresh())) > 1
    assert writers_of(table) == {BY_ARROW}
    assert column_of(table, "n").to_pylist() == list(range(5_000))


def test_row_groups_are_of_the_size_that_was_asked_for(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines.DuckDBRewriteEngine, "_row_group_rows", lambda *_: 400)
    table = lake.table(NARROW)
    for low in range(0, 1_050, 150):
        add_written(table, by_pyarrow, some(low, 150), group=150)
    compact(lake, table)
    (path,) = live_data_paths(table.refresh())
    footer = pq.read_metadata(local_path(path))
    assert [footer.row_group(number).num_rows for number in range(footer.num_row_groups)] == [400, 400, 250]
    assert column_of(table, "n").to_pylist() == list(range(1_050))


def test_what_repeats_is_a_dictionary_and_what_does_not_is_plain(lake: Lake) -> None:
    table = lake.table(NARROW)
    rows_of = [(n, f"t{n % 9}", float(n % 4)) for n in range(1_000)]
    for _ in range(2):
        add_written(table, by_pyarrow, rows_of, group=1_000)
    add_written(table, by_pyarrow, [(n, f"unique {n}", float(n)) for n in range(100)], group=1_000)
    compact(lake, table)
    (path,) = live_data_paths(table.refresh())
    group = pq.read_metadata(local_path(path)).row_group(0)
    stored = {c.path_in_schema: "RLE_DICTIONARY" in c.encodings for c in map(group.column, range(3))}
    assert stored == {"n": False, "text": True, "v": True}


def test_texts_of_which_few_repeat_are_spelled_out_again(lake: Lake) -> None:
    table = lake.table(NARROW)
    for low in (0, 500):
        add_written(table, by_pyarrow, [(n, f"unique {n}", 0.0) for n in range(low, low + 500)], group=500)
    compact(lake, table)
    (path,) = live_data_paths(table.refresh())
    text = pq.read_metadata(local_path(path)).row_group(0).column(1)
    assert "RLE_DICTIONARY" not in text.encodings
    assert column_of(table, "text").to_pylist() == [f"unique {n}" for n in range(1_000)]


def of_two_shapes(lake: Lake) -> Any:
    schema = Schema(NestedField(1, "n", LongType(), required=True), NestedField(2, "text", StringType()))
    table = lake.table(schema)
    add_written(table, by_pyarrow, [(n, "a") for n in range(100)], group=100)
    add_written(table, by_duckdb, [(n, "b") for n in range(100, 200)], group=2_048)  # makes everything optional
    return table


def with_fixed_columns(lake: Lake) -> Any:
    schema = Schema(NestedField(1, "n", LongType()), NestedField(2, "key", FixedType(4)))
    table = lake.table(schema)
    for low in (0, 100):
        add_written(table, by_pyarrow, [(n, b"%04d" % n) for n in range(low, low + 100)], group=100)
    return table


def test_files_of_two_shapes_are_left_to_a_query(lake: Lake) -> None:
    table = of_two_shapes(lake)
    compact(lake, table)
    assert writers_of(table) == {BY_DUCKDB}
    assert column_of(table, "n").to_pylist() == list(range(200))


def test_fixed_columns_come_through(lake: Lake) -> None:
    table = with_fixed_columns(lake)
    compact(lake, table)
    assert column_of(table, "key").to_pylist() == [b"%04d" % n for n in range(200)]


@pytest.mark.parametrize("group", [20_000, 100], ids=["a row group", "the rows of several"])
def test_what_takes_too_much_memory_decoded_is_left_to_a_query(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, group: int
) -> None:
    monkeypatch.setattr(engines, "LANE_SHARE", 100_000)  # some 10 KB
    table = lake.table(NARROW)
    for low in (0, 20_000):
        add_written(table, by_pyarrow, some(low, 20_000), group=group)
    compact(lake, table)
    assert writers_of(table) == {BY_DUCKDB}
    assert column_of(table, "n").to_pylist() == list(range(40_000))


@pytest.mark.parametrize("rows_of_a_lane", [10, 10_000], ids=["lane", "query"])
def test_a_garbled_page_is_the_same_fault_with_a_lane_and_without(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, rows_of_a_lane: int
) -> None:
    monkeypatch.setattr(lanes, "LANE_ROWS", rows_of_a_lane)
    table = lake.table(NARROW)
    for low in (0, 1_000):
        add_written(table, by_pyarrow, some(low, 1_000), group=500)
    path = Path(local_path(in_table_order(table.refresh())[1]))
    data = path.read_bytes()
    path.write_bytes(data[:4] + b"\xff" * 16 + data[20:])  # the header of its first page
    before = table.refresh().metadata_location
    with pytest.raises(RegelateError) as caught:
        lake.compact(table, force=True)
    assert caught.value.code == "DATA_FILE_CORRUPT"
    assert path.name in caught.value.message
    assert table.refresh().metadata_location == before


def test_a_lane_opens_no_session_of_duckdb(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: object) -> Any:
        raise AssertionError("a session was opened")

    table = lake.table(NARROW)
    for low in (0, 1_000):
        add_written(table, by_pyarrow, some(low, 1_000), group=500)
    monkeypatch.setattr(engines.Cursors, "__call__", refuse)
    compact(lake, table, verify="fast")
    assert column_of(table, "n").to_pylist() == list(range(2_000))


def test_no_garbled_file_ends_the_process_or_becomes_other_rows(tmp_path: Path) -> None:
    """`python -m tests.adapters.mutated_lanes 20000` tries more of them."""
    found = mutations(tmp_path, 250, seed=1)
    assert [what for what in found if what.startswith("FOUND")] == []
    assert min(found[what] for what in (REFUSED, NO_LANE, SAME)) > 10


def of_wrong_sizes(path: Path, rows_of: pa.Table, schema: Schema, group: int, codec: str) -> None:
    """Write a file that counts more levels of its first column than it has: PyArrow's metadata ends the process."""
    by_pyarrow(path, rows_of, schema, group, codec)
    with path.open("r+b") as file:
        old = read_footer(file)
        footer = decode(old.data)
        chunk = footer.structs(ROW_GROUPS)[0].structs(COLUMNS)[0]
        meta = chunk.struct(META_DATA)
        assert meta is not None
        meta[16] = (STRUCT, Struct({3: (LIST, Items(I64, [1, 2, 3, 4]))}))
        replace_footer(file, old, encode(footer))


def test_a_footer_with_wrong_sizes_of_levels_ends_no_process(lake: Lake) -> None:
    table = lake.table(NARROW)
    add_written(table, of_wrong_sizes, some(0, 1_000), group=1_000, metrics=False)
    add_written(table, by_pyarrow, some(1_000, 1_000), group=1_000)
    compact(lake, table)
    assert column_of(table, "n").to_pylist() == list(range(2_000))


def beyond_its_dictionary(path: Path) -> pa.ChunkedArray:
    """Garble pages until a column that is read as dictionaries has an index beyond its own."""
    pq.write_table(pa.table({"text": ["a", "b", "c"] * 50}), path, compression="none", store_schema=False)
    sound = path.read_bytes()
    for at in range(4, len(sound) - 8 - int.from_bytes(sound[-8:-4], "little")):
        path.write_bytes(sound[:at] + b"\xff" + sound[at + 1 :])
        with suppress(pa.ArrowException, OSError):
            column = pq.ParquetFile(path, read_dictionary=["text"]).read(use_threads=False).column("text")
            if any(index >= len(c.dictionary) for c in column.chunks for index in c.indices.to_pylist()):
                return column
    raise AssertionError("no page can be garbled so")


def test_t53_indices_beyond_a_dictionary_are_read_without_an_error(tmp_path: Path) -> None:
    column = beyond_its_dictionary(tmp_path / "garbled.parquet")
    with pytest.raises(pa.ArrowInvalid):
        pq.read_table(tmp_path / "garbled.parquet")
    with pytest.raises(NoLane):
        check_indices(column)


def with_a_value_twice(path: Path, rows_of: pa.Table, schema: Schema, group: int, codec: str) -> None:
    """Write a dictionary of zza, zza, zzc and zzd, of which the last is not referred to."""
    given = schema_to_pyarrow(schema)
    texts = pa.DictionaryArray.from_arrays(
        pa.array([n % 3 for n in range(len(rows_of))], pa.int32()), ["zza", "zzb", "zzc", "zzd"]
    )
    table = pa.table([rows_of["n"], texts, rows_of["v"]], schema=given.set(1, given.field(1).with_type(texts.type)))
    pq.write_table(table, path, compression="none", store_schema=False)
    path.write_bytes(path.read_bytes().replace(b"\3\0\0\0zzb", b"\3\0\0\0zza"))


def of_no_values(path: Path, rows_of: pa.Table, schema: Schema, group: int, codec: str) -> None:
    """Write a dictionary page that says it has no values, though all rows refer to its only one."""
    same = rows_of.set_column(1, "text", pa.array(["q"] * len(rows_of)))
    table = same.cast(schema_to_pyarrow(schema))
    pq.write_table(table, path, compression="none", store_schema=False, use_dictionary=["text"])
    data = path.read_bytes()
    at = data.index(b"\x4c\x15\x02", pq.read_metadata(path).row_group(0).column(1).dictionary_page_offset)
    path.write_bytes(data[: at + 2] + b"\0" + data[at + 3 :])


def test_a_dictionary_with_a_value_twice_is_read_as_it_stands(lake: Lake) -> None:
    table = lake.table(NARROW)
    add_written(table, with_a_value_twice, some(0, 100), group=100)
    add_written(table, by_pyarrow, some(100, 100), group=100)
    compact(lake, table, verify="fast")
    assert column_of(table, "text").to_pylist()[:99] == ["zza", "zza", "zzc"] * 33


def test_t54_a_value_that_comes_twice_in_a_dictionary_shifts_those_after_it(tmp_path: Path, lake: Lake) -> None:
    path, schema = tmp_path / "twice.parquet", lake.table(NARROW).schema()
    rows_of = pa.table({"n": range(3), "text": ["", "", ""], "v": [0.0, 0.0, 0.0]})
    with_a_value_twice(path, rows_of, schema, 3, "none")
    assert pq.read_table(path).column("text").to_pylist() == ["zza", "zza", "zzc"]
    shifted = pq.ParquetFile(path, read_dictionary=["text"]).read().column("text")
    assert shifted.to_pylist() == ["zza", "zzc", "zzd"]


def test_values_of_a_dictionary_that_has_none_are_refused(lake: Lake) -> None:
    table = lake.table(NARROW)
    add_written(table, of_no_values, some(0, 100), group=100, metrics=False)
    add_written(table, by_pyarrow, some(100, 100), group=100)
    before = table.refresh().metadata_location
    with pytest.raises(RegelateError) as caught:
        lake.compact(table, force=True)
    assert caught.value.code == "DATA_FILE_CORRUPT"
    assert table.refresh().metadata_location == before


@pytest.mark.parametrize("each", [1, 2], ids=["plain", "dictionary"])
def test_a_long_text_leaves_its_column_the_bounds_that_a_query_gives_it(lake: Lake, each: int) -> None:
    table = lake.table(NARROW)
    for low in (0, 1_000):
        texts = [f"t{n // each:05}" for n in range(low, low + 1_000)]
        texts[5] = "zz" + "x" * 5_000
        add_written(table, by_pyarrow, [(low + n, text, 0.0) for n, text in enumerate(texts)], group=1_000)
    compact(lake, table)
    (file,) = live_data_files(table.refresh())
    assert file.lower_bounds[2].startswith(b"t0000")
    assert file.upper_bounds[2].startswith(b"zzx")


def test_texts_that_would_take_too_much_spelled_out_are_left_to_a_query(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One long text fills most rows, and many short ones make its dictionary too large."""
    refused: list[str] = []
    init = recoding.NoLane.__init__
    monkeypatch.setattr(recoding.NoLane, "__init__", lambda self, *told: (refused.extend(told), init(self))[1])
    monkeypatch.setattr(recoding._Sink, "_spell", limited(recoding._Sink._spell))
    table = lake.table(NARROW)
    for low in (0, 10_000):
        texts = ["x" * 4_000 if n % 4 else f"u{n}" for n in range(low, low + 10_000)]
        add_written(table, by_pyarrow, [(low + n, text, 0.0) for n, text in enumerate(texts)], group=10_000)
    compact(lake, table, verify="fast")
    assert any(told.startswith("the texts of 'text' take") for told in refused)
    assert column_of(table, "n").to_pylist() == list(range(20_000))


def limited(spell: Any) -> Any:
    def spelled(self: Any, table: pa.Table) -> Any:
        self._memory_bytes = 10_000_000
        return spell(self, table)

    return spelled
