"""Partition values as people write them: read back, they are the values."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regelate.core.table.partition_text import value_text

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DATES = st.dates()
MOMENTS = st.datetimes(timezones=st.just(UTC))


@given(DATES)
def test_the_text_of_a_day_a_month_and_a_year_is_the_beginning_of_its_date(day: date) -> None:
    days = (day - EPOCH.date()).days
    months, years = (day.year - 1970) * 12 + day.month - 1, day.year - 1970
    assert value_text("day", "timestamptz", days) == value_text("identity", "date", days) == day.isoformat()
    assert value_text("month", "date", months) == day.isoformat()[: len("2025-01")]
    assert value_text("year", "date", years) == day.isoformat()[: len("2025")]


@given(MOMENTS)
def test_the_text_of_a_time_names_the_very_moment(at: datetime) -> None:
    microseconds = (at - EPOCH) // timedelta(microseconds=1)
    hours = microseconds // 3_600_000_000
    assert datetime.fromisoformat(value_text("identity", "timestamptz", microseconds)) == at
    assert datetime.fromisoformat(value_text("identity", "timestamp", microseconds)) == at.replace(tzinfo=None)
    assert value_text("hour", "timestamp", hours) == at.isoformat()[: len("2025-01-17T05")]


@given(st.floats())
def test_the_text_of_a_float_reads_as_that_float(value: float) -> None:
    assert repr(float(value_text("identity", "double", value))) == repr(value)


@pytest.mark.parametrize(
    ("transform", "kind", "value", "text"),
    [
        ("identity", "timestamp_ns", 5, "5"),
        ("identity", "", 20_105, "20105"),
        ("bucket[8]", "date", 3, "3"),
        ("day", "date", 10_000_000, "10000000"),
        ("identity", "boolean", True, "true"),
        ("identity", "binary", b"\x00\xff", "AP8="),
        ("identity", "time", 18_000_000_001, "05:00:00.000001"),
        ("identity", "string", None, "null"),
    ],
)
def test_what_has_no_form_of_its_own_shows_the_value(transform: str, kind: str, value: object, text: str) -> None:
    assert value_text(transform, kind, value) == text
