"""The corpus: tables that Spark and Iceberg's Java writers leave behind, each with something odd about it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tests.external.bench import NAMESPACE, Bench
from tests.external.digest import configured
from tests.external.java import append_records, equality_delete
from tests.external.trial import Maker, Table

MERGE_ON_READ = {f"write.{what}.mode": "merge-on-read" for what in ("delete", "update", "merge")}
WORDS = "element_at(array('click', 'view', 'it''s'), cast(id % 3 + 1 AS int))"
NO_MAPPING = "schema.name-mapping.default"
NONE: Mapping[str, str] = {}
TABLES: dict[str, Table] = {}


def table(name: str, **how: object):
    """Enter a maker of tables into the corpus; `how` are fields of Table."""

    def entered(make: Maker) -> Maker:
        TABLES[name] = Table(name=name, make=make, **how)  # type: ignore[arg-type]
        return make

    return entered


def create(bench: Bench, name: str, columns: str, *, by: str = "", properties: Mapping[str, str] = NONE) -> None:
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
    bench.sql(
        f"CREATE TABLE {bench.name(name)} ({columns}) USING iceberg"
        + (f" PARTITIONED BY ({by})" if by else "")
        + (f" TBLPROPERTIES ({listed})" if listed else "")
    )


def insert(bench: Bench, name: str, select: str, starts: Iterable[int] = (0, 40, 80), rows: int = 40) -> None:
    """Insert one file (per partition) for each start; `select` speaks of `id`."""
    for start in starts:
        source = f"range({start}, {start + rows})"
        bench.sql(f"INSERT INTO {bench.name(name)} SELECT /*+ COALESCE(1) */ {select} FROM {source}")


def plain(bench: Bench, name: str, properties: Mapping[str, str] = NONE, by: str = "") -> None:
    create(bench, name, "id int, word string, amount double", by=by, properties=properties)
    insert(bench, name, f"cast(id AS int), {WORDS}, id / 7")


# values and types


@table("all_types", promoted={"i": "bigint", "f": "double", "d9": "decimal(38,2)"})
def _(bench: Bench, name: str) -> None:
    create(
        bench,
        name,
        "id int, flag boolean, i int, l bigint, f float, g double, d9 decimal(9,2), d18 decimal(18,4), "
        "d38 decimal(38,10), day date, at timestamp, naive timestamp_ntz, word string, bytes binary",
    )
    row = (
        "cast(id AS int), id % 2 = 0, cast(id - 20 AS int), id * 100000000000, cast(id / 3 AS float), id / 3, "
        "cast(id / 7 AS decimal(9,2)), cast(id * 1000.5 AS decimal(18,4)), cast(id * 1e15 / 7 AS decimal(38,10)), "
        "date_add(DATE '2025-01-01', cast(id AS int)), timestamp_micros(id * 1234567890123), "
        "cast(timestamp_micros(id * 987654321987) AS timestamp_ntz), concat('ä', id, char(128512)), "
        "cast(cast(id AS string) AS binary)"
    )
    insert(bench, name, row)
    bench.sql(f"INSERT INTO {bench.name(name)} SELECT cast(NULL AS int), {', '.join(['NULL'] * 13)}")


@table("extremes", promoted={"i": "bigint", "f": "double"})
def _(bench: Bench, name: str) -> None:
    create(bench, name, "id int, i int, l bigint, f float, g double, d decimal(38,0), day date, at timestamp, s string")
    nines = "9" * 38
    for number, row in enumerate(
        (
            f"2147483647, 9223372036854775807, float('NaN'), double('NaN'), {nines}BD, DATE '9999-12-31', "
            "TIMESTAMP '9999-12-31 23:59:59.999999', ''",
            f"-2147483648, -9223372036854775808, float('-Infinity'), double('Infinity'), -{nines}BD, "
            "DATE '0001-01-01', TIMESTAMP '0001-01-01 00:00:00', repeat('x', 5000)",
            "0, 0, float('-0.0'), double('-0.0'), 0BD, DATE '1969-12-31', TIMESTAMP '1969-12-31 23:59:59.999999', "
            "'\\u0000'",
            "NULL, NULL, float(1.4E-45), double(4.9E-324), NULL, NULL, NULL, concat('123456789012345', "
            "decode(unhex('ED9FBF'), 'utf-8'), 'tail')",
        )
    ):
        bench.sql(f"INSERT INTO {bench.name(name)} SELECT {number}, {row}")


@table("far_dates")
def _(bench: Bench, name: str) -> None:
    create(bench, name, "id int, day date, at timestamp, naive timestamp_ntz")
    for number, days in enumerate((2932897, 3000000, 90000000, -800000, 0)):
        micros = days * 1000003 * 40
        bench.sql(
            f"INSERT INTO {bench.name(name)} SELECT {number}, date_from_unix_date({days}), "
            f"timestamp_micros({micros}), cast(timestamp_micros({micros}) AS timestamp_ntz)"
        )


@table("required_columns", promoted={"id": "bigint"})
def _(bench: Bench, name: str) -> None:
    create(bench, name, "id int NOT NULL, word string NOT NULL, s struct<a: int, b: string> NOT NULL, note string")
    insert(bench, name, f"cast(id AS int), {WORDS}, named_struct('a', cast(id AS int), 'b', 'x'), NULL")


@table("nested")
def _(bench: Bench, name: str) -> None:
    create(
        bench,
        name,
        "id int, s struct<a: int, t: struct<b: string, c: array<int>>>, l array<struct<x: int, y: binary>>, "
        "m map<string, array<double>>, ll array<array<string>>, ms map<int, struct<p: decimal(5,1), q: date>>",
    )
    row = (
        "cast(id AS int), if(id % 5 = 0, NULL, named_struct('a', cast(id AS int), 't', if(id % 7 = 0, NULL, "
        "named_struct('b', 'x', 'c', array(1, NULL, cast(id AS int)))))), "
        "if(id % 3 = 0, array(), array(named_struct('x', cast(id AS int), 'y', unhex('00FF')), NULL)), "
        "if(id % 4 = 0, map(), map('k', array(id / 3, double('-0.0')), 'n', NULL)), "
        "array(array('a', NULL), array(), NULL), map(cast(id AS int), named_struct('p', 1.5BD, 'q', DATE '2020-02-29'))"
    )
    insert(bench, name, row)


@table("uuid_and_fixed")
def _(bench: Bench, name: str) -> None:
    types = bench.spark._jvm.org.apache.iceberg.types.Types  # type: ignore[union-attr]
    fields = [("id", types.IntegerType.get()), ("u", types.UUIDType.get()), ("f", types.FixedType.ofLength(5))]
    append_records(
        bench,
        name,
        fields,
        [[{"id": n, "u": f"00000000-0000-4000-8000-0000000000{n:02x}", "f": b"\x00\xff" + bytes([n] * 3)}
          for n in range(start, start + 10)] for start in (0, 10, 20)],
    )  # fmt: skip


@table("long_strings_in_small_row_groups")
def _(bench: Bench, name: str) -> None:
    create(
        bench,
        name,
        "id int, word string, bytes binary",
        properties={"write.parquet.row-group-size-bytes": "4096", "write.parquet.page-size-bytes": "512",
                    "write.parquet.dict-size-bytes": "256"},
    )  # fmt: skip
    row = "cast(id AS int), repeat(md5(cast(id AS string)), 30), cast(repeat(sha(cast(id AS string)), 20) AS binary)"
    insert(bench, name, row, rows=300, starts=(0, 300, 600))


# partitions


@table("every_transform", sort=("id",))
def _(bench: Bench, name: str) -> None:
    create(
        bench,
        name,
        "id int, word string, at timestamp, day date, amount decimal(9,2)",
        by="bucket(2, id), truncate(2, word), months(at), years(day), truncate(100, amount)",
    )
    row = f"cast(id AS int), {WORDS}, timestamp_micros(id * 40000000000), DATE '2025-01-01', cast(id AS decimal(9,2))"
    insert(bench, name, row, rows=10, starts=(0, 10, 0, 10))


@table("days_and_hours")
def _(bench: Bench, name: str) -> None:
    create(bench, name, "id int, at timestamp, day timestamp_ntz", by="hours(at), days(day)")
    row = "cast(id AS int), timestamp_micros((id % 4) * 2000000000), cast(timestamp_micros(-id) AS timestamp_ntz)"
    insert(bench, name, row, rows=8, starts=(0, 8, 16))


@table("odd_partition_values")
def _(bench: Bench, name: str) -> None:
    create(bench, name, "id int, word string", by="word")
    words = "array('a/b', 'per%20cent', 'ä ö', '', NULL, 'a=b&c', '..', char(10))"
    insert(bench, name, f"cast(id AS int), element_at({words}, cast(id % 8 + 1 AS int))", rows=16, starts=(0, 16))


@table("odd_partition_types")
def _(bench: Bench, name: str) -> None:
    create(
        bench,
        name,
        "id int, g double, f float, d decimal(20,5), b binary, flag boolean, at timestamp",
        by="g, f, d, b, flag, at",
    )
    row = (
        "cast(id AS int), element_at(array(0.1D, double('NaN'), NULL), cast(id % 3 + 1 AS int)), float(0.1), "
        "cast(-1.5 AS decimal(20,5)), unhex('00FF'), id % 2 = 0, TIMESTAMP '2025-01-17 05:00:00.000001'"
    )
    insert(bench, name, row, rows=6, starts=(0, 6, 12))


@table("forty_partitions")
def _(bench: Bench, name: str) -> None:
    create(bench, name, "id int, p int", by="p")
    insert(bench, name, "cast(id AS int), cast(id % 40 AS int)", rows=40, starts=(0, 40, 80))


@table("object_storage_layout")
def _(bench: Bench, name: str) -> None:
    plain(bench, name, {"write.object-storage.enabled": "true"}, by="word")


# deletes


def _merge_on_read(bench: Bench, name: str, granularity: str) -> None:
    plain(bench, name, {**MERGE_ON_READ, "write.delete.granularity": granularity}, by="word")
    bench.sql(f"DELETE FROM {bench.name(name)} WHERE id % 7 = 3")
    bench.sql(f"UPDATE {bench.name(name)} SET amount = -1 WHERE id % 11 = 0")
    bench.sql(
        f"MERGE INTO {bench.name(name)} t USING (SELECT cast(id AS int) AS id FROM range(100, 140)) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET amount = 0 WHEN NOT MATCHED THEN INSERT (id, word, amount) VALUES (s.id, 'n', 1)"
    )


@table("position_deletes_by_file")
def _(bench: Bench, name: str) -> None:
    _merge_on_read(bench, name, "file")


@table("position_deletes_by_partition")
def _(bench: Bench, name: str) -> None:
    _merge_on_read(bench, name, "partition")


@table("all_rows_deleted", sort=())
def _(bench: Bench, name: str) -> None:
    plain(bench, name, MERGE_ON_READ)
    bench.sql(f"DELETE FROM {bench.name(name)} WHERE id % 2 = 0")
    equality_delete(bench, name, [{"id": n} for n in range(1, 120, 2)])


@table("equality_deletes")
def _(bench: Bench, name: str) -> None:
    plain(bench, name)
    equality_delete(bench, name, [{"id": n} for n in (1, 41, 81)])
    insert(bench, name, "cast(id AS int), 'again', 0D", starts=(0,), rows=3)
    equality_delete(bench, name, [{"id": 2}, {"id": 999}])


@table("equality_deletes_in_partitions")
def _(bench: Bench, name: str) -> None:
    plain(bench, name, by="word")
    equality_delete(bench, name, [{"id": n} for n in (1, 4, 41)], partition={"word": "view"})
    equality_delete(bench, name, [{"id": n} for n in (0, 3, 42)], partition={"word": "click"})


@table("equality_deletes_on_two_columns_and_nulls")
def _(bench: Bench, name: str) -> None:
    create(bench, name, "id int, a string, b int")
    insert(bench, name, "cast(id AS int), if(id % 3 = 0, NULL, 'x'), if(id % 4 = 0, NULL, cast(id % 5 AS int))")
    equality_delete(bench, name, [{"a": None, "b": 3}, {"a": "x", "b": None}, {"a": None, "b": None}])


@table("equality_and_position_deletes")
def _(bench: Bench, name: str) -> None:
    plain(bench, name, MERGE_ON_READ)
    bench.sql(f"DELETE FROM {bench.name(name)} WHERE id % 9 = 1")
    equality_delete(bench, name, [{"word": "view"}])
    insert(bench, name, "cast(id AS int), 'view', 1D", starts=(200,), rows=20)
    bench.sql(f"DELETE FROM {bench.name(name)} WHERE id = 205")
    equality_delete(bench, name, [{"id": 206}])


@table("equality_deletes_after_the_spec_changed")
def _(bench: Bench, name: str) -> None:
    plain(bench, name)
    equality_delete(bench, name, [{"id": 5}, {"id": 45}])
    bench.sql(f"ALTER TABLE {bench.name(name)} ADD PARTITION FIELD word")
    insert(bench, name, f"cast(id AS int), {WORDS}, 2D", starts=(0, 40))
    equality_delete(bench, name, [{"id": 7}, {"id": 10}], partition={"word": "view"})


@table("equality_delete_on_a_promoted_and_renamed_column")
def _(bench: Bench, name: str) -> None:
    create(bench, name, "id int, k int, w string")
    insert(bench, name, "cast(id AS int), cast(id % 10 AS int), 'x'")
    equality_delete(bench, name, [{"k": 3, "w": "x"}])
    bench.sql(f"ALTER TABLE {bench.name(name)} ALTER COLUMN k TYPE bigint")
    bench.sql(f"ALTER TABLE {bench.name(name)} RENAME COLUMN k TO key")
    bench.sql(f"ALTER TABLE {bench.name(name)} RENAME COLUMN w TO k")
    insert(bench, name, "cast(id AS int), id % 10, 'y'", starts=(200,))
    equality_delete(bench, name, [{"k": "y"}])


# evolution


@table("added_dropped_renamed")
def _(bench: Bench, name: str) -> None:
    plain(bench, name)
    full = bench.name(name)
    bench.sql(f"ALTER TABLE {full} ADD COLUMN extra string")
    insert(bench, name, f"cast(id AS int), {WORDS}, 1D, 'extra'", starts=(200,))
    bench.sql(f"ALTER TABLE {full} RENAME COLUMN word TO kind")
    bench.sql(f"ALTER TABLE {full} DROP COLUMN amount")
    bench.sql(f"ALTER TABLE {full} ADD COLUMN amount string")
    insert(bench, name, f"cast(id AS int), {WORDS}, NULL, 'new'", starts=(300,))
    bench.sql(f"ALTER TABLE {full} RENAME COLUMN kind TO swap")
    bench.sql(f"ALTER TABLE {full} RENAME COLUMN extra TO word")


@table("promoted", promoted={"d": "decimal(38,2)"})
def _(bench: Bench, name: str) -> None:
    create(bench, name, "id int, i int, f float, d decimal(5,2), s struct<i: int, f: float>, l array<int>")
    row = "cast(id AS int), {0}, {1}, cast(id AS decimal(5,2)), named_struct('i', {0}, 'f', {1}), array({0})"
    insert(bench, name, row.format("cast(id AS int)", "cast(id / 3 AS float)"))
    full = bench.name(name)
    for column, kind in (("i", "bigint"), ("f", "double"), ("d", "decimal(20,2)"), ("s.i", "bigint"),
                         ("s.f", "double"), ("l.element", "bigint")):  # fmt: skip
        bench.sql(f"ALTER TABLE {full} ALTER COLUMN {column} TYPE {kind}")
    insert(bench, name, row.format("id * 10000000000", "id / 3"), starts=(200, 240))


@table("nested_evolution")
def _(bench: Bench, name: str) -> None:
    create(bench, name, "id int, s struct<a: int, b: string>, l array<struct<x: int>>, m map<string, struct<v: int>>")
    row = (
        "cast(id AS int), named_struct('a', cast(id AS int), 'b', 'x'), array(named_struct('x', cast(id AS int))), "
        "map('k', named_struct('v', cast(id AS int)))"
    )
    insert(bench, name, row)
    full = bench.name(name)
    bench.sql(f"ALTER TABLE {full} ADD COLUMN s.c double AFTER a")
    bench.sql(f"ALTER TABLE {full} RENAME COLUMN s.b TO bb")
    bench.sql(f"ALTER TABLE {full} ADD COLUMN l.element.y string FIRST")
    bench.sql(f"ALTER TABLE {full} ADD COLUMN m.value.w string")
    bench.sql(f"ALTER TABLE {full} ALTER COLUMN l.element.x TYPE bigint")
    bench.sql(f"ALTER TABLE {full} DROP COLUMN s.a")


@table("reordered_and_relaxed")
def _(bench: Bench, name: str) -> None:
    create(bench, name, "id int NOT NULL, a string NOT NULL, b double")
    insert(bench, name, "cast(id AS int), 'x', id / 3")
    full = bench.name(name)
    bench.sql(f"ALTER TABLE {full} ALTER COLUMN b FIRST")
    bench.sql(f"ALTER TABLE {full} ALTER COLUMN a DROP NOT NULL")
    insert(bench, name, "id / 3, cast(id AS int), NULL", starts=(200,))


@table("spec_replaced_and_source_dropped")
def _(bench: Bench, name: str) -> None:
    plain(bench, name, by="word")
    full = bench.name(name)
    bench.sql(f"ALTER TABLE {full} REPLACE PARTITION FIELD word WITH bucket(3, id)")
    insert(bench, name, f"cast(id AS int), {WORDS}, 1D", starts=(200, 240))
    bench.sql(f"ALTER TABLE {full} DROP PARTITION FIELD id_bucket_3")
    insert(bench, name, f"cast(id AS int), {WORDS}, 2D", starts=(300, 340))
    bench.sql(f"ALTER TABLE {full} DROP COLUMN word")


@table("odd_names", sort=("i d",))
def _(bench: Bench, name: str) -> None:
    create(
        bench,
        name,
        '`i d` int, `a.b` string, `quo"te` int, `sel``ect` int, `ünïcode 名` string, filename string, file_row_number '
        "int, `1` int, `-x` int, `order` string, `s` struct<`p q`: int, `r.s`: int>",
        by='`ünïcode 名`, bucket(2, `quo"te`)',
    )
    row = (
        "cast(id AS int), 'ab', cast(id AS int), 2, element_at(array('x', 'y'), cast(id % 2 + 1 AS int)), 'f', "
        "cast(id AS int), 1, 2, 'o', named_struct('p q', cast(id AS int), 'r.s', 7)"
    )
    insert(bench, name, row)


@table("names_that_differ_in_case", refused=("UNSUPPORTED_TABLE", "case"), case_sensitive=True)
def _(bench: Bench, name: str) -> None:
    create(bench, name, "id int, a string, A string")
    insert(bench, name, "cast(id AS int), 'lower', 'UPPER'")


# files of other kinds


@table("codecs")
def _(bench: Bench, name: str) -> None:
    create(bench, name, "id int, word string, amount double")
    for number, codec in enumerate(("snappy", "gzip", "zstd", "uncompressed")):
        bench.sql(f"ALTER TABLE {bench.name(name)} SET TBLPROPERTIES ('write.parquet.compression-codec' = '{codec}')")
        insert(bench, name, f"cast(id AS int), {WORDS}, id / 7", starts=(number * 100,))


@table("codec_lz4", refused=("UNSUPPORTED_TABLE", "LZ4"))
def _(bench: Bench, name: str) -> None:
    plain(bench, name, {"write.parquet.compression-codec": "lz4"})


@table("bloom_filters_and_few_metrics")
def _(bench: Bench, name: str) -> None:
    properties = {
        "write.parquet.bloom-filter-enabled.column.word": "true",
        "write.metadata.metrics.default": "none",
        "write.metadata.metrics.column.id": "counts",
        "write.metadata.metrics.column.word": "truncate(1)",
    }
    plain(bench, name, properties)


def _added(bench: Bench, name: str, columns: str, row: str, options: Mapping[str, str] = NONE) -> None:
    """Make an empty table, and add files to it that Spark wrote as plain Parquet, without field ids."""
    create(bench, name, columns)
    folder = bench.folder(name)
    for start in (0, 40, 80):
        writer = bench.sql(f"SELECT {row} FROM range({start}, {start + 40})").coalesce(1).write.mode("append")
        writer.options(**options).parquet(folder)
    bench.sql(
        f"CALL {bench.catalog}.system.add_files(table => '{NAMESPACE}.{name}', source_table => '`parquet`.`{folder}`')"
    )


def _forget_mapping(bench: Bench, name: str) -> None:
    bench.sql(f"ALTER TABLE {bench.name(name)} UNSET TBLPROPERTIES ('{NO_MAPPING}')")


PLAIN_ROW = f"cast(id AS int) AS id, {WORDS} AS word, id / 7 AS amount"
PLAIN_COLUMNS = "id int, word string, amount double"


@table("added_files_with_a_name_mapping")
def _(bench: Bench, name: str) -> None:
    _added(bench, name, PLAIN_COLUMNS, PLAIN_ROW)
    bench.sql(f"ALTER TABLE {bench.name(name)} RENAME COLUMN word TO kind")
    insert(bench, name, f"cast(id AS int), {WORDS}, 1D", starts=(200,))


@table("no_field_ids_and_no_mapping")
def _(bench: Bench, name: str) -> None:
    _added(bench, name, PLAIN_COLUMNS, PLAIN_ROW)
    _forget_mapping(bench, name)


@table("no_field_ids_no_mapping_and_swapped_names")
def _(bench: Bench, name: str) -> None:
    _added(bench, name, "id int, a string, b string", "cast(id AS int) AS id, 'a' AS a, 'b' AS b")
    _forget_mapping(bench, name)
    full = bench.name(name)
    for old, new in (("a", "x"), ("b", "a"), ("x", "b")):
        bench.sql(f"ALTER TABLE {full} RENAME COLUMN {old} TO {new}")


@table("no_field_ids_no_mapping_and_a_column_dropped_and_added")
def _(bench: Bench, name: str) -> None:
    _added(bench, name, "id int, a string, b string", "cast(id AS int) AS id, 'a' AS a, 'b' AS b")
    _forget_mapping(bench, name)
    bench.sql(f"ALTER TABLE {bench.name(name)} DROP COLUMN b")
    bench.sql(f"ALTER TABLE {bench.name(name)} ADD COLUMN b string")


@table("legacy_parquet")
def _(bench: Bench, name: str) -> None:
    with (
        configured(bench.spark, "spark.sql.parquet.writeLegacyFormat", "true"),
        configured(bench.spark, "spark.sql.parquet.outputTimestampType", "INT96"),
    ):
        _added(
            bench,
            name,
            "id int, at timestamp, d decimal(9,2), l array<int>",
            "cast(id AS int) AS id, timestamp_micros(id * 86400000001) AS at, cast(id / 3 AS decimal(9,2)) AS d, "
            "array(cast(id AS int), NULL) AS l",
        )


@table("second_version_of_pages", plain_reader=True)
def _(bench: Bench, name: str) -> None:
    options = {"parquet.writer.version": "PARQUET_2_0", "parquet.enable.dictionary": "false", "compression": "gzip"}
    row = f"cast(id AS int) AS id, {WORDS} AS word, id / 7 AS amount, id * 1000000007 AS l, id % 2 = 0 AS flag"
    _added(bench, name, "id int, word string, amount double, l bigint, flag boolean", row, options)


@table("avro", refused=("UNSUPPORTED_TABLE", "avro"))
def _(bench: Bench, name: str) -> None:
    plain(bench, name, {"write.format.default": "avro"})


@table("orc", refused=("UNSUPPORTED_TABLE", "orc"))
def _(bench: Bench, name: str) -> None:
    plain(bench, name, {"write.format.default": "orc"})


@table("version_1", promoted={"id": "bigint"})
def _(bench: Bench, name: str) -> None:
    plain(bench, name, {"format-version": "1"}, by="word")
    bench.sql(f"DELETE FROM {bench.name(name)} WHERE id = 7")
    bench.sql(f"ALTER TABLE {bench.name(name)} DROP PARTITION FIELD word")
    insert(bench, name, f"cast(id AS int), {WORDS}, 1D", starts=(200, 240))


@table("version_3_with_deletion_vectors", refused=("UNSUPPORTED_TABLE", "format version 3"))
def _(bench: Bench, name: str) -> None:
    plain(bench, name, {"format-version": "3", **MERGE_ON_READ})
    bench.sql(f"DELETE FROM {bench.name(name)} WHERE id % 7 = 3")


# history and state


@table("branches_tags_and_history", at=("VERSION AS OF 'first'", "VERSION AS OF 'side'"))
def _(bench: Bench, name: str) -> None:
    plain(bench, name, MERGE_ON_READ)
    full = bench.name(name)
    bench.sql(f"ALTER TABLE {full} CREATE TAG first")
    bench.sql(f"ALTER TABLE {full} CREATE BRANCH side")
    bench.sql(f"INSERT INTO {full}.branch_side VALUES (900, 'side', 0)")
    bench.sql(f"DELETE FROM {full} WHERE id < 10")
    equality_delete(bench, name, [{"id": 50}])
    bench.sql(f"INSERT INTO {full} VALUES (901, 'main', 1)")


@table("rolled_back_and_cherry_picked")
def _(bench: Bench, name: str) -> None:
    plain(bench, name)
    head = bench.head(name)
    bench.sql(f"INSERT INTO {bench.name(name)} VALUES (500, 'picked', 0)")
    picked = bench.head(name)
    assert head is not None
    bench.roll_back(name, head)
    bench.sql(f"INSERT INTO {bench.name(name)} VALUES (501, 'other', 0)")
    bench.sql(f"CALL {bench.catalog}.system.cherrypick_snapshot('{NAMESPACE}.{name}', {picked})")


@table("overwritten_by_copy_on_write")
def _(bench: Bench, name: str) -> None:
    plain(bench, name, by="word")
    full = bench.name(name)
    bench.sql(f"UPDATE {full} SET amount = 9 WHERE id % 5 = 0")
    bench.sql(f"DELETE FROM {full} WHERE id % 6 = 0")
    bench.sql(f"INSERT OVERWRITE {full} SELECT cast(id AS int), 'view', 3D FROM range(700, 710)")
    insert(bench, name, f"cast(id AS int), {WORDS}, 1D", starts=(800, 840))


@table("dangling_deletes")
def _(bench: Bench, name: str) -> None:
    plain(bench, name, MERGE_ON_READ)
    bench.sql(f"DELETE FROM {bench.name(name)} WHERE id % 7 = 3")
    equality_delete(bench, name, [{"id": 5}])
    rewrite = (
        f"table => '{NAMESPACE}.{name}', options => map('rewrite-all', 'true', 'use-starting-sequence-number', 'false')"
    )
    bench.sql(f"CALL {bench.catalog}.system.rewrite_data_files({rewrite})")
    insert(bench, name, f"cast(id AS int), {WORDS}, 1D", starts=(200, 240))


@table("sorted_and_statistics")
def _(bench: Bench, name: str) -> None:
    plain(bench, name, by="bucket(2, id)")
    bench.sql(f"ALTER TABLE {bench.name(name)} WRITE ORDERED BY word DESC NULLS LAST, id")
    insert(bench, name, f"cast(id AS int), {WORDS}, 1D", starts=(200, 240))
    bench.sql(f"CALL {bench.catalog}.system.compute_table_stats(table => '{NAMESPACE}.{name}')")
    bench.sql(f"CALL {bench.catalog}.system.compute_partition_stats(table => '{NAMESPACE}.{name}')")


@table("gzipped_metadata_and_merged_manifests")
def _(bench: Bench, name: str) -> None:
    plain(bench, name, {"write.metadata.compression-codec": "gzip", "commit.manifest.min-count-to-merge": "2"})
    equality_delete(bench, name, [{"id": 1}])
    equality_delete(bench, name, [{"id": 2}])


@table("garbage_collection_disabled", not_cleaned="GC_DISABLED")
def _(bench: Bench, name: str) -> None:
    plain(bench, name, {"gc.enabled": "false"})


@table("empty", untouched=True, sort=())
def _(bench: Bench, name: str) -> None:
    create(bench, name, "id int, word string")
