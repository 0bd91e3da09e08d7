"""What a WRITE merges in a partition: as few files as the bytes take, and its own rows with the rest of what it
rewrites."""

from __future__ import annotations

from regelate.core.running.merging import Merge, TouchedFile, merges
from regelate.core.running.rewrite import NewDataFile
from regelate.core.table.table import ColumnMetrics, FileScanTask, Partition
from tests.unit.core.model_table import data_file

A, B = (Partition(spec_id=1, values=(name,), path=f"p={name}") for name in "ab")
NO_METRICS = ColumnMetrics(value_counts={}, null_counts={}, lower_bounds={}, upper_bounds={})


def touched(name: str, size: int, partition: Partition, matched: int, rows: int = 100) -> TouchedFile:
    task = FileScanTask(data_file=data_file(name, size, rows=rows, partition=partition))
    return TouchedFile(task=task, matched_rows=matched)


def fresh(name: str, size: int, partition: Partition, rows: int = 10) -> NewDataFile:
    return NewDataFile(path=name, partition=partition, record_count=rows, size_bytes=size, metrics=NO_METRICS)


def test_the_rows_of_the_request_join_what_is_rewritten_in_their_partition() -> None:
    own = [fresh("own-a", 50, A), fresh("own-b", 50, B)]
    (found,) = merges([touched("one", 100, A, 1), touched("two", 100, A, 99)], own, 1_000)
    assert (found.partition, found.fresh) == (A, (own[0],))
    assert [t.data_file.path for t in found.group(1_000).tasks] == ["one", "two", "own-a"]
    assert len(found.slices(1_000)) == 1


def test_a_file_that_reached_the_target_is_not_written_again() -> None:
    own = [fresh("full", 1_000, A), fresh("rest", 999, A)]
    (found,) = merges([touched("one", 100, A, 1)], own, 1_000)
    assert found.fresh == (own[1],)


def test_rows_of_the_request_are_not_written_again_where_nothing_else_is_left() -> None:
    own = [fresh("own", 50, A)]
    (found,) = merges([touched("one", 100, A, 100)], own, 1_000)
    assert (found.fresh, found.size_bytes, found.matched_rows) == ((), 0, 100)


def test_what_is_left_of_a_file_weighs_its_share_of_rows_and_outputs_are_cut_by_it() -> None:
    found = Merge(partition=A, touched=(touched("one", 1_000, A, 50), touched("two", 1_000, A, 0)))
    assert found.size_bytes == 1_500
    assert [(s.first_row, s.end_row, len(s.tasks)) for s in found.slices(1_000)] == [(0, 50, 2), (50, None, 1)]
