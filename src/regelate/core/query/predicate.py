"""A structured query as values, and its filter: parsed from plain JSON values against the columns of a table.

Filter grammar: `{"column", "op", "value"}`, `{"and": [..]}`, `{"or": [..]}`, `{"not": ..}`; an object of
`column: value` pairs means equality of all of them (null: is null), a list means all of its parts.

A number that the column's type has no value for (1.5 or 3000000000 and an int) compares by its worth: see `Gap`.
A predicate holds no negation: parsing pushes it into the conditions. Order comparisons match neither null nor NaN;
`= "NaN"` matches NaN. So pruning by bounds, which leave NaN out, and an engine that orders NaN last cannot disagree.
"""

from __future__ import annotations

import base64
import math
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, InvalidOperation
from enum import StrEnum
from uuid import UUID

from regelate.core.table.schema import Column
from regelate.core.values import dataclass
from regelate.errors import InvalidRequest

MAX_DEPTH, MAX_CONDITIONS, MAX_VALUES = 64, 1_000, 10_000
"""Limits of one filter: nesting, conditions, and values in one `in` list."""


class Op(StrEnum):
    """Opposites stand side by side."""

    EQUAL = "="
    NOT_EQUAL = "!="
    LESS = "<"
    GREATER_EQUAL = ">="
    GREATER = ">"
    LESS_EQUAL = "<="
    IN = "in"
    NOT_IN = "not_in"
    IS_NULL = "is_null"
    IS_NOT_NULL = "is_not_null"
    STARTS_WITH = "starts_with"
    NOT_STARTS_WITH = "not starts_with"


BETWEEN = "between"
"""Written as one test, both ends included; parsed into two conditions."""
NEGATED = {op: tuple(Op)[i ^ 1] for i, op in enumerate(Op)}
WRITABLE = (*(op.value for op in Op if op is not Op.NOT_STARTS_WITH), BETWEEN)
ORDERED = (Op.LESS, Op.GREATER_EQUAL, Op.GREATER, Op.LESS_EQUAL, BETWEEN)

Literal = bool | int | float | Decimal | str | bytes | date | time | datetime | UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnPath:
    """A column of the table, or a field of a struct in it: `lineage` leads from the top-level column down to it."""

    lineage: tuple[Column, ...]

    @property
    def column(self) -> Column:
        return self.lineage[-1]

    @property
    def name(self) -> str:
        return ".".join(c.name for c in self.lineage)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A number between two neighbouring values of a type; None: nothing of the type lies on that side."""

    below: Literal | None = None
    above: Literal | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One comparison; the values are Python values of the column's type, rounded to float for a float column."""

    path: ColumnPath
    op: Op
    values: tuple[Literal, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Every:
    """True where all parts are; of no parts, everywhere."""

    parts: tuple[Predicate, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Either:
    parts: tuple[Predicate, ...]


Predicate = Condition | Every | Either


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate:
    """`function`: count, count_distinct, sum, avg, min or max; only count goes without a column."""

    function: str
    path: ColumnPath | None
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordering:
    """Order by the output column at `target` (from 0), or by a column of the table."""

    target: int | ColumnPath
    descending: bool = False
    nulls_first: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StructuredQuery:
    """Puts out `columns`, then `aggregates`, one row per group where either of `group_by` and `aggregates` is set."""

    columns: tuple[ColumnPath, ...]
    predicate: Predicate = Every()
    aggregates: tuple[Aggregate, ...] = ()
    group_by: tuple[ColumnPath, ...] = ()
    order_by: tuple[Ordering, ...] = ()
    limit: int
    offset: int = 0


def invalid(at: str, problem: str) -> InvalidRequest:
    return InvalidRequest("INVALID_FIELD", f"{at}: {problem}", field=at)


def find_column(columns: Sequence[Column], name: str) -> ColumnPath:
    """Return the column of that name, else the struct field at that dotted path; QUERY_ERROR with the names if none."""
    lineage = _lineage(columns, name)
    if lineage is None:
        known = ", ".join(c.name for c in columns)
        raise InvalidRequest("QUERY_ERROR", f"no column {name[:200]!r}; the columns are: {known}", column=name[:200])
    return ColumnPath(lineage=lineage)


def _lineage(columns: Sequence[Column], name: str) -> tuple[Column, ...] | None:
    for column in columns:
        if column.name == name:
            return (column,)
    for column in columns:
        if column.type == "struct" and name.startswith(column.name + "."):
            below = _lineage(column.children, name[len(column.name) + 1 :])
            if below is not None:
                return (column, *below)
    return None


def parse_filter(value: object, columns: Sequence[Column], at: str = "filter") -> Predicate:
    """Turn plain JSON values into a predicate over the columns.

    Errors: InvalidRequest INVALID_FIELD naming the place in the request; QUERY_ERROR for an unknown column.
    """
    parsed = None if _written(value) > MAX_CONDITIONS else _parse(value, columns, at, False, 0)
    if parsed is None or _conditions(parsed) > MAX_CONDITIONS:
        raise invalid(at, f"more than {MAX_CONDITIONS} conditions")
    return parsed


def _written(value: object) -> int:
    """Count the tests of a filter before any is resolved, no further than one above the limit."""
    found, waiting = 0, [value]
    while waiting and found <= MAX_CONDITIONS:
        here = waiting.pop()
        if isinstance(here, list | tuple):
            waiting += here
        elif isinstance(here, Mapping):
            inner = next(iter(here.values())) if len(here) == 1 and not {"not", "and", "or"}.isdisjoint(here) else None
            if inner is None:
                found += 1 if "column" in here else len(here)
            else:
                waiting.append(inner)
    return found


def _parse(value: object, columns: Sequence[Column], at: str, negated: bool, depth: int) -> Predicate:
    if depth > MAX_DEPTH:
        raise invalid(at, f"nested deeper than {MAX_DEPTH}")
    if isinstance(value, list | tuple):
        return _join([_parse(v, columns, f"{at}[{i}]", negated, depth + 1) for i, v in enumerate(value)], not negated)
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise invalid(at, "expected an object or a list of objects")
    if "column" in value:
        return _test(value, columns, at, negated)
    word = next(iter(value)) if len(value) == 1 else None
    if word == "not":
        return _parse(value[word], columns, f"{at}.not", not negated, depth + 1)
    if word in ("and", "or"):
        inner, place = value[word], f"{at}.{word}"
        if not isinstance(inner, list | tuple) or not inner:
            raise invalid(place, "expected a list of at least one filter")
        parts = [_parse(v, columns, f"{place}[{i}]", negated, depth + 1) for i, v in enumerate(inner)]
        return _join(parts, (word == "and") is not negated)
    pairs = [(name, *((Op.IS_NULL, ()) if v is None else (Op.EQUAL, (v,)))) for name, v in value.items()]
    return _join([_bind(name, op, vs, columns, f"{at}.{name}", negated) for name, op, vs in pairs], not negated)


def _join(parts: Sequence[Predicate], every: bool) -> Predicate:
    if len(parts) == 1:
        return parts[0]
    return Every(parts=tuple(parts)) if every else Either(parts=tuple(parts))


def _test(value: Mapping[str, object], columns: Sequence[Column], at: str, negated: bool) -> Predicate:
    unknown = sorted(set(value) - {"column", "op", "value"})
    if unknown:
        raise invalid(f"{at}.{unknown[0]}", "unknown key beside `column`; known: column, op, value")
    column, op, operand = value["column"], value.get("op"), value.get("value")
    if not isinstance(column, str):
        raise invalid(f"{at}.column", "expected the name of a column")
    if not isinstance(op, str) or op not in WRITABLE:
        raise invalid(f"{at}.op", f"expected one of {' '.join(WRITABLE)}")
    place = f"{at}.value"
    values: tuple[object, ...] = (operand,)
    if op in (Op.IS_NULL, Op.IS_NOT_NULL):
        if operand is not None:
            raise invalid(place, f"{op} takes no value")
        values = ()
    elif op in (Op.IN, Op.NOT_IN, BETWEEN):
        if not isinstance(operand, list | tuple) or len(operand) > MAX_VALUES:
            raise invalid(place, f"{op} needs a list of at most {MAX_VALUES} values")
        values = tuple(operand)
        if op == BETWEEN and len(values) != 2:
            raise invalid(place, "between needs a list of two values, both included")
    if None in values:
        raise invalid(place, f"{op} needs a value other than null; null is found by is_null and is_not_null")
    return _bind(column, op, values, columns, place, negated)


def _bind(
    column: str, op: str, values: tuple[object, ...], columns: Sequence[Column], at: str, negated: bool
) -> Predicate:
    path = find_column(columns, column)
    type_text = path.column.type
    if path.column.children and op not in (Op.IS_NULL, Op.IS_NOT_NULL):
        raise invalid(at, f"column {path.name} is a {type_text}; only is_null and is_not_null apply to it")
    if op == Op.STARTS_WITH and type_text != "string":
        raise invalid(at, f"starts_with needs a string column, {path.name} is {type_text}")
    try:
        typed = tuple(_operand(type_text, v) for v in values)
    except ValueError as error:
        raise invalid(at, f"column {path.name} is {type_text}: {error}") from error
    if op in ORDERED and any(v != v for v in typed):
        raise invalid(at, "NaN has no order; it can only be equal or unequal")
    ops = ((Op.GREATER_EQUAL, typed[:1]), (Op.LESS_EQUAL, typed[1:])) if op == BETWEEN else ((Op(op), typed),)
    return _join([_compared(path, NEGATED[o] if negated else o, v) for o, v in ops], not negated)


def _compared(path: ColumnPath, op: Op, operands: tuple[Literal | Gap, ...]) -> Predicate:
    """Return the comparison with values of the column's type alone: no row is equal to a number in a gap between two,
    and every row that is there is unequal to it.
    """
    values = tuple(v for v in operands if not isinstance(v, Gap))
    if len(values) == len(operands):
        return Condition(path=path, op=op, values=values)
    if op in (Op.EQUAL, Op.IN):
        return Condition(path=path, op=op, values=values) if values else Either(parts=())
    if op in (Op.NOT_EQUAL, Op.NOT_IN):
        return Condition(path=path, op=op if values else Op.IS_NOT_NULL, values=values)
    (gap,) = (v for v in operands if isinstance(v, Gap))
    below = op in (Op.LESS, Op.LESS_EQUAL)
    edge = gap.below if below else gap.above
    if edge is None:
        return Either(parts=())
    return Condition(path=path, op=Op.LESS_EQUAL if below else Op.GREATER_EQUAL, values=(edge,))


def _conditions(part: Predicate) -> int:
    return 1 if isinstance(part, Condition) else sum(_conditions(p) for p in part.parts)


_WIDE = Context(prec=80)
_DATE, _TIME = r"\d{4}-\d{2}-\d{2}", r"\d{2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?"
_TEXT_FORMS: dict[str, tuple[str, Callable[[str], Literal], str]] = {
    "date": (_DATE, date.fromisoformat, "2025-01-17"),
    "time": (_TIME, time.fromisoformat, "05:00:00.000001"),
    "timestamp": (rf"{_DATE}(?:[T ]{_TIME})?", datetime.fromisoformat, "2025-01-17T05:00:00 (no zone)"),
    "timestamptz": (rf"{_DATE}[T ]{_TIME}(?:Z|[+-]\d{{2}}:\d{{2}})", datetime.fromisoformat, "2025-01-17T05:00:00Z"),
    "uuid": (r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", UUID, "f79c3e09-677c-4bbd-a479-3f349cb785e7"),
}


def _operand(type_text: str, value: object) -> Literal | Gap:
    """Return what a comparison may name: a value of the type, or a number that no value of the type is equal to."""
    try:
        return literal(type_text, value)
    except ValueError:
        gap = _gap(type_text, value)
        if gap is None:
            raise
        return gap


def _gap(type_text: str, value: object) -> Gap | None:
    """Return the neighbours of a number that the type has not; None for what is no finite number."""
    floating = type_text in ("float", "double")
    if not (floating or type_text in ("int", "long") or type_text.startswith("decimal")):
        return None
    if isinstance(value, bool) or not isinstance(
        value, int | float | Decimal if floating else int | float | Decimal | str
    ):
        return None
    try:
        exact = Decimal(str(value))
    except (InvalidOperation, ValueError):
        return None
    if not exact.is_finite():
        return None
    return _float_gap(type_text, exact) if floating else _exact_gap(type_text, exact)


def _exact_gap(type_text: str, exact: Decimal) -> Gap:
    precision, scale = (int(n) for n in re.findall(r"\d+", type_text) or (0, 0))
    bits = 31 if type_text == "int" else 63
    most = Decimal(10**precision - 1).scaleb(-scale, _WIDE) if precision else Decimal(2**bits - 1)
    least = -most if precision else Decimal(-(2**bits))
    plain: Callable[[Decimal], Literal] = (lambda v: v) if precision else int
    if exact > most:
        return Gap(below=plain(most))
    if exact < least:
        return Gap(above=plain(least))
    unit = Decimal(1).scaleb(-scale)
    floor = exact.quantize(unit, ROUND_FLOOR, _WIDE)
    return Gap(below=plain(floor), above=plain(exact.quantize(unit, ROUND_CEILING, _WIDE)))


def _float_gap(type_text: str, exact: Decimal) -> Gap:
    form = "<f" if type_text == "float" else "<d"
    try:
        nearest = float(struct.unpack(form, struct.pack(form, float(exact)))[0])
    except OverflowError:
        nearest = math.copysign(math.inf, exact)
    if Decimal(nearest) > exact:
        return Gap(below=_beside(form, nearest, -1), above=nearest)
    return Gap(below=nearest, above=_beside(form, nearest, 1))


def _beside(form: str, value: float, step: int) -> float:
    """Return the next number of the form: their bits, read as integers, have the order of their magnitudes."""
    whole = "<i" if form == "<f" else "<q"
    bits = struct.unpack(whole, struct.pack(form, abs(value)))[0] + (step if value > 0 else -step)
    return math.copysign(struct.unpack(form, struct.pack(whole, bits))[0], value)


def literal(type_text: str, value: object) -> Literal:
    """Return a JSON value as a Python value of the Iceberg type (encodings: docs/api.md); ValueError if it is none."""
    if type_text in _TEXT_FORMS:
        form, parse, example = _TEXT_FORMS[type_text]
        if isinstance(value, str) and re.fullmatch(form, value, re.ASCII):
            return parse(value)
        raise ValueError(f"expected a text such as {example}")
    if type_text in ("string", "boolean"):
        if not isinstance(value, str if type_text == "string" else bool):
            raise ValueError(f"expected a {type_text}")
        if isinstance(value, str) and any("\ud800" <= c <= "\udfff" for c in value):
            raise ValueError("expected text that UTF-8 can hold (no lone surrogate)")
        return value
    if type_text == "binary" or type_text.startswith("fixed"):
        try:
            raw = base64.b64decode(value if isinstance(value, str) else "?", validate=True)
        except ValueError:
            raise ValueError("expected base64") from None
        if type_text not in ("binary", f"fixed[{len(raw)}]"):
            raise ValueError(f"got {len(raw)} bytes")
        return raw
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | str):
        raise ValueError("expected a number")
    return _float(type_text, value) if type_text in ("float", "double") else _exact(type_text, value)


def _exact(type_text: str, value: int | float | Decimal | str) -> int | Decimal:
    precision, scale = (int(n) for n in re.findall(r"\d+", type_text) or (19, 0))
    try:
        exact = Decimal(str(value))
        fitting = exact.quantize(Decimal(1).scaleb(-scale), context=_WIDE)
    except InvalidOperation:
        raise ValueError("expected a number in range") from None
    if fitting != exact:
        raise ValueError(f"expected a number with at most {scale} digits after the point")
    bits = 31 if type_text == "int" else 63
    decimal = type_text.startswith("decimal")
    if fitting.adjusted() >= precision - scale or not (decimal or -(2**bits) <= exact < 2**bits):
        raise ValueError("the number is out of range")
    return fitting if decimal else int(exact)


def _float(type_text: str, value: int | float | Decimal | str) -> float:
    if isinstance(value, str) and value not in ("NaN", "Infinity", "-Infinity"):
        raise ValueError('expected a number, "NaN", "Infinity" or "-Infinity"')
    try:
        found = float(value)
        if isinstance(value, int) and int(found) != value:
            raise ValueError("no double is exactly that number")
        return float(struct.unpack("<f", struct.pack("<f", found))[0]) if type_text == "float" else found
    except OverflowError:
        raise ValueError("the number is out of range") from None
