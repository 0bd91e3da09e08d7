"""Our Parquet files beside those of Iceberg's own writer: the same annotations, and read the same as tables evolve."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
)

from regelate.adapters.duckdb import engine, sql
from regelate.adapters.iceberg.tables.schema import columns_of
from regelate.adapters.parquet.iceberg_footer import as_iceberg_writes
from regelate.core.planning import splicing
from tests.spark.iceberg import each, java_table
from tests.support.footers import BEYOND_SPARK, FIXED, PLAIN, elements, every_type, footer_of, key_values, record
from tests.support.iceberg_tables import live_data_paths, local_path
from tests.support.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
RECORDED = Path(__file__).parents[1] / "adapters" / "recorded"


def written_by_iceberg(spark: SparkSession, ident: str, path: Path) -> bytes:
    """The footer of a file that Iceberg's own writer made of a table's rows, as Iceberg's own reader reads them."""
    iceberg: Any = spark._jvm.org.apache.iceberg  # type: ignore[union-attr]
    table = java_table(spark, f"local.{ident}")
    factory = iceberg.data.GenericAppenderFactory(table.schema(), table.spec())
    appender = factory.newAppender(table.io().newOutputFile(path.as_uri()), iceberg.FileFormat.PARQUET)
    for row in each(iceberg.data.IcebergGenerics.read(table).build()):
        appender.add(row)
    appender.close()
    return footer_of(path)


def live_footers(lake: Lake, ident: str) -> list[bytes]:
    return [footer_of(local_path(path)) for path in live_data_paths(lake.other_client().load_table(ident))]


def recorded(name: str, footer: bytes) -> bytes:
    """The footer that `make test` takes for Iceberg's. A missing one is recorded, and the test fails this once."""
    path = RECORDED / f"{name}.footer"
    if not path.exists():
        path.write_bytes(footer)
        pytest.fail(f"{path} is recorded anew: look at it and run this again")
    return path.read_bytes()


def without(found: Iterator[dict[str, Any]], *names: str) -> list[dict[str, Any]]:
    return [{name: value for name, value in element.items() if name not in names} for element in found]


@pytest.mark.parametrize("required", [False, True], ids=["optional", "required"])
def test_footers_are_those_of_icebergs_writer_column_by_column(
    spark: SparkSession, lake: Lake, tmp_path: Path, required: bool
) -> None:
    for name, types in {"plain": [*PLAIN, *BEYOND_SPARK], "fixed": [*PLAIN, *BEYOND_SPARK, *FIXED]}.items():
        schema = every_type(types, required=required)
        ident = f"footers.{name}_{required}".lower()
        table = lake.table(schema, ident=ident)
        for number in range(3):
            lake.write(table, [record(schema, number)])
        wanted = written_by_iceberg(spark, ident, tmp_path / f"{name}.parquet")
        for found in live_footers(lake, ident):
            assert list(elements(found)) == list(elements(wanted))
            assert [*key_values(found)] == [*key_values(wanted)] == ["iceberg.schema"]
            assert json.loads(key_values(found)["iceberg.schema"]) == json.loads(key_values(wanted)["iceberg.schema"])
        lake.compact(ident, force=True)
        (found,) = live_footers(lake, ident)
        loose = () if name == "fixed" else ("repetition", "type_length")  # as DuckDB stores them
        assert without(elements(found), *loose) == without(elements(wanted), *loose)
        again = written_by_iceberg(spark, ident, tmp_path / f"{name}_again.parquet")
        assert list(elements(again)) == list(elements(wanted))
        assert list(elements(recorded(f"iceberg_{name}_{'required' if required else 'optional'}", wanted))) == list(
            elements(wanted)
        )


MONEY = DecimalType(9, 2)
EVOLVING = Schema(
    NestedField(1, "id", IntegerType(), required=True),
    NestedField(2, "i", IntegerType()),
    NestedField(3, "f", FloatType()),
    NestedField(4, "d9", MONEY),
    NestedField(5, "d9_far", MONEY),
    NestedField(6, "d18", DecimalType(18, 2)),
    NestedField(7, "d20", DecimalType(20, 2)),
    NestedField(8, "gone", StringType()),
    NestedField(9, "called", StringType()),
    NestedField(10, "needed", IntegerType(), required=True),
    NestedField(11, "st", StructType(
        NestedField(12, "i", IntegerType()), NestedField(13, "f", FloatType()), NestedField(14, "d", MONEY)
    )),
    NestedField(15, "li", ListType(16, IntegerType(), element_required=True)),
    NestedField(17, "ld", ListType(18, MONEY, element_required=False)),
    NestedField(19, "ma", MapType(20, StringType(), 21, FloatType(), value_required=False)),
)  # fmt: skip
FLAT = ["id", "i", "f", "d9", "d9_far", "d18", "d20", "renamed", "needed", "new"]
NESTED = ["id", "st", "li", "ld", "ma"]


def evolving(number: int, zero: float = 0.5) -> dict[str, Any]:
    """A row of the table before it evolves; every third holds nulls wherever it may."""
    amount, real = f"{number}.25", -0.0 if zero == 0 and number == 0 else number + 0.5
    if number % 3 == 2:
        return {"id": number, "needed": number}
    return {
        "id": number, "i": number, "f": real, "d9": amount, "d9_far": amount, "d18": amount, "d20": amount,
        "gone": "x", "called": f"s{number}", "needed": number, "st": {"i": number, "f": real, "d": amount},
        "li": [number, 7], "ld": [amount, None], "ma": {"k": real},
    }  # fmt: skip


def evolved(row: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """What Spark shows of a row once its table has evolved."""
    found = {name: row.get(name) for name in (*FLAT, *NESTED)} | {"renamed": row.get("called"), **more}
    for name in ("d9", "d9_far", "d18", "d20"):
        found[name] = found[name] and Decimal(found[name])
    if found["st"] is not None:
        found["st"] = {**found["st"], "d": Decimal(found["st"]["d"])}
        found["ld"] = [Decimal(found["ld"][0]), None]
    return found


def evolve(lake: Lake, ident: str) -> None:
    """Every legal promotion, flat and nested, and every other way in which a column changes."""
    wide, wider = DecimalType(18, 2), DecimalType(38, 2)
    promotions: dict[tuple[str, ...], Any] = {
        ("i",): LongType(), ("f",): DoubleType(), ("d9",): wide, ("d9_far",): wider, ("d18",): wider, ("d20",): wider,
        ("needed",): LongType(), ("st", "i"): LongType(), ("st", "f"): DoubleType(), ("st", "d"): wider,
        ("li", "element"): LongType(), ("ld", "element"): wider, ("ma", "value"): DoubleType(),
    }  # fmt: skip
    with lake.other_client().load_table(ident).update_schema() as change:
        for path, kind in promotions.items():
            change.update_column(path, field_type=kind)
        change.make_column_optional("needed").delete_column("gone").rename_column("called", "renamed")
        change.add_column("new", IntegerType()).move_first("needed")


def shown(spark: SparkSession, ways: Iterable[str], columns: Iterable[str]) -> dict[str, list[str]]:
    """The rows of each table as Spark reads them, as texts, in order."""
    parts = (f"SELECT '{way}' AS way, {', '.join(columns)} FROM local.evolving.{way}" for way in ways)
    found: dict[str, list[str]] = {way: [] for way in ways}
    for row in spark.sql(" UNION ALL ".join(parts)).collect():
        values = row.asDict(recursive=True)
        found[values.pop("way")].append(repr(values))
    return {way: sorted(rows) for way, rows in found.items()}


def test_every_promotion_and_evolution_after_a_rewrite_is_read_by_spark_vectorized_and_not(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`in_pieces`: an output whose row groups were written by themselves, and joined; `spliced`: of row groups of the
    inputs as they are; `mixed`: of such and one that was recoded."""
    rewrites: Mapping[str, Mapping[str, Any] | None] = {
        "written": None,
        "compacted": {"force": True},
        "sorted": {"force": True, "strategy": "sort", "sort_order": [{"column": "id", "direction": "desc"}]},
        "by_arrow": {"force": True},
        "in_pieces": {"force": True, "options": {"splice": "never"}},
        "spliced": {"force": True, "options": {"splice": "always"}},
        "mixed": {"force": True},
    }
    wanted: dict[str, list[dict[str, Any]]] = {}
    for way, request in rewrites.items():
        rows = [evolving(number, zero=0 if way == "by_arrow" else 0.5) for number in range(6)]
        table = lake.table(EVOLVING, ident=f"evolving.{way}")
        middle = 5 if way == "mixed" else 3
        for part in (rows[:middle], rows[middle:]):
            lake.write(table, part)
        with monkeypatch.context() as limits:
            if way == "in_pieces":
                limits.setattr(engine, "MIN_FILES_PER_SCAN", 1)
                limits.setattr(engine, "MAX_FILES_PER_SCAN", 1)
                limits.setattr(splicing, "WHOLE_ROWS", 1)
            if way == "mixed":
                limits.setattr(splicing, "WHOLE_ROWS", 3)
            if request is not None:
                answer = lake.compact(table, **request)
                assert answer["status"] == "COMPLETED"
                assert (answer["stats"]["bytes_spliced"] > 0) == (way in ("spliced", "mixed"))
        evolve(lake, f"evolving.{way}")
        wanted[way] = [evolved(row) for row in rows]

    def check() -> None:
        texts = {
            columns: {way: sorted(repr({c: row[c] for c in columns}) for row in rows) for way, rows in wanted.items()}
            for columns in (tuple(FLAT), tuple(NESTED))
        }
        for vectorized in ("true", "false"):
            spark.conf.set("spark.sql.iceberg.vectorization.enabled", vectorized)
            assert shown(spark, wanted, FLAT) == texts[tuple(FLAT)]
        assert shown(spark, wanted, NESTED) == texts[tuple(NESTED)]
        spark.conf.unset("spark.sql.iceberg.vectorization.enabled")

    check()
    for way in ("in_pieces", "spliced", "mixed"):
        (joined,) = live_data_paths(lake.other_client().load_table(f"evolving.{way}"))
        assert pq.read_metadata(local_path(joined)).num_row_groups == 2
    later = {"id": 9, "needed": None, "i": 2**40, "d9": "1234567890.25", "new": 1}
    for way, rows in wanted.items():
        lake.write(f"evolving.{way}", [later])
        rows.append(evolved(later, new=1))
        assert lake.compact(f"evolving.{way}", force=True)["status"] == "COMPLETED"
    check()


def row_groups_read(spark: SparkSession, ident: str, path: Path, column: str, value: Any) -> list[bool]:
    """Which row groups of a file Iceberg's own filter reads for `column = value`."""
    iceberg: Any = spark._jvm.org.apache.iceberg  # type: ignore[union-attr]
    parquet, jvm = iceberg.shaded.org.apache.parquet.hadoop, spark._jvm
    location = jvm.org.apache.hadoop.fs.Path(path.as_uri())  # type: ignore[union-attr]
    reader = parquet.ParquetFileReader.open(jvm.org.apache.hadoop.conf.Configuration(), location)  # type: ignore[union-attr]
    try:
        schema = java_table(spark, f"local.{ident}").schema()
        wanted = iceberg.expressions.Expressions.equal(column, value)
        metrics = iceberg.parquet.ParquetMetricsRowGroupFilter(schema, wanted, True)
        inside = reader.getFooter().getFileMetaData().getSchema()
        return [metrics.shouldRead(inside, group) for group in each(reader.getRowGroups())]
    finally:
        reader.close()


def test_iceberg_still_skips_row_groups_by_their_statistics(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    schema = Schema(
        NestedField(1, "n n", IntegerType()),
        NestedField(2, "s", StringType()),
        NestedField(3, "d", DecimalType(30, 2)),
        NestedField(4, "l", LongType()),
    )
    lake.table(schema, ident="footers.pruned")
    columns, path = columns_of(schema), tmp_path / "a.parquet"
    select = (
        "SELECT range::INTEGER AS \"n n\", lpad(range::VARCHAR, 6, '0') AS s, range::DECIMAL(30, 2) AS d, range AS l "
        "FROM range(8192)"
    )
    duckdb.execute(sql.copy(select, str(path), columns, codec="zstd", row_group_size=2048))
    as_iceberg_writes(str(path), columns, "{}")
    decimal = spark._jvm.java.math.BigDecimal("5000.00")  # type: ignore[union-attr]
    for column, value in {"n n": 5000, "s": "005000", "d": decimal, "l": 5000}.items():
        assert row_groups_read(spark, "footers.pruned", path, column, value) == [False, False, True, False], column


@pytest.mark.parametrize("codec", ["zstd", "snappy", "gzip", "uncompressed"])
@pytest.mark.parametrize("pages", ["v1", "v2"])
@pytest.mark.parametrize("nulls", [True, False], ids=["nulls", "no_nulls"])
def test_row_groups_that_spark_wrote_are_copied_and_read_the_same_by_every_reader(
    spark: SparkSession, lake: Lake, codec: str, pages: str, nulls: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With required columns, checksums and page indexes, as parquet-mr leaves them; the last file is recoded.

    Without `nulls` more columns are required than the table's: Spark writes one so whose expression cannot be null.
    """
    monkeypatch.setattr(splicing, "WHOLE_ROWS", 300)
    ident = f"copied.{codec}_{pages}_{nulls}".lower()
    name = f"local.{ident}"

    def unknown(value: str) -> str:
        """Null now and then."""
        return f"IF(id % 7 = 0, NULL, {value})" if nulls else value

    spark.sql("CREATE NAMESPACE IF NOT EXISTS local.copied")
    spark.sql(
        f"CREATE TABLE {name} (id BIGINT NOT NULL, i INT, s STRING, d DECIMAL(9, 2), wide DECIMAL(30, 3), t TIMESTAMP, "
        "local_t TIMESTAMP_NTZ, day DATE, li ARRAY<INT>, st STRUCT<a: INT, b: STRING>, ma MAP<STRING, DOUBLE>) "
        f"USING iceberg TBLPROPERTIES ('write.parquet.compression-codec' = '{codec}', "
        f"'write.parquet.page-version' = '{pages}', 'write.distribution-mode' = 'none')"
    )
    inner = f"named_struct('a', {unknown('int(id)')}, 'b', {unknown('string(id)')})"
    values = ("int(id)", "concat('s', id % 9)", "id / 4", "id / 8", "timestamp_seconds(id)")
    values += ("timestamp_ntz'2020-01-01 00:00:00'", "date_add(date'2020-01-01', int(id % 99))", "array(int(id), NULL)")
    values += (inner, f"map('k', {unknown('double(id)')})")
    for low, rows in ((0, 400), (1_000, 400), (2_000, 9)):
        spark.sql(
            f"INSERT INTO {name} SELECT id, {', '.join(map(unknown, values))} FROM range({low}, {low + rows}, 1, 1)"
        )
    table = lake.other_client().load_table(ident)
    before = table.scan().to_arrow().sort_by("id").to_pylist(), _in_spark(spark, name)
    answer = lake.compact(table, force=True, verify="strict")
    assert answer["status"] == "COMPLETED"
    assert answer["stats"]["bytes_spliced"] > 0
    (path,) = live_data_paths(table.refresh())
    assert [pq.read_metadata(local_path(path)).row_group(n).num_rows for n in range(3)] == [400, 400, 9]
    optional = [field.name for field in pq.read_schema(local_path(path)) if field.nullable]
    assert ("i" in optional) == nulls
    assert table.scan().to_arrow().sort_by("id").to_pylist() == before[0]
    spark.sql(f"REFRESH TABLE {name}")
    for vectorized in ("true", "false"):
        spark.conf.set("spark.sql.iceberg.vectorization.enabled", vectorized)
        assert _in_spark(spark, name) == before[1]
    spark.conf.unset("spark.sql.iceberg.vectorization.enabled")


def _in_spark(spark: SparkSession, name: str) -> list[str]:
    return [repr(row.asDict(recursive=True)) for row in spark.sql(f"SELECT * FROM {name} ORDER BY id").collect()]
