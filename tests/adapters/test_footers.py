"""The footers of our files: the annotations of Iceberg's own writer, and every reader still finds what it found."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, FixedType, LongType, NestedField, StringType, UUIDType

from regelate.adapters.duckdb import sql
from regelate.adapters.duckdb.writer import write_rows
from regelate.adapters.iceberg.tables.schema import columns_of
from regelate.adapters.parquet.annotations import in_file, names_of
from regelate.adapters.parquet.iceberg_footer import as_iceberg_writes
from regelate.core.table.schema import Column
from regelate.errors import InvariantViolated
from tests.support.footers import BEYOND_SPARK, FIXED, PLAIN, elements, every_type, footer_of, key_values, record
from tests.support.iceberg_tables import duckdb_rows, live_data_files, live_data_paths, local_path, row_texts, rows
from tests.support.lake import Lake

RECORDED = Path(__file__).parent / "recorded"
"""Footers that Iceberg 1.10.1 wrote; tests/pipeline/test_footers.py makes them, and sees that they are still so."""


def without(found: Sequence[dict[str, Any]], *names: str) -> list[dict[str, Any]]:
    return [{name: value for name, value in element.items() if name not in names} for element in found]


@pytest.mark.parametrize("required", [False, True], ids=["optional", "required"])
@pytest.mark.parametrize("name", ["plain", "fixed"])
def test_what_we_write_has_the_annotations_of_icebergs_own_writer(tmp_path: Path, name: str, required: bool) -> None:
    lake = Lake(tmp_path)
    types = [*PLAIN, *BEYOND_SPARK, *(FIXED if name == "fixed" else ())]
    table = lake.table(schema := every_type(types, required=required))
    recorded = (RECORDED / f"iceberg_{name}_{'required' if required else 'optional'}.footer").read_bytes()
    wanted = list(elements(recorded))
    for number in range(2):
        lake.write(table, [record(schema, number)])
    for path in live_data_paths(table.refresh()):
        assert list(elements(footer_of(local_path(path)))) == wanted
    before = row_texts(rows(table))
    lake.compact(table, force=True, verify="strict")
    (path,) = live_data_paths(table.refresh())
    found = footer_of(local_path(path))
    if name == "plain":  # DuckDB's pages: all optional, and wide decimals of 16 bytes
        assert {
            e["repetition"] for e in list(elements(found))[1:] if e["name"] not in ("list", "key_value", "key")
        } == {1}
        assert without(list(elements(found)), "repetition", "type_length") == without(
            wanted, "repetition", "type_length"
        )
    else:
        assert list(elements(found)) == wanted
    kept = json.loads(key_values(found)["iceberg.schema"])
    assert {f["name"]: f["id"] for f in kept["fields"]} == {f.name: f.field_id for f in table.schema().fields}
    assert row_texts(rows(table)) == before
    assert len(duckdb_rows(table)) == 2
    (file,) = live_data_files(table)
    assert file.file_size_in_bytes == local_path(path).stat().st_size
    assert file.split_offsets == [4]


def test_an_upsert_leaves_such_files_too(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    table = lake.table(Schema(NestedField(1, "id", LongType()), NestedField(2, "of it", StringType())))
    lake.write(table, [{"id": n, "of it": "old"} for n in range(5)])
    lake.write(table, [{"id": 3, "of it": "new"}], mode="upsert", key=("id",))
    for path in live_data_paths(table.refresh()):
        shown = [(e["name"], e.get("converted"), e.get("logical")) for e in elements(footer_of(local_path(path)))]
        assert shown[1:] == [("id", None, None), ("of_x20it", 0, {1: {}})]
    assert sorted(map(str, rows(table))) == [str((n, "new" if n == 3 else "old")) for n in range(5)]


def test_a_required_column_with_a_null_in_it_is_still_written(tmp_path: Path) -> None:
    """Another writer's fault is kept as it is, by PyArrow's writer as by DuckDB's."""
    columns = columns_of(Schema(NestedField(1, "n", LongType(), required=True), NestedField(2, "x", FixedType(2))))
    for select, repetition in (("SELECT 1 AS n", 0), ("SELECT unnest([1, NULL]) AS n", 1)):
        path = tmp_path / f"{repetition}.parquet"
        text = f"SELECT n::BIGINT AS n, 'ab'::BLOB AS x FROM ({select})"
        write_rows(duckdb.connect(), text, str(path), columns, codec="zstd", row_group_size=2048)
        assert [e["repetition"] for e in elements(footer_of(path))][1] == repetition
        assert pq.read_table(path)["n"].to_pylist() == [1, None][: 1 + repetition]


KINDS = Schema(
    NestedField(1, "n n", LongType()),
    NestedField(2, "s", StringType()),
    NestedField(3, "d", DecimalType(30, 2)),
    NestedField(4, "u", UUIDType()),
)
SELECT = """SELECT range AS "n n", lpad(range::VARCHAR, 6, '0') AS s, range::DECIMAL(30, 2) AS d,
    md5(range::VARCHAR)::UUID AS u FROM range(10240)"""


def made(path: Path, writer: str) -> Path:
    """A file of five row groups, by DuckDB or PyArrow."""
    connection = duckdb.connect()
    if writer == "duckdb":
        connection.execute(sql.copy(SELECT, str(path), columns_of(KINDS), codec="zstd", row_group_size=2048))
        return path
    connection.execute("SET arrow_lossless_conversion = true")
    table = connection.execute(SELECT).to_arrow_table().cast(schema_to_pyarrow(KINDS))
    pq.write_table(table, path, row_group_size=2048, write_page_index=True)
    return path


@pytest.mark.parametrize("writer", ["duckdb", "pyarrow"])
def test_pages_statistics_and_their_order_stay_as_every_reader_finds_them(tmp_path: Path, writer: str) -> None:
    old = made(tmp_path / "old.parquet", writer)
    new = Path(shutil.copy(old, tmp_path / "new.parquet"))
    as_iceberg_writes(str(new), columns_of(KINDS), KINDS.model_dump_json())
    assert pq.read_table(new).to_pydict() == {in_file(n): v for n, v in pq.read_table(old).to_pydict().items()}
    order = "SELECT row_group_id, stats_min_value, stats_max_value, stats_null_count, data_page_offset"
    shown = [duckdb.execute(f"{order} FROM parquet_metadata('{p}')").fetchall() for p in (old, new)]
    assert shown[0] == shown[1]
    assert len(shown[0]) == 5 * 4
    statistics = [[s.min, s.max, s.has_min_max] for p in (new, old) for s in column_statistics(p)]
    assert statistics[: len(statistics) // 2] == statistics[len(statistics) // 2 :]
    pruned = pq.ParquetFile(new).metadata
    assert [pruned.row_group(g).column(0).path_in_schema for g in range(5)] == ["n_x20n"] * 5
    scanned = duckdb.execute(f"SELECT count(*) FROM '{new}' WHERE s = '004000' AND \"n_x20n\" = 4000").fetchone()
    assert scanned == (1,)


def column_statistics(path: Path) -> list[Any]:
    found = pq.ParquetFile(path).metadata
    return [found.row_group(g).column(c).statistics for g in range(5) for c in range(3)]


def test_a_file_of_other_columns_is_not_passed_off_as_one_of_the_table(tmp_path: Path) -> None:
    columns = columns_of(KINDS)
    other_id = (replace(columns[0], field_id=9), *columns[1:])
    other_type = (replace(columns[0], type="timestamp"), replace(columns[1], type="long"), *columns[2:])
    narrower = (*columns[:2], replace(columns[2], type="decimal(18,2)"), columns[3])
    nested = (*columns[:3], Column(name="u", type="struct", field_id=4, children=columns[3:]))
    path = made(tmp_path / "a.parquet", "duckdb")
    whole = path.read_bytes()
    for wrong in (other_id, other_type, narrower, nested, columns[:3], (*columns, columns[0]), columns[::-1]):
        with pytest.raises(InvariantViolated, match="not a file of this table") as raised:
            as_iceberg_writes(str(path), wrong, "{}")
        assert raised.value.code == "FOOTER_DISAGREES"
        assert path.read_bytes() == whole
    path.write_bytes(whole[:-100])
    with pytest.raises(InvariantViolated):
        as_iceberg_writes(str(path), columns, "{}")


def test_doing_it_twice_changes_nothing(tmp_path: Path) -> None:
    path = made(tmp_path / "a.parquet", "pyarrow")
    as_iceberg_writes(str(path), columns_of(KINDS), "{}")
    once = path.read_bytes()
    as_iceberg_writes(str(path), columns_of(KINDS), "{}")
    assert path.read_bytes() == once


@pytest.mark.parametrize(
    ("name", "called"),
    [
        ("plain_1", "plain_1"),
        ("1st", "_1st"),
        ("a b.c", "a_x20b_x2Ec"),
        ("naïve", "naïve"),
        ("😀", "_xD83D_xDE00"),
        ("x²", "x_xB2"),
        ("\N{ARABIC-INDIC DIGIT ONE}", "_\N{ARABIC-INDIC DIGIT ONE}"),
    ],
)
def test_a_column_is_called_as_iceberg_calls_it(name: str, called: str) -> None:
    assert in_file(name) == called


@given(st.lists(st.text("aA _x20", min_size=1, max_size=5), unique_by=str.casefold, max_size=6))
def test_no_two_columns_of_a_struct_get_one_name(names: list[str]) -> None:
    called = names_of([Column(name=name, type="int") for name in names])
    assert len({name.casefold() for name in called}) == len(names)


def test_arrows_own_schema_goes_and_arrow_reads_columns_by_their_annotations(tmp_path: Path) -> None:
    path = made(tmp_path / "a.parquet", "pyarrow")
    as_iceberg_writes(str(path), columns_of(KINDS), "{}")
    assert [*key_values(footer_of(path))] == ["iceberg.schema"]
    assert pq.read_schema(path).types == [pa.int64(), pa.string(), pa.decimal128(30, 2), pa.uuid()]
