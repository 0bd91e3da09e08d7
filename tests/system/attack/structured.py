"""QUERY by its fields: lists and filters without end, odd literals, names that are none, other tenants."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.system.attack.attack import (
    BAD_REQUEST,
    ENDED,
    ERROR,
    FIELD,
    FORBIDDEN,
    MISSING,
    NAME,
    NO_NAMESPACE,
    NO_TABLE,
    NOT_ALLOWED,
    OK,
    OTHER_SECONDS,
    QUERY_SECONDS,
    UNKNOWN_FIELD,
    VICTIM,
    Attack,
    post,
    query,
)
from tests.system.attack.scene import Scene

PART = "QUERY by fields"
REFUSED = (ERROR, FIELD)
NO_SNAPSHOT = "404 SNAPSHOT_NOT_FOUND"
NO_REF = "404 REF_NOT_FOUND"


def _nested(kind: str, depth: int) -> Any:
    found: Any = {"column": "id", "op": "=", "value": 1}
    for _ in range(depth):
        found = {kind: found} if kind == "not" else {kind: [found]}
    return found


def _is(value: Any, column: str = "id", op: str = "=") -> dict[str, Any]:
    return {"column": column, "op": op, "value": value}


FILTERS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "IN with 100,000 numbers": (_is(list(range(100_000)), op="in"), (OK, *REFUSED, *ENDED)),
    "IN with 100,000 texts": (_is([f"n{i}" for i in range(100_000)], "name", "in"), (OK, *REFUSED, *ENDED)),
    "NOT IN with 100,000 numbers": (_is(list(range(100_000)), op="not_in"), (OK, *REFUSED, *ENDED)),
    "IN with nothing": (_is([], op="in"), (OK, *REFUSED)),
    "IN with one text of 5 MB": (_is(["x" * 5_000_000], "name", "in"), (OK, *REFUSED, *ENDED)),
    "AND of 50,000": ({"and": [_is(1)] * 50_000}, (OK, *REFUSED, *ENDED)),
    "OR of 50,000": ({"or": [_is(i) for i in range(50_000)]}, (OK, *REFUSED, *ENDED)),
    "NOT 25 deep": (_nested("not", 25), (OK, *REFUSED)),
    "NOT 60 deep": (_nested("not", 60), (OK, *REFUSED, BAD_REQUEST)),
    "NOT 100 deep": (_nested("not", 100), (BAD_REQUEST,)),
    "AND 28 deep": (_nested("and", 28), (OK, *REFUSED)),
    "AND 400 deep": (_nested("and", 400), (BAD_REQUEST,)),
    "an empty AND": ({"and": []}, (OK, *REFUSED)),
    "AND that is no list": ({"and": {"id": 1}}, REFUSED),
    "AND beside OR": ({"and": [], "or": []}, REFUSED),
    "an operator that is SQL": (_is(1, op="= 1 OR 1 = 1 --"), REFUSED),
    "an operator that is a list": ({"column": "id", "op": ["="], "value": 1}, REFUSED),
    "a column that is SQL": (_is(1, 'id" = 1 OR 1=1 --'), REFUSED),
    "a column that is a path": (_is(1, "../../etc/passwd"), REFUSED),
    "a column that is a number": ({"column": 1, "op": "=", "value": 1}, REFUSED),
    "a column of 100,000 dots": (_is(1, "who" + ".name" * 100_000), REFUSED),
    "a column of another table": (_is("x", "orders.note"), REFUSED),
    "no column": ({"op": "=", "value": 1}, REFUSED),
    "a text that is SQL": (_is("x' OR 'a'='a", "name"), (OK,)),
    "a text with NUL": (_is("a\0b", "name"), (OK, *REFUSED)),
    "a text of half a surrogate pair": (_is("\ud800", "name"), (OK, *REFUSED, "400 INVALID_JSON")),
    "a text of 5 MB": (_is("x" * 5_000_000, "name"), (OK, *REFUSED, *ENDED)),
    "starts_with of wildcards": (_is("%_%_%*?" * 1000, "name", "starts_with"), (OK,)),
    "starts_with of a number": (_is(1, "id", "starts_with"), REFUSED),
    "a number of 4,000 digits": (_is(10**4000), (OK, *REFUSED)),
    "2^63": (_is(2**63), (OK, *REFUSED)),
    "2^63 for an int": (_is(2**63, "p"), (OK, *REFUSED)),
    "1e308 for an int": (_is(1e308, "p"), (OK, *REFUSED)),
    "a decimal of 400 digits": (_is("9" * 400, "amount"), (OK, *REFUSED)),
    "a decimal by an exponent": (_is("1e999999999", "amount"), (OK, *REFUSED)),
    "a decimal that is NaN": (_is("NaN", "amount"), REFUSED),
    "a date in the year 10000": (_is("10000-01-01", "day"), REFUSED),
    "a date in the year 0": (_is("0000-01-01", "day"), REFUSED),
    "a date that is none": (_is("2025-02-30", "day"), REFUSED),
    "a moment without a zone": (_is("2025-01-01T00:00:00", "at"), REFUSED),
    "a moment with a zone of 99 hours": (_is("2025-01-01T00:00:00+99:00", "at"), REFUSED),
    "bytes that are no base64": (_is("***", "raw"), REFUSED),
    "true for a number": (_is(True), REFUSED),
    "an object for a number": (_is({"a": 1}), REFUSED),
    "a list for a number": (_is([1]), REFUSED),
    "a filter on a list": (_is("a", "tags"), REFUSED),
    "a filter on a map": (_is("a", "marks"), REFUSED),
    "a filter on a struct": (_is({"name": "x"}, "who"), REFUSED),
    "between one value": (_is([1], op="between"), REFUSED),
    "between three values": (_is([1, 2, 3], op="between"), REFUSED),
    "is_null with a value": (_is(1, op="is_null"), (OK, *REFUSED)),
    "a filter that is a list of lists": ([[[[[[]]]]]], (OK, *REFUSED)),
    "a filter of 20,000 unknown names": ({f"c{i}": 1 for i in range(20_000)}, REFUSED),
}
FIELDS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "100,000 columns": ({"columns": ["id"] * 100_000}, (OK, *REFUSED, *ENDED)),
    "a column that is not there": ({"columns": ["victim"]}, REFUSED),
    "a column that is a call": ({"columns": ["getenv('CANARY')"]}, REFUSED),
    "a column that is a star": ({"columns": ["*"]}, REFUSED),
    "no columns": ({"columns": []}, (OK, *REFUSED)),
    "columns that are a text": ({"columns": "id"}, REFUSED),
    "20,000 aggregates": (
        {"aggregates": [{"function": "sum", "column": "id", "as": f"s{i}"} for i in range(20_000)]},
        (OK, *REFUSED, *ENDED),
    ),
    "an aggregate that is a function": (
        {"aggregates": [{"function": "getenv('CANARY')", "column": "id"}]},
        REFUSED,
    ),
    "an aggregate under an SQL name": (
        {"aggregates": [{"function": "count", "as": 'x" FROM duckdb_settings() --'}]},
        (OK, *REFUSED),
    ),
    "an aggregate of a list": ({"aggregates": [{"function": "sum", "column": "tags"}]}, REFUSED),
    "an average of a text": ({"aggregates": [{"function": "avg", "column": "name"}]}, REFUSED),
    "two aggregates of one name": (
        {"aggregates": [{"function": "count", "as": "n"}, {"function": "count", "as": "n"}]},
        REFUSED,
    ),
    "10,000 groups of one column": (
        {"group_by": ["p"] * 10_000, "aggregates": [{"function": "count"}]},
        (OK, *REFUSED, *ENDED),
    ),
    "a group by a map": ({"group_by": ["marks"], "aggregates": [{"function": "count"}]}, (OK, *REFUSED)),
    "an order by 20,000": ({"order_by": [{"column": "id"}] * 20_000}, (OK, *REFUSED, *ENDED)),
    "an order by SQL": ({"order_by": [{"column": "id; DROP TABLE t"}]}, REFUSED),
    "an order in an odd direction": ({"order_by": [{"column": "id", "direction": "desc; --"}]}, REFUSED),
    "a limit of -1": ({"limit": -1}, REFUSED),
    "a limit of 10^18": ({"limit": 10**18}, REFUSED),
    "a limit of 1.5": ({"limit": 1.5}, REFUSED),
    "a limit that is true": ({"limit": True}, REFUSED),
    "an offset of 10^18": ({"offset": 10**18}, (OK, *REFUSED)),
    "an offset of -1": ({"offset": -1}, REFUSED),
    "an offset of 10^30": ({"offset": 10**30}, REFUSED),
    "SQL beside columns": ({"sql": "SELECT 1", "columns": ["id"]}, REFUSED),
    "SQL that is a list": ({"sql": ["SELECT 1"]}, REFUSED),
    "SQL that is an object": ({"sql": {"a": 1}}, REFUSED),
    "a snapshot of nobody": ({"snapshot_id": 1}, (NO_SNAPSHOT,)),
    "a snapshot of -1": ({"snapshot_id": -1}, (NO_SNAPSHOT, FIELD)),
    "a snapshot of 2^64": ({"snapshot_id": 2**64}, (NO_SNAPSHOT, FIELD)),
    "a snapshot of 30 digits": ({"snapshot_id": "9" * 30}, (NO_SNAPSHOT, FIELD)),
    "a snapshot that is SQL": ({"snapshot_id": "1 OR 1=1"}, (FIELD,)),
    "a snapshot in Arabic digits": ({"snapshot_id": "\u0661\u0662"}, (FIELD,)),
    "as of the year 1": ({"as_of": "0001-01-01T00:00:00Z"}, (NO_SNAPSHOT, FIELD)),
    "as of the year 9999": ({"as_of": "9999-12-31T23:59:59Z"}, (OK, FIELD)),
    "as of 10^30 milliseconds": ({"as_of": 10**30}, (OK, FIELD, NO_SNAPSHOT)),
    "as of a text": ({"as_of": "yesterday'; --"}, (FIELD,)),
    "a ref that is a path": ({"ref": "../main"}, (NO_REF, FIELD)),
    "a ref of 100,000 characters": ({"ref": "r" * 100_000}, (NO_REF, FIELD)),
    "a ref beside a snapshot": ({"ref": "main", "as_of": 1}, REFUSED),
    "a field of nobody": ({"explain": True}, (UNKNOWN_FIELD,)),
    "__class__ as a field": ({"__class__": "x"}, (UNKNOWN_FIELD,)),
    "an allowed limit of its own": ({"limits": {"seconds": 900}}, (UNKNOWN_FIELD,)),
}
NAMES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "the victim's table as one's own": ({"table": "orders"}, (NO_TABLE,)),
    "the victim's namespace": ({"namespace": f"{VICTIM}__default", "table": "orders"}, (NAME,)),
    "the victim's namespace by dots": ({"namespace": f"..{VICTIM}__default", "table": "orders"}, (NAME,)),
    "a namespace of two parts": ({"namespace": f"{VICTIM}.default", "table": "orders"}, (NAME,)),
    "the victim's table by a path": ({"table": f"../{VICTIM}__default/orders"}, (NAME,)),
    "the victim's table by a dotted name": ({"table": f"{VICTIM}__default.orders"}, (NAME,)),
    "a tenant that is nobody": ({"tenant_id": "nobody"}, (FORBIDDEN,)),
    "a tenant in upper case": ({"tenant_id": "VICTIM"}, (FORBIDDEN, NAME)),
    "a tenant with a space": ({"tenant_id": "victim "}, (FORBIDDEN, NAME)),
    "a tenant that is a wildcard": ({"tenant_id": "*"}, (FORBIDDEN, NAME)),
    "a tenant that is a list": ({"tenant_id": ["mallory", "victim"]}, (FIELD, NAME)),
    "a tenant that is null": ({"tenant_id": None}, (FIELD, MISSING)),
    "a tenant that is empty": ({"tenant_id": ""}, (FIELD, NAME, FORBIDDEN, MISSING)),
    "a tenant of look-alike letters": ({"tenant_id": "v\u0456ctim"}, (FORBIDDEN, NAME)),
    "a tenant with a combining mark": ({"tenant_id": "victi\u0301m"}, (FORBIDDEN, NAME)),
    "a tenant with NUL": ({"tenant_id": "victim\0"}, (FORBIDDEN, NAME)),
    "a tenant that holds a separator": ({"tenant_id": "mallory__x"}, (FORBIDDEN, NAME)),
    "a table of 100,000 characters": ({"table": "t" * 100_000}, (NAME,)),
    "a table with a quote": ({"table": "events'; DROP TABLE iceberg_tables; --"}, (NAME,)),
    "a table with an encoded slash": ({"table": "..%2f..%2fetc"}, (NAME, NO_TABLE)),
    "a table with a backslash": ({"table": "..\\..\\etc"}, (NAME,)),
    "a table with a newline": ({"table": "events\nvictim"}, (NAME,)),
    "a table named .": ({"table": "."}, (NAME,)),
    "a table named like Windows's device": ({"table": "con"}, (NO_TABLE,)),
    "a table in full-width letters": ({"table": "\uff45\uff56ents"}, (NAME, NO_TABLE)),
    "a table that is a number": ({"table": 1}, (FIELD,)),
    "a namespace that is not there": ({"namespace": "nowhere"}, (NO_NAMESPACE, NO_TABLE)),
    "a namespace of wildcards": ({"namespace": "%"}, (NAME,)),
    "a namespace with an underscore's look-alike": ({"namespace": "a\uff3f\uff3fb"}, (NAME,)),
    "a catalog of nobody": ({"catalog": "glue"}, ("404 CATALOG_NOT_FOUND",)),
    "a catalog that is a path": ({"catalog": "../catalog.db"}, ("404 CATALOG_NOT_FOUND", NAME, FIELD)),
    "a catalog that is a URL": ({"catalog": "http://127.0.0.1/x"}, ("404 CATALOG_NOT_FOUND", NAME, FIELD)),
    "a request id of 1 MB": ({"request_id": "r" * 1_000_000}, (FIELD,)),
    "a request id with line breaks": ({"request_id": "a\r\nX: y"}, (FIELD,)),
    "a request id that is an object": ({"request_id": {"a": 1}}, (FIELD,)),
}


def attacks(_: Scene) -> Iterator[Attack]:
    for name, (value, allowed) in FILTERS.items():
        yield query(PART, name, *allowed, filter=value)
    for name, (fields, allowed) in FIELDS.items():
        yield query(PART, name, NOT_ALLOWED, *allowed, **fields)
    for name, (fields, allowed) in NAMES.items():
        body = {"operation": "QUERY", "tenant_id": "mallory", "table": "events", "limit": 1, **fields}
        yield post("Names and tenants", name, body, *allowed, limit=min(QUERY_SECONDS, OTHER_SECONDS))
