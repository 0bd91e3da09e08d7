"""QUERY: pin a snapshot, choose the files, let the engine answer within limits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from regelate.core.answers import QueryAnswer, ResultColumn
from regelate.core.query.predicate import (
    Aggregate,
    ColumnPath,
    Every,
    Ordering,
    StructuredQuery,
    find_column,
    invalid,
    literal,
    parse_filter,
)
from regelate.core.requests import QueryRequest
from regelate.core.table.schema import Column
from regelate.core.values import dataclass
from regelate.errors import Unavailable
from regelate.ports.clock import Clock
from regelate.ports.query import QueryEngine, ResultStore, TableScan

DEFAULT_LIMIT = 1_000
FUNCTIONS = ("count", "count_distinct", "sum", "avg", "min", "max")
MAX_ENTRIES = 2_000
"""Of one list of a structured query: as many as a table may have columns."""
NUMERIC = ("int", "long", "float", "double")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryLimits:
    max_rows: int
    max_bytes: int
    seconds: float
    """Of the whole query: reading the manifests counts too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryTools:
    scan: Callable[[int | None, int | None, str | None], TableScan]
    """Opens the table at a snapshot id, at a time in milliseconds, at a branch or tag, or (all None) at its head."""
    engine: QueryEngine
    clock: Clock
    limits: QueryLimits
    opened: Callable[[int], None] = lambda files: None
    """Is told how many data files a query of the table's head is answered from."""
    results: ResultStore | None = None
    """Where the engine may store results; without one it refuses what is too large for an answer."""


def query(tools: QueryTools, request: QueryRequest, *, table_name: str) -> QueryAnswer:
    """Answer one query from one snapshot. `table_name`: what SQL may call the table beside `t`, with the
    namespace.

    Errors: InvalidRequest INVALID_FIELD, QUERY_ERROR, QUERY_NOT_ALLOWED, RESULT_TOO_LARGE; NotFound SNAPSHOT_NOT_FOUND,
    REF_NOT_FOUND; Unavailable QUERY_TIMEOUT; Unsupported; DataUnavailable; ResourceExhausted; what the result store
    raises.
    """
    started = tools.clock.monotonic()
    limits = tools.limits
    if request.ref is not None and (request.snapshot_id, request.as_of) != (None, None):
        raise invalid("ref", "cannot be combined with snapshot_id or as_of")
    scan = tools.scan(request.snapshot_id, as_of_ms(request), request.ref)
    if request.sql is not None:
        most_rows = _limit(request.limit, limits.max_rows, limits)
        groups = scan.files(Every())
        result = tools.engine.sql(
            request.sql,
            table_name,
            groups,
            scan.views,
            max_rows=most_rows,
            max_bytes=limits.max_bytes,
            seconds=_seconds_left(tools, started),
        )
    else:
        if isinstance(request.filter, str):
            request = replace(request, filter=scan.filter_of(request.filter))
        structured = structured_query(request, scan.columns, limits)
        groups = scan.files(structured.predicate)
        left = _seconds_left(tools, started)
        result = tools.engine.select(structured, groups, scan.views, max_bytes=limits.max_bytes, seconds=left)
    if (request.snapshot_id, request.as_of, request.ref) == (None, None, None):
        tools.opened(sum(map(len, groups)))
    stored = None
    if result.stored is not None and tools.results is not None:
        stored = tools.results.keep(result.stored, now_ms=tools.clock.now_ms())
    return QueryAnswer(
        columns=tuple(ResultColumn(name=c.name, type=c.type) for c in result.columns),
        rows=result.rows,
        row_count=result.row_count,
        truncated=result.truncated,
        snapshot_id=scan.snapshot_id,
        query_time_ms=round((tools.clock.monotonic() - started) * 1000, 3),
        result_url=None if stored is None else stored.url,
        result_expires_at=None if stored is None else stored.expires_at,
        result_bytes=None if stored is None else stored.size_bytes,
    )


def _seconds_left(tools: QueryTools, started: float) -> float:
    left = tools.limits.seconds - (tools.clock.monotonic() - started)
    if left <= 0:
        raise Unavailable(
            "QUERY_TIMEOUT", "reading the table's manifests took all of the query's time", status=504, retryable=False
        )
    return left


def as_of_ms(request: QueryRequest) -> int | None:
    """Return the time to travel to in milliseconds. Errors: InvalidRequest INVALID_FIELD."""
    if request.as_of is None:
        return None
    if request.snapshot_id is not None:
        raise invalid("as_of", "cannot be combined with snapshot_id")
    return moment_ms(request.as_of)


def moment_ms(as_of: str | int) -> int:
    """Return a moment in milliseconds since the epoch. Errors: InvalidRequest INVALID_FIELD."""
    if isinstance(as_of, int) and not isinstance(as_of, bool):
        return as_of
    try:
        moment = literal("timestamptz", as_of)
    except ValueError as error:
        raise invalid("as_of", f"{error}, or milliseconds since the epoch") from error
    assert isinstance(moment, datetime)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000


def _limit(asked: int | None, default: int, limits: QueryLimits) -> int:
    limit = min(default, limits.max_rows) if asked is None else asked
    if not 0 <= limit <= limits.max_rows:
        raise invalid("limit", f"must be 0 to {limits.max_rows}")
    return limit


def structured_query(request: QueryRequest, columns: Sequence[Column], limits: QueryLimits) -> StructuredQuery:
    """Resolve the structured fields against the columns. Errors: InvalidRequest INVALID_FIELD, QUERY_ERROR."""
    limit = _limit(request.limit, DEFAULT_LIMIT, limits)
    if request.offset < 0:
        raise invalid("offset", "must not be negative")
    _check_lengths(request)
    group_by = tuple(find_column(columns, name) for name in request.group_by)
    aggregates = tuple(_aggregate(a, columns, f"aggregates[{i}]") for i, a in enumerate(request.aggregates))
    outputs = _outputs(request, columns, group_by, bool(aggregates))
    names = [p.name for p in outputs] + [a.name for a in aggregates]
    if not names:
        raise invalid("columns", "names no column")
    doubled = next((name for name, number in Counter(names).items() if number > 1), None)
    if doubled is not None:
        raise invalid(
            "columns", f"{doubled} would appear twice in the result; give an aggregate another name with `as`"
        )
    grouped = bool(group_by or aggregates)
    return StructuredQuery(
        columns=outputs,
        predicate=Every() if request.filter is None else parse_filter(request.filter, columns),
        aggregates=aggregates,
        group_by=group_by,
        order_by=tuple(_ordering(o, names, columns, grouped, f"order_by[{i}]") for i, o in enumerate(request.order_by)),
        limit=limit,
        offset=request.offset,
    )


def _check_lengths(request: QueryRequest) -> None:
    for name in ("columns", "aggregates", "group_by", "order_by"):
        if len(getattr(request, name) or ()) > MAX_ENTRIES:
            raise invalid(name, f"more than {MAX_ENTRIES:,} entries")


def _outputs(
    request: QueryRequest, columns: Sequence[Column], group_by: tuple[ColumnPath, ...], aggregated: bool
) -> tuple[ColumnPath, ...]:
    if request.columns is None:
        return group_by if group_by or aggregated else tuple(ColumnPath(lineage=(c,)) for c in columns)
    outputs = tuple(find_column(columns, name) for name in request.columns)
    loose = next((p.name for p in outputs if p not in group_by), None)
    if (group_by or aggregated) and loose is not None:
        raise invalid("columns", f"{loose} is neither in group_by nor an aggregate")
    return outputs


def _aggregate(given: Mapping[str, Any], columns: Sequence[Column], at: str) -> Aggregate:
    function, name = given.get("function"), given.get("column")
    if function not in FUNCTIONS:
        raise invalid(f"{at}.function", f"expected one of {', '.join(FUNCTIONS)}")
    if name is None and function != "count":
        raise invalid(f"{at}.column", f"{function} needs a column")
    path = None if name is None else find_column(columns, name)
    if path is not None:
        kind = path.column.type
        if function in ("sum", "avg") and kind not in NUMERIC and not kind.startswith("decimal"):
            raise invalid(f"{at}.column", f"{function} needs a number, {path.name} is {kind}")
        if function in ("min", "max") and path.column.children:
            raise invalid(f"{at}.column", f"{function} needs a value with an order, {path.name} is a {kind}")
    default = "count" if path is None else f"{function}_{path.name}"
    return Aggregate(function=function, path=path, name=given.get("as") or default)


def _ordering(
    given: Mapping[str, Any], names: Sequence[str], columns: Sequence[Column], grouped: bool, at: str
) -> Ordering:
    name, direction, nulls = given.get("column"), given.get("direction", "asc"), given.get("nulls", "last")
    direction = direction.lower() if isinstance(direction, str) else direction
    if not isinstance(name, str):
        raise invalid(f"{at}.column", "expected the name of a column")
    if direction not in ("asc", "desc"):
        raise invalid(f"{at}.direction", "expected asc or desc")
    if nulls not in ("first", "last"):
        raise invalid(f"{at}.nulls", "expected first or last")
    if name not in names and grouped:
        raise invalid(f"{at}.column", f"a grouped result can be ordered by its own columns only: {', '.join(names)}")
    target = names.index(name) if name in names else find_column(columns, name)
    return Ordering(target=target, descending=direction == "desc", nulls_first=nulls == "first")
