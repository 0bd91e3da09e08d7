"""A group cut into slices, one per output file: no row lost, no row twice, none much larger than its share."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regelate.core.planning.plan import FileGroup
from regelate.core.planning.splicing import WHOLE_BYTES, WHOLE_ROWS
from regelate.core.running.slices import (
    BORDER_TOLERANCE,
    Slice,
    cut_off,
    group_start,
    halves,
    split,
)
from regelate.core.table.table import FileScanTask
from tests.unit.core.model_table import UNPARTITIONED, data_file


def group_of(files: Iterable[tuple[int, int]], outputs: int) -> FileGroup:
    """Return a group of (size in bytes, rows) files."""
    tasks = tuple(
        FileScanTask(data_file=data_file(f"f{n:03}", size, rows=rows)) for n, (size, rows) in enumerate(files)
    )
    return FileGroup(index=0, partition=UNPARTITIONED, tasks=tasks, expected_output_files=outputs)


def rows_of(piece: Slice) -> list[tuple[str, int]]:
    """Return every row of a slice as (path, position), in order."""
    found: list[tuple[str, int]] = []
    for number, task in enumerate(piece.tasks):
        low = piece.first_row if number == 0 else 0
        last = number == len(piece.tasks) - 1
        high = piece.end_row if last and piece.end_row is not None else task.data_file.record_count
        found += [(task.data_file.path, row) for row in range(low, high)]
    return found


def all_rows(group: FileGroup) -> list[tuple[str, int]]:
    return [(t.data_file.path, row) for t in group.tasks for row in range(t.data_file.record_count)]


groups = st.builds(
    group_of,
    st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 40)), min_size=1, max_size=12),
    st.integers(1, 8),
)


@given(group=groups)
def test_the_parts_hold_every_row_exactly_once_and_in_order(group: FileGroup) -> None:
    slices = split(group)
    assert [row for piece in slices for row in rows_of(piece)] == all_rows(group)
    assert [piece.rows for piece in slices] == [len(rows_of(piece)) for piece in slices]


@given(group=groups)
def test_no_part_is_without_a_file_and_there_are_no_more_than_outputs(group: FileGroup) -> None:
    slices = split(group)
    assert all(piece.tasks for piece in slices)
    assert 1 <= len(slices) <= group.expected_output_files


@given(group=groups, max_files=st.integers(1, 5))
def test_the_scans_of_a_slice_are_the_slice(group: FileGroup, max_files: int) -> None:
    for piece in split(group):
        scans = piece.scans(max_files)
        assert [row for scan in scans for row in rows_of(scan)] == rows_of(piece)
        assert all(1 <= len(scan.tasks) <= max_files for scan in scans)


@given(
    sizes=st.lists(st.integers(1000, 100_000), min_size=1, max_size=12),
    outputs=st.integers(1, 8),
)
def test_parts_are_near_their_share_where_files_have_rows_to_cut_at(sizes: list[int], outputs: int) -> None:
    group = group_of([(size, 100_000) for size in sizes], outputs)
    slices, share = split(group), group.size_bytes / outputs
    assert len(slices) == outputs
    for piece in slices:
        assert abs(piece.size_bytes - share) <= 2 * BORDER_TOLERANCE * share + 2 * len(sizes)


def test_a_cut_moves_to_a_file_border_that_is_near() -> None:
    slices = split(group_of([(1050, 100), (950, 100)], 2))
    assert [[t.data_file.path for t in p.tasks] for p in slices] == [["f000"], ["f001"]]
    assert [(p.first_row, p.end_row) for p in slices] == [(0, None), (0, None)]


def test_a_cut_far_from_every_border_goes_through_the_file() -> None:
    first, second = split(group_of([(1500, 150), (500, 100)], 2))
    assert (first.first_row, first.end_row, len(first.tasks)) == (0, 100, 1)
    assert (second.first_row, second.end_row, len(second.tasks)) == (100, None, 2)
    assert (first.size_bytes, second.size_bytes) == (1000, 1000)


def test_one_large_file_is_cut_more_than_once() -> None:
    slices = split(group_of([(3000, 300)], 3))
    assert [(p.first_row, p.end_row) for p in slices] == [(0, 100), (100, 200), (200, None)]


@pytest.mark.parametrize("rows", [0, 1])
def test_a_file_without_rows_to_cut_at_stays_whole(rows: int) -> None:
    assert len(split(group_of([(3000, rows)], 3))) == 1


@given(group=groups, share=st.floats(0, 2))
def test_the_start_of_a_group_is_as_large_as_asked_give_or_take_a_row(group: FileGroup, share: float) -> None:
    wanted = group.size_bytes * share
    piece = group_start(group, wanted)
    assert piece.tasks == group.tasks[: len(piece.tasks)]
    last = piece.tasks[-1].data_file
    a_row = last.size_bytes / max(last.record_count, 1) + 1
    assert piece.size_bytes <= wanted + a_row
    assert piece.size_bytes >= min(wanted, group.size_bytes) - a_row


@given(group=groups)
def test_halves_hold_every_file_once_and_in_order(group: FileGroup) -> None:
    smaller = halves(group, 7)
    if len(group.tasks) == 1:
        assert smaller == ()
        return
    assert [half.index for half in smaller] == [7, 8]
    assert tuple(task for half in smaller for task in half.tasks) == group.tasks
    assert all(1 <= half.expected_output_files <= group.expected_output_files for half in smaller)
    largest = max(task.data_file.size_bytes for task in group.tasks)
    assert abs(smaller[0].size_bytes - smaller[1].size_bytes) <= largest


@given(group=groups, size=st.integers(1, 3_000), count=st.integers(0, 13))
def test_slices_of_one_size_hold_every_row_once_and_come_apart_at_any_file(
    group: FileGroup, size: int, count: int
) -> None:
    slices = cut_off(group, [t.data_file.size_bytes for t in group.tasks], size)
    assert [row for piece in slices for row in rows_of(piece)] == all_rows(group)
    first = {t.data_file.path for t in group.tasks[:count]}
    for piece in slices:
        low, high = piece.parted(count)
        assert [row for part in (low, high) if part is not None for row in rows_of(part)] == rows_of(piece)
        assert all(path in first for path, _ in (rows_of(low) if low is not None else ()))
        assert not any(path in first for path, _ in (rows_of(high) if high is not None else ()))


@given(sizes=st.lists(st.integers(1, 5_000), min_size=1, max_size=12), size=st.integers(100, 3_000))
def test_of_slices_cut_at_a_size_the_last_alone_is_smaller_and_there_are_no_more_than_the_bytes_take(
    sizes: list[int], size: int
) -> None:
    group = group_of([(found, found) for found in sizes], 1)  # a byte a row: cuts are exact
    slices = cut_off(group, sizes, size)
    assert len(slices) == -(-sum(sizes) // size)
    assert [piece.rows for piece in slices[:-1]] == [size] * (len(slices) - 1)


large_groups = st.builds(
    group_of,
    st.lists(st.tuples(st.integers(0, 2 * WHOLE_BYTES), st.integers(0, 2 * WHOLE_ROWS)), min_size=1, max_size=12),
    st.integers(1, 3),
)


@given(group=large_groups, most=st.integers(1, 6), wanted=st.integers(1, 4))
def test_pieces_follow_each_other_and_none_is_too_large_to_scan_or_too_small_to_keep(
    group: FileGroup, most: int, wanted: int
) -> None:
    for whole in split(group):
        found = whole.pieces(most, wanted)
        assert tuple(task for piece in found for task in piece.tasks) == whole.tasks
        assert (found[0].first_row, found[-1].end_row) == (whole.first_row, whole.end_row)
        assert sum(piece.rows for piece in found) == whole.rows
        if len(found) > 1:
            assert all(len(piece.tasks) <= most for piece in found)
            assert all(piece.rows >= WHOLE_ROWS or piece.size_bytes >= WHOLE_BYTES for piece in found)


@pytest.mark.parametrize(
    ("files", "rows", "most", "wanted", "pieces"),
    [
        (1_000, 1_000, 500, 2, 2),
        (1_001, 1_000, 500, 1, 3),
        (400, 1_000, 500, 2, 2),
        (400, 1_000, 500, 1, 1),
        (400, 250, 500, 2, 1),
        (4_000, 10, 500, 2, 1),
        (3, 1_000_000, 500, 8, 3),
        (1, 1_000_000, 500, 2, 1),
    ],
)
def test_as_many_pieces_as_workers_want_or_as_scans_take(
    files: int, rows: int, most: int, wanted: int, pieces: int
) -> None:
    (whole,) = split(group_of([(1_000, rows)] * files, 1))
    assert len(whole.pieces(most, wanted)) == pieces
