"""Parquet files joined into one without a page touched: what readers then see, and what is refused."""

from __future__ import annotations

import resource
import shutil
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from regelate.adapters.parquet.footer import COLUMNS, MAGIC, META_DATA, ROW_GROUPS, read_footer, replace_footer
from regelate.adapters.parquet.splicing import splice
from regelate.adapters.parquet.thrift import I64, Malformed, Struct
from regelate.adapters.parquet.thrift_reader import decode
from regelate.adapters.parquet.thrift_writer import encode

ROWS = 3_000
SELECT = (
    "SELECT range + {low} AS id, 'n' || (range % 50) AS name, CASE WHEN range % 7 > 0 THEN range / 3 END AS share, "
    "[range, NULL] AS items, {{'a': range::INT, 'b': 'x'}} AS pair, MAP {{'k': range}} AS marks, "
    "(range / 4)::DECIMAL(10, 3) AS price, TIMESTAMPTZ '2024-01-01' + range * INTERVAL 1 MINUTE AS at "
    "FROM range({rows})"
)


def by_duckdb(path: Path, low: int, rows: int = ROWS, *, codec: str = "zstd") -> None:
    select = SELECT.format(low=low, rows=rows)
    with duckdb.connect() as connection:
        connection.execute(f"COPY ({select}) TO '{path}' (FORMAT parquet, COMPRESSION {codec}, ROW_GROUP_SIZE 2048)")


def by_pyarrow(path: Path, low: int, rows: int = ROWS, **options: Any) -> None:
    with duckdb.connect() as connection:
        found = connection.execute(SELECT.format(low=low, rows=rows)).to_arrow_table()
    pq.write_table(found, path, row_group_size=2_000, **options)


def with_page_index(path: Path, low: int, rows: int = ROWS) -> None:
    by_pyarrow(path, low, rows, write_page_index=True, write_page_checksum=True, data_page_version="2.0")


WRITERS: dict[str, Callable[..., None]] = {
    "duckdb": by_duckdb,
    "pyarrow": by_pyarrow,
    "pages v2, index": with_page_index,
}


def pieces_of(folder: Path, write: Callable[..., None], rows: Sequence[int] = (ROWS, ROWS, 1)) -> list[str]:
    found = [folder / f"piece-{number}.parquet" for number in range(len(rows))]
    for number, path in enumerate(found):
        write(path, number * ROWS, rows[number])
    return [str(path) for path in found]


@pytest.mark.parametrize("name", WRITERS)
def test_every_reader_finds_in_the_whole_what_it_found_in_the_pieces(tmp_path: Path, name: str) -> None:
    pieces = pieces_of(tmp_path, WRITERS[name])
    before = pa.concat_tables(pq.read_table(piece) for piece in pieces)
    groups = sum(pq.read_metadata(piece).num_row_groups for piece in pieces)
    target = str(tmp_path / "whole.parquet")
    assert splice(pieces, target)
    assert pq.read_table(target, page_checksum_verification=True).equals(before)
    with duckdb.connect() as connection:
        found = connection.execute(f"SELECT * FROM '{target}'").to_arrow_table()
        skipped = connection.execute(f"SELECT count(*) FROM '{target}' WHERE id = {ROWS}").fetchone()
    assert found.column("id").equals(before.column("id"))
    assert found.to_pylist() == before.to_pylist()
    assert skipped == (1,)  # by bounds that came along
    metadata = pq.read_metadata(target)
    assert (metadata.num_rows, metadata.num_row_groups) == (before.num_rows, groups)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["whole.parquet"]


@pytest.mark.parametrize("name", WRITERS)
def test_a_lone_piece_comes_out_with_its_own_row_groups(tmp_path: Path, name: str) -> None:
    pieces = pieces_of(tmp_path, WRITERS[name], (ROWS,))
    before = pq.read_table(pieces[0])
    assert splice(pieces, str(tmp_path / "whole.parquet"))
    assert pq.read_table(tmp_path / "whole.parquet").equals(before)


def test_bloom_filters_come_along(tmp_path: Path) -> None:
    """DuckDB writes them for columns with a dictionary, behind the pages."""
    pieces = pieces_of(tmp_path, by_duckdb, (ROWS, ROWS))
    shutil.copy(pieces[1], tmp_path / "alone.parquet")
    target = tmp_path / "whole.parquet"
    assert splice(pieces, str(target))
    with duckdb.connect() as connection:
        sought = "SELECT bloom_filter_excludes FROM parquet_bloom_probe('{}', 'name', '{}')"
        asked = [connection.execute(sought.format(target, value)).fetchall() for value in ("n7", "no such name")]
        alone = connection.execute(sought.format(tmp_path / "alone.parquet", "no such name")).fetchall()
    assert (True,) in alone
    groups = pq.read_metadata(target).num_row_groups
    assert asked == [[(False,)] * groups, [(True,)] * groups]


def test_a_piece_without_rows_leaves_no_row_group(tmp_path: Path) -> None:
    pieces = pieces_of(tmp_path, by_pyarrow, (ROWS, 0, 5))
    assert splice(pieces, str(tmp_path / "whole.parquet"))
    metadata = pq.read_metadata(tmp_path / "whole.parquet")
    assert [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)] == [2_000, 1_000, 5]


@pytest.mark.parametrize(
    "other",
    [
        by_duckdb,
        lambda path, low, rows: by_pyarrow(path, low, rows, store_decimal_as_integer=True),
        lambda path, low, rows: pq.write_table(pa.table({"id": [1]}), path),
    ],
    ids=["another writer", "other physical types", "other columns"],
)
def test_pieces_of_different_shapes_are_left_as_they_are(tmp_path: Path, other: Callable[..., None]) -> None:
    pieces = pieces_of(tmp_path, by_pyarrow, (ROWS, 1))
    other(Path(pieces[1]), 0, ROWS)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert not splice(pieces, str(tmp_path / "whole.parquet"))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("number", [9, 7])
def test_a_column_chunk_that_reaches_into_the_next_file_is_refused(tmp_path: Path, number: int) -> None:
    """A place (9) or a length (7) that a flipped bit made too large."""
    pieces = pieces_of(tmp_path, by_pyarrow, (ROWS, 1))
    _change(Path(pieces[0]), number, Path(pieces[0]).stat().st_size)
    with pytest.raises(Malformed, match="does not lie within its file"):
        splice(pieces, str(tmp_path / "whole.parquet"))


def test_on_a_full_disk_half_a_file_is_not_left_behind(tmp_path: Path) -> None:
    """A limit on the size of a file stands in for the end of the disk; the second piece does not fit."""
    pieces = pieces_of(tmp_path, by_pyarrow, (ROWS, ROWS))
    target = tmp_path / "whole.parquet"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (Path(pieces[0]).stat().st_size + 1_000, limits[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            splice(pieces, str(target))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert not target.exists()


@pytest.mark.parametrize("data", [b"", MAGIC * 2, b"PAR1" + b"\xff" * 40 + (40).to_bytes(4, "little") + MAGIC])
def test_what_is_no_parquet_file_is_refused_before_anything_is_written(tmp_path: Path, data: bytes) -> None:
    pieces = pieces_of(tmp_path, by_pyarrow, (ROWS, 1))
    Path(pieces[1]).write_bytes(data)
    with pytest.raises(Malformed):
        splice(pieces, str(tmp_path / "whole.parquet"))
    assert [Path(piece).exists() for piece in pieces] == [True, True]
    assert not (tmp_path / "whole.parquet").exists()


def _change(path: Path, number: int, value: int) -> None:
    with path.open("r+b") as file:
        old = read_footer(file)
        footer = decode(old.data)
        chunk: Struct = footer.structs(ROW_GROUPS)[0].structs(COLUMNS)[0]
        meta = chunk.struct(META_DATA)
        assert meta is not None
        meta[number] = (I64, value)
        replace_footer(file, old, encode(footer))
