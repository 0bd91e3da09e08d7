"""Row filters as text (`day >= '2025-01-17' and id < 7`): one parser, for COMPACT's `where` and QUERY's `filter`."""

from __future__ import annotations

from typing import Any

from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNaN,
    IsNull,
    LessThan,
    LessThanOrEqual,
    LiteralPredicate,
    Not,
    NotEqualTo,
    NotIn,
    NotNaN,
    NotNull,
    NotStartsWith,
    Or,
    Reference,
    SetPredicate,
    StartsWith,
    UnboundPredicate,
)
from pyiceberg.expressions.parser import parse

from regelate.core.query.predicate import Op
from regelate.errors import InvalidRequest

MAX_CHARACTERS = 10_000
MAX_PARENTHESES = 100
"""PyIceberg's parser takes time with the square of a text: `in` with 100,000 numbers takes minutes."""
_OPS: dict[type[Any], Op] = {
    EqualTo: Op.EQUAL,
    NotEqualTo: Op.NOT_EQUAL,
    LessThan: Op.LESS,
    LessThanOrEqual: Op.LESS_EQUAL,
    GreaterThan: Op.GREATER,
    GreaterThanOrEqual: Op.GREATER_EQUAL,
    StartsWith: Op.STARTS_WITH,
    In: Op.IN,
    NotIn: Op.NOT_IN,
    IsNull: Op.IS_NULL,
    NotNull: Op.IS_NOT_NULL,
    IsNaN: Op.EQUAL,
    NotNaN: Op.NOT_EQUAL,
}


def expression_of_text(text: str, field: str) -> BooleanExpression:
    """Parse an Iceberg row filter. Errors: InvalidRequest INVALID_FIELD naming the request's field."""
    if len(text) > MAX_CHARACTERS or text.count("(") > MAX_PARENTHESES:
        limits = f"{MAX_CHARACTERS} characters and {MAX_PARENTHESES} parentheses"
        raise InvalidRequest("INVALID_FIELD", f"{field}: at most {limits} are read", field=field)
    try:
        return parse(text)
    except Exception as error:
        at = getattr(error, "loc", None)
        where = f" near character {at}" if isinstance(at, int) else ""
        raise InvalidRequest(
            "INVALID_FIELD",
            f"{field}: not an Iceberg row filter{where}; write for example: day >= '2025-01-01' and id < 7",
            field=field,
        ) from error


def filter_of_text(text: str) -> object:
    """Return a row filter as a QUERY's `filter` has it in JSON. Errors: as `expression_of_text`."""
    return _plain(expression_of_text(text, "filter"))


def _plain(part: BooleanExpression) -> object:
    if isinstance(part, And | Or):
        return {"and" if isinstance(part, And) else "or": [_plain(p) for p in _chain(part)]}
    if isinstance(part, Not):
        return {"not": _plain(part.child)}
    if isinstance(part, AlwaysTrue | AlwaysFalse):
        return [] if isinstance(part, AlwaysTrue) else {"not": []}
    if isinstance(part, NotStartsWith):
        return {"not": {"column": _name(part), "op": Op.STARTS_WITH.value, "value": part.literal.value}}
    test: dict[str, object] = {"column": _name(part), "op": _OPS[type(part)].value}
    if isinstance(part, SetPredicate):
        return {**test, "value": [literal.value for literal in part.literals]}
    if isinstance(part, LiteralPredicate):
        return {**test, "value": part.literal.value}
    return {**test, "value": "NaN"} if isinstance(part, IsNaN | NotNaN) else test


def _name(part: BooleanExpression) -> str:
    if not isinstance(part, UnboundPredicate) or not isinstance(part.term, Reference):
        raise TypeError(f"the parser of row filters made a {type(part).__name__}")
    return part.term.name


def _chain(part: And | Or) -> list[BooleanExpression]:
    """Return the parts of a chain of one word, which PyIceberg nests two by two."""
    found: list[BooleanExpression] = []
    waiting: list[BooleanExpression] = [part]
    while waiting:
        one = waiting.pop()
        if type(one) is type(part):
            waiting += [one.right, one.left]
        else:
            found.append(one)
    return found
