"""The batches of a study: their sizes, and how many of their rows were there before."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from studies.small_files.workload import batches

ROWS = st.integers(min_value=20, max_value=100_000)
SEEDS = st.integers(min_value=0, max_value=10_000)


@given(ROWS, SEEDS)
def test_a_batch_strays_from_its_size_by_a_tenth_at_most(rows: int, seed: int) -> None:
    found = list(batches(rows, 50, seed))
    assert all(0.9 * rows - 1 <= batch.rows <= 1.1 * rows + 1 for batch in found)
    assert len({batch.rows for batch in found}) > 1


@given(ROWS, SEEDS)
def test_a_tenth_of_every_batch_but_the_first_is_the_end_of_the_one_before(rows: int, seed: int) -> None:
    first, *others = found = list(batches(rows, 20, seed))
    assert first.updates == 0
    assert first.first == 0
    assert all(batch.updates == round(batch.rows / 10) for batch in others)
    assert all(after.first == before.last + 1 - after.updates for before, after in pairwise(found))


@given(ROWS, SEEDS)
def test_a_longer_run_begins_with_the_batches_of_a_shorter_one(rows: int, seed: int) -> None:
    assert list(batches(rows, 30, seed))[:10] == list(batches(rows, 10, seed))
