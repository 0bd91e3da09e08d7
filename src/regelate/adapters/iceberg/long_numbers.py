"""Numbers of more digits than a double keeps, which arrive as Decimal: taken exactly by a column's type, or refused."""

from __future__ import annotations

from decimal import Decimal

from regelate.adapters.iceberg.row_faults import VALUE_OUT_OF_RANGE, refused
from regelate.core.schema import Column

DOUBLE_DIGITS = 17
"""What a printer of doubles needs at most (DBL_DECIMAL_DIG of C): more is no double, unless it is exactly one."""


def exact_number(column: Column, value: Decimal, path: str) -> int | float | str | Decimal:
    """Return the number in the form that the column's reader takes; Decimal where the column is no number at all.

    A whole number without exponent stays whole, so that a double column refuses 9007199254740993.0 as it refuses
    9007199254740993. Errors: Refused.
    """
    whole = value == value.to_integral_value()
    if column.type.startswith("decimal"):
        return str(value)
    if column.type in ("int", "long"):
        if not whole:
            raise refused(VALUE_OUT_OF_RANGE, path, f"{column.type}: an exact integer", value)
        return int(value)
    if column.type in ("float", "double"):
        if whole and int(value.as_tuple().exponent) <= 0:
            return int(value)
        nearest = float(value)
        if _digits(value) > DOUBLE_DIGITS and Decimal(nearest) != value:
            rule = f"{column.type}: a number of at most {DOUBLE_DIGITS} digits (use decimal)"
            raise refused(VALUE_OUT_OF_RANGE, path, rule, value)
        return nearest
    return value


def _digits(value: Decimal) -> int:
    """Count the digits that matter: not the zeros before and after."""
    return len("".join(map(str, value.as_tuple().digits)).strip("0"))
