"""QUERY on columns whose older files hold a narrower type: what a filter compares is the value, never a cast of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import DecimalType, DoubleType, FloatType, IntegerType, LongType, NestedField, StructType

from regelate.adapters.clock import SystemClock
from regelate.adapters.iceberg.files.promotion import maybe_promoted
from regelate.adapters.iceberg.manifests import ManifestReader
from regelate.adapters.iceberg.scan import SnapshotScan
from regelate.core.requests import QueryRequest
from regelate.operations.query import QueryLimits, QueryTools, query
from tests.support.iceberg_tables import append, duckdb_rows, make_catalog, make_table
from tests.support.lake import Lake
from tests.support.queries import query_engine

Find = Callable[..., list[Any]]
OLD = Schema(
    NestedField(1, "id", IntegerType()),
    NestedField(2, "f", FloatType()),
    NestedField(3, "i", IntegerType()),
    NestedField(4, "d", DecimalType(9, 2)),
    NestedField(5, "s", StructType(NestedField(6, "f", FloatType()), NestedField(7, "i", IntegerType()))),
)
FLOATS = [0.1, 0.0, -0.0, float("nan"), float("inf"), 16777216.0, 1e-45, None]
NEW_ROW = 100


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Rows 0 to 7 from before the promotions, row 100 with an exact 0.1 from after them."""
    made = make_table(make_catalog(tmp_path_factory.mktemp("promoted")), "ns.t", OLD)
    append(
        made,
        [(n, f, n - 2**31, Decimal(n) / 100, {"f": f, "i": 2**31 - 1 - n}) for n, f in enumerate(FLOATS)],
    )
    with made.update_schema() as update:
        update.update_column("f", DoubleType())
        update.update_column("i", LongType())
        update.update_column("d", DecimalType(18, 2))
        update.update_column(("s", "f"), DoubleType())
        update.update_column(("s", "i"), LongType())
    append(made, [(NEW_ROW, 0.1, 2**40, Decimal("99999999999.99"), {"f": 0.1, "i": -(2**40)})])
    return made


@pytest.fixture
def find(tmp_path: Path, table: Table) -> Find:
    """Ask for the ids of the rows that a query finds, in its own order."""

    def run(**request: Any) -> list[Any]:
        folder = tmp_path / f"query-{len(list(tmp_path.iterdir()))}"

        def scan(snapshot_id: int | None, as_of_ms: int | None, ref: str | None) -> SnapshotScan:
            return SnapshotScan(
                table.refresh(), ManifestReader(), folder, snapshot_id=snapshot_id, as_of_ms=as_of_ms, ref=ref
            )

        engine = query_engine(folder)
        limits = QueryLimits(max_rows=100, max_bytes=1_000_000, seconds=60)
        tools = QueryTools(scan=scan, engine=engine, clock=SystemClock(), limits=limits)
        return [next(iter(row.values())) for row in query(tools, QueryRequest(**request), table_name="t").rows]

    return run


FLOAT_FILTERS: tuple[tuple[str, Any, set[int]], ...] = (
    ("<", 1e-300, {1, 2}),
    ("=", 0.1, {NEW_ROW}),
    ("!=", 0.1, {0, 1, 2, 3, 4, 5, 6}),
    (">", 0.1, {0, 4, 5}),
    ("<", 16777217, {0, 1, 2, 5, 6, NEW_ROW}),
    ("in", [0.1, 16777217], {NEW_ROW}),
    ("between", [1e-300, 0.1], {6, NEW_ROW}),
)


@pytest.mark.parametrize("column", ["f", "s.f"])
def test_t38_a_filter_on_a_float_promoted_to_double_compares_doubles(find: Find, column: str) -> None:
    for op, value, wanted in FLOAT_FILTERS:
        found = find(columns=["id"], filter={"column": column, "op": op, "value": value})
        assert (op, value, set(found)) == (op, value, wanted)


SQL: dict[str, tuple[str, set[Any]]] = {
    "a comparison": ("SELECT id FROM t WHERE {c} < 1e-300", {1, 2}),
    "an IN list": ("SELECT id FROM t WHERE {c} IN (0.1, 16777217)", {NEW_ROW}),
    "BETWEEN": ("SELECT id FROM t WHERE {c} BETWEEN 1e-300 AND 0.1", {6, NEW_ROW}),
    "a join": ("SELECT id FROM t JOIN (VALUES (0.1::DOUBLE), (1e-300)) v(x) ON {c} = v.x", {NEW_ROW}),
    "a semi-join": ("SELECT id FROM t WHERE {c} IN (SELECT unnest([0.1::DOUBLE, 1e-300]))", {NEW_ROW}),
    "an ASOF join": ("SELECT id FROM t ASOF JOIN (SELECT 0.1::DOUBLE AS x) v ON {c} >= v.x", {0, 3, 4, 5, NEW_ROW}),
    "min": ("SELECT min(t.id) FROM t WHERE {c} = 0.1", {NEW_ROW}),
    "HAVING": ("SELECT min(id) FROM t GROUP BY {c} HAVING {c} = 0.1", {NEW_ROW}),
    "the first rows in order": ("SELECT id FROM t WHERE {c} < 0.1 ORDER BY {c} DESC, id LIMIT 1", {6}),
    "the last rows in order": ("SELECT id FROM t WHERE {c} > 0.1 ORDER BY {c}, id LIMIT 1", {0}),
    "a window": ("SELECT id FROM t WHERE {c} <= 0.1 QUALIFY row_number() OVER (ORDER BY {c} DESC) = 1", {NEW_ROW}),
}


@pytest.mark.parametrize("column", ["f", "s.f"])
def test_t38_sql_of_any_kind_compares_doubles(find: Find, column: str) -> None:
    assert answers(find, {what: text.format(c=f"t.{column}") for what, (text, _) in SQL.items()}) == {
        what: wanted for what, (_, wanted) in SQL.items()
    }


EXACT: dict[str, set[int]] = {
    "i < 3000000000": set(range(8)),
    "i IN (-2147483648, 2147483647, 1099511627776)": {0, NEW_ROW},
    "i >= -1099511627776": {*range(8), NEW_ROW},
    "i < -2147483647.5": {0},
    "s.i < -3000000000": {NEW_ROW},
    "s.i BETWEEN 2147483646.5 AND 1e10": {0},
    "i IN (SELECT unnest([1099511627776, -1099511627776, -2147483648]))": {0, NEW_ROW},
    "d < 0.005": {0},
    "d > 0.015": {2, 3, 4, 5, 6, 7, NEW_ROW},
    "d IN (0.01, 99999999999.99)": {1, NEW_ROW},
    "d >= -99999999999.99": {*range(8), NEW_ROW},
}


def test_widened_ints_and_decimals_are_compared_beyond_their_old_ranges(find: Find) -> None:
    assert answers(find, {c: f"SELECT id FROM t WHERE {c}" for c in EXACT}) == EXACT


def answers(find: Find, texts: Mapping[str, str]) -> dict[str, set[int]]:
    """Ask for the ids of several SELECTs in one."""
    lists = (f"(SELECT list(id) FROM ({text}) AS x(id))" for text in texts.values())
    (found,) = find(sql=f"SELECT [{', '.join(lists)}]")
    return {what: set(ids or ()) for what, ids in zip(texts, found, strict=True)}


def test_t38_the_scan_itself_casts_the_constant_to_the_files_type(table: Table) -> None:
    """Our answer: views say which columns are promoted, and these are compared above the scan (`sql.view_column`)."""
    assert duckdb_rows(table, "count(*) FILTER (f < 1e-300)") == [(2,)]
    scan = f"(SELECT id, f FROM iceberg_scan('{table.metadata_location}') WHERE f = 0.1)"
    assert duckdb_rows(table, f"(SELECT list(id) FROM {scan})")[0] != ([NEW_ROW],)


def test_every_value_of_a_promoted_column_comes_back_as_it_is(find: Find) -> None:
    wanted = [0.10000000149011612, 0.0, -0.0, "NaN", "Infinity", 16777216.0, 1.401298464324817e-45, None, 0.1]
    assert list(map(repr, find(columns=["f"], order_by=[{"column": "id"}]))) == list(map(repr, wanted))


def test_only_columns_that_a_file_may_hold_otherwise_are_kept_from_the_scan(table: Table, tmp_path: Path) -> None:
    assert maybe_promoted(table.metadata, table.schema(), with_ids=True) == {2, 3, 4, 5}
    plain = make_table(make_catalog(tmp_path / "other"), "ns.plain", OLD)
    append(plain, [])
    assert maybe_promoted(plain.metadata, plain.schema(), with_ids=True) == frozenset()


@pytest.mark.parametrize("why", ["a schema is no longer known", "files came without ids"])
def test_without_a_whole_history_every_type_that_a_promotion_can_give_is_suspect(table: Table, why: str) -> None:
    metadata, with_ids = table.metadata, why != "files came without ids"
    if with_ids:
        known = [s for s in metadata.schemas if s.schema_id == metadata.current_schema_id]
        metadata = metadata.model_copy(update={"schemas": known})
    assert maybe_promoted(metadata, table.schema(), with_ids=with_ids) == {2, 3, 4, 5}


def test_a_sort_of_promoted_columns_finds_them_by_their_names(lake: Lake) -> None:
    made = lake.table(OLD, [(1, 0.5, 1, Decimal(1), None)], [(0, 0.1, 2, Decimal(2), None)])
    with made.update_schema() as update:
        update.update_column("f", DoubleType())
    answer = lake.compact(made, force=True, strategy="sort", sort_order=[{"column": "id"}], verify="strict")
    assert answer["status"] == "COMPLETED", answer
    assert [row[0] for row in duckdb_rows(made.refresh())] == [0, 1]
