"""Rows 20 to 22: queries that reach for more than their table, that would never end, and that are wrong."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from tests.system.faults.stack import LOCAL_CATALOG, Stack, request, stack_with
from tests.system.faults.watching import file_watch, port_watch

SECRET = "regelate-canary-7d1f"
FORBIDDEN = [
    "SELECT 1; SELECT 2",
    "SELECT * FROM t; DROP TABLE t",
    ";",
    "COPY t TO '{out}'",
    "COPY (SELECT 1) TO '{out}'",
    "EXPORT DATABASE '{out}'",
    "ATTACH '{out}' AS other",
    "ATTACH '{canary}' AS other (READ_ONLY)",
    "INSTALL httpfs",
    "LOAD httpfs",
    "SET memory_limit = '1GB'",
    "RESET memory_limit",
    "PRAGMA database_list",
    "CALL pragma_version()",
    "CHECKPOINT",
    "EXPLAIN ANALYZE SELECT 1",
    "CREATE TABLE made AS SELECT * FROM t",
    "CREATE MACRO m() AS 1",
    "INSERT INTO t VALUES (3, 'c')",
    "UPDATE t SET v = 'x'",
    "DELETE FROM t",
    "DROP TABLE t",
    "SELECT * FROM read_csv('{canary}')",
    "SELECT * FROM read_csv_auto('{canary}')",
    "SELECT * FROM read_text('{canary}')",
    "SELECT * FROM read_blob('{canary}')",
    "SELECT * FROM read_json('{canary}')",
    "SELECT * FROM read_parquet('{warehouse}/**/*.parquet')",
    "SELECT * FROM sniff_csv('{canary}')",
    "SELECT * FROM '{canary}'",
    "FROM '{canary}'",
    'SELECT * FROM "{canary}"',
    "SELECT * FROM glob('{home}/*')",
    "SELECT * FROM iceberg_scan('{warehouse}')",
    "SELECT * FROM iceberg_snapshots('{warehouse}')",
    "SELECT * FROM read_csv('http://{port}/x.csv')",
    "SELECT * FROM 'http://{port}/x.parquet'",
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM t WHERE v IN (SELECT column0 FROM read_csv('{canary}'))",
    "SELECT (SELECT count(*) FROM read_csv('{canary}')) FROM t",
    "WITH x AS (SELECT * FROM read_csv('{canary}')) SELECT * FROM x",
    "SELECT * FROM t UNION ALL SELECT 1, * FROM read_text('{canary}')",
    "SELECT * FROM t JOIN read_csv('{canary}') ON true",
    "DESCRIBE SELECT * FROM read_csv('{canary}')",
    "SUMMARIZE '{canary}'",
    "SELECT * FROM query('SELECT 1')",
    "SELECT * FROM query_table('t')",
    "SELECT getenv('HOME')",
    "SELECT current_setting('home_directory')",
    "SELECT * FROM duckdb_settings()",
    "SELECT * FROM duckdb_secrets()",
    "SELECT * FROM which_secret('{canary}', 's3')",
    "SELECT * FROM information_schema.tables",
    "SELECT * FROM pg_catalog.pg_tables",
    "SELECT * FROM sqlite_master",
    "SELECT * FROM nosuch",
    "SELECT * FROM memory.main.t",
]


@pytest.mark.parametrize("sql", FORBIDDEN)
def test_row_20_sql_that_is_more_than_a_select_over_the_table_touches_no_file_and_no_network(
    shared: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sql: str
) -> None:
    canary, out = tmp_path / "canary.csv", tmp_path / "cwd" / "out"
    canary.write_text(f"{SECRET}\n1\n")
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    with file_watch(canary) as watched, port_watch() as port, shared.untouched():
        places = {"canary": canary, "out": out, "home": shared.folder, "port": port.address}
        text = sql.format(**places, warehouse=shared.folder / "warehouse")
        for body in (request("QUERY", "t", sql=text), request("QUERY", "t", sql=f"/* */ {text.lower()} -- x")):
            error = shared.refused(400, "QUERY_NOT_ALLOWED", [], body)
            assert SECRET not in json.dumps(error)
            assert error["message"]
        assert not watched.touched()
        assert not port.touched()
    assert list((tmp_path / "cwd").iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["canary.csv", "cwd"]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"columns": ["id from t; copy t to 'x'"]}, "QUERY_ERROR"),
        ({"columns": ['id" FROM read_csv("x") --']}, "QUERY_ERROR"),
        ({"filter": {"column": "v", "op": "= '' OR 1=1", "value": "x"}}, "INVALID_FIELD"),
        ({"order_by": [{"column": "(SELECT getenv('HOME'))"}]}, "QUERY_ERROR"),
        ({"aggregates": [{"function": "getenv", "column": "v"}]}, "INVALID_FIELD"),
    ],
)
def test_row_20_the_structured_form_is_no_way_around(shared: Stack, fields: dict[str, object], code: str) -> None:
    with shared.untouched():
        shared.refused(400, code, [], request("QUERY", "t", **fields))


def test_row_20_text_of_the_caller_stays_text(shared: Stack) -> None:
    evil = "a' OR '1'='1"
    with shared.untouched():
        assert shared.rows("t", filter={"v": evil}) == []
        named = [{"function": "count", "as": "n\" FROM read_csv('x') --"}]
        assert list(shared.rows("t", aggregates=named)[0].values()) == [2]


def test_row_20_the_watches_see_what_they_watch(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    canary.write_text("x")
    with file_watch(canary) as watched, port_watch() as port:
        assert not watched.touched()
        canary.read_text()
        assert watched.touched()
        assert not port.touched()
        host, _, number = port.address.partition(":")
        with socket.create_connection((host, int(number))):
            pass
        assert port.touched()


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Stack:
    """A stack with narrow limits; its table has 2,000 rows."""
    folder = tmp_path_factory.mktemp("limits") / "lake"
    limits = {"query_seconds": 2, "max_result_bytes": 20_000, "max_result_rows": 1_500}
    made = stack_with(folder, auth="none", tenants="*", catalogs={"local": LOCAL_CATALOG}, limits=limits)
    made.create("t", {"id": "long!", "v": "string"})
    made.ok("WRITE", "t", records=[{"id": number, "v": "x" * 20} for number in range(2_000)])
    return made


def alive(stack: Stack) -> None:
    """The same process answers the same table, by a service without these limits."""
    other = Stack(stack.folder)
    assert other.rows("t", sql="SELECT count(*) AS n FROM t") == [{"n": 2_000}]
    assert stack.ok("DESCRIBE_TABLE", "t")["snapshot_count"] == 1


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT count(*) FROM t a, t b, t c, t d WHERE a.id + b.id + c.id + d.id > 1",
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT max(n) FROM r",
        "SELECT sum(a.range * b.range) FROM range(10000000) a, range(10000000) b",
    ],
)
def test_row_21_a_query_that_would_not_end_is_interrupted_and_the_service_lives(limited: Stack, sql: str) -> None:
    with limited.untouched():
        error = limited.refused(504, "QUERY_TIMEOUT", ["stopped after", "filter"], request("QUERY", "t", sql=sql))
        assert not error["retryable"]
        alive(limited)


@pytest.mark.parametrize(
    "fields",
    [
        {"sql": "SELECT a.id, b.v FROM t a, t b"},
        {"limit": 1_500},
        {"sql": "SELECT repeat(v, 100) AS v FROM t LIMIT 50"},
    ],
)
def test_row_21_a_result_beyond_the_limit_is_refused_by_the_limits_size(
    limited: Stack, fields: dict[str, object]
) -> None:
    with limited.untouched():
        error = limited.refused(
            413, "RESULT_TOO_LARGE", ["20000 bytes", "fewer columns or rows"], request("QUERY", "t", **fields)
        )
    assert error["details"] == {"max_bytes": 20_000}


def test_row_21_a_result_of_too_many_rows_is_cut_and_says_so(limited: Stack) -> None:
    answer = limited.ok("QUERY", "t", sql="SELECT 1 AS one FROM t")
    assert (answer["row_count"], answer["truncated"]) == (1_500, True)
    limited.refused(400, "INVALID_FIELD", ["limit", "0 to 1500"], request("QUERY", "t", limit=1_501))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"columns": ["nope"]}, ["'nope'", "columns are: id, v"]),
        ({"filter": {"nope": 1}}, ["'nope'", "columns are: id, v"]),
        ({"order_by": [{"column": "nope"}]}, ["'nope'"]),
        ({"aggregates": [{"function": "sum", "column": "nope"}]}, ["'nope'"]),
        ({"group_by": ["nope"]}, ["'nope'"]),
        ({"columns": ["id.x"]}, ["id.x"]),
        ({"sql": "SELECT nope FROM t"}, ['"nope"']),
        ({"sql": "SELECT id FRM t"}, ["syntax error"]),
        ({"sql": "SELECT * FROM t WHERE"}, ["syntax error"]),
        ({"sql": "nonsense"}, ["syntax error"]),
        ({"sql": "SELECT no_such_function(id) FROM t"}, ["no_such_function"]),
        ({"sql": "SELECT sum(v) FROM t"}, ["sum"]),
        ({"sql": "SELECT CAST(v AS INTEGER) FROM t"}, ["a"]),
        ({"sql": "SELECT '\0'"}, ["without NUL"]),
        ({"sql": "SELECT " + "1," * 60_000 + "1"}, ["at most 100000 characters"]),
    ],
)
def test_row_22_a_query_that_is_wrong_says_what_is(shared: Stack, fields: dict[str, object], words: list[str]) -> None:
    with shared.untouched():
        error = shared.refused(400, "QUERY_ERROR", words, request("QUERY", "t", **fields))
    assert str(shared.folder) not in json.dumps(error)
    assert len(error["message"]) <= 600
