"""What is begun fits into the time that is left, by the estimate and what was measured so far."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from regelate.core.planning.plan import FileGroup
from regelate.core.policy.policy import MB
from regelate.core.running.batches import (
    MAX_CORRECTION,
    MIN_CORRECTION,
    correction,
    group_seconds,
    next_batch,
    usable_seconds,
)
from regelate.core.table.table import DataFile, FileScanTask, Partition

HOME = Partition(spec_id=0, values=(), path="")


def group(index: int, size_mb: int) -> FileGroup:
    data_file = DataFile(
        path=f"f{index}",
        file_format="PARQUET",
        partition=HOME,
        record_count=1,
        size_bytes=size_mb * MB,
        sequence_number=1,
        snapshot_id=1,
    )
    return FileGroup(
        index=index,
        partition=HOME,
        tasks=(FileScanTask(data_file=data_file),),
        expected_output_files=1,
    )


GROUPS = st.lists(st.integers(1, 5000), max_size=12).map(lambda sizes: [group(i, s) for i, s in enumerate(sizes)])
SECONDS = st.floats(0, 1000)


@given(
    GROUPS, SECONDS, st.none() | SECONDS, st.none() | st.integers(0, 10_000), st.floats(MIN_CORRECTION, MAX_CORRECTION)
)
def test_a_batch_fits_into_time_and_size_and_keeps_the_order(
    groups: list[FileGroup], batch: float, left: float | None, size_mb: int | None, rate: float
) -> None:
    size = None if size_mb is None else size_mb * MB
    taken = next_batch(groups, threads=2, batch_seconds=batch, seconds_left=left, bytes_left=size, correction=rate)
    assert [g.index for g in taken] == sorted(g.index for g in taken)
    seconds = sum(group_seconds(g, 2) * rate for g in taken)
    if left is not None:
        assert seconds <= left + 1e-9
    if size is not None:
        assert sum(g.size_bytes for g in taken) <= size
    if len(taken) > 1:
        assert seconds <= batch + 1e-9


@given(GROUPS, SECONDS, SECONDS)
def test_there_is_a_batch_exactly_where_some_group_fits(groups: list[FileGroup], batch: float, left: float) -> None:
    taken = next_batch(groups, threads=2, batch_seconds=batch, seconds_left=left)
    assert bool(taken) == any(group_seconds(g, 2) <= left for g in groups)


def test_without_limits_a_batch_is_about_as_long_as_wanted() -> None:
    groups = [group(i, 55) for i in range(10)]  # about a second each on two threads
    assert len(next_batch(groups, threads=2, batch_seconds=5.3)) == 5
    assert len(next_batch(groups, threads=2, batch_seconds=0)) == 1


def test_a_group_that_does_not_fit_is_passed_over_for_one_that_does() -> None:
    groups = [group(0, 5500), group(1, 55)]
    assert [g.index for g in next_batch(groups, threads=2, batch_seconds=5, seconds_left=10)] == [1]


@given(st.floats(0, 1e6), st.floats(0, 1e6))
def test_the_pace_is_bounded(estimated: float, measured: float) -> None:
    assert MIN_CORRECTION <= correction(estimated, measured) <= MAX_CORRECTION


def test_a_slower_machine_than_estimated_begins_less() -> None:
    groups = [group(i, 55) for i in range(10)]
    assert correction(2.0, 8.0) == 4.0
    assert len(next_batch(groups, threads=2, batch_seconds=100, seconds_left=9, correction=4.0)) == 2


@given(st.floats(0, 1e5))
def test_some_time_is_always_kept_for_the_commit(seconds: float) -> None:
    assert 0 <= usable_seconds(seconds) <= max(seconds - 2, 0)


def test_of_lambdas_quarter_of_an_hour_fourteen_minutes_are_used() -> None:
    assert usable_seconds(900) == 840
