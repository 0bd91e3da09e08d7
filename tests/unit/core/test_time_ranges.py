"""When the time range of a partition ends."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regelate.core.table.time_ranges import ends_at_ms, partition_ends_at_ms

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LENGTHS = {"hour": timedelta(hours=1), "day": timedelta(days=1)}


def ms(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(milliseconds=1)


@given(st.sampled_from(sorted(LENGTHS)), st.integers(-400_000, 2_000_000))
def test_an_hour_or_a_day_ends_where_the_next_begins(transform: str, ordinal: int) -> None:
    assert ends_at_ms(transform, "timestamp", ordinal) == ms(EPOCH) + (ordinal + 1) * LENGTHS[transform] // timedelta(
        milliseconds=1
    )


@given(st.integers(1, 9998), st.integers(1, 12))
def test_a_month_ends_at_the_first_of_the_next_and_a_year_with_its_december(year: int, month: int) -> None:
    following = datetime(year + month // 12, month % 12 + 1, 1, tzinfo=UTC)
    assert ends_at_ms("month", "date", (year - 1970) * 12 + month - 1) == ms(following)
    assert ends_at_ms("year", "date", year - 1970) == ms(datetime(year + 1, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    ("transform", "kind", "value"),
    [
        ("identity", "int", 5),
        ("identity", "None", 5),
        ("bucket[4]", "date", 3),
        ("truncate[10]", "int", 3),
        ("void", "date", 3),
        ("day", "date", None),
        ("day", "date", True),
        ("year", "date", 10_000),
    ],
)
def test_what_is_no_time_range_or_beyond_the_calendar_never_ends(transform: str, kind: str, value: object) -> None:
    assert ends_at_ms(transform, kind, value) is None


def test_an_identity_partition_of_dates_is_a_day() -> None:
    assert ends_at_ms("identity", "date", 0) == ends_at_ms("day", "date", 0) == 86_400_000


def test_fields_of_one_column_narrow_each_other_and_the_last_column_ends_the_partition() -> None:
    assert partition_ends_at_ms([("a", 30), ("a", 20), ("b", None)]) == 20
    assert partition_ends_at_ms([("a", 30), ("a", 20), ("b", 25)]) == 25
    assert partition_ends_at_ms([("a", None)]) is None
