"""Columns of every type under every transform that applies, and the values at which arithmetic on them ends."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
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
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

Transforms = Sequence[Transform[Any, Any]]
SAME, BUCKETS = IdentityTransform(), BucketTransform(7)
CUTS: Transforms = (SAME, BUCKETS, TruncateTransform(10), TruncateTransform(8), TruncateTransform(7))
TIMES: Transforms = (YearTransform(), MonthTransform(), DayTransform(), HourTransform())


def _base64(*raw: bytes) -> list[str]:
    return [base64.b64encode(value).decode() for value in raw]


def _ends(bits: int) -> list[int]:
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    return [low, low + 1, low + 3, low + 8, low + 9, -11, -10, -1, 0, 9, high - 9, high - 7, high - 1, high]


_TEXTS = [
    "",
    "\x00",
    "x" * 15 + "\ud7ff",
    "x" * 15 + "\ud7ffy",
    "x" * 15 + "\U0010ffffy",
    "\U0010ffff" * 17,
    "\ud7ff" * 17,
    "x" * 14 + "\ud7ff\U0010ffffy",
    "x" * 16 + "y",
    "x" * 15 + "\uffffy",
    "x" * 15 + "\ue000y",
    "é/=%?*[a]",
    "😀" * 17,
    "\U0010ffff",
]
_DATES = [
    "0001-01-01",
    "0001-01-02",
    "0001-12-31",
    "1582-10-04",
    "1969-12-31",
    "1970-01-01",
    "9999-12-01",
    "9999-12-31",
]
_MOMENTS = [f"{day}T{time}" for day in _DATES for time in ("00:00:00", "23:59:59.999999")]
_FLOATS: list[Any] = ["NaN", "Infinity", "-Infinity", -0.0, 0.0, 1e-45, 3.4028234663852886e38, -0.1]
POOLS: Mapping[PrimitiveType, tuple[Transforms, Sequence[Any]]] = {
    BooleanType(): ([SAME], [False, True]),
    IntegerType(): (CUTS, _ends(32)),
    LongType(): (CUTS, _ends(64)),
    FloatType(): ([SAME], _FLOATS),
    DoubleType(): ([SAME], [*_FLOATS, 5e-324, 1.7976931348623157e308]),
    DecimalType(9, 2): (CUTS, ["-9999999.90", "-0.01", "0", "0.09", "9999999.99"]),
    DecimalType(38, 10): (CUTS, [f"-{'9' * 28}.999999999", "-0.0000000001", "0", f"{'9' * 28}.{'9' * 10}"]),
    DateType(): ([SAME, BUCKETS, *TIMES[:3]], _DATES),
    TimeType(): ([SAME, BUCKETS], ["00:00:00", "23:59:59.999999"]),
    TimestampType(): ([SAME, BUCKETS, *TIMES], _MOMENTS),
    TimestamptzType(): ([SAME, BUCKETS, *TIMES], [f"{moment}Z" for moment in _MOMENTS]),
    StringType(): ([SAME, BUCKETS, TruncateTransform(1), TruncateTransform(16)], _TEXTS),
    UUIDType(): (
        [SAME, BUCKETS],
        [f"{h}0000000-0000-0000-{h}000-000000000000" for h in "0178f"] + ["f" * 8 + "-ffff" * 3 + "-" + "f" * 12],
    ),
    BinaryType(): (
        [SAME, BUCKETS, TruncateTransform(1)],
        _base64(b"", b"\x00", b"\xff" * 17, b"a" * 15 + b"\xff\xff", b"a" * 17, b"\x7f\xff" * 9, b"\xff"),
    ),
    FixedType(17): (
        [SAME, BUCKETS],
        _base64(bytes(17), b"\xff" * 17, b"a" * 15 + b"\xff\xff", b"\x80" + bytes(16)),
    ),
}


TURNS = max(len(transforms) for transforms, _ in POOLS.values())


class Extremes:
    """One table: a column per type and transform, partitioned by all of them, and rows that take turns at the values.

    `but` leaves out types that an engine does not know; `turn` takes only one transform of each type.
    """

    def __init__(self, *but: type[PrimitiveType], turn: int | None = None) -> None:
        self.columns = {
            f"c{number}": (kind, transform, pool)
            for number, (kind, transform, pool) in enumerate(
                (kind, transform, pool)
                for kind, (transforms, pool) in POOLS.items()
                if not isinstance(kind, but)
                for transform in (transforms if turn is None else transforms[turn : turn + 1])
            )
        }
        fields = (NestedField(i, name, kind) for i, (name, (kind, _, _)) in enumerate(self.columns.items(), 2))
        self.schema = Schema(NestedField(1, "n", IntegerType()), *fields)
        self.spec = PartitionSpec(
            *(
                PartitionField(i + 2, PARTITION_FIELD_ID_START + i, transform, f"p{i}")
                for i, (_, transform, _) in enumerate(self.columns.values())
            )
        )
        longest = max(len(pool) for _, _, pool in self.columns.values())
        self.rows: list[dict[str, Any]] = [
            {"n": n, **{name: pool[n % len(pool)] for name, (_, _, pool) in self.columns.items()}}
            for n in range(longest)
        ]
        self.rows.append({"n": longest})
