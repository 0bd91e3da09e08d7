"""The statistics of a study, held against tables and against values whose answer is known."""

from __future__ import annotations

import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from studies.small_files.statistics import deviation, slope, student

SECONDS = st.floats(min_value=0, max_value=1e4, allow_nan=False)


@pytest.mark.parametrize(
    ("freedom", "expected"),
    [(1, 12.706), (2, 4.303), (5, 2.571), (13, 2.160), (30, 2.042), (148, 1.976), (1000, 1.962)],
)
def test_the_interval_is_as_wide_as_the_tables_of_students_distribution_say(freedom: int, expected: float) -> None:
    assert student(0.95, freedom) == pytest.approx(expected, abs=6e-4)


@given(st.lists(SECONDS, min_size=2, max_size=50))
def test_the_deviation_is_that_of_a_sample(values: list[float]) -> None:
    assert deviation(values) == pytest.approx(statistics.stdev(values), rel=1e-6, abs=1e-6)


def test_one_value_deviates_from_nothing() -> None:
    assert deviation([3.0]) == 0.0


@given(st.lists(SECONDS, min_size=3, max_size=50))
def test_the_slope_is_that_of_least_squares(values: list[float]) -> None:
    found = slope(values)
    assert found is not None
    expected = statistics.linear_regression(range(len(values)), values).slope
    assert found.per_step == pytest.approx(expected, rel=1e-6, abs=1e-6)
    assert found.low <= found.per_step <= found.high


def test_a_line_without_noise_has_its_slope_and_no_interval() -> None:
    found = slope([2.0 + 0.25 * at for at in range(40)])
    assert found is not None
    assert (found.low, found.high) == pytest.approx((0.25, 0.25))
    assert not found.may_be_zero


def test_two_values_have_no_interval() -> None:
    assert slope([1.0, 2.0]) is None


def test_the_interval_holds_the_true_slope_as_often_as_it_says() -> None:
    noise = random.Random(5)
    slopes = [slope([0.02 * at + noise.gauss(0, 1) for at in range(30)]) for _ in range(400)]
    held = sum(found is not None and found.low <= 0.02 <= found.high for found in slopes)
    assert 0.92 <= held / 400 <= 0.98
