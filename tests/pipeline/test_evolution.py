"""What the service changes about a table, Spark reads: columns, partition fields, tags and rollbacks.

Every table is written before and after the change, and read by Spark before and after a COMPACT of ours.
"""

from __future__ import annotations

import itertools
from collections import Counter
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from regelate.handler import make_handler
from tests.entrypoints.fakes import LambdaContext
from tests.support.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
Rows = list[dict[str, Any]]
_numbers = itertools.count(1)


class Api:
    """One new table behind the handler, by direct invokes; Spark knows it as `sql`."""

    def __init__(self, spark: SparkSession, lake: Lake, columns: dict[str, Any], **more: Any) -> None:
        self.spark, self.lake = spark, lake
        self.named = {"tenant_id": "default", "namespace": "evolved", "table": f"t{next(_numbers)}"}
        self.sql = f"local.evolved.{self.named['table']}"
        self.ask("CREATE_TABLE", schema={"fields": columns}, **more)

    def ask(self, operation: str, **fields: Any) -> dict[str, Any]:
        event = {"operation": operation, **self.named, **fields}
        answer = make_handler(lambda: self.lake.service)(event, LambdaContext())  # type: ignore[arg-type]
        assert answer["success"], answer
        return answer  # type: ignore[no-any-return]

    def write(self, *batches: Rows) -> None:
        for batch in batches:
            self.ask("WRITE", records=batch)

    def by_spark(self, at: str = "") -> Counter[str]:
        """Return every row, by its columns' names, as Spark reads it now."""
        self.spark.sql(f"REFRESH TABLE {self.sql}")
        found = self.spark.sql(f"SELECT * FROM {self.sql} {at}").collect()
        return Counter(repr(sorted(row.asDict(recursive=True).items())) for row in found)

    def compact(self) -> None:
        answer = self.ask("COMPACT", force=True, expire_snapshots=False, options={"rewrite-all": True})
        assert answer["status"] == "COMPLETED", answer


LONG, INT, TEXT = ({"type": kind} for kind in ("long", "int", "string"))
CASES: dict[str, tuple[dict[str, Any], list[dict[str, Any]], dict[str, Any], Rows, Rows, Rows]] = {
    "columns are added": (
        {"id": LONG, "who": {"type": "struct", "fields": {"name": TEXT}}},
        [],
        {"add_columns": {"note": TEXT, "who.age": INT}},
        [{"id": 1, "who": {"name": "a"}}],
        [{"id": 2, "who": {"name": "b", "age": 7}, "note": "n"}],
        [
            {"id": 1, "who": {"name": "a", "age": None}, "note": None},
            {"id": 2, "who": {"name": "b", "age": 7}, "note": "n"},
        ],
    ),
    "a column is renamed, and another takes its name": (
        {"id": LONG, "a": TEXT},
        [],
        {"rename_columns": {"a": "b"}},
        [{"id": 1, "a": "old"}],
        [{"id": 2, "b": "new"}],
        [{"id": 1, "b": "old"}, {"id": 2, "b": "new"}],
    ),
    "a column is dropped and comes back empty": (
        {"id": LONG, "a": TEXT},
        [],
        {"drop_columns": ["a"], "add_columns": {"a": INT}},
        [{"id": 1, "a": "old"}],
        [{"id": 2, "a": 7}],
        [{"id": 1, "a": None}, {"id": 2, "a": 7}],
    ),
    "columns are widened": (
        {"id": INT, "r": {"type": "float"}, "d": {"type": "decimal(9,2)"}},
        [],
        {"alter_columns": {"id": LONG, "r": {"type": "double"}, "d": {"type": "decimal(18,2)", "doc": "more"}}},
        [{"id": 1, "r": 0.5, "d": "1.25"}],
        [{"id": 2**40, "r": 1e300, "d": "1234567890123456.25"}],
        [{"id": 1, "r": 0.5, "d": "1.25"}, {"id": 2**40, "r": 1e300, "d": "1234567890123456.25"}],
    ),
    "a column that partitions the table is widened": (
        {"id": LONG, "p": INT, "b": INT},
        [{"source": "p", "transform": "identity"}, {"source": "b", "transform": "bucket[4]"}],
        {"alter_columns": {"p": LONG, "b": LONG}},
        [{"id": 1, "p": 7, "b": 3}],
        [{"id": 2, "p": 7, "b": 3}, {"id": 3, "p": 2**40, "b": 2**40}],
        [{"id": 1, "p": 7, "b": 3}, {"id": 2, "p": 7, "b": 3}, {"id": 3, "p": 2**40, "b": 2**40}],
    ),
    "a decimal that partitions the table is widened": (
        {"id": LONG, "p": {"type": "decimal(9,2)"}},
        [{"source": "p", "transform": "identity"}],
        {"alter_columns": {"p": {"type": "decimal(20,2)"}}},
        [{"id": 1, "p": "7.25"}],
        [{"id": 2, "p": "7.25"}, {"id": 3, "p": "123456789012345678.25"}],
        [{"id": 1, "p": "7.25"}, {"id": 2, "p": "7.25"}, {"id": 3, "p": "123456789012345678.25"}],
    ),
    "a float that partitions the table is widened": (
        {"id": LONG, "p": {"type": "float"}},
        [{"source": "p", "transform": "identity"}],
        {"alter_columns": {"p": {"type": "double"}}},
        [{"id": 1, "p": 7.25}],
        [{"id": 2, "p": 7.25}, {"id": 3, "p": 1e300}],
        [{"id": 1, "p": 7.25}, {"id": 2, "p": 7.25}, {"id": 3, "p": 1e300}],
    ),
    "a required column becomes optional": (
        {"id": {"type": "long", "required": True}, "a": TEXT},
        [],
        {"alter_columns": {"id": {"required": False}}},
        [{"id": 1, "a": "x"}],
        [{"id": None, "a": "y"}],
        [{"id": 1, "a": "x"}, {"id": None, "a": "y"}],
    ),
    "partition fields are added": (
        {"id": LONG, "kind": TEXT},
        [],
        {"add_partition_fields": [{"source": "kind", "transform": "identity"},
                                  {"source": "id", "transform": "bucket[2]"}]},
        [{"id": 1, "kind": "a"}],
        [{"id": 2, "kind": "b"}, {"id": 3, "kind": None}],
        [{"id": 1, "kind": "a"}, {"id": 2, "kind": "b"}, {"id": 3, "kind": None}],
    ),
    "a partition field is renamed, and one is replaced": (
        {"id": LONG, "kind": TEXT, "at": {"type": "timestamp"}},
        [{"source": "kind", "transform": "identity"}, {"source": "at", "transform": "day"}],
        {
            "rename_partition_fields": {"kind": "sort"},
            "rename_columns": {"kind": "sort"},
            "drop_partition_fields": ["at_day"],
            "add_partition_fields": [{"source": "at", "transform": "month"}],
        },
        [{"id": 1, "kind": "a"}],
        [{"id": 2, "sort": "a"}],
        [{"id": 1, "sort": "a", "at": None}, {"id": 2, "sort": "a", "at": None}],
    ),
}  # fmt: skip
"""Columns, partition spec, the change; rows before and after it, and what the table then holds."""


@pytest.mark.parametrize("version", ["1", "2"])
@pytest.mark.parametrize("case", CASES)
def test_spark_reads_what_was_changed_before_and_after_a_compact(
    spark: SparkSession, lake: Lake, case: str, version: str
) -> None:
    columns, spec, change, before, after, rows = CASES[case]
    api = Api(spark, lake, columns, partition_spec=spec, properties={"format-version": version})
    api.write(before)
    assert api.ask("ALTER_TABLE", **change)["changed"]
    told = api.by_spark()
    assert sum(told.values()) == len(before)
    api.write(after)
    read = api.by_spark()
    assert read == Counter(repr(sorted(row.items())) for row in as_spark_has_them(api, rows))
    asked = api.ask("QUERY")["rows"]
    assert sorted(map(repr, map(sorted_items, asked))) == sorted(map(repr, map(sorted_items, rows)))
    api.compact()
    assert api.by_spark() == read
    api.spark.sql(f"INSERT INTO {api.sql} SELECT * FROM {api.sql}")
    api.compact()
    assert api.by_spark() == read + read


def test_a_column_goes_once_the_table_is_not_partitioned_by_it_any_more(spark: SparkSession, lake: Lake) -> None:
    by_kind = [{"source": "kind", "transform": "identity"}, {"source": "id", "transform": "bucket[2]"}]
    api = Api(spark, lake, {"id": LONG, "kind": TEXT, "a": TEXT}, partition_spec=by_kind)
    api.write([{"id": 1, "kind": "x", "a": "1"}, {"id": 2, "kind": "y", "a": "2"}], [{"id": 3, "kind": "x", "a": "3"}])
    api.ask("ALTER_TABLE", drop_partition_fields=["kind"])
    api.write([{"id": 4, "kind": "x", "a": "4"}])
    api.ask("ALTER_TABLE", drop_columns=["kind"])
    api.write([{"id": 5, "a": "5"}])
    read = api.by_spark()
    assert read == Counter(repr([("a", str(number)), ("id", number)]) for number in range(1, 6))
    assert [row["id"] for row in api.ask("QUERY", order_by=[{"column": "id"}])["rows"]] == [1, 2, 3, 4, 5]
    api.compact()
    assert api.by_spark() == read
    api.spark.sql(f"INSERT INTO {api.sql} SELECT * FROM {api.sql}")
    api.compact()
    assert api.by_spark() == read + read
    api.ask("MAINTAIN")
    assert api.by_spark() == read + read


def test_spark_reads_the_tags_and_the_rollbacks_of_the_service_and_main_never_moves_for_a_tag(
    spark: SparkSession, lake: Lake
) -> None:
    api = Api(spark, lake, {"id": LONG})
    api.write([{"id": 1}], [{"id": 2}], [{"id": 3}])
    main = api.ask("DESCRIBE_TABLE")["snapshot_id"]
    second = [
        row.snapshot_id for row in spark.sql(f"SELECT * FROM {api.sql}.snapshots ORDER BY committed_at").collect()
    ]
    rows = [Counter(repr([("id", number)]) for number in range(1, last + 1)) for last in range(4)]
    api.ask("CREATE_TAG", tag="two", snapshot_id=second[1], retention_hours=48)
    api.ask("CREATE_TAG", tag="now")
    assert (api.by_spark("VERSION AS OF 'two'"), api.by_spark("VERSION AS OF 'now'")) == (rows[2], rows[3])
    refs = {row.name: row for row in spark.sql(f"SELECT * FROM {api.sql}.refs").collect()}
    assert (refs["two"].type, refs["two"].max_reference_age_in_ms) == ("TAG", 48 * 3_600_000)
    assert (api.by_spark(), api.ask("DESCRIBE_TABLE")["snapshot_id"]) == (rows[3], main)
    api.compact()
    assert (api.by_spark(), api.by_spark("VERSION AS OF 'two'")) == (rows[3], rows[2])
    compacted = api.ask("DESCRIBE_TABLE")["snapshot_id"]
    api.ask("ROLLBACK", snapshot_id=second[0], keep_tag="left")
    assert (api.by_spark(), api.by_spark("VERSION AS OF 'left'")) == (rows[1], rows[3])
    history = spark.sql(f"SELECT * FROM {api.sql}.history ORDER BY made_current_at").collect()
    assert [row.snapshot_id for row in history if row.is_current_ancestor] == [second[0], second[0]]
    spark.sql(f"INSERT INTO {api.sql} VALUES (9)")
    assert api.by_spark() == rows[1] + Counter([repr([("id", 9)])])
    assert api.ask("QUERY", snapshot_id=compacted)["row_count"] == 3
    api.ask("DROP_TAG", tag="two")
    spark.sql(f"REFRESH TABLE {api.sql}")
    assert {row.name for row in spark.sql(f"SELECT * FROM {api.sql}.refs").collect()} == {"main", "now", "left"}


def test_a_branch_and_a_tag_of_spark_are_read_by_query_as_spark_reads_them(spark: SparkSession, lake: Lake) -> None:
    api = Api(spark, lake, {"id": LONG})
    api.write([{"id": 1}], [{"id": 2}])
    spark.sql(f"ALTER TABLE {api.sql} CREATE TAG early")
    spark.sql(f"ALTER TABLE {api.sql} CREATE BRANCH side")
    spark.sql(f"INSERT INTO {api.sql}.branch_side VALUES (3)")
    main = api.ask("DESCRIBE_TABLE")["snapshot_id"]
    api.ask("ALTER_TABLE", add_columns={"note": TEXT})
    for ref in ("early", "side", "main"):
        asked = api.ask("QUERY", ref=ref)["rows"]
        assert Counter(repr(sorted_items(row)) for row in asked) == api.by_spark(f"VERSION AS OF '{ref}'")
    api.compact()
    assert len(api.ask("QUERY", ref="side")["rows"]) == 3
    refs = {ref["name"]: ref["snapshot_id"] for ref in api.ask("DESCRIBE_TABLE")["refs"]}
    assert (refs["early"], refs["side"] != main, refs["main"] != main) == (main, True, True)


def test_spark_reads_the_branch_that_the_service_writes_and_compacts_and_main_never_moves(
    spark: SparkSession, lake: Lake
) -> None:
    api = Api(spark, lake, {"id": LONG, "note": TEXT})
    api.write([{"id": 1, "note": "a"}], [{"id": 2, "note": "b"}])
    spark.sql(f"ALTER TABLE {api.sql} CREATE BRANCH side RETAIN 30 DAYS WITH SNAPSHOT RETENTION 5 SNAPSHOTS")
    spark.sql(f"INSERT INTO {api.sql}.branch_side VALUES (3, 'spark')")
    main, refs = api.by_spark(), {row.name: row for row in spark.sql(f"SELECT * FROM {api.sql}.refs").collect()}
    api.ask("WRITE", ref="side", records=[{"id": 4, "note": "d"}])
    api.ask("WRITE", ref="side", mode="upsert", key=["id"], records=[{"id": 1, "note": "new"}])
    spark.sql(f"REFRESH TABLE {api.sql}")
    spark.sql(f"DELETE FROM {api.sql}.branch_side WHERE id = 2")
    side = api.by_spark("VERSION AS OF 'side'")
    assert side == Counter(
        repr([("id", number), ("note", note)]) for number, note in ((1, "new"), (3, "spark"), (4, "d"))
    )
    told = api.ask("COMPACT", ref="side", force=True, options={"rewrite-all": True})
    assert (told["status"], told["stats"]["files_after"]) == ("COMPLETED", 1)
    assert (api.by_spark("VERSION AS OF 'side'"), api.by_spark()) == (side, main)
    named = spark.sql(f"SELECT * FROM {api.sql}.branch_side").collect()
    assert Counter(repr(sorted(row.asDict().items())) for row in named) == side
    after = {row.name: row for row in spark.sql(f"SELECT * FROM {api.sql}.refs").collect()}
    assert after["main"] == refs["main"]
    kept = ("max_reference_age_in_ms", "min_snapshots_to_keep", "max_snapshot_age_in_ms")
    assert [after["side"][name] for name in kept] == [refs["side"][name] for name in kept]
    assert after["side"].snapshot_id == told["snapshot_id"]
    spark.sql(f"INSERT INTO {api.sql}.branch_side VALUES (5, 'on')")
    assert len(api.ask("QUERY", ref="side")["rows"]) == 4


METADATA_TABLES = ("snapshots", "history", "files", "entries", "all_entries", "manifests", "partitions", "refs")


def test_spark_reads_what_an_optimized_write_merged_at_every_snapshot_and_after_a_change_of_columns(
    spark: SparkSession, lake: Lake
) -> None:
    by_kind = [{"source": "kind", "transform": "identity"}]
    on = {"regelate.write.optimized": "true"}
    api = Api(spark, lake, {"id": INT, "kind": TEXT, "a": TEXT}, partition_spec=by_kind, properties=on)
    seen: dict[int, Counter[str]] = {}

    def wrote(*rows: dict[str, Any], **more: Any) -> int:
        answer = api.ask("WRITE", records=list(rows), **more)
        seen[answer["snapshot_id"]] = api.by_spark()
        return int(answer["files_taken_along"])

    assert wrote({"id": 1, "kind": "x", "a": "1"}, {"id": 2, "kind": "y", "a": "2"}) == 0
    assert wrote({"id": 3, "kind": "x", "a": "3"}) == 1
    spark.sql(f"INSERT INTO {api.sql} VALUES (4, 'x', 'spark'), (5, 'y', 'spark')")
    spark.sql(f"DELETE FROM {api.sql} WHERE id = 4")
    api.ask("ALTER_TABLE", rename_columns={"a": "b"}, add_columns={"c": LONG}, alter_columns={"id": {"type": "long"}})
    assert wrote({"id": 2**40, "kind": "y", "b": "6", "c": 6}) == 2
    upsert = {"mode": "upsert", "key": ["id"]}
    assert wrote({"id": 1, "kind": "x", "b": "new", "c": 1}, {"id": 7, "kind": "y", "b": "7"}, **upsert) == 1
    expected = [(1, "x", "new", 1), (2, "y", "2", None), (3, "x", "3", None), (5, "y", "spark", None)]
    expected += [(7, "y", "7", None), (2**40, "y", "6", 6)]
    names = ("id", "kind", "b", "c")
    model = Counter(repr(sorted(zip(names, row, strict=True))) for row in expected)
    assert api.by_spark() == model
    assert {row.file_count for row in spark.sql(f"SELECT file_count FROM {api.sql}.partitions").collect()} == {1}
    for snapshot_id, rows in list(seen.items())[-2:]:
        assert api.by_spark(f"VERSION AS OF {snapshot_id}") == rows
    first = next(iter(seen))
    assert sum(api.by_spark(f"VERSION AS OF {first}").values()) == 2
    for table in METADATA_TABLES:
        assert spark.sql(f"SELECT * FROM {api.sql}.{table}").collect()
    operations = {row.snapshot_id: row.operation for row in spark.sql(f"SELECT * FROM {api.sql}.snapshots").collect()}
    assert [operations[snapshot_id] for snapshot_id in seen] == ["append", "overwrite", "overwrite", "overwrite"]
    spark.sql(f"UPDATE {api.sql} SET b = 'on' WHERE id = 7")
    api.compact()
    assert sum(api.by_spark().values()) == len(expected)


def sorted_items(row: dict[str, Any]) -> list[tuple[str, Any]]:
    return sorted(row.items())


def as_spark_has_them(api: Api, rows: Rows) -> Rows:
    """Return rows with their values as Spark's are in Python: decimals, where the API has texts."""
    kinds = {field.name: field.dataType.typeName() for field in api.spark.table(api.sql).schema.fields}
    return [{n: Decimal(v) if kinds[n] == "decimal" and v is not None else v for n, v in r.items()} for r in rows]
