"""Row groups of Parquet files joined into one file without a page touched: what readers then see, what is refused."""

from __future__ import annotations

import resource
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, ListType, LongType, NestedField, StringType

from regelate.adapters.iceberg.tables.schema import columns_of
from regelate.adapters.parquet import splicing
from regelate.adapters.parquet.footer import COLUMNS, MAGIC, META_DATA, ROW_GROUPS, read_footer, replace_footer
from regelate.adapters.parquet.splicing import ParquetSplicer
from regelate.adapters.parquet.thrift import BINARY, I64, STRUCT, Items, Struct
from regelate.adapters.parquet.thrift_reader import decode, decode_from
from regelate.adapters.parquet.thrift_writer import encode
from regelate.core.planning.splicing import StoredFile
from regelate.core.running.parts import Source
from regelate.errors import InvariantViolated
from tests.adapters.mutated_files import fuzz
from tests.support.writers import EVERY, WRITERS, by_duckdb, by_pyarrow, every, v2_pages

GROUP = 2048
"""DuckDB makes row groups of no fewer."""
CODECS = ("zstd", "snappy", "gzip", "uncompressed")
SPLICER = ParquetSplicer(columns_of(EVERY))
IN_FILE = "b_x2Ec"
"""How Iceberg's writer, and so what we join, calls the field `b.c`."""
NARROW = Schema(NestedField(1, "n", LongType()), NestedField(2, "text", StringType()))


def written(folder: Path, name: str, low: int, rows: int, codec: str = "zstd") -> str:
    path = folder / f"{name.replace(' ', '-')}-{low}.parquet"
    WRITERS[name](path, every(low, low + rows), EVERY, GROUP, codec)
    return str(path)


def in_order(path: str | Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(path, page_checksum_verification=True).to_pylist()
    for row in found:
        inner = row.get("st") or {}
        if IN_FILE in inner:
            inner["b.c"] = inner.pop(IN_FILE)
    return found


def by_duckdb_too(path: str) -> list[Any]:
    with duckdb.connect() as connection:
        return connection.execute(f"SELECT * FROM '{path}'").to_arrow_table().column("n").to_pylist()


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("first", WRITERS)
def test_row_groups_of_several_writers_read_in_one_file_as_in_their_own(tmp_path: Path, first: str, codec: str) -> None:
    """The last row group of the first file, and all of every other one."""
    rows = GROUP + 2_000
    paths = [written(tmp_path, first, 0, rows, codec)]
    paths += [written(tmp_path, other, 10_000 * at, rows, codec) for at, other in enumerate(WRITERS, 1)]
    sources = [Source(path=paths[0], numbers=(1,)), *(Source(path=path, numbers=(0, 1)) for path in paths[1:])]
    wanted = in_order(paths[0])[GROUP:] + [row for path in paths[1:] for row in in_order(path)]
    target = str(tmp_path / "whole.parquet")
    assert {SPLICER.look(path).doubt for path in paths} == {None}
    assert SPLICER.join(sources, target)
    assert in_order(target) == wanted
    assert by_duckdb_too(target) == [row["n"] for row in wanted]
    with duckdb.connect() as connection:  # by bounds that came along
        skipped = connection.execute(f"SELECT count(*), min(text) FROM '{target}' WHERE n = 20005").fetchone()
    assert skipped == (1, "s5")
    footer = pq.read_metadata(target)
    assert (footer.num_rows, footer.num_row_groups) == (len(wanted), 1 + 2 * len(WRITERS))
    assert [footer.row_group(number).num_rows for number in range(3)] == [2_000, GROUP, 2_000]


def test_pages_are_the_very_bytes_and_only_chosen_row_groups_come_along(tmp_path: Path) -> None:
    path = written(tmp_path, "v2 pages with checksums", 0, 3 * GROUP)
    target = tmp_path / "whole.parquet"
    assert SPLICER.join([Source(path=path, numbers=(1,))], str(target))
    old, new = pq.read_metadata(path).row_group(1), pq.read_metadata(target).row_group(0)
    for column in range(old.num_columns):
        chunks = old.column(column), new.column(column)
        pages = [
            Path(file).read_bytes()[(start := chunk.dictionary_page_offset or chunk.data_page_offset) :][
                : start + chunk.total_compressed_size - start
            ]
            for file, chunk in zip((path, target), chunks, strict=True)
        ]
        assert pages[0] == pages[1]
        assert chunks[0].statistics == chunks[1].statistics
    assert target.stat().st_size < Path(path).stat().st_size / 2


def test_bloom_filters_of_pieces_come_along_and_pieces_are_deleted(tmp_path: Path) -> None:
    """DuckDB writes them for columns with a dictionary, behind the pages."""
    pieces = [written(tmp_path, "duckdb", low, 2 * GROUP) for low in (0, 10_000)]
    target = tmp_path / "whole.parquet"
    assert SPLICER.join([Source(path=piece) for piece in pieces], str(target))
    with duckdb.connect() as connection:
        sought = f"SELECT bloom_filter_excludes FROM parquet_bloom_probe('{target}', 'text', '{{}}')"
        asked = [connection.execute(sought.format(value)).fetchall() for value in ("s6", "no such text")]
    assert asked == [[(False,)] * 4, [(True,)] * 4]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["whole.parquet"]


def test_a_piece_without_rows_leaves_no_row_group(tmp_path: Path) -> None:
    pieces = [written(tmp_path, "pyarrow", low, rows) for low, rows in ((0, GROUP), (5_000, 0), (6_000, 5))]
    assert SPLICER.join([Source(path=piece) for piece in pieces], str(tmp_path / "whole.parquet"))
    metadata = pq.read_metadata(tmp_path / "whole.parquet")
    assert [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)] == [GROUP, 5]


def test_a_writer_of_all_row_groups_is_named_and_of_several_we_are(tmp_path: Path) -> None:
    one, other = written(tmp_path, "pyarrow", 0, 50), written(tmp_path, "duckdb", 100, 50)
    for sources, wanted in (([one], "parquet-cpp"), ([one, other], "regelate version")):
        target = tmp_path / "whole.parquet"
        assert SPLICER.join([Source(path=path, numbers=(0,)) for path in sources], str(target))
        assert pq.read_metadata(target).created_by.startswith(wanted)


def test_ordinals_count_the_row_groups_and_end_where_their_type_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(splicing, "MAX_ORDINAL", 1)
    path = written(tmp_path, "pyarrow", 0, 2 * GROUP)
    target = tmp_path / "whole.parquet"
    assert SPLICER.join([Source(path=path, numbers=(1, 0)), Source(path=path, numbers=(0,))], str(target))
    with target.open("rb") as file:
        groups = decode(read_footer(file).data).structs(ROW_GROUPS)
    assert [group.whole(7) for group in groups] == [0, 1, None]
    assert pq.read_table(target).num_rows == 3 * GROUP


# What is refused


def narrow(path: Path, schema: Schema | pa.Schema = NARROW, **options: Any) -> StoredFile:
    """Write a file of two columns, and look at it as one of the table NARROW."""
    arrow = schema if isinstance(schema, pa.Schema) else schema_to_pyarrow(schema)
    rows = pa.Table.from_pylist([dict.fromkeys(arrow.names)], schema=arrow)
    pq.write_table(rows, path, **{"compression": "zstd", **options})
    return ParquetSplicer(columns_of(NARROW)).look(str(path))


def field(number: int, name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, metadata={"PARQUET:field_id": str(number)})


LONG, TEXT = field(1, "n", pa.int64()), field(2, "text", pa.string())


@pytest.mark.parametrize(
    "fields",
    [
        [field(1, "n", pa.int32()), TEXT],
        [field(1, "n", pa.uint64()), TEXT],
        [field(1, "n", pa.timestamp("us")), TEXT],
        [LONG, field(2, "text", pa.binary())],
        [LONG, field(3, "text", pa.string())],
        [LONG, pa.field("text", pa.string())],
        [LONG],
        [LONG, TEXT, field(3, "more", pa.int64())],
        [TEXT, LONG],
        [LONG, field(2, "text", pa.list_(pa.string()))],
    ],
    ids=[
        "int",
        "unsigned",
        "time",
        "binary",
        "other id",
        "no id",
        "a column less",
        "a column more",
        "another order",
        "list",
    ],
)
def test_files_of_other_columns_are_in_doubt(tmp_path: Path, fields: Sequence[pa.Field]) -> None:
    assert narrow(tmp_path / "right.parquet", pa.schema([LONG, TEXT])).doubt is None
    assert narrow(tmp_path / "other.parquet", pa.schema(fields)).doubt is not None


TIMES = {
    "milliseconds": ("timestamp", pa.timestamp("ms"), {}),
    "nanoseconds": ("timestamp", pa.timestamp("ns"), {}),
    "INT96": ("timestamp", pa.timestamp("us"), {"use_deprecated_int96_timestamps": True}),
    "UTC in a local column": ("timestamp", pa.timestamp("us", "UTC"), {}),
    "local in a column of UTC": ("timestamptz", pa.timestamp("us"), {}),
    "a decimal in bytes": ("decimal(9,2)", pa.decimal128(9, 2), {}),
    "a decimal of other digits": ("decimal(9,3)", pa.decimal128(9, 2), {"store_decimal_as_integer": True}),
    "text that is no uuid": ("uuid", pa.binary(16), {}),
    "a fixed of another length": ("fixed[5]", pa.binary(4), {}),
}


@pytest.mark.parametrize("name", TIMES)
def test_what_is_stored_in_another_way_is_in_doubt(tmp_path: Path, name: str) -> None:
    kind, arrow, options = TIMES[name]
    (column,) = columns_of(Schema(NestedField(1, "n", LongType())))
    path = tmp_path / "file.parquet"
    pq.write_table(pa.table({"n": pa.array([None], arrow)}, pa.schema([field(1, "n", arrow)])), path, **options)
    typed = type(column)(name="n", type=kind, field_id=1)
    assert ParquetSplicer([typed]).look(str(path)).doubt is not None


def change(path: Path, how: Callable[[Struct], None]) -> None:
    with path.open("r+b") as file:
        old = read_footer(file)
        footer = decode(old.data)
        how(footer)
        replace_footer(file, old, encode(footer))


def with_key(key: bytes) -> Callable[[Struct], None]:
    pair = Struct({1: (BINARY, key), 2: (BINARY, b"")})
    return lambda footer: footer.put(5, 9, Items(STRUCT, [pair]))


def with_writer(name: bytes) -> Callable[[Struct], None]:
    return lambda footer: footer.put(6, BINARY, name)


@pytest.mark.parametrize(
    "how",
    [
        with_writer(b"parquet-mr version 1.7.0 (build 0)"),
        with_writer(b"parquet-mr"),
        with_writer(b""),
        with_key(b"org.apache.spark.legacyDateTime"),
        with_key(b"org.apache.spark.legacyINT96"),
        with_key(b"org.apache.spark.timeZone"),
        lambda footer: footer.put(8, STRUCT, Struct({1: (STRUCT, Struct())})),
        lambda footer: footer.structs(ROW_GROUPS)[0].structs(COLUMNS)[0].put(8, STRUCT, Struct()),
        lambda footer: footer.structs(ROW_GROUPS)[0].structs(COLUMNS)[0].put(1, BINARY, b"elsewhere.parquet"),
        lambda footer: footer.put(3, I64, 2),
        lambda footer: footer.structs(ROW_GROUPS)[0].structs(COLUMNS).reverse(),
        lambda footer: footer.structs(2)[1].put(99, I64, 1),
    ],
    ids=[
        "parquet-mr 1.7",
        "parquet-mr of no version",
        "nobody",
        "calendar of old",
        "INT96 of old",
        "zone",
        "encrypted",
        "a column encrypted",
        "a column elsewhere",
        "other rows",
        "columns in another order",
        "a field nobody knows",
    ],
)
def test_what_readers_may_take_for_something_else_is_in_doubt(tmp_path: Path, how: Callable[[Struct], None]) -> None:
    path = tmp_path / "file.parquet"
    assert narrow(path).doubt is None
    change(path, how)
    assert ParquetSplicer(columns_of(NARROW)).look(str(path)).doubt is not None


def test_writers_from_parquet_mr_1_8_on_are_taken(tmp_path: Path) -> None:
    path = tmp_path / "file.parquet"
    narrow(path)
    change(path, with_writer(b"parquet-mr version 1.13.1 (build db4183109d5b734ec5930d870cdae161e408ddba)"))
    assert ParquetSplicer(columns_of(NARROW)).look(str(path)).doubt is None


@pytest.mark.parametrize("name", [b"array", b"items_tuple"])
def test_a_list_that_may_be_one_of_two_levels_is_in_doubt(tmp_path: Path, name: bytes) -> None:
    schema = Schema(NestedField(1, "li", ListType(2, IntegerType(), element_required=False)))
    path = tmp_path / "file.parquet"
    rows = pa.Table.from_pylist([{"li": [1]}], schema=schema_to_pyarrow(schema))
    pq.write_table(rows, path)
    splicer = ParquetSplicer(columns_of(schema))
    assert splicer.look(str(path)).doubt is None

    def rename(footer: Struct) -> None:
        footer.structs(2)[2].put(4, BINARY, name)
        meta = footer.structs(ROW_GROUPS)[0].structs(COLUMNS)[0].struct(META_DATA)
        assert meta is not None
        meta.put(3, 9, Items(BINARY, [b"li", name, b"element"]))

    change(path, rename)
    assert "two levels" in (splicer.look(str(path)).doubt or "")


def test_required_columns_are_of_another_shape_than_optional_ones_and_not_joined(tmp_path: Path) -> None:
    schema = Schema(NestedField(1, "n", LongType(), required=True), NestedField(2, "text", StringType()))
    splicer = ParquetSplicer(columns_of(schema))
    paths = [tmp_path / f"{name}.parquet" for name in ("duckdb", "pyarrow")]
    rows = pa.table({"n": pa.array([1], pa.int64()), "text": ["a"]})
    by_duckdb(paths[0], rows, NARROW, GROUP, "zstd")
    by_pyarrow(paths[1], rows.cast(schema_to_pyarrow(schema, include_field_ids=False)), schema, GROUP, "zstd")
    by_duckdb_shape, by_arrow_shape = (splicer.look(str(path)).shape for path in paths)
    assert by_duckdb_shape == splicer.by_duckdb != by_arrow_shape
    assert [c.required for c in splicer.by_arrow(by_arrow_shape) or ()] == [True, False]
    assert [c.required for c in splicer.by_arrow(by_duckdb_shape) or ()] == [False, False]
    assert not splicer.join([Source(path=str(path), numbers=(0,)) for path in paths], str(tmp_path / "whole.parquet"))
    assert not (tmp_path / "whole.parquet").exists()


def test_bounds_without_an_order_or_that_cannot_be_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "file.parquet"
    target = tmp_path / "whole.parquet"

    def bounds(how: Callable[[Struct], None]) -> list[bool]:
        by_pyarrow(path, pa.table({"n": [1, 2], "text": ["a", "b"]}), NARROW, GROUP, "zstd")
        change(path, how)
        assert ParquetSplicer(columns_of(NARROW)).join([Source(path=str(path), numbers=(0,))], str(target))
        group = pq.read_metadata(target).row_group(0)
        return [group.column(number).statistics.has_min_max for number in (0, 1)]

    def upside_down(footer: Struct) -> None:
        chunk = footer.structs(ROW_GROUPS)[0].structs(COLUMNS)[0].struct(META_DATA)
        statistics = chunk.struct(12) if chunk is not None else None
        assert statistics is not None
        statistics[5], statistics[6] = statistics[6], statistics[5]

    assert bounds(lambda footer: None) == [True, True]
    assert bounds(lambda footer: footer.drop(7)) == [False, False]
    assert bounds(upside_down) == [False, True]


@pytest.mark.parametrize("number", [9, 7, 5, 6])
def test_pages_that_are_not_where_or_what_the_footer_says_are_not_joined(tmp_path: Path, number: int) -> None:
    """A place (9), a length (7), a count of values (5) or of bytes (6) that a flipped bit changed."""
    path = tmp_path / "file.parquet"
    by_pyarrow(path, pa.table({"n": [1, 2], "text": ["a", "b"]}), NARROW, GROUP, "zstd")

    def one_more(footer: Struct) -> None:
        chunk = footer.structs(ROW_GROUPS)[0].structs(COLUMNS)[1].struct(META_DATA)
        assert chunk is not None
        chunk.put(number, I64, (chunk.whole(number) or 0) + 1)

    change(path, one_more)
    splicer = ParquetSplicer(columns_of(NARROW))
    assert not splicer.join([Source(path=str(path), numbers=(0,))], str(tmp_path / "whole.parquet"))
    assert not (tmp_path / "whole.parquet").exists()


def test_column_chunks_upon_each_other_do_not_multiply(tmp_path: Path) -> None:
    path = tmp_path / "file.parquet"
    wide = Schema(*(NestedField(number, f"c{number}", LongType()) for number in range(1, 30)))
    by_pyarrow(path, pa.table({f"c{n}": list(range(500)) for n in range(1, 30)}), wide, GROUP, "zstd")

    def all_upon_the_first(footer: Struct) -> None:
        chunks = [chunk.struct(META_DATA) or Struct() for chunk in footer.structs(ROW_GROUPS)[0].structs(COLUMNS)]
        for chunk in chunks[1:]:
            for number in (5, 6, 7, 9, 11):
                chunk[number] = chunks[0][number]
            chunk.put(7, I64, (chunk.whole(7) or 0) * 2)

    change(path, all_upon_the_first)
    assert "upon each other" in (ParquetSplicer(columns_of(wide)).look(str(path)).doubt or "")


@pytest.mark.parametrize("data", [b"", MAGIC * 2, b"PAR1" + b"\xff" * 40 + (40).to_bytes(4, "little") + MAGIC])
def test_what_is_no_parquet_file_is_in_doubt_and_not_joined(tmp_path: Path, data: bytes) -> None:
    right, wrong = written(tmp_path, "pyarrow", 0, 10), tmp_path / "wrong.parquet"
    wrong.write_bytes(data)
    assert SPLICER.look(str(wrong)).doubt is not None
    assert SPLICER.look(str(tmp_path / "gone.parquet")).doubt is not None
    sources = [Source(path=right), Source(path=str(wrong), numbers=(0,))]
    assert not SPLICER.join(sources, str(tmp_path / "whole.parquet"))
    assert Path(right).exists()
    assert not (tmp_path / "whole.parquet").exists()


def test_on_a_full_disk_half_a_file_is_not_left_behind(tmp_path: Path) -> None:
    """A limit on the size of a file stands in for the end of the disk; the second piece does not fit."""
    pieces = [written(tmp_path, "pyarrow", low, GROUP) for low in (0, 10_000)]
    target = tmp_path / "whole.parquet"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (Path(pieces[0]).stat().st_size + 1_000, limits[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            SPLICER.join([Source(path=piece) for piece in pieces], str(target))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert not target.exists()


# What would be wrong is found


def test_a_flipped_bit_in_any_page_with_a_checksum_is_found(tmp_path: Path) -> None:
    path = tmp_path / "file.parquet"
    v2_pages(path, pa.table({"n": list(range(300)), "text": [f"t{n}" for n in range(300)]}), NARROW, GROUP, "zstd")
    data = path.read_bytes()
    chunk = pq.read_metadata(path).row_group(0).column(1)
    end = (chunk.dictionary_page_offset or chunk.data_page_offset) + chunk.total_compressed_size
    splicer, target = ParquetSplicer(columns_of(NARROW)), str(tmp_path / "whole.parquet")
    assert splicer.join([Source(path=str(path), numbers=(0,))], target)
    headers = sum(length for _, length in page_headers(data, end))
    passed = 0
    for at in range(len(MAGIC), end):
        path.write_bytes(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])
        if splicer.join([Source(path=str(path), numbers=(0,))], target):
            passed += 1
            assert any(start <= at < start + length for start, length in page_headers(data, end)), at
            assert outcome(target) == outcome(str(path)), at
    assert passed < headers / 5


def page_headers(data: bytes, end: int) -> list[tuple[int, int]]:
    """Where each page header of a file lies, and how long it is: no checksum covers it."""
    found, at = [], len(MAGIC)
    while at < end:
        header, after = decode_from(data, at)
        found.append((at, after - at))
        at = after + (header.whole(3) or 0)
    return found


def outcome(path: str) -> Any:
    """The rows of a file, or that it has none that can be read."""
    try:
        return in_order(path)
    except (OSError, pa.ArrowException) as error:
        return type(error)


@pytest.mark.parametrize(
    "mutation", ["a column chunk in another's place", "a row group twice", "one left out", "a bit"]
)
def test_a_fault_of_ours_in_the_joining_is_found_whether_pages_have_checksums_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mutation: str
) -> None:
    path = tmp_path / "file.parquet"
    rows = pa.table({"a": list(range(900)), "b": [number % 256 + 7 for number in range(900)]})
    schema = Schema(NestedField(1, "a", LongType()), NestedField(2, "b", LongType()))
    by_pyarrow(path, rows, schema, 300, "zstd")
    sources = [Source(path=str(path), numbers=(0, 1)), Source(path=str(path), numbers=(2,))]
    copy, choose = splicing._chunk_by_chunk, splicing._chosen
    if mutation == "a column chunk in another's place":
        swapped: Any = lambda *given: [places[::-1] for places in copy(*given)]  # noqa: E731
        monkeypatch.setattr(splicing, "_chunk_by_chunk", swapped)
    elif mutation == "a bit":

        def flipped(file: Any, sink: Any, *given: Any) -> Any:
            places = copy(file, sink, *given)
            sink.seek(places[0][0] + 60)
            sink.write(b"\x55")
            sink.seek(0, 2)
            return places

        monkeypatch.setattr(splicing, "_chunk_by_chunk", flipped)
    else:

        def mistaken(found: Any, source: Source) -> Any:
            chosen = choose(found, source)
            writes = source.numbers is not None and mistaken.calls >= 3  # type: ignore[attr-defined]
            mistaken.calls += 1  # type: ignore[attr-defined]
            return chosen if not writes else chosen * 2 if mutation == "a row group twice" else chosen[1:]

        mistaken.calls = 1  # type: ignore[attr-defined]
        monkeypatch.setattr(splicing, "_chosen", mistaken)
    with pytest.raises(InvariantViolated, match="SPLICE_DISAGREES"):
        ParquetSplicer(columns_of(schema)).join(sources, str(tmp_path / "whole.parquet"))
    assert not (tmp_path / "whole.parquet").exists()


@pytest.mark.slow
def test_of_mutated_files_none_becomes_other_rows_or_ends_a_reader() -> None:
    """`python -m tests.adapters.mutated_files` does the same a million times."""
    found = fuzz(1_000, 7)
    assert [what for what in found if what.startswith("FOUND")] == [], found
    assert found["refused: in doubt"] > 100
    assert found["what is copied is as it was"] > 50
    assert found["the sound rows"] > 10
