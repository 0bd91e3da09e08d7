"""Outputs that are written in pieces: the same rows in the same order, one file, and no piece left behind."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, FixedType, LongType, NestedField, PrimitiveType, StringType

from regelate.adapters.duckdb import engine as rewriting
from regelate.adapters.duckdb.group_rewrite import Piece
from regelate.core.planning import splicing
from regelate.core.running.slices import Slice
from regelate.errors import RegelateError, Unavailable
from regelate.operations.compacting.compact import CompactionTools
from tests.support.deletes_writer import add_position_deletes
from tests.support.iceberg_tables import live_data_files, live_data_paths, local_path
from tests.support.lake import Lake, in_table_order

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "name", StringType(), required=False),
    NestedField(3, "v", DoubleType(), required=False),
)
FILES, ROWS, PIECES = 6, 40, 3


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scan of two files is as much as there may be, and a row group of 50 rows is worth keeping."""
    monkeypatch.setattr(rewriting, "MIN_FILES_PER_SCAN", 2)
    monkeypatch.setattr(rewriting, "MAX_FILES_PER_SCAN", 2)
    monkeypatch.setattr(splicing, "WHOLE_ROWS", 50)


def batches(zero_in: int | None = None) -> list[list[tuple[object, ...]]]:
    found: list[list[tuple[object, ...]]] = [
        [(ROWS * number + i, f"n{i}", i / 4) for i in range(ROWS)] for number in range(FILES)
    ]
    if zero_in is not None:
        found[zero_in][0] = (*found[zero_in][0][:2], -0.0)
    return found


class Watched:
    """Which pieces a COMPACT wrote, where, and what was left of them when all outputs were there."""

    def __init__(self) -> None:
        self.folder = Path()
        self.wrote: list[Slice] = []

    def tools(self, tools: CompactionTools) -> CompactionTools:
        engine: Any = tools.engine
        self.folder = engine._folder
        write = engine.write_piece

        def watched(rewrite: Any, assembly: Any, piece: Piece, policy: Any) -> None:
            self.wrote.append(piece.slice)
            write(rewrite, assembly, piece, policy)

        engine.write_piece = watched
        return replace(tools, engine=engine)

    def left(self) -> list[str]:
        return sorted(path.name for path in self.folder.glob("piece-*"))


def compact(lake: Lake, table: Any, watched: Watched, between: Callable[[], None] | None = None) -> Any:
    found: list[str] = []

    def look() -> None:
        found.extend(watched.left())
        if between is not None:
            between()

    answer = lake.compact(table, force=True, verify="strict", tools=watched.tools, between=look)
    assert found == []
    return answer


def test_the_pieces_of_an_output_become_one_file_with_its_rows_in_table_order(lake: Lake) -> None:
    table = lake.table(SCHEMA, *batches())
    order = [pq.read_table(local_path(path)).column("id").to_pylist() for path in in_table_order(table)]
    watched = Watched()
    assert compact(lake, table, watched)["status"] == "COMPLETED"
    (path,) = live_data_paths(table.refresh())
    assert len(watched.wrote) == PIECES
    assert pq.read_table(local_path(path)).column("id").to_pylist() == [i for ids in order for i in ids]
    footer = pq.read_metadata(local_path(path))
    assert [footer.row_group(n).num_rows for n in range(footer.num_row_groups)] == [2 * ROWS] * PIECES


def test_a_file_that_the_table_lists_twice_is_read_twice_and_no_other_is_missed(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third piece begins with the second entry of the fourth file, which is equal to the first one."""
    monkeypatch.setattr(splicing, "WHOLE_ROWS", ROWS)
    files = sorted(live_data_files(lake.table(SCHEMA, *batches(), ident="db.source")), key=lambda file: file.file_path)
    table = lake.table(SCHEMA)
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as added:
        for file in [*files[:4], *files[3:]]:
            added.append_data_file(file)
    before = sorted(table.refresh().scan().to_arrow().column("id").to_pylist())
    watched = Watched()
    options = {"splice": "never"}
    answer = lake.compact(table, force=True, verify="fast", options=options, tools=watched.tools)
    assert answer["status"] == "COMPLETED"
    assert len(watched.wrote) == PIECES + 1
    assert sorted(table.refresh().scan().to_arrow().column("id").to_pylist()) == before


@pytest.mark.parametrize("zero_in", [0, FILES - 1])
@pytest.mark.parametrize("required", [False, True])
def test_a_negative_zero_in_one_piece_keeps_its_sign(lake: Lake, zero_in: int, required: bool) -> None:
    """PyArrow writes the piece that has it (trap T24), DuckDB the others: one file, unless a column is required, which
    DuckDB does not write. Then the whole is written anew."""
    fields = [NestedField(1, "id", LongType(), required=required), *SCHEMA.fields[1:]]
    table = lake.table(Schema(*fields), *batches(zero_in))
    watched = Watched()
    assert compact(lake, table, watched)["status"] == "COMPLETED"
    (path,) = live_data_paths(table.refresh())
    found = pq.read_table(local_path(path)).to_pylist()
    assert len(watched.wrote) == PIECES
    assert pq.read_metadata(local_path(path)).num_row_groups == (1 if required else PIECES)
    assert sorted(row["id"] for row in found) == list(range(FILES * ROWS))
    assert [row["id"] for row in found if row["v"] == 0 and math.copysign(1, row["v"]) < 0] == [zero_in * ROWS]


def test_columns_that_pyarrow_writes_come_in_pieces_too(lake: Lake) -> None:
    schema = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "key", FixedType(4)))
    table = lake.table(schema, *[[(ROWS * n + i, b"abcd") for i in range(ROWS)] for n in range(FILES)])
    watched = Watched()
    assert compact(lake, table, watched)["status"] == "COMPLETED"
    (path,) = live_data_paths(table.refresh())
    assert len(watched.wrote) == PIECES
    assert pq.read_metadata(local_path(path)).num_row_groups == PIECES
    assert sorted(pq.read_table(local_path(path)).column("id").to_pylist()) == list(range(FILES * ROWS))


def test_files_with_deletes_are_read_as_a_whole(lake: Lake) -> None:
    table = lake.table(SCHEMA, *batches())
    add_position_deletes(table, {in_table_order(table)[0]: range(ROWS - 1)})
    watched = Watched()
    assert compact(lake, table, watched)["status"] == "COMPLETED"
    assert watched.wrote == []
    assert table.refresh().scan().to_arrow().num_rows == FILES * ROWS - (ROWS - 1)


def test_a_piece_that_cannot_be_read_leaves_no_other_behind_and_the_table_as_it_was(lake: Lake) -> None:
    table = lake.table(SCHEMA, *batches())
    before = live_data_paths(table)
    path = local_path(in_table_order(table)[-1])
    data = bytearray(path.read_bytes())
    data[8:60] = bytes(52)
    path.write_bytes(data)
    watched = Watched()
    stored = {file.name for file in path.parent.iterdir()}
    left: list[list[str]] = []
    with pytest.raises(RegelateError, match="DATA_FILE_CORRUPT"):
        lake.compact(table, force=True, tools=watched.tools, between=lambda: left.append(watched.left()))
    assert watched.wrote
    assert left == [[]]
    assert live_data_paths(table.refresh()) == before
    assert {file.name for file in path.parent.iterdir()} == stored


def refusing_once(watched: Watched, refused: list[str]) -> Callable[[CompactionTools], CompactionTools]:
    """Refuse the first upload, whose location is put into `refused`; the credentials are renewed then."""

    def tools(given: CompactionTools) -> CompactionTools:
        engine: Any = watched.tools(given).engine
        publish = engine._outputs.publish

        def once(target: Any, **how: Any) -> Any:
            if not refused:
                refused.append(target.location)
                raise Unavailable("STORAGE_AUTH", "the session has ended")
            return publish(target, **how)

        engine._outputs.publish = once
        engine._renewed = lambda: True
        return replace(given, engine=engine)

    return tools


def test_an_output_whose_upload_is_refused_is_written_anew_when_its_pieces_are_gone(lake: Lake) -> None:
    table = lake.table(SCHEMA, *batches())
    refused: list[str] = []
    tools = refusing_once(Watched(), refused)
    assert lake.compact(table, force=True, verify="strict", tools=tools)["status"] == "COMPLETED"
    assert live_data_paths(table.refresh()) == refused
    assert sorted(table.scan().to_arrow().column("id").to_pylist()) == list(range(FILES * ROWS))


@pytest.mark.parametrize(
    ("column", "high", "sought", "found"),
    [
        (DoubleType(), math.nan, "v < -100", -500.0),
        (StringType(), "\U0010ffff" * 300, "v < 'a'", "A"),
    ],
    ids=["NaN", "text that cannot be raised"],
)
def test_t49_bounds_of_an_output_hold_the_rows_of_a_piece_that_has_none(
    lake: Lake, column: PrimitiveType, high: object, sought: str, found: object
) -> None:
    """DuckDB gives a row group no bounds for such a value; those of the others would hide its rows from readers."""
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "v", column))
    usual: object = 1.0 if column == DoubleType() else "m"
    rows: list[list[tuple[object, ...]]] = [[(ROWS * n + i, usual) for i in range(ROWS)] for n in range(FILES)]
    rows[-1][:2] = [(-1, high), (-2, found)]
    table = lake.table(schema, *rows)
    watched = Watched()
    assert compact(lake, table, watched)["status"] == "COMPLETED"
    assert len(watched.wrote) == PIECES
    assert table.refresh().scan(row_filter=sought).to_arrow().column("id").to_pylist() == [-2]


def test_what_is_written_anew_as_a_whole_is_so_again_when_its_upload_is_refused(lake: Lake) -> None:
    """The pieces, of which one has a -0.0 and required columns, are gone by then."""
    fields = [NestedField(1, "id", LongType(), required=True), *SCHEMA.fields[1:]]
    table = lake.table(Schema(*fields), *batches(zero_in=0))
    refused: list[str] = []
    assert (
        lake.compact(table, force=True, verify="strict", tools=refusing_once(Watched(), refused))["status"]
        == "COMPLETED"
    )
    assert live_data_paths(table.refresh()) == refused
    assert sorted(table.scan().to_arrow().column("id").to_pylist()) == list(range(FILES * ROWS))
