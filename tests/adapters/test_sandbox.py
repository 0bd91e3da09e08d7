"""The walls around a query: what SQL may say, which files the session opens, how long it runs (trap T15)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StringType

from regelate.adapters.duckdb.duckdb_errors import located
from regelate.adapters.duckdb.guard import guard
from regelate.adapters.duckdb.query import QueryResult, files_of, source_of
from regelate.adapters.duckdb.question import ScanPaths
from regelate.adapters.duckdb.sandbox import Deadline, lock, plain_message, query_fault
from regelate.adapters.duckdb.session import open_session
from regelate.adapters.iceberg.manifests import ManifestReader
from regelate.adapters.iceberg.scan import SnapshotScan
from regelate.errors import DataUnavailable, InvalidRequest, RegelateError, ResourceExhausted, Unavailable
from tests.support.iceberg_tables import append, live_data_paths, local_path, make_catalog, make_table, stored_files
from tests.support.queries import query_engine

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "name", StringType(), required=False),
)
NAMES = ("t", "flights")
MEGABYTE = 1024 * 1024

Ask = Callable[..., QueryResult]


@pytest.fixture
def catalog(tmp_path: Path) -> SqlCatalog:
    return make_catalog(tmp_path)


@pytest.fixture
def flights(catalog: SqlCatalog) -> Table:
    table = make_table(catalog, "ns.flights", SCHEMA)
    append(table, [(1, "a"), (2, "b")])
    return table


@pytest.fixture
def other(catalog: SqlCatalog) -> Table:
    table = make_table(catalog, "ns.other", SCHEMA)
    append(table, [(7, "secret")])
    return table


@pytest.fixture
def ask(tmp_path: Path, flights: Table) -> Ask:
    def run(
        text: str,
        *,
        name: str = "flights",
        seconds: float = 30,
        max_rows: int = 1_000,
        max_bytes: int = MEGABYTE,
    ) -> QueryResult:
        folder = tmp_path / f"query-{len(list(tmp_path.iterdir()))}"
        scan = SnapshotScan(flights, ManifestReader(), folder / "views")
        engine = query_engine(folder)
        return engine.sql(text, name, scan.files(), scan.views, max_rows=max_rows, max_bytes=max_bytes, seconds=seconds)

    return run


@pytest.fixture
def locked(tmp_path: Path, flights: Table) -> duckdb.DuckDBPyConnection:
    """A session as a query gets it, without the guard in front: what the engine itself refuses."""
    scan = SnapshotScan(flights, ManifestReader(), tmp_path / "views")
    groups = scan.files()
    views = [scan.views.write(tasks) for tasks in groups]
    connection = open_session(memory_bytes=128 * MEGABYTE, threads=1, folder=tmp_path / "session")
    lock(connection, files_of(views, [task for group in groups for task in group]))
    connection.execute(f"CREATE VIEW t AS {source_of(views)}")
    return connection


def code(call: Callable[[], object]) -> tuple[str, int]:
    with pytest.raises(RegelateError) as caught:
        call()
    return caught.value.code, caught.value.status


# --- the guard --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM t",
        "select id, count(*) from flights group by all order by 1 limit 3",
        'FROM "FLIGHTS"',
        "SELECT 1; -- nothing after",
        "WITH a AS (SELECT * FROM t), b AS (FROM a) SELECT * FROM b JOIN t USING (id)",
        "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 5) SELECT * FROM r",
        "SELECT * FROM t WHERE id IN (SELECT id FROM flights) AND EXISTS (FROM t AS u WHERE u.id = t.id)",
        "SELECT *, row_number() OVER (ORDER BY id) AS n FROM t QUALIFY n < 3",
        "SELECT list_transform([1, 2], lambda x: x + 1), {'a': 1}.a, lpad(name, 5, '0') FROM t",
        "SELECT * FROM range(10) AS r(n), unnest([1, 2]) AS u(m), generate_series(1, 3)",
        "SELECT * FROM t PIVOT (count(*) FOR name IN ('a', 'b'))",
        "SELECT * FROM t ASOF JOIN t AS u USING (name, id)",
        "VALUES (1), (2)",
        "DESCRIBE t",
        "SUMMARIZE flights",
    ],
)
def test_one_select_over_the_table_passes_the_guard(text: str) -> None:
    guard(text, NAMES)


NOT_ONE_SELECT = [
    "",
    "-- nothing",
    "SELECT 1; SELECT 2",
    "SELECT 1; DROP VIEW t",
    "COPY t TO '/tmp/out.csv'",
    "COPY (SELECT 1) TO '/tmp/out.parquet'",
    "COPY t FROM '/etc/passwd'",
    "EXPORT DATABASE '/tmp/out'",
    "ATTACH '/tmp/other.db'",
    "ATTACH ':memory:' AS m",
    "DETACH m",
    "USE memory",
    "INSTALL httpfs",
    "LOAD httpfs",
    "SET memory_limit = '10GB'",
    "RESET memory_limit",
    "PRAGMA database_list",
    "PRAGMA enable_profiling",
    "CREATE TABLE x AS SELECT 1",
    "CREATE VIEW t2 AS SELECT 1",
    "CREATE MACRO f(a) AS a",
    "CREATE SECRET s (TYPE s3, KEY_ID 'a', SECRET 'b')",
    "DROP SECRET s",
    "DROP VIEW t",
    "INSERT INTO t VALUES (3, 'c')",
    "UPDATE t SET id = 1",
    "DELETE FROM t",
    "ALTER VIEW t RENAME TO u",
    "EXPLAIN SELECT 1",
    "EXPLAIN ANALYZE COPY t TO '/tmp/out.csv'",
    "PREPARE p AS SELECT 1",
    "EXECUTE p",
    "CALL pragma_version()",
    "BEGIN",
    "CHECKPOINT",
    "VACUUM",
    "PIVOT t ON name USING count(*)",
]
READS_SOMETHING_ELSE = [
    "SELECT * FROM other",
    "SELECT * FROM ns.t",
    "SELECT * FROM memory.main.t",
    "SELECT * FROM '/etc/passwd'",
    "SELECT * FROM 'data.parquet'",
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM read_text('/etc/passwd')",
    "SELECT * FROM system.main.read_text('/etc/passwd')",
    "SELECT * FROM read_blob('/etc/passwd')",
    "SELECT * FROM read_json('x.json')",
    "SELECT * FROM read_parquet('https://example.org/x.parquet')",
    "SELECT * FROM parquet_metadata('x.parquet')",
    "SELECT * FROM glob('/etc/*')",
    "SELECT * FROM sniff_csv('/etc/passwd')",
    "SELECT * FROM iceberg_scan('s3://bucket/table')",
    "SELECT * FROM iceberg_metadata('x')",
    "SELECT * FROM query('SELECT 1')",
    "SELECT * FROM query_table('t')",
    "SELECT * FROM json_execute_serialized_sql('{}')",
    "SELECT * FROM duckdb_secrets()",
    "SELECT * FROM duckdb_settings()",
    "SELECT * FROM duckdb_views()",
    "SELECT * FROM duckdb_views",
    "SELECT * FROM pragma_database_list",
    "SELECT * FROM pg_catalog.pg_views",
    "SELECT * FROM pg_views",
    "SELECT * FROM information_schema.tables",
    "SELECT * FROM which_secret('s3://bucket', 's3')",
    "WITH duckdb_views AS (SELECT 1) SELECT * FROM duckdb_views",
    "SHOW TABLES",
    "SHOW ALL TABLES",
    "SHOW DATABASES",
    "SELECT * FROM (SHOW TABLES)",
    "SELECT (SELECT count(*) FROM read_text('/etc/passwd'))",
    "SELECT * FROM t WHERE name IN (SELECT content FROM read_text('/etc/passwd'))",
    "SELECT current_setting('temp_directory')",
    "SELECT getenv('HOME')",
    "SELECT pg_get_viewdef(1)",
    "SELECT write_log('x')",
]
NO_TABLE_IN_ITS_SCOPE = [
    "WITH a AS (WITH b AS (SELECT 1) FROM b) SELECT * FROM b",
    "WITH a AS (FROM b), b AS (SELECT 1) SELECT * FROM a",
    "WITH a AS (FROM a) SELECT * FROM a",
    "WITH RECURSIVE r AS (FROM r UNION ALL SELECT 1) SELECT * FROM r",
    "SELECT * FROM (WITH b AS (SELECT 1) FROM b) AS x, b",
    "SELECT (WITH b AS (SELECT 1 AS i) SELECT i FROM b), (SELECT i FROM b)",
    "SELECT 1 WHERE EXISTS (WITH b AS (SELECT 1) FROM b) UNION ALL SELECT * FROM b",
    'SELECT (WITH "/etc/passwd" AS (SELECT 1 AS i) SELECT i FROM "/etc/passwd") FROM "/etc/passwd"',
]
SEEN_IN_ITS_SCOPE = [
    "WITH t AS (SELECT id + 1 AS id FROM t) SELECT * FROM t",
    "WITH a AS (SELECT 1 AS i), b AS (FROM a) SELECT (WITH c AS (FROM b) SELECT i FROM c) FROM a, b",
    "WITH a AS (SELECT 1 AS i) SELECT * FROM a UNION ALL (WITH b AS (FROM a) FROM b)",
    "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL (WITH q AS (FROM r) SELECT n + 1 FROM q WHERE n < 5)) FROM r",
    "WITH A AS (SELECT 1 AS i) SELECT * FROM a, (SELECT i FROM A) AS x",
]
CALLS_SOMETHING_ELSE = [
    "SELECT current_setting('threads') OVER () FROM t",
    "SELECT system.main.getenv('HOME')",
    "SELECT pg_catalog.lower('x')",
    "SELECT nowhere.main.lower('x')",
    "SELECT sleep_ms(1000)",
    "SELECT pg_sleep(1)",
    "SELECT version()",
    "SELECT current_database()",
    "SELECT nextval('s')",
    "SELECT list_transform([1], lambda x: getvariable('x'))",
    "SELECT ('HOME').getenv()",
]
BLOWS_UP = [
    "SELECT list_sum(range(0, 1000000000))",
    "SELECT unnest(generate_series(1, 1000000000))",
    "SELECT * FROM unnest(range(1000000000))",
    "SELECT repeat('x', 1000000000)",
    "SELECT repeat(name, id) FROM t",
    "SELECT lpad(name, 1000000000, ' ') FROM t",
    "SELECT format('{:1000000000}', 1)",
    "SELECT printf('%1000000000d', 1)",
]


@pytest.mark.parametrize("text", NOT_ONE_SELECT)
def test_anything_but_one_select_is_refused(text: str) -> None:
    assert code(lambda: guard(text, NAMES)) == ("QUERY_NOT_ALLOWED", 400)


@pytest.mark.parametrize("text", READS_SOMETHING_ELSE)
def test_a_select_of_anything_but_the_table_is_refused(text: str) -> None:
    assert code(lambda: guard(text, NAMES)) == ("QUERY_NOT_ALLOWED", 400)


@pytest.mark.parametrize("text", NO_TABLE_IN_ITS_SCOPE)
def test_a_with_clause_opens_nothing_outside_of_its_scope(text: str) -> None:
    assert code(lambda: guard(text, NAMES)) == ("QUERY_NOT_ALLOWED", 400)


@pytest.mark.parametrize("text", SEEN_IN_ITS_SCOPE)
def test_a_with_clause_is_found_in_its_scope_and_may_hide_the_table(ask: Ask, text: str) -> None:
    assert ask(text).row_count


@pytest.mark.parametrize("text", CALLS_SOMETHING_ELSE)
def test_a_function_that_is_not_on_the_list_is_refused(text: str) -> None:
    assert code(lambda: guard(text, NAMES)) == ("QUERY_NOT_ALLOWED", 400)


@pytest.mark.parametrize("text", BLOWS_UP)
def test_a_call_that_makes_a_huge_value_is_refused(text: str) -> None:
    assert code(lambda: guard(text, NAMES)) == ("QUERY_NOT_ALLOWED", 400)


@pytest.mark.parametrize(
    "text",
    [
        "SELEC 1",
        "SELECT",
        "SELECT (((",
        "SELECT 'a",
        "SELECT 1\0; DROP VIEW t",
        "SELECT '\ud800'",
        "SELECT " + "(" * 50_000,
    ],
)
def test_text_that_does_not_parse_is_a_query_error(text: str) -> None:
    assert code(lambda: guard(text, NAMES)) == ("QUERY_ERROR", 400)


def test_a_statement_of_many_terms_is_refused_before_the_stack_ends() -> None:
    assert code(lambda: guard("SELECT " + "+".join(["1"] * 900), NAMES))[0] == "QUERY_NOT_ALLOWED"


# --- the session, without the guard -----------------------------------------------------------------------------------


def test_the_locked_session_reads_its_table(locked: duckdb.DuckDBPyConnection) -> None:
    assert locked.execute("SELECT id, name FROM t ORDER BY id").fetchall() == [(1, "a"), (2, "b")]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM read_blob('/etc/hostname')",
        "SELECT * FROM glob('/etc/*')",
        "SELECT * FROM '/etc/passwd.csv'",
        "SELECT * FROM query('SELECT * FROM read_text(''/etc/passwd'')')",
        "SELECT * FROM read_parquet('http://127.0.0.1:1/x.parquet')",
        "COPY t TO '/tmp/regelate-escaped.csv'",
        "EXPORT DATABASE '/tmp/regelate-escaped'",
        "ATTACH '/tmp/regelate-escaped.db'",
        "INSTALL spatial",
        "LOAD '/tmp/x.duckdb_extension'",
        "SET enable_external_access = true",
        "SET allowed_paths = ['/etc/passwd']",
        "SET allowed_directories = ['/etc']",
        "SET memory_limit = '10GB'",
        "RESET enable_external_access",
        "PRAGMA memory_limit = '10GB'",
        "SELECT * FROM python_variable",
    ],
)
def test_the_locked_session_itself_refuses_the_outside(locked: duckdb.DuckDBPyConnection, text: str) -> None:
    python_variable = [{"a": 1}]
    with pytest.raises(duckdb.Error):
        locked.execute(text).fetchall()
    assert python_variable
    assert not list(Path("/tmp").glob("regelate-escaped*"))


def test_the_locked_session_cannot_read_another_table(locked: duckdb.DuckDBPyConnection, other: Table) -> None:
    (data,) = live_data_paths(other)
    for text in (f"SELECT * FROM iceberg_scan('{other.metadata_location}')", f"SELECT * FROM read_parquet('{data}')"):
        with pytest.raises(duckdb.PermissionException):
            locked.execute(text)


def test_the_locked_session_cannot_leave_its_folders_by_dots_or_links(
    locked: duckdb.DuckDBPyConnection, flights: Table, other: Table, tmp_path: Path
) -> None:
    (mine,), (theirs,) = live_data_paths(flights), live_data_paths(other)
    link = local_path(mine).parent / "link.parquet"
    link.symlink_to(local_path(theirs))
    around = f"{local_path(mine).parent}/../../other/data/{local_path(theirs).name}"
    assert Path(around).exists()
    for path in (around, link):
        with pytest.raises(duckdb.PermissionException):
            locked.execute(f"SELECT * FROM read_parquet('{path}')")


def test_copy_over_an_allowed_file_is_what_only_the_guard_stops(
    locked: duckdb.DuckDBPyConnection, flights: Table
) -> None:
    (data,) = live_data_paths(flights)
    text = f"COPY (SELECT 1 AS id) TO '{data}' (FORMAT parquet, USE_TMP_FILE false)"
    assert code(lambda: guard(text, NAMES)) == ("QUERY_NOT_ALLOWED", 400)
    locked.execute(text)
    assert duckdb.execute("SELECT count(*) FROM read_parquet(?)", [str(local_path(data))]).fetchone() == (1,)


# --- the whole way ----------------------------------------------------------------------------------------------------


def test_a_query_finds_the_table_under_both_names(ask: Ask) -> None:
    found = ask("SELECT t.id, f.name FROM t JOIN flights AS f USING (id) ORDER BY id")
    assert found.rows == ({"id": 1, "name": "a"}, {"id": 2, "name": "b"})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("air.flights", "SELECT air.flights.id FROM air.flights JOIN flights AS f USING (id) ORDER BY 1"),
        ("air.flights", 'SELECT id FROM "AIR"."Flights" UNION SELECT id FROM t ORDER BY 1'),
        ("air.line.flights", 'SELECT id FROM "air.line".flights ORDER BY id'),
        ("main.flights", "SELECT id FROM main.flights ORDER BY id"),
        ("select.t", 'SELECT id FROM "select".t ORDER BY id'),
    ],
)
def test_a_query_finds_the_table_by_its_full_name(ask: Ask, name: str, text: str) -> None:
    assert [row["id"] for row in ask(text, name=name).rows] == [1, 2]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("air.flights", "FROM rail.flights"),
        ("air.flights", "FROM air.t"),
        ("air.flights", "FROM memory.air.flights"),
        ("air.flights", "FROM information_schema.tables"),
        ("information_schema.tables", "FROM information_schema.tables"),
        ("pg_catalog.pg_class", "FROM pg_catalog.pg_class"),
        ("temp.flights", "FROM temp.flights"),
        ("flights", "FROM air.flights"),
    ],
)
def test_no_other_qualified_name_is_a_table(ask: Ask, name: str, text: str) -> None:
    assert code(lambda: ask(text, name=name)) == ("QUERY_NOT_ALLOWED", 400)


def test_refused_queries_change_no_file_and_the_next_query_is_answered(ask: Ask, flights: Table) -> None:
    before = {name: (local_path(flights.location()) / name).stat().st_mtime_ns for name in stored_files(flights)}
    (data,) = live_data_paths(flights)
    for text in (f"COPY t TO '{data}'", "DROP VIEW t", f"SELECT * FROM read_parquet('{data}')"):
        assert code(lambda text=text: ask(text)) == ("QUERY_NOT_ALLOWED", 400)  # type: ignore[misc]
    assert {
        name: (local_path(flights.location()) / name).stat().st_mtime_ns for name in stored_files(flights)
    } == before
    assert len(ask("FROM t").rows) == 2


@pytest.mark.parametrize(
    "text",
    [
        "SELECT nope FROM t",
        "SELECT id + name FROM t",
        "SELECT CAST(name AS INT) FROM t",
        "SELECT error('boom')",
        "SELECT nothing_of_that_name(1)",
        "SELECT ?",
    ],
)
def test_a_query_that_makes_no_sense_is_a_query_error(ask: Ask, text: str) -> None:
    assert code(lambda: ask(text)) == ("QUERY_ERROR", 400)


def test_an_error_amid_the_stream_is_a_query_error(ask: Ask) -> None:
    text = "SELECT CASE WHEN range = 5000 THEN error('boom') ELSE 'x' END AS x FROM range(10000)"
    with pytest.raises(InvalidRequest, match="boom") as caught:
        ask(text, max_rows=10_000)
    assert caught.value.code == "QUERY_ERROR"


def test_messages_of_the_engine_name_no_path(ask: Ask, flights: Table) -> None:
    where = local_path(flights.location())
    with pytest.raises(InvalidRequest) as caught:
        ask(f"SELECT error('see {where}/data/x.parquet and file://{where}/y')")
    assert str(where) not in caught.value.message
    assert "<path>" in caught.value.message


@pytest.mark.parametrize(
    "text",
    [
        "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r) SELECT max(n) FROM r",
        "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r) SELECT n FROM r WHERE n < 0",
        "SELECT count(*) FROM range(10000000) AS a, range(10000000) AS b WHERE a.range + b.range < 0",
        "SELECT sum(a.id) FROM t AS a, t AS b, range(100000000000)",
    ],
)
def test_a_query_without_end_is_interrupted_and_the_next_one_is_answered(ask: Ask, text: str) -> None:
    with pytest.raises(Unavailable) as caught:
        ask(text, seconds=0.5)
    assert (caught.value.code, caught.value.status, caught.value.retryable) == ("QUERY_TIMEOUT", 504, False)
    assert len(ask("FROM t").rows) == 2


def test_a_query_that_needs_more_memory_than_it_has_is_told_so_and_the_next_one_is_answered(ask: Ask) -> None:
    with pytest.raises(ResourceExhausted):
        ask("WITH RECURSIVE r AS (SELECT 'x' AS s, 0 AS n UNION ALL SELECT s || s, n + 1 FROM r WHERE n < 31) FROM r")
    assert len(ask("FROM t").rows) == 2


def test_a_result_of_too_many_bytes_is_refused(ask: Ask) -> None:
    text = "SELECT repeat('x', 1000) AS x FROM range(1000)"
    assert code(lambda: ask(text, max_bytes=100_000)) == ("RESULT_TOO_LARGE", 413)


def test_the_size_of_a_result_is_never_underestimated(ask: Ask) -> None:
    found = ask("SELECT 'ü😀' AS \"ä\", range AS n FROM range(1000)", max_rows=1_000)
    size = len(json.dumps(list(found.rows)).encode())
    assert len(ask("SELECT 'ü😀' AS \"ä\", range AS n FROM range(1000)", max_bytes=size).rows) == 1_000
    assert code(lambda: ask("SELECT 'ü😀' AS \"ä\", range AS n FROM range(1000)", max_bytes=size - 1_000)) == (
        "RESULT_TOO_LARGE",
        413,
    )


@pytest.mark.parametrize(("rows", "truncated"), [(999, False), (1_000, False), (1_001, True), (10**12, True)])
def test_a_result_of_too_many_rows_is_cut_and_says_so(ask: Ask, rows: int, truncated: bool) -> None:
    found = ask(f"SELECT range AS n FROM range({rows})", max_rows=1_000)
    assert (len(found.rows), found.truncated) == (min(rows, 1_000), truncated)


def test_the_session_leaves_no_spill_folder_behind(ask: Ask, tmp_path: Path) -> None:
    ask("SELECT count(DISTINCT range) FROM range(1000)")
    assert not list(tmp_path.rglob("spill"))


def test_a_deadline_that_is_left_in_time_interrupts_nothing() -> None:
    with duckdb.connect() as connection:
        with Deadline(connection, 60) as deadline:
            deadline.check()
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_deadline_that_passed_between_statements_still_interrupts() -> None:
    with duckdb.connect() as connection, Deadline(connection, 0) as deadline:
        with pytest.raises(duckdb.InterruptException):
            connection.execute(
                "SELECT count(*) FROM range(100000) AS a, range(100000) AS b WHERE a.range + b.range < 0"
            )
        with pytest.raises(Unavailable, match="0 seconds"):
            deadline.check()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('IO Error: cannot open "/var/task/lake/x.parquet"', 'IO Error: cannot open "<path>"'),
        ("see s3://bucket/a/b and file:///a/b, or a/b", "see <path> and <path>, or a/b"),
        ('Catalog Error: no x!\nDid you mean "duckdb_views"?', "Catalog Error: no x!"),
        ("x" * 1_000, "x" * 600),
    ],
)
def test_a_message_keeps_its_sense_and_loses_paths(text: str, shown: str) -> None:
    assert plain_message(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Binder Error: no x\nLINE 1: ...elect x fro...\n  ^", "Binder Error: no x\nLINE 1: ...elect x fro...\n  ^"),
        ("Binder Error: no x\n\nLINE 1: CREATE VIEW t AS ...\n        ^", "Binder Error: no x"),
        ("at 0x7f01ff4c6f20 and 0x1f", "at <address> and 0x1f"),
        ("no\nStack Trace:\n0x7f01ff4c6f20 duckdb::x\n", "no"),
    ],
)
def test_a_message_shows_the_callers_own_sql_and_nothing_of_the_engines_inside(text: str, shown: str) -> None:
    assert plain_message(text, "select x from t") == shown


def test_a_message_of_any_length_is_read_up_to_what_is_shown() -> None:
    assert plain_message("a:" * 10_000_000) == ("a:" * 1_000)[:600]


def read_well() -> None:
    """The table can be read."""


def read_badly() -> Exception:
    """It cannot."""
    return duckdb.Error("don't know what type: 13")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (duckdb.Error("std::bad_alloc"), "OUT_OF_MEMORY"),
        (
            duckdb.SerializationException("Serialization Error: Failed to write JSON string: memory allocation failed"),
            "OUT_OF_MEMORY",
        ),
        (duckdb.InternalException("INTERNAL Error: bad allocation"), "OUT_OF_MEMORY"),
        (OSError("Out of Memory Error: Allocation failure"), "OUT_OF_MEMORY"),
        (duckdb.InvalidInputException("Invalid Input Error: memory allocation failed"), "QUERY_ERROR"),
        (duckdb.ConversionException("Conversion Error: Could not convert string 'std::bad_alloc'"), "QUERY_ERROR"),
    ],
)
def test_an_error_about_memory_is_told_as_such_and_none_that_a_caller_wrote(error: Exception, code: str) -> None:
    assert query_fault(error, ScanPaths(data=("/lake/a.parquet",)), 3, reread=read_well).code == code


@pytest.mark.parametrize(
    "error",
    [
        duckdb.Error("don't know what type: 13"),
        duckdb.InvalidInputException("Invalid Input Error: Unsupported encoding: x"),
        duckdb.InvalidInputException("Invalid Input Error: /lake/a.parquet: No such file"),
        duckdb.InvalidInputException("Invalid Input Error: /lake/a.parquet (HTTP 403)"),
        duckdb.SerializationException("Serialization Error: no such thing"),
        OSError("Invalid Input Error: Invalid string encoding found in Parquet file"),
    ],
)
def test_a_file_is_blamed_for_what_a_caller_may_have_written_only_if_it_cannot_be_read(error: Exception) -> None:
    scanned = ScanPaths(data=("/lake/a.parquet",))
    assert query_fault(error, scanned, 3, reread=read_well).code == "QUERY_ERROR"
    assert query_fault(error, scanned, 3, reread=read_badly).code == "DATA_FILE_CORRUPT"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (duckdb.OutOfMemoryException("Out of Memory Error: Allocation failure"), "OUT_OF_MEMORY"),
        (duckdb.InterruptException("INTERRUPT Error: Interrupted!"), "QUERY_TIMEOUT"),
    ],
)
def test_whether_a_file_can_be_read_is_unknown_where_looking_ends_for_another_reason(
    error: Exception, code: str
) -> None:
    suspicious = duckdb.Error("don't know what type: 13")
    assert query_fault(suspicious, ScanPaths(data=("/lake/a.parquet",)), 3, reread=lambda: error).code == code


@pytest.mark.parametrize("text", ["Unsupported encoding: x", "requires two children", "/x", "FILE (HTTP 403)", "FILE"])
def test_what_sql_of_a_caller_raises_is_a_fault_of_the_query(ask: Ask, flights: Table, text: str) -> None:
    told = text.replace("FILE", next(iter(live_data_paths(flights))))
    with pytest.raises(InvalidRequest, match="QUERY_ERROR"):
        ask(f"SELECT error('{told}') FROM flights")


def test_without_memory_no_file_is_blamed_for_a_fault_that_names_none() -> None:
    class Exhausted:
        def execute(self, sql: str) -> None:
            raise duckdb.OutOfMemoryException("Out of Memory Error: Allocation failure")

    fault = DataUnavailable("DATA_FILE_CORRUPT", "cannot read an input", path=None)
    assert located(fault, Exhausted, ScanPaths(data=("/lake/a.parquet",))).code == "OUT_OF_MEMORY"  # type: ignore[arg-type]
