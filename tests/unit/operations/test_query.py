"""QUERY with a scan and an engine in memory: what is asked of them, in which order, within which limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from regelate.core.answers import answer_fields
from regelate.core.query.predicate import Condition, Every, Op, Ordering, Predicate, StructuredQuery, find_column
from regelate.core.requests import QueryRequest
from regelate.core.running.group_view import GroupView
from regelate.core.table.schema import Column
from regelate.core.table.table import DataFile, FileScanTask, Partition
from regelate.errors import InvalidRequest, RegelateError, Unavailable
from regelate.operations.query import MAX_ENTRIES, QueryLimits, QueryTools, query, structured_query

COLUMNS = (
    Column(name="id", type="long"),
    Column(name="name", type="string"),
    Column(name="price", type="decimal(9,2)"),
    Column(name="s", type="struct", children=(Column(name="x", type="double"),)),
)
TASK = FileScanTask(
    data_file=DataFile(
        path="file:///a.parquet",
        file_format="PARQUET",
        partition=Partition(spec_id=0, values=(), path=""),
        record_count=1,
        size_bytes=1,
        sequence_number=1,
        snapshot_id=1,
    )
)


@dataclass
class VirtualClock:
    seconds: float = 0.0

    def now_ms(self) -> int:
        return int(self.seconds * 1000)

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


class NoViews:
    columns = COLUMNS

    def write(self, tasks: Sequence[FileScanTask], *, with_deletes: bool = True) -> GroupView:
        return GroupView(metadata_paths=("",), columns=COLUMNS)


@dataclass
class MemoryScan:
    """One table of one file; reading its manifests takes `takes_seconds`."""

    clock: VirtualClock
    takes_seconds: float
    snapshot_id: int | None = 7
    columns: tuple[Column, ...] = COLUMNS
    views: NoViews = field(default_factory=NoViews)
    asked: list[Predicate] = field(default_factory=list)

    def filter_of(self, text: str) -> object:
        return {"id": int(text)}

    def files(self, predicate: Predicate) -> tuple[tuple[FileScanTask, ...], ...]:
        self.clock.sleep(self.takes_seconds)
        self.asked.append(predicate)
        return ((TASK,),)


@dataclass(frozen=True)
class Named:
    name: str
    type: str


@dataclass(frozen=True)
class Result:
    columns: Sequence[Named] = (Named("id", "long"),)
    rows: Sequence[dict[str, Any]] = ({"id": 1}, {"id": 2})
    row_count: int = 2
    truncated: bool = True
    stored: str | None = None


@dataclass
class MemoryEngine:
    """Answers everything alike and remembers what it was asked."""

    clock: VirtualClock
    takes_seconds: float = 0.25
    selected: list[StructuredQuery] = field(default_factory=list)
    texts: list[tuple[str, str]] = field(default_factory=list)
    limits: list[Mapping[str, float]] = field(default_factory=list)

    def select(self, query: StructuredQuery, groups: object, views: object, **limits: float) -> Result:
        self.selected.append(query)
        return self._answer(groups, limits)

    def sql(self, text: str, table_name: str, groups: object, views: object, **limits: float) -> Result:
        self.texts.append((text, table_name))
        return self._answer(groups, limits)

    def _answer(self, groups: object, limits: Mapping[str, float]) -> Result:
        assert groups == ((TASK,),)
        self.limits.append(limits)
        self.clock.sleep(self.takes_seconds)
        return Result()


@dataclass
class World:
    """Everything around one query."""

    clock: VirtualClock = field(default_factory=VirtualClock)
    scan_seconds: float = 0.5
    opened: list[tuple[int | None, int | None, str | None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.scan = MemoryScan(self.clock, self.scan_seconds)
        self.engine = MemoryEngine(self.clock)

    def ask(self, **request: Any) -> dict[str, object]:
        def scan(snapshot_id: int | None, as_of_ms: int | None, ref: str | None) -> MemoryScan:
            self.opened.append((snapshot_id, as_of_ms, ref))
            return self.scan

        limits = QueryLimits(max_rows=2_000, max_bytes=1_000, seconds=10)
        tools = QueryTools(scan=scan, engine=self.engine, clock=self.clock, limits=limits)
        return answer_fields(query(tools, QueryRequest(**request), table_name="flights"))

    def structured(self, **request: Any) -> StructuredQuery:
        self.ask(**request)
        return self.engine.selected[-1]

    def refused(self, **request: Any) -> RegelateError:
        with pytest.raises(InvalidRequest) as caught:
            self.ask(**request)
        assert not self.engine.selected
        assert not self.scan.asked
        return caught.value


@pytest.fixture
def world() -> World:
    return World()


def test_the_answer_has_the_fields_of_the_response(world: World) -> None:
    assert world.ask() == {
        "columns": [{"name": "id", "type": "long"}],
        "rows": ({"id": 1}, {"id": 2}),
        "row_count": 2,
        "truncated": True,
        "snapshot_id": 7,
        "query_time_ms": 750.0,
    }


def test_a_filter_prunes_the_files_and_is_asked_of_the_engine_too(world: World) -> None:
    asked = world.structured(filter={"id": 5})
    expected = Condition(path=find_column(COLUMNS, "id"), op=Op.EQUAL, values=(5,))
    assert world.scan.asked == [expected]
    assert asked.predicate == expected


def test_a_filter_that_is_text_is_read_by_the_scan(world: World) -> None:
    assert world.structured(filter="5").predicate == Condition(
        path=find_column(COLUMNS, "id"), op=Op.EQUAL, values=(5,)
    )


def test_sql_reads_every_file_under_the_name_of_the_table(world: World) -> None:
    world.ask(sql="SELECT 1")
    assert world.scan.asked == [Every()]
    assert world.engine.texts == [("SELECT 1", "flights")]
    assert world.engine.limits[0] == {"max_rows": 2_000, "max_bytes": 1_000, "seconds": 9.5}


def test_sql_has_a_limit_of_its_own(world: World) -> None:
    world.ask(sql="SELECT 1", limit=7)
    assert world.engine.limits[0]["max_rows"] == 7
    with pytest.raises(InvalidRequest, match="limit: must be 0 to 2000"):
        world.ask(sql="SELECT 1", limit=2_001)


@pytest.mark.parametrize("direction", ["desc", "DESC", "Desc"])
def test_a_direction_is_read_in_any_case(world: World, direction: str) -> None:
    assert world.structured(order_by=[{"column": "id", "direction": direction}]).order_by[0].descending


def test_the_time_for_the_manifests_is_taken_from_the_time_of_the_query(world: World) -> None:
    world.ask()
    assert world.engine.limits[0] == {"max_bytes": 1_000, "seconds": 9.5}


@pytest.mark.parametrize("request_", [{}, {"sql": "SELECT 1"}], ids=str)
def test_a_query_whose_manifests_took_all_of_its_time_is_not_started(request_: dict[str, Any]) -> None:
    world = World(scan_seconds=10)
    with pytest.raises(Unavailable) as caught:
        world.ask(**request_)
    assert (caught.value.code, caught.value.status) == ("QUERY_TIMEOUT", 504)
    assert not world.engine.limits


def test_without_columns_all_top_level_columns_are_put_out(world: World) -> None:
    assert [path.name for path in world.structured().columns] == ["id", "name", "price", "s"]


def test_columns_may_lead_into_structs(world: World) -> None:
    assert [path.name for path in world.structured(columns=["s.x", "id"]).columns] == ["s.x", "id"]


@pytest.mark.parametrize(("limit", "effective"), [(None, 1_000), (0, 0), (2_000, 2_000)])
def test_the_limit_is_1000_rows_unless_given(world: World, limit: int | None, effective: int) -> None:
    assert world.structured(limit=limit, offset=3).limit == effective
    assert world.engine.selected[-1].offset == 3


def test_aggregates_are_named_by_function_and_column_unless_named(world: World) -> None:
    asked = world.structured(
        aggregates=[
            {"function": "count"},
            {"function": "sum", "column": "price"},
            {"function": "max", "column": "s.x", "as": "top"},
        ]
    )
    assert [a.name for a in asked.aggregates] == ["count", "sum_price", "top"]
    assert (asked.columns, asked.group_by) == ((), ())


def test_the_keys_of_groups_are_put_out_unless_columns_choose_among_them(world: World) -> None:
    count = [{"function": "count"}]
    assert [p.name for p in world.structured(group_by=["name", "id"], aggregates=count).columns] == ["name", "id"]
    chosen = world.structured(group_by=["name", "id"], columns=["id"], aggregates=count)
    assert ([p.name for p in chosen.columns], [p.name for p in chosen.group_by]) == (["id"], ["name", "id"])


def test_order_by_means_an_output_column_first_and_a_column_of_the_table_else(world: World) -> None:
    asked = world.structured(
        columns=["name"], order_by=[{"column": "name", "direction": "desc"}, {"column": "id", "nulls": "first"}]
    )
    assert asked.order_by == (
        Ordering(target=0, descending=True),
        Ordering(target=find_column(COLUMNS, "id"), nulls_first=True),
    )


@pytest.mark.parametrize(
    ("request_", "place"),
    [
        ({"limit": 2_001}, "limit"),
        ({"limit": -1}, "limit"),
        ({"offset": -1}, "offset"),
        ({"columns": []}, "columns"),
        ({"columns": ["id", "id"]}, "columns"),
        ({"columns": ["id"], "group_by": ["name"]}, "columns"),
        ({"columns": ["id"], "aggregates": [{"function": "count"}]}, "columns"),
        ({"aggregates": [{"function": "count"}, {"function": "count"}]}, "columns"),
        ({"group_by": ["id"], "aggregates": [{"function": "count", "as": "id"}]}, "columns"),
        ({"aggregates": [{"function": "median", "column": "id"}]}, "aggregates[0].function"),
        ({"aggregates": [{"function": "count"}, {"function": "sum"}]}, "aggregates[1].column"),
        ({"aggregates": [{"function": "sum", "column": "name"}]}, "aggregates[0].column"),
        ({"aggregates": [{"function": "min", "column": "s"}]}, "aggregates[0].column"),
        ({"group_by": ["name"], "order_by": [{"column": "id"}]}, "order_by[0].column"),
        ({"order_by": [{"column": "id", "direction": "up"}]}, "order_by[0].direction"),
        ({"order_by": [{"column": "id", "nulls": "middle"}]}, "order_by[0].nulls"),
        ({"order_by": [{}]}, "order_by[0].column"),
        ({"filter": {"id": "x"}}, "filter.id"),
        ({"as_of": "2025-01-17T05:00:00"}, "as_of"),
        ({"as_of": "yesterday"}, "as_of"),
        ({"as_of": True}, "as_of"),
        ({"as_of": 1, "snapshot_id": 7}, "as_of"),
        ({"ref": "v1", "snapshot_id": 7}, "ref"),
        ({"ref": "v1", "as_of": 7}, "ref"),
    ],
)
def test_a_field_that_makes_no_sense_is_refused_before_a_manifest_is_read(
    world: World, request_: dict[str, Any], place: str
) -> None:
    error = world.refused(**request_)
    assert (error.code, error.status, error.details["field"]) == ("INVALID_FIELD", 400, place)


@pytest.mark.parametrize(
    "request_",
    [
        {"columns": ["nope"]},
        {"group_by": ["nope"]},
        {"aggregates": [{"function": "sum", "column": "nope"}]},
        {"order_by": [{"column": "nope"}]},
        {"filter": {"nope": 1}},
    ],
    ids=str,
)
def test_an_unknown_column_is_a_query_error_wherever_it_stands(world: World, request_: dict[str, Any]) -> None:
    error = world.refused(**request_)
    assert (error.code, error.status) == ("QUERY_ERROR", 400)
    assert "id, name, price, s" in error.message


@pytest.mark.parametrize(
    ("request_", "opened"),
    [
        ({}, (None, None, None)),
        ({"snapshot_id": 7}, (7, None, None)),
        ({"as_of": 1_737_090_000_123}, (None, 1_737_090_000_123, None)),
        ({"as_of": "2025-01-17T05:00:00.123999Z"}, (None, 1_737_090_000_123, None)),
        ({"as_of": "2025-01-17T07:00:00+02:00"}, (None, 1_737_090_000_000, None)),
        ({"as_of": "1969-12-31T23:59:59.999Z"}, (None, -1, None)),
        ({"ref": "v1"}, (None, None, "v1")),
    ],
    ids=str,
)
def test_time_travel_is_by_snapshot_by_a_moment_in_milliseconds_or_by_a_name(
    world: World, request_: dict[str, Any], opened: tuple[int | None, int | None, str | None]
) -> None:
    world.ask(**request_)
    assert world.opened == [opened]


@pytest.mark.parametrize(
    ("field", "entry"),
    [
        ("columns", "id"),
        ("group_by", "id"),
        ("order_by", {"column": "id"}),
        ("aggregates", {"function": "count"}),
    ],
)
def test_a_list_longer_than_a_table_is_wide_is_refused(field: str, entry: object) -> None:
    given: Any = {field: [entry] * (MAX_ENTRIES + 1)}
    with pytest.raises(InvalidRequest, match=rf"{field}: more than 2,000 entries"):
        structured_query(QueryRequest(**given), COLUMNS, QueryLimits(max_rows=10, max_bytes=10, seconds=1))
