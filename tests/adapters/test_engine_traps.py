"""Traps T22, T24 to T29, T31, T35: what DuckDB 1.5.5 (T31: PyArrow) does to values and processes that rewriting meets.

A red test here means that the ground has moved: the workaround it names may be able to go.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType, StructType

from tests.support.deletes_writer import add_equality_deletes
from tests.support.iceberg_tables import append, duckdb_rows, extension_path, make_catalog, make_table

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "p", StringType()))
SCAN = """
import sys, duckdb
con = duckdb.connect(config={"autoinstall_known_extensions": False, "autoload_known_extensions": False})
for extension in sys.argv[2:]:
    con.execute(f"LOAD '{extension}'")
print(len(con.execute(f"SELECT * FROM iceberg_scan('{sys.argv[1]}')").fetchall()))
"""


@pytest.fixture
def catalog(tmp_path: Path) -> SqlCatalog:
    return make_catalog(tmp_path)


def scanned_alone(table: Table) -> subprocess.CompletedProcess[str]:
    """Scan a table in a process of its own, which may die of it."""
    extensions = [str(extension_path(name)) for name in ("avro", "httpfs", "iceberg")]
    command = [sys.executable, "-c", SCAN, table.metadata_location, *extensions]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ})


def negative(values: list[float]) -> list[str]:
    return [repr(v) for v in values]


def test_t22_an_equality_delete_drops_every_row_with_a_null_key(catalog: SqlCatalog) -> None:
    """Our answer: equality deletes are anti-joins of our own (`sql.source`)."""
    table = make_table(catalog, "ns.t", SCHEMA)
    append(table, [(1, "a"), (None, "b"), (2, "c")])
    add_equality_deletes(table, ["id"], [(1,)])
    assert duckdb_rows(table) == [(2, "c")]


def test_t24_a_dictionary_holds_one_zero_only(tmp_path: Path) -> None:
    """Our answer: a COPY that meets -0.0 stops, and PyArrow writes that file (`writer.write_rows`)."""
    place = str(tmp_path / "zeros.parquet")
    zeros = "SELECT CASE WHEN i % 2 = 0 THEN 0.0::DOUBLE ELSE '-0.0'::DOUBLE END AS v FROM range(20) r(i)"
    duckdb.sql(f"COPY ({zeros}) TO '{place}' (FORMAT parquet)")
    assert set(negative(pq.read_table(place)["v"].to_pylist())) == {"0.0"}


def test_t24_sorting_by_a_column_makes_zero_of_its_negative_zero() -> None:
    """Our answer: floats are sorted by expressions over them (`sql.order_by`)."""
    con = duckdb.connect()
    con.execute("CREATE TABLE t AS SELECT unnest([1.0, '-0.0'::DOUBLE, 0.0]) AS v")
    assert negative([v for (v,) in con.execute("SELECT v FROM t ORDER BY v").fetchall()]) == ["0.0", "0.0", "1.0"]
    kept = con.execute("SELECT v FROM t ORDER BY CASE WHEN v = 0 THEN 0 ELSE v END").fetchall()
    assert "-0.0" in negative([v for (v,) in kept])


def test_t24_a_correlated_subquery_takes_the_two_zeros_for_one_key() -> None:
    """Our answer: the independent count of deleted rows is a semi-join, not an EXISTS (`deleted_rows`)."""
    con = duckdb.connect()
    con.execute("CREATE TABLE t AS SELECT unnest(['-0.0'::DOUBLE, 0.0, 0.0]) AS v; CREATE TABLE e AS SELECT '0.0' AS k")
    exists = "EXISTS (SELECT 1 FROM e WHERE CAST(t.v AS VARCHAR) IS NOT DISTINCT FROM e.k)"
    assert con.execute(f"SELECT count(*) FROM t WHERE {exists}").fetchall() != [(2,)]
    semi = "SELECT count(*) FROM t SEMI JOIN e ON CAST(t.v AS VARCHAR) IS NOT DISTINCT FROM e.k"
    assert con.execute(semi).fetchall() == [(2,)]


def test_t25_a_partition_field_that_is_no_ascii_identifier_ends_the_process(catalog: SqlCatalog) -> None:
    """Our answer: views give partition fields names of their own."""
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "größe"))
    table = make_table(catalog, "ns.t", SCHEMA, spec)
    append(table, [(1, "a")])
    done = scanned_alone(table)
    assert done.returncode == -signal.SIGABRT
    assert "Invalid Avro identifier" in done.stderr


@pytest.mark.parametrize("key", ["dropped", "nested"])
def test_t26_an_equality_delete_on_a_column_that_is_not_there_ends_the_process(catalog: SqlCatalog, key: str) -> None:
    """Our answer: such deletes are refused before anything is scanned (UNSUPPORTED_DELETES)."""
    inner = StructType(NestedField(3, "a", LongType()))
    table = make_table(catalog, "ns.t", Schema(*SCHEMA.fields, NestedField(4, "s", inner)))
    append(table, [{"id": 1, "p": "a", "s": {"a": 1}}])
    if key == "nested":
        add_equality_deletes(table, ["s.a"], [{"s": {"a": 1}}])
    else:
        add_equality_deletes(table, ["p"], [("a",)])
        with table.update_schema() as update:
            update.delete_column("p")
    assert scanned_alone(table).returncode == -signal.SIGSEGV


def test_t27_struct_fields_that_differ_only_in_case_are_read_as_one(catalog: SqlCatalog) -> None:
    """Our answer: such tables are refused (UNSUPPORTED_TABLE)."""
    inner = StructType(NestedField(2, "x", LongType()), NestedField(3, "X", LongType()))
    table = make_table(catalog, "ns.t", Schema(NestedField(1, "s", inner)))
    append(table, [{"s": {"x": 1, "X": 2}}])
    assert duckdb_rows(table) == [({"x": 1, "X": 1},)]


def test_t28_a_column_hides_the_virtual_one_of_its_name(catalog: SqlCatalog) -> None:
    """Our answer: views call their columns by field id."""
    table = make_table(catalog, "ns.t", Schema(NestedField(1, "filename", LongType())))
    append(table, [(7,)])
    assert duckdb_rows(table, "filename") == [(7,)]


def test_t29_a_bit_flipped_in_a_page_that_has_a_checksum_is_read_as_a_value(tmp_path: Path) -> None:
    """Our answer: `check_checksums` looks at them before and beside the rewrite."""
    path = tmp_path / "flipped.parquet"
    pq.write_table(
        pa.table({"a": range(100)}), path, compression="none", use_dictionary=False, write_page_checksum=True
    )
    content = bytearray(path.read_bytes())
    content[content.find((50).to_bytes(8, "little"))] ^= 1
    path.write_bytes(content)
    assert duckdb.execute(f"SELECT sum(a) FROM '{path}'").fetchall() == [(4951,)]
    with pytest.raises(OSError, match="CRC checksum verification failed"):
        pq.ParquetFile(path, page_checksum_verification=True).read()


GARBLED_FOOTER = """
import io, sys
import pyarrow as pa, pyarrow.parquet as pq
sink = io.BytesIO()
pq.write_table(pa.table({"id": range(100), "text": ["a"] * 100}), sink)
content = bytearray(sink.getvalue())
content[len(content) - 8 - int.from_bytes(content[-8:-4], "little") + 20] ^= 1
pq.read_metadata(io.BytesIO(bytes(content))).row_group(0).column(0)
"""


def test_t31_one_bit_of_a_footer_ends_the_process_that_asks_pyarrow_for_a_column_chunk() -> None:
    """Our answer: footers of files that we did not write are read by DuckDB, which raises."""
    done = subprocess.run([sys.executable, "-c", GARBLED_FOOTER], capture_output=True, check=False)
    assert done.returncode == -signal.SIGABRT


def test_t35_a_copy_annotates_whole_numbers_as_icebergs_writer_does_not(tmp_path: Path) -> None:
    """Our answer: every footer is rewritten. What Spark makes of it is in tests/pipeline/test_footers.py."""
    path = tmp_path / "a.parquet"
    duckdb.execute(f"COPY (SELECT 1::INTEGER AS i, 1::BIGINT AS l) TO '{path}'")
    found = duckdb.execute(f"SELECT converted_type FROM parquet_schema('{path}')").fetchall()
    assert found[1:] == [("INT_32",), ("INT_64",)]
