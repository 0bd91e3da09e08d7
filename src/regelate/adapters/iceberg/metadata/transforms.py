"""Partition values as Iceberg Java computes them and holds them, also where PyIceberg's arithmetic has no end."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from pyiceberg.expressions import (
    AlwaysTrue,
    And,
    BooleanExpression,
    BoundPredicate,
    BoundUnaryPredicate,
    GreaterThanOrEqual,
    Or,
    Reference,
)
from pyiceberg.expressions.visitors import InclusiveProjection
from pyiceberg.partitioning import PartitionField
from pyiceberg.transforms import Transform, TruncateTransform
from pyiceberg.types import DecimalType, IcebergType, IntegerType, LongType

UNREADABLE = (ArithmeticError, ValueError, TypeError)
"""What PyIceberg raises for a value that it cannot compute with, such as the day before 0001-01-01."""


def partition_value(transform: Transform[Any, Any], source: IcebergType) -> Callable[[Any], Any]:
    """Return a transform of Iceberg's internal values. Errors, of what is returned: OverflowError.

    A truncated int or long wraps below the type's least multiple of the width (Java's TruncateInteger and TruncateLong,
    1.10; trap T45: partition values out of range). A truncated decimal may need a digit more than its type has: Iceberg
    cannot write that.
    """
    apply: Callable[[Any], Any] = transform.transform(source)
    if not isinstance(transform, TruncateTransform):
        return apply
    if isinstance(source, DecimalType):
        return lambda value: _fitting(apply(value), source)
    bits = _bits(source)
    if bits is None:
        return apply
    return lambda value: None if value is None else _wrapped(apply(value), bits)


class Projection(InclusiveProjection):
    """What a filter on columns says of partitions: true wherever a row may match.

    A condition that PyIceberg cannot project says nothing. One on a truncated int or long lets the partition of wrapped
    values pass, which holds the type's least ones and stands behind all others.
    """

    def visit_bound_predicate(self, predicate: BoundPredicate) -> BooleanExpression:
        result: BooleanExpression = AlwaysTrue()
        for part in self.spec.fields_by_source_id(predicate.term.ref().field.field_id):
            try:
                projected = part.transform.project(name=part.name, pred=predicate)
            except UNREADABLE:
                continue
            if projected is not None:
                result = And(result, _or_wrapped(part, projected, predicate))
        return result


def _or_wrapped(part: PartitionField, projected: BooleanExpression, predicate: BoundPredicate) -> BooleanExpression:
    bits = _bits(predicate.term.ref().field.field_type)
    if bits is None or not isinstance(part.transform, TruncateTransform) or isinstance(predicate, BoundUnaryPredicate):
        return projected
    width = part.transform.width
    if 2**bits % width == 0:
        return projected
    return Or(projected, GreaterThanOrEqual(term=Reference(part.name), value=2 ** (bits - 1) - width + 1))


def _bits(source: IcebergType) -> int | None:
    if isinstance(source, IntegerType):
        return 32
    return 64 if isinstance(source, LongType) else None


def _wrapped(value: int, bits: int) -> int:
    return value if value >= -(2 ** (bits - 1)) else value + 2**bits


def _fitting(value: Decimal | None, kind: DecimalType) -> Decimal | None:
    if value is not None and len(value.as_tuple().digits) > kind.precision:
        raise OverflowError(f"{value} has more than {kind.precision} digits")
    return value
