"""The filter of a query: what parses, to what, and which place of the request a fault names."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regelate.core.query.predicate import (
    MAX_CONDITIONS,
    MAX_DEPTH,
    MAX_VALUES,
    NEGATED,
    Condition,
    Either,
    Every,
    Op,
    Predicate,
    find_column,
    literal,
    parse_filter,
)
from regelate.core.table.schema import Column
from regelate.errors import InvalidRequest

COLUMNS = (
    Column(name="id", type="long"),
    Column(name="name", type="string"),
    Column(name="x", type="double"),
    Column(name="a.b", type="int"),
    Column(
        name="s",
        type="struct",
        children=(
            Column(name="x.y", type="date"),
            Column(name="deep", type="struct", children=(Column(name="id", type="boolean"),)),
        ),
    ),
    Column(name="tags", type="list", children=(Column(name="element", type="string"),)),
    Column(name="column", type="int"),
    Column(name="and", type="int"),
)
UUID_TEXT = "f79c3e09-677c-4bbd-a479-3f349cb785e7"


def parsed(value: object) -> Predicate:
    return parse_filter(value, COLUMNS)


def condition(name: str, op: Op, *values: object) -> Condition:
    return Condition(path=find_column(COLUMNS, name), op=op, values=values)  # type: ignore[arg-type]


def fault(value: object) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        parsed(value)
    return caught.value


def test_a_test_names_column_op_and_value() -> None:
    assert parsed({"column": "id", "op": "<=", "value": 7}) == condition("id", Op.LESS_EQUAL, 7)


def test_pairs_of_column_and_value_mean_equality_of_all() -> None:
    found = parsed({"id": 7, "name": None})
    assert found == Every(parts=(condition("id", Op.EQUAL, 7), condition("name", Op.IS_NULL)))


def test_a_list_means_all_of_its_parts() -> None:
    found = parsed([{"id": 7}, {"column": "name", "op": "is_not_null"}])
    assert found == Every(parts=(condition("id", Op.EQUAL, 7), condition("name", Op.IS_NOT_NULL)))


@pytest.mark.parametrize("empty", [{}, []])
def test_an_empty_filter_is_true_everywhere(empty: object) -> None:
    assert parsed(empty) == Every()


def test_between_includes_both_ends() -> None:
    found = parsed({"column": "id", "op": "between", "value": [1, 9]})
    assert found == Every(parts=(condition("id", Op.GREATER_EQUAL, 1), condition("id", Op.LESS_EQUAL, 9)))


def test_negation_ends_up_in_the_conditions() -> None:
    written = {"not": {"or": [{"id": 1}, {"not": {"column": "name", "op": "starts_with", "value": "a"}}]}}
    assert parsed(written) == Every(
        parts=(condition("id", Op.NOT_EQUAL, 1), condition("name", Op.STARTS_WITH, "a")),
    )


def test_a_negated_between_is_outside_of_both_ends() -> None:
    found = parsed({"not": {"column": "id", "op": "between", "value": [1, 9]}})
    assert found == Either(parts=(condition("id", Op.LESS, 1), condition("id", Op.GREATER, 9)))


def test_every_op_is_the_opposite_of_its_opposite() -> None:
    assert all(NEGATED[NEGATED[op]] is op is not NEGATED[op] for op in Op)
    assert {NEGATED[Op.LESS], NEGATED[Op.GREATER]} == {Op.GREATER_EQUAL, Op.LESS_EQUAL}


@pytest.mark.parametrize(
    ("name", "types"),
    [("a.b", ["int"]), ("s.x.y", ["struct", "date"]), ("s.deep.id", ["struct", "struct", "boolean"])],
)
def test_a_dotted_name_is_a_column_of_that_name_or_a_path_into_structs(name: str, types: list[str]) -> None:
    assert [c.type for c in find_column(COLUMNS, name).lineage] == types
    assert find_column(COLUMNS, name).name == name


@pytest.mark.parametrize("name", ["ID", "s.deep.nope", "tags.element", "", "id.id"])
def test_an_unknown_column_is_a_query_error_that_lists_the_columns(name: str) -> None:
    error = fault({"column": name, "op": "is_null"})
    assert (error.code, error.status) == ("QUERY_ERROR", 400)
    assert "id, name, x" in error.message


def test_columns_named_like_the_grammar_are_reached_by_the_full_form() -> None:
    assert parsed({"column": "and", "op": "=", "value": 1}) == condition("and", Op.EQUAL, 1)
    assert parsed({"column": "column", "op": "=", "value": 1}) == condition("column", Op.EQUAL, 1)


@pytest.mark.parametrize(
    ("written", "place"),
    [
        (7, "filter"),
        ("id = 7", "filter"),
        ([{"id": 1}, 7], "filter[1]"),
        ({"and": {"id": 1}}, "filter.and"),
        ({"or": []}, "filter.or"),
        ({"or": [{"id": 1}, {"id": "x"}]}, "filter.or[1].id"),
        ({"not": {"and": [{"column": "id", "op": "=", "value": []}]}}, "filter.not.and[0].value"),
        ({"column": 7, "op": "="}, "filter.column"),
        ({"column": "id"}, "filter.op"),
        ({"column": "id", "op": "like", "value": 1}, "filter.op"),
        ({"column": "id", "op": "not starts_with", "value": "a"}, "filter.op"),
        ({"column": "id", "op": "=", "value": 1, "values": 1}, "filter.values"),
        ({"column": "id", "op": "=", "value": None}, "filter.value"),
        ({"column": "id", "op": "="}, "filter.value"),
        ({"column": "id", "op": "is_null", "value": 1}, "filter.value"),
        ({"column": "id", "op": "in", "value": 1}, "filter.value"),
        ({"column": "id", "op": "in", "value": [1, None]}, "filter.value"),
        ({"column": "id", "op": "between", "value": [1]}, "filter.value"),
        ({"column": "id", "op": "in", "value": list(range(MAX_VALUES + 1))}, "filter.value"),
        ({"column": "id", "op": "starts_with", "value": 1}, "filter.value"),
        ({"column": "tags", "op": "=", "value": ["a"]}, "filter.value"),
        ({"s": {"deep": 1}}, "filter.s"),
        ({"column": "x", "op": "<", "value": "NaN"}, "filter.value"),
        ({"column": "x", "op": "between", "value": [0, "NaN"]}, "filter.value"),
    ],
)
def test_a_malformed_filter_is_refused_at_its_place(written: object, place: str) -> None:
    error = fault(written)
    assert (error.code, error.status, error.details["field"]) == ("INVALID_FIELD", 400, place)
    assert error.message.startswith(place)


def test_too_many_conditions_are_refused() -> None:
    parsed([{"id": 1}] * MAX_CONDITIONS)
    assert fault([{"id": 1}] * (MAX_CONDITIONS + 1)).code == "INVALID_FIELD"


@pytest.mark.parametrize("last", [{"nobody": 1}, {"column": "nobody", "op": "=", "value": 1}, {"not": {"nobody": 1}}])
def test_conditions_are_counted_before_any_of_them_is_looked_at(last: object) -> None:
    assert fault([{"id": 1}, last]).code == "QUERY_ERROR"
    assert fault({"or": [{"id": 1}] * MAX_CONDITIONS + [last]}).code == "INVALID_FIELD"


def test_a_deep_filter_is_refused_before_the_stack_ends() -> None:
    nested: dict[str, object] = {"id": 1}
    for _ in range(MAX_DEPTH + 1):
        nested = {"not": nested}
    assert fault(nested).code == "INVALID_FIELD"


@pytest.mark.parametrize(
    ("type_text", "written", "value"),
    [
        ("boolean", True, True),
        ("int", -(2**31), -(2**31)),
        ("long", 2**63 - 1, 2**63 - 1),
        ("long", "9223372036854775807", 2**63 - 1),
        ("long", 7.0, 7),
        ("float", 0.1, 0.10000000149011612),
        ("double", 0.1, 0.1),
        ("double", 7, 7.0),
        ("double", "-Infinity", -math.inf),
        ("decimal(9,2)", "12.5", Decimal("12.50")),
        ("decimal(9,2)", 0.1, Decimal("0.10")),
        ("decimal(38,0)", "9" * 38, Decimal("9" * 38)),
        ("date", "2025-01-17", date(2025, 1, 17)),
        ("time", "05:00:00.000001", time(5, 0, 0, 1)),
        ("timestamp", "2025-01-17T05:00:00.123456", datetime(2025, 1, 17, 5, 0, 0, 123456)),  # noqa: DTZ001
        ("timestamp", "2025-01-17", datetime(2025, 1, 17)),  # noqa: DTZ001
        ("timestamptz", "2025-01-17T05:00:00Z", datetime(2025, 1, 17, 5, tzinfo=UTC)),
        ("timestamptz", "2025-01-17 05:00+02:00", datetime(2025, 1, 17, 5, tzinfo=timezone(timedelta(hours=2)))),
        ("string", "", ""),
        ("uuid", UUID_TEXT, UUID(UUID_TEXT)),
        ("binary", "aGk=", b"hi"),
        ("fixed[2]", "aGk=", b"hi"),
    ],
)
def test_a_value_takes_the_type_of_its_column(type_text: str, written: object, value: object) -> None:
    found = literal(type_text, written)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("type_text", "written"),
    [
        ("boolean", 1),
        ("boolean", "true"),
        ("int", 2**31),
        ("int", True),
        ("int", 1.5),
        ("int", "1e3x"),
        ("long", 2**63),
        ("long", [1]),
        ("long", "NaN"),
        ("long", "1e999999999"),
        ("float", 1e39),
        ("float", "1.0"),
        ("double", 10**400),
        ("double", 2**53 + 1),
        ("decimal(9,2)", "0.005"),
        ("decimal(9,2)", "10000000"),
        ("decimal(9,2)", "Infinity"),
        ("date", "20250117"),
        ("date", "2025-02-30"),
        ("date", "2025-01-17T00:00:00"),
        ("time", "25:00"),
        ("timestamp", "2025-01-17T05:00:00Z"),
        ("timestamp", "2025-01-17T05:00:00.1234567"),
        ("timestamptz", "2025-01-17T05:00:00"),
        ("timestamptz", 0),
        ("string", 7),
        ("uuid", UUID_TEXT.replace("-", "")),
        ("binary", "not base64!"),
        ("binary", 7),
        ("fixed[3]", "aGk="),
    ],
)
def test_a_value_that_does_not_fit_its_column_is_refused(type_text: str, written: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        literal(type_text, written)


NUMBERS: Mapping[str, tuple[int | float | Decimal, ...]] = {
    "int": (-(2**31), -2, -1, 0, 1, 2, 2**31 - 1),
    "long": (-(2**63), -1, 0, 1, 2**53 + 1, 2**63 - 1),
    "decimal(3,1)": tuple(map(Decimal, ("-99.9", "-0.1", "0.0", "0.1", "1.5", "99.9"))),
    "decimal(38,38)": tuple(map(Decimal, ("-0." + "9" * 38, "0", "1e-38", "0." + "9" * 38))),
    "double": (-math.inf, -1.7976931348623157e308, -0.0, 0.5, 2.0**53, 2.0**53 + 2, 1.7976931348623157e308, math.inf),
    "float": (-math.inf, -3.4028234663852886e38, 0.0, 0.5, 16777216.0, 3.4028234663852886e38, math.inf),
}
"""Values that rows of each type may have: the largest ones, and neighbours."""
WRITTEN = st.one_of(
    st.integers(-(2**70), 2**70),
    st.sampled_from([10**400, -(10**400), 2**31, -(2**31) - 1, 2**63, 2**53 + 1, 3_000_000_000]),
    st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-200, max_value=200),
    st.sampled_from([Decimal("1e999"), Decimal("-1e999"), Decimal("1e-999"), Decimal("-1e-999"), Decimal("0.05")]),
    st.sampled_from([1.5, -0.5, 0.25, 3.5e38, 1e39]),
)
COMPARED = {
    "=": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def true_of(part: Predicate, value: object) -> bool:
    """Evaluate a predicate on one value of its column; what is unknown is not true."""
    if isinstance(part, Every):
        return all(true_of(p, value) for p in part.parts)
    if isinstance(part, Either):
        return any(true_of(p, value) for p in part.parts)
    if part.op is Op.IS_NOT_NULL:
        return value is not None
    if value is None:
        return False
    if part.op is Op.IN:
        return value in part.values
    if part.op is Op.NOT_IN:
        return value not in part.values
    return bool(COMPARED[part.op.value](value, part.values[0]))


@pytest.mark.parametrize("kind", NUMBERS)
@given(
    written=st.lists(WRITTEN, min_size=1, max_size=3), op=st.sampled_from([*COMPARED, "in", "not_in"]), no=st.booleans()
)
def test_a_number_that_the_type_has_not_compares_by_its_worth(
    kind: str, written: list[int | float | Decimal], op: str, no: bool
) -> None:
    column = Column(name="n", type=kind)
    several = op in ("in", "not_in")
    asked = {"column": "n", "op": op, "value": written if several else written[0]}
    found = parse_filter({"not": asked} if no else asked, [column])
    as_meant = [_meant(kind, w) for w in written]
    for value in (None, *NUMBERS[kind]):
        if several:
            expected = (value in as_meant) is (op == "in")
        else:
            expected = value is not None and COMPARED[op](value, as_meant[0])
        assert true_of(found, value) is (value is not None and expected is not no), (value, found)


def _meant(kind: str, written: int | float | Decimal) -> int | float | Decimal:
    """A number with a point, and for a float column any number, means the nearest one that there is."""
    try:
        return literal(kind, written)  # type: ignore[return-value]
    except ValueError:
        return Decimal(str(written)) if isinstance(written, float) else written


def test_neighbours_of_an_int_are_found_without_a_cast() -> None:
    assert parsed({"column": "a.b", "op": ">", "value": 1.5}) == condition("a.b", Op.GREATER_EQUAL, 2)
    assert parsed({"column": "a.b", "op": "<", "value": 3_000_000_000}) == condition("a.b", Op.LESS_EQUAL, 2**31 - 1)
    assert parsed({"column": "a.b", "op": "=", "value": 1.5}) == Either(parts=())
    assert parsed({"not": {"a.b": 1.5}}) == condition("a.b", Op.IS_NOT_NULL)
    assert parsed({"column": "a.b", "op": "in", "value": [1, 1.5]}) == condition("a.b", Op.IN, 1)
    assert fault({"column": "a.b", "op": "<", "value": "NaN"}).code == "INVALID_FIELD"


ROWS: tuple[Mapping[str, object], ...] = tuple(
    {"id": id_, "name": name} for id_ in (None, 0, 1, 2) for name in (None, "", "a", "ab")
)
TESTS = st.one_of(
    st.fixed_dictionaries(
        {
            "column": st.just("id"),
            "op": st.sampled_from(["=", "!=", "<", "<=", ">", ">="]),
            "value": st.integers(-1, 3),
        }
    ),
    st.fixed_dictionaries(
        {"column": st.just("id"), "op": st.sampled_from(["in", "not_in"]), "value": st.lists(st.integers(-1, 3))}
    ),
    st.fixed_dictionaries(
        {
            "column": st.just("id"),
            "op": st.just("between"),
            "value": st.lists(st.integers(-1, 3), min_size=2, max_size=2),
        }
    ),
    st.fixed_dictionaries(
        {"column": st.just("name"), "op": st.just("starts_with"), "value": st.sampled_from(["", "a"])}
    ),
    st.fixed_dictionaries({"column": st.just("name"), "op": st.sampled_from(["is_null", "is_not_null"])}),
)
FILTERS = st.recursive(
    TESTS,
    lambda inner: st.one_of(
        st.fixed_dictionaries({"not": inner}),
        st.fixed_dictionaries({"and": st.lists(inner, min_size=1, max_size=3)}),
        st.fixed_dictionaries({"or": st.lists(inner, min_size=1, max_size=3)}),
    ),
    max_leaves=6,
)


def truth(written: Mapping[str, object], row: Mapping[str, object]) -> bool | None:
    """SQL's three-valued meaning of a filter as the caller wrote it: a second, independent reading of the grammar."""
    if "not" in written:
        inner = truth(written["not"], row)  # type: ignore[arg-type]
        return None if inner is None else not inner
    for word in ("and", "or"):
        if word in written:
            decided = word == "or"
            parts = [truth(part, row) for part in written[word]]  # type: ignore[attr-defined]
            return decided if decided in parts else (None if None in parts else not decided)
    value, op, operand = row[str(written["column"])], written["op"], written.get("value")
    if op in ("is_null", "is_not_null"):
        return (value is None) == (op == "is_null")
    if op in ("in", "not_in") and not operand:
        return op == "not_in"
    if value is None:
        return None
    return bool(
        {
            "=": lambda: value == operand,
            "!=": lambda: value != operand,
            "<": lambda: value < operand,  # type: ignore[operator]
            "<=": lambda: value <= operand,  # type: ignore[operator]
            ">": lambda: value > operand,  # type: ignore[operator]
            ">=": lambda: value >= operand,  # type: ignore[operator]
            "in": lambda: value in operand,  # type: ignore[operator]
            "not_in": lambda: value not in operand,  # type: ignore[operator]
            "between": lambda: operand[0] <= value <= operand[1],  # type: ignore[index]
            "starts_with": lambda: str(value).startswith(str(operand)),
        }[str(op)]()
    )


def holds(part: Predicate, row: Mapping[str, object]) -> bool:
    """What a parsed predicate keeps: without negation, unknown and false are the same."""
    if isinstance(part, Condition):
        written = {"column": part.path.name, "op": part.op.value, "value": part.values[0] if part.values else None}
        if part.op in (Op.IN, Op.NOT_IN):
            written["value"] = list(part.values)
        if part.op is Op.NOT_STARTS_WITH:
            return truth({**written, "op": "starts_with"}, row) is False
        return truth(written, row) is True
    return (all if isinstance(part, Every) else any)(holds(p, row) for p in part.parts)


@given(FILTERS)
def test_a_parsed_filter_keeps_the_rows_that_the_written_one_keeps(written: Mapping[str, object]) -> None:
    predicate = parsed(written)
    assert [holds(predicate, row) for row in ROWS] == [truth(written, row) is True for row in ROWS]
