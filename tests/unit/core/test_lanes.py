"""Which files a dictionary lane recodes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from regelate.core.planning.lanes import LANE_ROWS, lane_of, takes_lane
from regelate.core.planning.splicing import MIXED, RowGroup, StoredFile
from regelate.core.policy.policy import CompactionPolicy, SortField, Strategy
from regelate.core.table.schema import Column
from regelate.core.table.table import FileScanTask
from tests.unit.core.model_table import data_file, position_delete

ID = Column(field_id=1, name="id", type="long", required=False)
TAGS = Column(field_id=2, name="tags", type="list", required=False, children=(replace(ID, field_id=3, name="element"),))
SORTED = CompactionPolicy(strategy=Strategy.SORT, sort_order=(SortField(column="id"),))


def tasks(*rows: int) -> list[FileScanTask]:
    return [FileScanTask(data_file=data_file(f"f{at}", 10 * n, rows=n)) for at, n in enumerate(rows)]


@pytest.mark.parametrize(
    ("rows", "columns", "policy", "taken"),
    [
        ((LANE_ROWS, LANE_ROWS), (ID,), CompactionPolicy(), True),
        ((1, 2 * LANE_ROWS), (ID,), CompactionPolicy(), True),
        ((LANE_ROWS, LANE_ROWS - 1), (ID,), CompactionPolicy(), False),
        ((LANE_ROWS,), (ID, TAGS), CompactionPolicy(), False),
        ((LANE_ROWS,), (ID,), CompactionPolicy(compression_codec="gzip"), False),
        ((LANE_ROWS,), (ID,), SORTED, False),
    ],
    ids=["large enough", "on average", "small", "nested", "gzip", "sort"],
)
def test_a_lane_is_for_flat_files_of_some_rows_that_are_merely_put_together(
    rows: tuple[int, ...], columns: tuple[Column, ...], policy: CompactionPolicy, taken: bool
) -> None:
    assert takes_lane(tasks(*rows), columns, policy) is taken


def test_files_with_deletes_take_no_lane() -> None:
    (task,) = tasks(LANE_ROWS)
    deleting = replace(task, deletes=(position_delete("d", 2, of=task.data_file),))
    assert takes_lane([task, deleting], (ID,), CompactionPolicy()) is False


TEXT = Column(field_id=2, name="text", type="string")
MEMORY = 10_000


def stored(*groups: dict[int, int], rows: int = 10, size: int = 100) -> StoredFile:
    """A file of row groups with these dictionaries: values by place."""
    made = (
        RowGroup(
            rows=rows, size_bytes=size, codecs=frozenset(), uncompressed_bytes=size, dictionaries=tuple(found.items())
        )
        for found in groups
    )
    return StoredFile(groups=tuple(made))


@pytest.mark.parametrize(
    ("files", "texts"),
    [
        ([stored({0: 3, 1: 4}), stored({})], (1,)),
        ([stored({0: 3}), stored({1: 4})], ()),
        ([stored({1: 4}), stored({1: 4}, {1: MIXED})], ()),
        ([stored()], ()),
    ],
    ids=["of texts alone", "as the first file has it", "by halves somewhere", "no row group"],
)
def test_texts_are_read_as_the_dictionaries_that_they_are_throughout(
    files: list[StoredFile], texts: tuple[int, ...]
) -> None:
    found = lane_of({f"f{at}": file for at, file in enumerate(files)}, (ID, TEXT), MEMORY)
    assert found is not None
    assert found.texts == texts
    assert found.dictionaries["f0"] == tuple(dict(group.dictionaries) for group in files[0].groups)


@pytest.mark.parametrize(("rows", "size", "fits"), [(500, 2_000, True), (500, 2_001, False), (501, 2_000, False)])
def test_a_row_group_that_takes_more_memory_than_there_is_has_no_lane(rows: int, size: int, fits: bool) -> None:
    files = {"a": stored({}), "b": stored({}, rows=rows, size=size)}
    assert (lane_of(files, (ID, TEXT), MEMORY) is not None) is fits
