"""How long to wait before a request is sent again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from regelate.core.policy.timeouts import LONGEST_SECONDS, pause_seconds

JITTER = st.floats(0, 1)


@given(st.integers(0, 10_000), JITTER)
def test_a_pause_is_never_zero_and_never_longer_than_the_longest(number: int, jitter: float) -> None:
    assert 0 < pause_seconds(number, jitter) <= LONGEST_SECONDS


@given(st.integers(0, 1_000), JITTER)
def test_pauses_grow_for_one_jitter(number: int, jitter: float) -> None:
    assert pause_seconds(number, jitter) <= pause_seconds(number + 1, jitter)


@given(st.integers(0, 1_000), JITTER)
def test_jitter_takes_at_most_half(number: int, jitter: float) -> None:
    assert pause_seconds(number, jitter) >= pause_seconds(number, 1.0) / 2
