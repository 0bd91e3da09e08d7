"""QUERY on real tables: which files it opens, which rows and values it answers with."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime, time
from decimal import ROUND_HALF_UP, Context, Decimal
from itertools import product
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import EqualTo
from pyiceberg.expressions.visitors import _InclusiveMetricsEvaluator, inclusive_projection
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from pyiceberg.utils.datetime import date_to_days, datetime_to_micros, time_to_micros

from regelate.adapters.clock import SystemClock
from regelate.adapters.duckdb.query import decimal_average, files_of, source_of, structured_statement
from regelate.adapters.duckdb.session import open_session
from regelate.adapters.iceberg.manifests import ManifestReader
from regelate.adapters.iceberg.scan import SnapshotScan
from regelate.core.query.predicate import ColumnPath, Predicate, StructuredQuery, literal, parse_filter
from regelate.core.requests import QueryRequest
from regelate.core.table.schema import Column
from regelate.errors import DataUnavailable, InvalidRequest, NotFound, RegelateError, Unsupported
from regelate.operations.query import QueryAnswer, QueryLimits, QueryTools, query
from tests.support.deletes_writer import add_equality_deletes, add_position_deletes, remove_file, truncate_file
from tests.support.iceberg_tables import (
    add_data_files,
    append,
    changed_file,
    live_data_files,
    live_data_paths,
    local_path,
    make_catalog,
    make_table,
    manifest_paths,
)
from tests.support.queries import query_engine

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "part", StringType(), required=False),
)
BY_PART = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part"))
LIMITS = QueryLimits(max_rows=10_000, max_bytes=4_000_000, seconds=60)

Ask = Callable[..., QueryAnswer]


@pytest.fixture
def catalog(tmp_path: Path) -> SqlCatalog:
    return make_catalog(tmp_path)


@pytest.fixture
def ask(tmp_path: Path) -> Ask:
    """Ask a table as the service does: a private folder and a session of its own for every query."""

    def run(table: Table, limits: QueryLimits = LIMITS, **request: Any) -> QueryAnswer:
        folder = tmp_path / f"query-{len(list(tmp_path.iterdir()))}"

        def scan(snapshot_id: int | None, as_of_ms: int | None, ref: str | None) -> SnapshotScan:
            return SnapshotScan(
                table.refresh(), ManifestReader(), folder / "views", snapshot_id=snapshot_id, as_of_ms=as_of_ms, ref=ref
            )

        engine = query_engine(folder)
        tools = QueryTools(scan=scan, engine=engine, clock=SystemClock(), limits=limits)
        return query(tools, QueryRequest(**request), table_name=table.name()[-1])

    return run


def values(answer: QueryAnswer) -> list[tuple[Any, ...]]:
    """Rows as tuples in the order of the columns, sorted where they compare."""
    found = [tuple(row[c.name] for c in answer.columns) for row in answer.rows]
    return sorted(found, key=repr)


def opened(table: Table, folder: Path, filter: object = None, **at: Any) -> list[str]:  # noqa: A002
    """The data files that a query with this filter names in its views."""
    scan = SnapshotScan(table, ManifestReader(), folder, **at)
    predicate = parse_filter({} if filter is None else filter, scan.columns)
    return sorted(task.data_file.path for group in scan.files(predicate) for task in group)


def fault(call: Callable[[], object]) -> RegelateError:
    with pytest.raises(RegelateError) as caught:
        call()
    return caught.value


# --- pruning ----------------------------------------------------------------------------------------------------------


def test_a_filter_on_the_partition_opens_only_its_files(catalog: SqlCatalog, tmp_path: Path, ask: Ask) -> None:
    table = make_table(catalog, "ns.flights", SCHEMA, BY_PART)
    append(table, [(1, "a"), (2, "b")])
    append(table, [(3, "a"), (4, "c")])
    of_a = [path for path in live_data_paths(table) if "part=a" in path]
    assert len(of_a) == 2
    assert opened(table, tmp_path / "v", {"part": "a"}) == of_a
    assert values(ask(table, filter={"part": "a"})) == [(1, "a"), (3, "a")]


def test_a_filter_on_a_column_opens_only_files_whose_bounds_hold_it(catalog: SqlCatalog, tmp_path: Path) -> None:
    table = make_table(catalog, "ns.plain", SCHEMA)
    low = append(table, [(i, "x") for i in range(10)])
    high = append(table, [(i, "x") for i in range(10, 20)])
    assert opened(table, tmp_path / "v", {"column": "id", "op": ">=", "value": 10}) == high
    assert opened(table, tmp_path / "v", {"column": "id", "op": "between", "value": [3, 9]}) == low
    assert opened(table, tmp_path / "v", {"id": 99}) == []
    assert opened(table, tmp_path / "v", {"or": [{"id": 1}, {"id": 11}]}) == sorted(low + high)


def test_the_session_is_allowed_the_files_of_the_view_and_no_others(catalog: SqlCatalog, tmp_path: Path) -> None:
    table = make_table(catalog, "ns.flights", SCHEMA, BY_PART)
    append(table, [(1, "a"), (2, "b")])
    scan = SnapshotScan(table, ManifestReader(), tmp_path / "v")
    (group,) = scan.files(parse_filter({"part": "a"}, scan.columns))
    view = scan.views.write(group)
    of_view = (str(file) for file in Path(view.metadata_paths[0]).parent.iterdir())
    assert sorted(files_of([view], group)) == sorted([*of_view, group[0].data_file.path])


def test_manifests_that_cannot_match_are_not_read(catalog: SqlCatalog, tmp_path: Path) -> None:
    table = make_table(catalog, "ns.flights", SCHEMA, BY_PART)
    of_a = append(table, [(1, "a")])
    (manifest_of_a,) = manifest_paths(table)
    append(table, [(2, "b")])
    (manifest_of_b,) = set(manifest_paths(table)) - {manifest_of_a}
    local_path(manifest_of_b).unlink()
    assert opened(table, tmp_path / "v", {"part": "a"}) == of_a
    assert fault(lambda: opened(table, tmp_path / "v")).code == "METADATA_CORRUPT"


NAN, INF = "NaN", "Infinity"
POOLS: tuple[tuple[PrimitiveType, list[Any]], ...] = (
    (BooleanType(), [False, True]),
    (IntegerType(), [-(2**30), -1, 0, 7, 2**31 - 1]),
    (LongType(), [-(2**63), -5, 0, 10, 2**63 - 1]),
    (FloatType(), [NAN, INF, "-Infinity", -1.5, 0.1, -0.0, 0.0]),
    (DoubleType(), [NAN, INF, "-Infinity", -1.5, 0.1, -0.0, 0.0]),
    (DecimalType(9, 2), ["-999999.99", "-0.01", "0", "12.50"]),
    (DateType(), ["1969-12-31", "1970-01-01", "2025-01-17", "2025-02-01"]),
    (TimeType(), ["00:00:00", "05:00:00.000001", "23:59:59.999999"]),
    (TimestampType(), ["1969-12-31T23:59:59.999999", "2025-01-17T05:00:00", "2025-01-17T06:00:00"]),
    (TimestamptzType(), ["1969-12-31T23:59:59.999999Z", "2025-01-17T05:00:00+02:00", "2025-01-17T06:00:00Z"]),
    (StringType(), ["", "a", "ab", "a" * 40, "b", "ü", "😀"]),
    (UUIDType(), [str(UUID(int=n)) for n in (0, 1, 2**127, 2**128 - 1)]),
    (BinaryType(), ["", "YQ==", "/////w=="]),
    (FixedType(2), ["AAA=", "YWE=", "//8="]),
)
TRANSFORMS: Mapping[type[PrimitiveType], tuple[Transform[Any, Any], ...]] = {
    IntegerType: (TruncateTransform(10),),
    LongType: (BucketTransform(4),),
    DecimalType: (BucketTransform(4), TruncateTransform(10)),
    DateType: (YearTransform(), MonthTransform(), DayTransform()),
    TimestampType: (MonthTransform(), DayTransform()),
    TimestamptzType: (BucketTransform(4), HourTransform()),
    StringType: (BucketTransform(4), TruncateTransform(1)),
    UUIDType: (BucketTransform(4),),
}
CASES = [
    (kind, transform, pool)
    for kind, pool in POOLS
    for transform in (None, IdentityTransform(), *TRANSFORMS.get(type(kind), ()))
]


def conditions_of(kind: PrimitiveType, pool: list[Any]) -> Iterator[dict[str, Any]]:
    """Every op with every value of the pool."""
    for op, value in product(("=", "!=", "<", "<=", ">", ">="), pool):
        if value != NAN or op in ("=", "!="):
            yield {"column": "v", "op": op, "value": value}
    for op, at in product(("in", "not_in"), range(len(pool))):
        yield {"column": "v", "op": op, "value": [pool[at - 1], pool[at]]}
    for op in ("is_null", "is_not_null"):
        yield {"column": "v", "op": op}
    for value in pool if isinstance(kind, StringType) else ():
        yield {"column": "v", "op": "starts_with", "value": value}
        yield {"not": {"column": "v", "op": "starts_with", "value": value}}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    with open_session(memory_bytes=256 * 1024 * 1024, threads=1, folder=tmp_path_factory.mktemp("engine")) as opened:
        yield opened


@pytest.mark.parametrize(("kind", "transform", "pool"), CASES, ids=lambda v: str(v) if not isinstance(v, list) else "")
def test_neither_pruning_nor_the_view_loses_a_matching_row(
    kind: PrimitiveType,
    transform: Transform[Any, Any] | None,
    pool: list[Any],
    catalog: SqlCatalog,
    engine: duckdb.DuckDBPyConnection,
    tmp_path: Path,
) -> None:
    """Partitions by doubles among them, which PyIceberg's fast decoder reads as floats (trap T23)."""
    schema = Schema(NestedField(1, "v", kind, required=False))
    plain = make_table(catalog, "ns.plain", schema)
    with plain.transaction() as transaction:
        for value in (*pool, None):
            column = column_of(kind, [value])
            transaction.append(pa.table({"v": column}, schema=schema_to_pyarrow(schema, include_field_ids=False)))
    table = plain if transform is None else partitioned_copy(plain, catalog, transform)
    scan, files, pruned = SnapshotScan(table, ManifestReader(), tmp_path / "v"), live_data_paths(table), 0
    view = source_of([scan.views.write(group) for group in scan.files()])
    engine.register("content", contents(table))
    for written in conditions_of(kind, pool):
        predicate = parse_filter(written, scan.columns)
        chosen = {task.data_file.path for group in scan.files(predicate) for task in group}
        expected = answers(engine, "SELECT * FROM content", predicate, "path")
        holding = {path for path, _ in expected}
        assert holding <= chosen, f"{written} skips {holding - chosen}"
        pruned += len(files) - len(chosen)
        assert answers(engine, view, predicate) == sorted((value,) for _, value in expected), written
    assert pruned > 0 or isinstance(transform, IdentityTransform)


def answers(engine: duckdb.DuckDBPyConnection, source: str, predicate: Predicate, *more: str) -> list[tuple[str, ...]]:
    """Rows of the source that the SQL of a predicate keeps, sorted: more columns, then the value as a text."""
    columns = tuple(ColumnPath(lineage=(Column(name=name, type="string"),)) for name in (*more, "v"))
    statement = structured_statement(StructuredQuery(columns=columns, predicate=predicate, limit=1_000), source)
    rows = engine.execute(statement.text, statement.parameters).fetchall()
    return sorted((*row[:-1], repr(row[-1])) for row in rows)


def partitioned_copy(plain: Table, catalog: SqlCatalog, transform: Transform[Any, Any]) -> Table:
    """A table of the same files, each in the partition of its one value."""
    field = plain.schema().fields[0]
    spec = PartitionSpec(PartitionField(field.field_id, 1000, transform, "p"))
    table = make_table(catalog, "ns.partitioned", plain.schema(), spec)
    to_partition = transform.transform(field.field_type)
    files = []
    for file in live_data_files(plain):
        (value,) = pq.ParquetFile(file.file_path.removeprefix("file://")).read()["v"].to_pylist()
        files.append(changed_file(file, partition=Record(to_partition(internal(value)))))
    add_data_files(table, files)
    return table


def internal(value: Any) -> Any:
    """Iceberg's own form of a value."""
    match value:
        case datetime():
            return datetime_to_micros(value)
        case date():
            return date_to_days(value)
        case time():
            return time_to_micros(value)
    return value


def contents(table: Table) -> pa.Table:
    """Every row of the live data files, with the path of its file."""
    files = [(path, pq.ParquetFile(path.removeprefix("file://")).read()) for path in live_data_paths(table)]
    return pa.concat_tables(f.append_column("path", pa.array([path] * len(f))) for path, f in files)


def column_of(kind: PrimitiveType, written: list[Any]) -> list[Any]:
    typed = [None if v is None else literal(str(kind).replace(", ", ","), v) for v in written]
    return [v.bytes if isinstance(v, UUID) else v for v in typed]


def test_pyiceberg_still_has_the_evaluators_that_pruning_stands_on() -> None:
    schema = Schema(NestedField(1, "v", LongType(), required=False))
    file = DataFile.from_args(record_count=2, lower_bounds={1: b"\5" + bytes(7)}, upper_bounds={1: b"\7" + bytes(7)})
    for value, might in ((4, False), (5, True), (7, True), (8, False)):
        assert _InclusiveMetricsEvaluator(schema, EqualTo("v", value)).eval(file) is might
    projected = inclusive_projection(schema, PartitionSpec(PartitionField(1, 1000, TruncateTransform(10), "p")))
    assert projected(EqualTo("v", 17)) == EqualTo("p", 10)
    assert schema._lazy_id_to_field == {1: schema.fields[0]}


def test_a_filter_on_a_null_struct_finds_its_null_fields(catalog: SqlCatalog, ask: Ask) -> None:
    inner = StructType(NestedField(3, "x", LongType(), required=True))
    table = make_table(catalog, "ns.t", Schema(SCHEMA.fields[0], NestedField(2, "s", inner, required=False)))
    append(table, [{"id": 1, "s": {"x": 5}}, {"id": 2, "s": None}])
    for written, ids in (
        ({"column": "s.x", "op": "is_null"}, [2]),
        ({"column": "s", "op": "is_null"}, [2]),
        ({"column": "s.x", "op": "is_not_null"}, [1]),
        ({"s.x": 5}, [1]),
        ({"s.x": 6}, []),
    ):
        assert values(ask(table, columns=["id"], filter=written)) == [(i,) for i in ids], written


# --- deletes ----------------------------------------------------------------------------------------------------------


def test_an_equality_delete_of_one_partition_leaves_the_others_alone(catalog: SqlCatalog, ask: Ask) -> None:
    table = make_table(catalog, "ns.t", SCHEMA, BY_PART)
    append(table, [(1, "a"), (2, "a"), (1, "b"), (2, "b"), (1, None)])
    add_equality_deletes(table, ["id"], [(1,)], partition={"part": "a"})
    append(table, [(1, "a")])
    kept = [(1, "a"), (1, "b"), (1, None), (2, "a"), (2, "b")]
    assert values(ask(table)) == sorted(kept, key=repr)
    assert values(ask(table, sql="SELECT * FROM t")) == sorted(kept, key=repr)
    assert ask(table, aggregates=[{"function": "count"}]).rows == ({"count": 5},)
    assert values(ask(table, filter={"id": 1, "part": "b"})) == [(1, "b")]


def test_files_share_a_view_but_for_partitions_with_equality_deletes(catalog: SqlCatalog, tmp_path: Path) -> None:
    table = make_table(catalog, "ns.t", SCHEMA, BY_PART)
    append(table, [(1, "a"), (1, "b"), (1, "c"), (1, "d")])
    for part in ("a", "b"):
        add_equality_deletes(table, ["id"], [(9,)], partition={"part": part})
    groups = SnapshotScan(table, ManifestReader(), tmp_path / "v").files()
    found = sorted(sorted(task.data_file.partition.path for task in group) for group in groups)
    assert found == [["part=a"], ["part=b"], ["part=c", "part=d"]]


def test_a_global_equality_delete_reaches_older_files_of_every_spec(catalog: SqlCatalog, ask: Ask) -> None:
    table = make_table(catalog, "ns.t", SCHEMA)
    append(table, [(1, "a"), (2, "b")])
    with table.update_spec() as update:
        update.add_identity("part")
    append(table, [(1, "c"), (2, "d")])
    add_equality_deletes(table, ["id"], [(1,)])
    append(table, [(1, "e")])
    assert values(ask(table)) == [(1, "e"), (2, "b"), (2, "d")]


def test_position_deletes_remove_their_rows_in_a_view_of_many_partitions(catalog: SqlCatalog, ask: Ask) -> None:
    table = make_table(catalog, "ns.t", SCHEMA, BY_PART)
    append(table, [(1, "a"), (2, "a"), (3, "b"), (4, "b")])
    for path in live_data_paths(table):
        add_position_deletes(table, {path: [0]})
    assert values(ask(table)) == [(2, "a"), (4, "b")]


def test_an_equality_delete_finds_its_column_after_a_rename_and_nulls_are_values(catalog: SqlCatalog, ask: Ask) -> None:
    table = make_table(catalog, "ns.t", SCHEMA)
    append(table, [(1, "a"), (2, None), (3, "c")])
    add_equality_deletes(table, ["part"], [("a",), (None,)])
    with table.update_schema() as update:
        update.rename_column("part", "region")
    assert values(ask(table)) == [(3, "c")]


def test_an_equality_delete_on_a_dropped_column_is_refused(catalog: SqlCatalog, ask: Ask) -> None:
    table = make_table(catalog, "ns.t", SCHEMA)
    append(table, [(1, "a"), (2, "b")])
    add_equality_deletes(table, ["part"], [("a",)])
    with table.update_schema() as update:
        update.delete_column("part")
    error = fault(lambda: ask(table))
    assert (error.code, error.status) == ("UNSUPPORTED_DELETES", 501)


# --- schemas, snapshots -----------------------------------------------------------------------------------------------


def test_a_renamed_column_keeps_its_values_and_a_dropped_and_re_added_one_loses_them(
    catalog: SqlCatalog, ask: Ask
) -> None:
    table = make_table(catalog, "ns.t", SCHEMA)
    append(table, [(1, "old")])
    with table.update_schema() as update:
        update.rename_column("id", "number")
        update.delete_column("part")
    with table.update_schema() as update:
        update.add_column("part", StringType())
    append(table, [(2, "new")])
    assert values(ask(table)) == [(1, None), (2, "new")]
    assert values(ask(table, filter={"number": 1})) == [(1, None)]
    assert values(ask(table, filter={"column": "part", "op": "is_null"})) == [(1, None)]
    assert values(ask(table, filter={"part": "old"})) == []


def test_the_head_is_read_with_the_schema_of_now_also_before_the_next_write(catalog: SqlCatalog, ask: Ask) -> None:
    table = make_table(catalog, "ns.t", SCHEMA)
    append(table, [(1, "a")])
    with table.update_schema() as update:
        update.rename_column("part", "region")
        update.add_column("more", LongType())
    assert ask(table).rows == ({"id": 1, "region": "a", "more": None},)


def test_a_promoted_column_is_pruned_by_bounds_of_its_old_type(catalog: SqlCatalog, tmp_path: Path, ask: Ask) -> None:
    table = make_table(catalog, "ns.t", Schema(NestedField(1, "v", IntegerType(), required=False)))
    old = append(table, [(1,), (2,)])
    with table.update_schema() as update:
        update.update_column("v", LongType())
    new = append(table, [(2**40,)])
    assert opened(table, tmp_path / "v", {"v": 2}) == old
    assert opened(table, tmp_path / "v", {"v": 2**40}) == new
    assert values(ask(table, filter={"column": "v", "op": ">=", "value": 2})) == [(2**40,), (2,)]


def test_a_changed_partition_spec_prunes_each_file_by_its_own(catalog: SqlCatalog, tmp_path: Path, ask: Ask) -> None:
    table = make_table(catalog, "ns.t", SCHEMA, BY_PART)
    append(table, [(1, "a"), (2, "b")])
    with table.update_spec() as update:
        update.remove_field("part")
        update.add_identity("id")
    append(table, [(3, "a"), (4, "b")])
    assert [Path(path).parent.name for path in opened(table, tmp_path / "v", {"part": "a"})] == ["id=3", "part=a"]
    assert values(ask(table, filter={"part": "a"})) == [(1, "a"), (3, "a")]


def test_time_travel_reads_the_snapshot_with_its_schema(catalog: SqlCatalog, ask: Ask) -> None:
    table = make_table(catalog, "ns.t", SCHEMA)
    append(table, [(1, "a")])
    first = table.current_snapshot()
    with table.update_schema() as update:
        update.rename_column("part", "region")
        update.add_column("more", LongType())
    append(table, [{"id": 2, "region": "b", "more": 7}])
    second = table.current_snapshot()
    assert first is not None
    assert second is not None
    then = ask(table, snapshot_id=first.snapshot_id)
    assert (then.rows, then.snapshot_id) == (({"id": 1, "part": "a"},), first.snapshot_id)
    assert ask(table, as_of=second.timestamp_ms - 1).rows == then.rows
    assert ask(table, as_of=first.timestamp_ms).rows == then.rows
    assert ask(table, sql="SELECT part FROM t", snapshot_id=first.snapshot_id).rows == ({"part": "a"},)
    moment = datetime.fromtimestamp(second.timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")
    assert len(ask(table, as_of=moment).rows) == 2
    assert ask(table).snapshot_id == second.snapshot_id


def test_time_travel_follows_the_head_of_that_time_also_after_a_rollback(catalog: SqlCatalog, ask: Ask) -> None:
    table = make_table(catalog, "ns.t", SCHEMA)
    append(table, [(1, "a")])
    first = table.current_snapshot()
    append(table, [(2, "b")])
    second = table.current_snapshot()
    assert first is not None
    assert second is not None
    table.manage_snapshots().rollback_to_snapshot(first.snapshot_id).commit()
    assert values(ask(table)) == [(1, "a")]
    assert values(ask(table, as_of=second.timestamp_ms)) == [(1, "a"), (2, "b")]


@pytest.mark.parametrize("at", [{"snapshot_id": 7}, {"as_of": 0}, {"as_of": "1999-01-01T00:00:00Z"}])
def test_a_snapshot_that_is_not_there_is_not_found(catalog: SqlCatalog, ask: Ask, at: dict[str, Any]) -> None:
    table = make_table(catalog, "ns.t", SCHEMA)
    append(table, [(1, "a")])
    error = fault(lambda: ask(table, **at))
    assert (error.code, error.status) == ("SNAPSHOT_NOT_FOUND", 404)


# --- names, values ----------------------------------------------------------------------------------------------------

ODD_NAMES = [
    'we"ird',
    "a.b",
    "with space",
    "select",
    "ü😀",
    "it's",
    " lead",
    "source",
    "t",
    "filename",
    "%",
    "{x}",
    "1st",
]
ODD_NAMES += ["file_row_number", "c1", "--", "a;b", "$1", "?", "count", "{}"]


def test_columns_of_any_name_are_found_by_it(catalog: SqlCatalog, ask: Ask) -> None:
    names, of = ODD_NAMES, {name: index for index, name in enumerate(ODD_NAMES)}
    inner = StructType(*(NestedField(100 + i, n, LongType(), required=False) for i, n in enumerate(names)))
    fields = [NestedField(1 + i, n, LongType(), required=False) for i, n in enumerate(names)]
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "p"))
    table = make_table(catalog, "ns.order", Schema(*fields, NestedField(99, "in", inner, required=False)), spec)
    append(table, [{**dict.fromkeys(names, n), "in": {k: n * 100 + v for k, v in of.items()}} for n in (1, 2, 3)])
    nested = [f"in.{name}" for name in names]
    found = ask(
        table,
        columns=[*nested, *names],
        filter=[
            *({"column": name, "op": ">", "value": 1} for name in names),
            *({"column": f"in.{name}", "op": "<", "value": 300} for name in names),
        ],
        order_by=[{"column": name, "direction": "desc"} for name in names],
    )
    assert found.rows == ({f"in.{k}": 200 + v for k, v in of.items()} | dict.fromkeys(names, 2),)
    maxima = [{"function": "max", "column": f"in.{name}", "as": f"max {name}"} for name in names]
    grouped = ask(table, group_by=names, aggregates=maxima, order_by=[{"column": f"max {names[0]}"}], limit=1)
    assert grouped.rows == ({f"max {k}": 100 + v for k, v in of.items()} | dict.fromkeys(names, 1),)
    quoted = ['"' + name.replace('"', '""') + '"' for name in names]
    everything = ask(
        table, sql=f'SELECT {", ".join(quoted)} FROM "order" WHERE {" + ".join(quoted)} > {2 * len(names)}'
    )
    assert everything.rows == (dict.fromkeys(names, 3),)


def test_text_in_a_value_is_never_sql(catalog: SqlCatalog, ask: Ask) -> None:
    table = make_table(catalog, "ns.t", SCHEMA)
    nasty = "x' OR 1=1; DROP VIEW t; --"
    append(table, [(1, nasty), (2, "b")])
    assert values(ask(table, filter={"part": nasty})) == [(1, nasty)]
    assert values(ask(table, filter={"column": "part", "op": "starts_with", "value": "x' OR"})) == [(1, nasty)]
    assert values(ask(table, filter={"column": "part", "op": "starts_with", "value": "%"})) == []


EVERYTHING: tuple[tuple[Any, str, Any, Any], ...] = (
    (BooleanType(), "boolean", True, True),
    (IntegerType(), "int", -(2**31), -(2**31)),
    (LongType(), "long", 2**63 - 1, 2**63 - 1),
    (FloatType(), "float", 0.1, 0.1),
    (DoubleType(), "double", math.nan, "NaN"),
    (DoubleType(), "double", -math.inf, "-Infinity"),
    (DoubleType(), "double", -0.0, -0.0),
    (DecimalType(9, 2), "decimal(9,2)", Decimal("-12.50"), "-12.50"),
    (DecimalType(38, 10), "decimal(38,10)", Decimal("0.0000000001"), "0.0000000001"),
    (DateType(), "date", date(1969, 12, 31), "1969-12-31"),
    (TimeType(), "time", time(5, 0, 0, 1), "05:00:00.000001"),
    (TimestampType(), "timestamp", datetime(2025, 1, 17, 5), "2025-01-17T05:00:00.000000"),  # noqa: DTZ001
    (TimestamptzType(), "timestamptz", datetime(2025, 1, 17, 5, tzinfo=UTC), "2025-01-17T05:00:00.000000Z"),
    (StringType(), "string", 'ü "quoted" \x00', 'ü "quoted" \x00'),
    (UUIDType(), "uuid", UUID(int=7).bytes, "00000000-0000-0000-0000-000000000007"),
    (BinaryType(), "binary", b"\x00\xff", "AP8="),
    (FixedType(2), "fixed[2]", b"hi", "aGk="),
    (
        StructType(NestedField(100, "x y", DateType(), required=False), NestedField(101, "n", LongType())),
        "struct<x y: date, n: long>",
        {"x y": date(2025, 1, 17), "n": None},
        {"x y": "2025-01-17", "n": None},
    ),
    (ListType(102, DoubleType(), element_required=False), "list<double>", [1.5, None, math.nan], [1.5, None, "NaN"]),
    (MapType(103, StringType(), 104, LongType(), value_required=False), "map<string, long>", [("k", 1)], {"k": 1}),
    (
        MapType(105, DateType(), 106, BinaryType(), value_required=False),
        "map<date, binary>",
        [(date(2025, 1, 17), b"hi")],
        [{"key": "2025-01-17", "value": "aGk="}],
    ),
)


def test_every_type_comes_back_in_its_encoding(catalog: SqlCatalog, ask: Ask) -> None:
    fields = [NestedField(i + 1, f"f{i}", kind, required=False) for i, (kind, *_) in enumerate(EVERYTHING)]
    table = make_table(catalog, "ns.t", Schema(*fields))
    append(table, [tuple(value for _, _, value, _ in EVERYTHING)])
    append(table, [tuple(None for _ in EVERYTHING)])
    found = ask(table, filter={"f1": -(2**31)})
    assert [c.type for c in found.columns] == [text for _, text, _, _ in EVERYTHING]
    expected = {f"f{i}": encoded for i, (_, _, _, encoded) in enumerate(EVERYTHING)}
    assert json.dumps(found.rows[0]) == json.dumps(expected)
    assert json.dumps(ask(table, sql="SELECT * FROM t WHERE f1 IS NOT NULL").rows[0]) == json.dumps(expected)
    assert ask(table, filter={"f1": None}).rows == (dict.fromkeys(expected),)


def test_results_of_expressions_are_encoded_or_refused_by_name(catalog: SqlCatalog, ask: Ask) -> None:
    table = make_table(catalog, "ns.t", SCHEMA)
    found = ask(
        table, sql="SELECT 1 AS a, 2 AS a, 10::HUGEINT ** 1 AS d, sum(1::BIGINT) AS h, NULL AS n, 'x'::ENUM('x') AS e"
    )
    assert found.rows == ({"a": 1, "a_1": 2, "d": 10.0, "h": 1, "n": None, "e": "x"},)
    error = fault(lambda: ask(table, sql="SELECT INTERVAL 1 DAY AS step"))
    assert error.code == "QUERY_ERROR"
    assert "'step'" in error.message
    assert "INTERVAL" in error.message
    assert fault(lambda: ask(table, sql="SELECT 'infinity'::TIMESTAMP AS ts")).code == "QUERY_ERROR"


def test_nested_values_with_nulls_keep_their_rows_over_many_batches(catalog: SqlCatalog, ask: Ask) -> None:
    table = make_table(catalog, "ns.t", SCHEMA)
    found = ask(
        table,
        sql="""SELECT range AS n,
            CASE WHEN n % 2 = 0 THEN [[n], NULL, []] END AS l,
            CASE WHEN n % 3 = 0 THEN {'a': n, 'b': [n / 2]} END AS s,
            CASE WHEN n % 5 = 0 THEN map {'k': n, 'm': NULL} END AS m,
            CASE WHEN n % 7 = 0 THEN n / 0.0 ELSE n / 2 END AS d
        FROM range(5000)""",
    )
    for row in found.rows:
        n = row["n"]
        assert row["l"] == ([[n], None, []] if n % 2 == 0 else None)
        assert row["s"] == ({"a": n, "b": [n / 2]} if n % 3 == 0 else None)
        assert row["m"] == ({"k": n, "m": None} if n % 5 == 0 else None)
        assert row["d"] == (n / 2 if n % 7 else "Infinity" if n else "NaN")
    assert [row["n"] for row in found.rows] == list(range(5000))


# --- the structured form ----------------------------------------------------------------------------------------------


@pytest.fixture
def sales(catalog: SqlCatalog) -> Table:
    table = make_table(catalog, "ns.sales", SCHEMA)
    append(table, [(1, "a"), (2, "a"), (None, "a"), (5, "b"), (5, "b"), (7, None)])
    return table


def test_aggregates_are_taken_per_group(sales: Table, ask: Ask) -> None:
    functions = ("count", "count_distinct", "sum", "avg", "min", "max")
    found = ask(
        sales,
        group_by=["part"],
        aggregates=[{"function": "count"}, *({"function": f, "column": "id", "as": f + "_"} for f in functions)],
        order_by=[{"column": "part", "nulls": "first"}],
    )
    names = ["part", "count", *(f + "_" for f in functions)]
    assert [tuple(row[n] for n in names) for row in found.rows] == [
        (None, 1, 1, 1, 7, 7.0, 7, 7),
        ("a", 3, 2, 2, 3, 1.5, 1, 2),
        ("b", 2, 2, 1, 10, 5.0, 5, 5),
    ]


def test_decimals_are_averaged_as_decimals_and_compared_with_any_number(catalog: SqlCatalog, ask: Ask) -> None:
    schema = Schema(NestedField(1, "id", IntegerType()), NestedField(2, "price", DecimalType(9, 2)))
    table = make_table(catalog, "ns.prices", schema)
    append(table, [(1, Decimal("0.01")), (2, Decimal("0.01")), (3, Decimal("0.00")), (None, None)])
    average = [{"function": "avg", "column": "price", "as": "mean"}]
    found = ask(table, aggregates=average)
    assert (found.rows, found.columns[0].type) == (({"mean": "0.006667"},), "decimal(13,6)")
    for column, op, number, ids in (
        ("id", ">", 1.5, [2, 3]),
        ("id", "<", 3_000_000_000, [1, 2, 3]),
        ("id", "!=", 1.5, [1, 2, 3]),
        ("id", "=", 1.5, []),
        ("price", ">=", 0.005, [1, 2]),
        ("price", "<=", 10**12, [1, 2, 3]),
    ):
        asked = ask(
            table, columns=["id"], filter={"column": column, "op": op, "value": number}, order_by=[{"column": "id"}]
        )
        assert [row["id"] for row in asked.rows] == ids


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("id > 1 and id <= 5", [2, 5, 5]),
        ("id > 1.5 AND NOT part = 'b'", [2]),
        ("part like 'a%' or id = 7", [1, 2, 7, None]),
        ("part not like 'a%'", [5, 5]),
        ("part is null", [7]),
        ("id not in (1, 2) and part is not null", [5, 5]),
        ("id in (1, 2, 9)", [1, 2]),
        ("not (id between 2 and 5)", [1, 7]),
        ("id <> 5", [1, 2, 7]),
        (" and ".join(["id >= 5"] * 100), [5, 5, 7]),
        ("true", [1, 2, 5, 5, 7, None]),
        ("false", []),
    ],
)
def test_a_filter_may_be_text_in_the_grammar_of_where(sales: Table, ask: Ask, text: str, ids: list[int]) -> None:
    found = ask(sales, columns=["id"], filter=text, order_by=[{"column": "id"}])
    assert [row["id"] for row in found.rows] == ids


@pytest.mark.parametrize(("text", "words"), [("id >", "near character"), ("x" * 10_001, "10000"), ("nope = 1", "nope")])
def test_a_text_that_is_no_filter_is_refused_by_its_place(sales: Table, ask: Ask, text: str, words: str) -> None:
    error = fault(lambda: ask(sales, filter=text))
    assert (error.code, words in error.message) == ("QUERY_ERROR" if text == "nope = 1" else "INVALID_FIELD", True)


WIDE = Context(prec=100)
AVERAGED = [(9, 2), (3, 3), (18, 0), (34, 10), (36, 30), (38, 0), (38, 38)]


@pytest.mark.parametrize(("precision", "scale"), AVERAGED)
def test_an_average_of_decimals_is_exact_to_four_more_digits(
    engine: duckdb.DuckDBPyConnection, precision: int, scale: int
) -> None:
    most, more, random = 10**precision // 100 - 1, min(4, 38 - precision), Random(precision)
    statement = decimal_average(f"decimal({precision},{scale})", "x")
    for count in (0, 1, 2, 3, 7, 64):
        found = [Decimal(random.choice([random.randint(-most, most), random.randint(-9, 9)])) for _ in range(count)]
        texts = [None, *(format(number.scaleb(-scale, WIDE), "f") for number in found)]
        rows = engine.cursor()
        rows.execute(f"CREATE TEMP TABLE averaged (x DECIMAL({precision},{scale}))")
        rows.executemany("INSERT INTO averaged VALUES (?)", [[text] for text in texts])
        unit = Decimal(1).scaleb(-scale - more)
        total = Decimal(sum(map(int, found))).scaleb(-scale, WIDE)
        expected = WIDE.divide(total, Decimal(count)).quantize(unit, ROUND_HALF_UP, WIDE) if count else None
        told = rows.execute(f"SELECT {statement} AS y, typeof(y) FROM averaged").fetchone()
        assert told == (expected, f"DECIMAL({precision + more},{scale + more})")
        rows.execute("DROP TABLE averaged")


def test_rows_are_ordered_by_columns_that_are_put_out_or_not(sales: Table, ask: Ask) -> None:
    by_hidden = ask(sales, columns=["part"], order_by=[{"column": "id", "direction": "desc", "nulls": "first"}])
    assert [row["part"] for row in by_hidden.rows] == ["a", None, "b", "b", "a", "a"]
    nulls_last = ask(sales, columns=["id"], order_by=[{"column": "id"}])
    assert [row["id"] for row in nulls_last.rows] == [1, 2, 5, 5, 7, None]


def test_limit_and_offset_page_through_the_rows_and_truncated_says_that_more_follow(sales: Table, ask: Ask) -> None:
    pages = [ask(sales, columns=["id"], order_by=[{"column": "id"}], limit=2, offset=n) for n in (0, 2, 4, 6)]
    assert [[row["id"] for row in page.rows] for page in pages] == [[1, 2], [5, 5], [7, None], []]
    assert [page.truncated for page in pages] == [True, True, False, False]


def test_a_group_without_aggregates_is_its_distinct_keys(sales: Table, ask: Ask) -> None:
    assert values(ask(sales, group_by=["part"])) == [("a",), ("b",), (None,)]


@pytest.mark.parametrize("request_", [{}, {"sql": "SELECT * FROM t"}, {"filter": {"id": 1}}], ids=str)
def test_a_table_without_rows_answers_no_rows_and_all_columns(
    request_: dict[str, Any], catalog: SqlCatalog, ask: Ask
) -> None:
    table = make_table(catalog, "ns.t", SCHEMA, BY_PART)
    found = ask(table, **request_)
    assert (found.rows, found.snapshot_id) == ((), None)
    assert [(c.name, c.type) for c in found.columns] == [("id", "long"), ("part", "string")]
    assert ask(table, aggregates=[{"function": "count"}, {"function": "max", "column": "id"}]).rows == (
        {"count": 0, "max_id": None},
    )


def test_a_filter_that_no_file_can_match_answers_no_rows_and_opens_none(catalog: SqlCatalog, ask: Ask) -> None:
    table = make_table(catalog, "ns.t", SCHEMA)
    (path,) = append(table, [(1, "a")])
    remove_file(path)
    assert ask(table, filter={"id": 2}).rows == ()


# --- what cannot be read ----------------------------------------------------------------------------------------------


def test_a_missing_data_file_is_named_and_the_next_query_is_answered(catalog: SqlCatalog, ask: Ask) -> None:
    table = make_table(catalog, "ns.t", SCHEMA)
    (gone,) = append(table, [(1, "a")])
    append(table, [(2, "b")])
    remove_file(gone)
    for request in ({}, {"sql": "SELECT * FROM t"}):
        with pytest.raises(DataUnavailable) as caught:
            ask(table, **request)
        assert (caught.value.code, caught.value.details["path"]) == ("DATA_FILE_MISSING", gone)
    assert values(ask(table, filter={"id": 2})) == [(2, "b")]


def test_a_cut_data_file_and_a_lost_delete_file_are_faults_never_fewer_rows(catalog: SqlCatalog, ask: Ask) -> None:
    table = make_table(catalog, "ns.t", SCHEMA)
    (path,) = append(table, [(1, "a"), (2, "b")])
    deletes = add_position_deletes(table, {path: [0]})
    remove_file(deletes)
    assert fault(lambda: ask(table)).code == "DELETE_FILE_CORRUPT"
    cut = make_table(catalog, "ns.cut", SCHEMA)
    (path,) = append(cut, [(1, "a"), (2, "b")])
    truncate_file(path, 100)
    assert fault(lambda: ask(cut)).code == "DATA_FILE_CORRUPT"


@pytest.mark.parametrize(
    ("changes", "reason"), [({"file_format": FileFormat.ORC}, "ORC"), ({"key_metadata": b"key"}, "encrypted")]
)
def test_files_that_cannot_be_read_are_refused_before_any_work(
    changes: dict[str, Any], reason: str, catalog: SqlCatalog, ask: Ask
) -> None:
    plain = make_table(catalog, "ns.plain", SCHEMA)
    append(plain, [(1, "a")])
    table = make_table(catalog, "ns.t", SCHEMA)
    add_data_files(table, [changed_file(file, **changes) for file in live_data_files(plain)])
    error = fault(lambda: ask(table))
    assert isinstance(error, Unsupported)
    assert (error.code, error.status) == ("UNSUPPORTED_TABLE", 501)
    assert reason in error.message
    assert "query it with Spark" in error.message


def test_a_table_of_format_version_3_is_refused(catalog: SqlCatalog, tmp_path: Path) -> None:
    table = make_table(catalog, "ns.t", SCHEMA)
    table.metadata = table.metadata.model_copy(update={"format_version": 3})
    assert fault(lambda: opened(table, tmp_path / "v")).code == "UNSUPPORTED_TABLE"


def test_columns_that_differ_only_in_case_are_refused(catalog: SqlCatalog, ask: Ask) -> None:
    twice = StructType(NestedField(2, "x", LongType(), required=False), NestedField(3, "X", LongType(), required=False))
    table = make_table(catalog, "ns.t", Schema(NestedField(1, "s", twice, required=False)))
    append(table, [{"s": {"x": 1, "X": 2}}])
    assert fault(lambda: ask(table)).code == "UNSUPPORTED_TABLE"


def test_a_result_beyond_the_limit_of_bytes_is_refused_in_the_structured_form_too(sales: Table, ask: Ask) -> None:
    limits = QueryLimits(max_rows=10, max_bytes=50, seconds=60)
    error = fault(lambda: ask(sales, limits))
    assert isinstance(error, InvalidRequest)
    assert (error.code, error.status) == ("RESULT_TOO_LARGE", 413)


def test_an_unknown_snapshot_is_reported_before_anything_is_read(catalog: SqlCatalog, ask: Ask) -> None:
    table = make_table(catalog, "ns.t", SCHEMA)
    append(table, [(1, "a")])
    for path in manifest_paths(table):
        local_path(path).unlink()
    with pytest.raises(NotFound):
        ask(table, snapshot_id=7)
