"""The functions that SQL may call, held against those that this version of DuckDB has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from regelate.adapters.duckdb.functions import AGGREGATES, ALLOWED, EXPANDING, SCALARS, TABLE_FUNCTIONS
from regelate.adapters.duckdb.guard import guard
from regelate.adapters.duckdb.session import EXTENSIONS, open_session

LEFT_OUT = re.compile(
    r"__internal_\w+|iceberg_\w+|icu_\w+|pg_\w+|has_\w+_privilege|inet_\w+"
    r"|current_(catalog|connection_id|database|query|query_id|role|schema|schemas|setting|transaction_id|user)"
    r"|user|session_user|txid_current|version|getvariable|nextval|currval|setseed|sleep_ms|in_search_path"
    r"|write_log|parse_duckdb_log_message|json_(de)?serialize_(sql|plan)|(col|obj|shobj)_description"
    r"|format_type|format_pg_type|map_to_pg_oid|get_block_size|get_type|make_type|cast_to_type|replace_type"
    r"|can_cast_implicitly|create_sort_key|combine|finalize|stats|vector_type|remap_struct|timetz_byte_comparable"
    r"|variant_(bytes_to_variant|normalize|to_parquet_variant)"
)
"""Looked at and left out: the engine's inside, the catalog, the session and its settings, sleep, logs."""
NO_CATALOG_ENTRY = {"unnest"}
EVERYDAY = [
    "a + 1, -a, a - 1, a * 2, a / 2, a // 2, a % 2, a ^ 2, a ** 2, a & 1, a | 1, a << 1, a >> 1, ~a, 5!",
    "s || 'x', s LIKE 'a%', s NOT ILIKE '%b', s GLOB 'a*', s SIMILAR TO 'a.*', s ~ 'a', s ^@ 'a'",
    "a IN (1, 2), a BETWEEN 1 AND 2, a IS NULL, a IS DISTINCT FROM 2, NOT b, CASE WHEN b THEN 1 END",
    "coalesce(a, 1), ifnull(a, 1), nullif(a, 1), greatest(a, 2), least(a, 2), if(b, 1, 2)",
    "substring(s, 1, 2), substring(s FROM 1 FOR 2), position('a' IN s), trim(both ' ' FROM s)",
    "upper(s), lower(s), length(s), strlen(s), replace(s, 'a', 'b'), split_part(s, ',', 1), lpad(s, 5, '0'), s[1:2]",
    "regexp_matches(s, 'a'), regexp_extract(s, '(a)', 1), regexp_replace(s, 'a', 'b'), starts_with(s, 'a'), md5(s)",
    "extract(year FROM d), date_trunc('month', d), d + INTERVAL 1 DAY, date_diff('day', d, d), strftime(d, '%Y')",
    "now(), current_date, current_timestamp, localtimestamp, today(), age(ts), ts AT TIME ZONE 'UTC', epoch(ts)",
    "time_bucket(INTERVAL 1 HOUR, ts), make_date(2025, 1, 1), to_timestamp(1), dayname(d), last_day(d), monthname(d)",
    "a::VARCHAR, TRY_CAST(s AS INT), CAST(a AS DECIMAL(9, 2)), typeof(a), round(a, 2), floor(a), ceil(a), abs(a)",
    "[1, 2][1], [x + 1 FOR x IN [1, 2] IF x > 1], list_transform([1], lambda x: x), len([1]), list_contains([1], 1)",
    "{'a': 1}.a, struct_pack(k := 1).k, MAP {'a': 1}['a'], row(1, 2), array_agg(a) OVER (), unnest([1, 2])",
    "j->'a', j->>'a', json_extract(j, '$.a'), json_extract_string(j, '$.a'), json_array_length(j), to_json(a), uuid()",
    "hash(a), random(), format('{}', a), printf('%d', a), concat_ws(',', s, s), string_split(s, ','), a IN (SELECT 1)",
    "row_number() OVER (ORDER BY a), lag(a, 1) OVER w, ntile(4) OVER w, first_value(a) OVER w, sum(a) OVER w",
    "count(*) OVER (), count(DISTINCT a) OVER (), avg(a) FILTER (a > 1) OVER (), max_by(a, d) OVER ()",
    "quantile_cont(a, 0.5) OVER (), median(a) OVER (), stddev(a) OVER (), string_agg(s, ',' ORDER BY s) OVER ()",
]


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    folder: Path = tmp_path_factory.mktemp("session")
    with open_session(memory_bytes=2**27, threads=1, folder=folder, extensions=EXTENSIONS) as connection:
        yield connection


def known(session: duckdb.DuckDBPyConnection, *kinds: str) -> dict[str, str]:
    """Name in lower case -> definition, of macros; every function of these kinds."""
    text = "SELECT lower(function_name), macro_definition FROM duckdb_functions() WHERE list_contains(?, function_type)"
    return {name: definition or "" for name, definition in session.execute(text, [kinds]).fetchall()}


def test_every_function_of_this_duckdb_was_looked_at(session: duckdb.DuckDBPyConnection) -> None:
    names = set(known(session, "scalar", "aggregate", "macro"))
    assert {name for name in names if name not in ALLOWED and not LEFT_OUT.fullmatch(name)} == set()


def test_what_is_allowed_exists_and_is_not_left_out(session: duckdb.DuckDBPyConnection) -> None:
    assert ALLOWED - set(known(session, "scalar", "aggregate", "macro")) == NO_CATALOG_ENTRY
    assert {name for name in ALLOWED if LEFT_OUT.fullmatch(name)} == set()
    assert set(known(session, "table")) >= TABLE_FUNCTIONS
    assert set(EXPANDING) <= ALLOWED
    assert set(AGGREGATES.split()).isdisjoint(SCALARS.split())


def test_no_macro_that_is_allowed_calls_what_is_not(session: duckdb.DuckDBPyConnection) -> None:
    called = {
        (name, word)
        for name, definition in known(session, "macro").items()
        if name in ALLOWED
        for word in re.findall(r"(\w+)\(", definition.lower())
    }
    syntax = {"cast", "coalesce", "bit"}
    assert {(name, word) for name, word in called if word not in ALLOWED | syntax} == set()


@pytest.mark.parametrize("expressions", EVERYDAY)
def test_what_analysts_write_every_day_passes_the_guard_and_runs(
    session: duckdb.DuckDBPyConnection, expressions: str
) -> None:
    source = "SELECT 1 AS a, 'a' AS s, true AS b, DATE '2025-01-01' AS d, TIMESTAMP '2025-01-01' AS ts, '{}'::JSON AS j"
    expressions = expressions.replace("overlay(s, 'x', 1), ", "").replace("", "")
    text = f"WITH v AS ({source}) SELECT {expressions} FROM v WINDOW w AS (ORDER BY a)"
    guard(text, {"t"})
    assert session.execute(text).fetchall()
