"""What an output is made of: every row once and in order, one reason for each row group, no small one in the middle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regelate.core.planning.plan import FileGroup
from regelate.core.planning.splicing import WHOLE_BYTES, WHOLE_ROWS, Fate, RowGroup, StoredFile, fate, likely_fate
from regelate.core.policy.policy import CompactionPolicy, SortField, Splice, Strategy
from regelate.core.running.parts import Makeup, Part, Spliced, makeup
from regelate.core.running.slices import Slice, split
from regelate.core.table.table import FileScanTask
from tests.unit.core.model_table import UNPARTITIONED, data_file, position_delete

POLICY = CompactionPolicy()
ZSTD = frozenset({"zstd"})
OURS, THEIRS = "ours", "theirs"


def a_file(*sizes: int, shape: str = OURS, doubt: str | None = None) -> StoredFile:
    """A file with a row group for each number of thousand rows; a row has ten bytes."""
    groups = (RowGroup(rows=n * 1_000, size_bytes=n * 10_000, codecs=ZSTD) for n in sizes)
    return StoredFile(shape=shape, groups=tuple(groups), doubt=doubt)


def group_of(files: Sequence[StoredFile], outputs: int = 1) -> FileGroup:
    tasks = []
    for number, file in enumerate(files):
        rows = sum(group.rows for group in file.groups)
        tasks.append(FileScanTask(data_file=data_file(f"f{number:03}", rows * 10, rows=rows)))
    return FileGroup(index=0, partition=UNPARTITIONED, tasks=tuple(tasks), expected_output_files=outputs)


def made(*files: StoredFile, policy: CompactionPolicy = POLICY) -> Makeup | None:
    (whole,) = split(group_of(files))
    return makeup(whole, files, policy, [OURS, "by arrow"])


def shown(found: Makeup | None) -> str:
    if found is None:
        return "recoded"
    return " ".join(
        f"{p.task}:{','.join(map(str, p.numbers))}" if isinstance(p, Spliced) else f"recode {p.rows // 1000}"
        for p in found.parts
    )


@pytest.mark.parametrize(
    ("files", "wanted"),
    [
        ([a_file(300, 300), a_file(100)], "0:0,1 1:0"),
        ([a_file(99), a_file(99)], "recoded"),
        ([a_file(300), a_file(99)], "0:0 recode 99"),
        ([a_file(99), a_file(300)], "recoded"),
        ([a_file(99), a_file(2), a_file(300)], "recode 101 2:0"),
        ([a_file(300), a_file(20), a_file(200), a_file(300)], "0:0 recode 220 3:0"),
        ([a_file(200), a_file(20), a_file(300), a_file(300)], "recode 220 2:0 3:0"),
        ([a_file(300, 5, 300, 300)], "0:0 recode 305 0:3"),
        ([a_file(300), a_file(300, shape=THEIRS)], "0:0 recode 300"),
        ([a_file(300, shape=THEIRS), a_file(300, shape=THEIRS)], "0:0 1:0"),
        ([a_file(300, shape=THEIRS), a_file(20)], "recoded"),
        ([a_file(300, shape="by arrow"), a_file(20)], "0:0 recode 20"),
        ([a_file(300), a_file(900, shape="by arrow"), a_file(20)], "recode 300 1:0 recode 20"),
        ([a_file(300), a_file(300, doubt="odd")], "0:0 recode 300"),
        ([a_file(0), a_file(300), a_file(0)], "1:0"),
        ([a_file(300, 0, 300)], "0:0,2"),
    ],
)
def test_the_makeup_of_an_output(files: list[StoredFile], wanted: str) -> None:
    assert shown(made(*files)) == wanted


def test_what_no_writer_here_makes_is_copied_only_where_nothing_is_recoded() -> None:
    files = [a_file(300), a_file(20)]
    (mixed,), (sound,) = split(group_of(files)), split(group_of(files[:1]))
    assert makeup(mixed, files, POLICY, []) is None
    assert shown(makeup(sound, files[:1], POLICY, [])) == "0:0"


def test_always_leaves_small_row_groups_where_they_are() -> None:
    always = replace(POLICY, splice=Splice.ALWAYS)
    assert shown(made(a_file(300), a_file(20, 1), a_file(300), policy=always)) == "0:0 1:0,1 2:0"
    assert shown(made(a_file(300), a_file(20, doubt="odd"), a_file(300), policy=always)) == "0:0 recode 20 2:0"


LARGE = RowGroup(rows=WHOLE_ROWS, size_bytes=1, codecs=ZSTD)
WIDE = RowGroup(rows=1, size_bytes=WHOLE_BYTES, codecs=ZSTD)
LITTLE = RowGroup(rows=WHOLE_ROWS - 1, size_bytes=WHOLE_BYTES - 1, codecs=ZSTD)
SNAPPY = RowGroup(rows=WHOLE_ROWS, size_bytes=1, codecs=frozenset({"zstd", "snappy"}))
TASK = FileScanTask(data_file=data_file("f", 10, rows=10))
DELETED = replace(TASK, deletes=(position_delete("d", 1, of=TASK.data_file),))
SORTED = {"strategy": Strategy.SORT, "sort_order": (SortField(column="a"),)}
SOUND, ODD = StoredFile(), StoredFile(doubt="odd")


@pytest.mark.parametrize(
    ("group", "file", "task", "ratio", "auto", "always"),
    [
        (LARGE, SOUND, TASK, 1.0, Fate.SPLICED, Fate.SPLICED),
        (WIDE, SOUND, TASK, 1.0, Fate.SPLICED, Fate.SPLICED),
        (LARGE, SOUND, TASK, 0.8, Fate.SPLICED, Fate.SPLICED),
        (LARGE, SOUND, TASK, 0.79, Fate.GAIN, Fate.SPLICED),
        (LITTLE, SOUND, TASK, 1.0, Fate.SMALL, Fate.SPLICED),
        (LITTLE, SOUND, TASK, 0.1, Fate.SMALL, Fate.SPLICED),
        (SNAPPY, SOUND, TASK, 1.0, Fate.CODEC, Fate.CODEC),
        (LARGE, ODD, TASK, 1.0, Fate.SHAPE, Fate.SHAPE),
        (LARGE, None, TASK, 1.0, Fate.NOT_HERE, Fate.NOT_HERE),
        (LARGE, SOUND, DELETED, 1.0, Fate.DELETES, Fate.DELETES),
    ],
)
def test_the_fate_of_a_row_group(
    group: RowGroup, file: StoredFile | None, task: FileScanTask, ratio: float, auto: Fate, always: Fate
) -> None:
    for splice, wanted in ((Splice.AUTO, auto), (Splice.ALWAYS, always), (Splice.NEVER, Fate.NEVER)):
        policy = replace(POLICY, splice=splice)
        assert fate(group, file, task, policy, ratio) is wanted
    for splice in (Splice.AUTO, Splice.ALWAYS):
        assert fate(group, file, task, replace(POLICY, splice=splice, **SORTED), ratio) is Fate.SORTED  # type: ignore[arg-type]


def test_a_manifest_tells_the_likely_fate_of_a_file() -> None:
    large = FileScanTask(data_file=data_file("f", 10, rows=WHOLE_ROWS))
    assert likely_fate(large, POLICY, 1.0) is Fate.SPLICED
    assert likely_fate(large, POLICY, 0.5) is Fate.GAIN
    assert likely_fate(TASK, POLICY, 1.0) is Fate.SMALL


files = st.lists(
    st.builds(
        lambda sizes, shape, odd: a_file(*sizes, shape=shape, doubt="odd" if odd else None),
        st.lists(st.sampled_from([0, 1, 60, 100, 300]), min_size=1, max_size=4),
        st.sampled_from([OURS, OURS, "by arrow", THEIRS]),
        st.sampled_from([False, False, False, True]),
    ),
    min_size=1,
    max_size=8,
)
Row = tuple[int, int]


def thousands(whole: Slice, parts: Sequence[Part]) -> list[Row]:
    """Every thousandth row of these parts, as (file, row)."""
    found: list[Row] = []
    for part in parts:
        if isinstance(part, Spliced):
            ranges = [(part.task, part.first_row, part.end_row)]
        else:
            first = part.first_task - whole.first_task
            last = len(part.tasks) - 1
            ranges = [
                (
                    first + at,
                    part.first_row if at == 0 else 0,
                    task.data_file.record_count if at < last or part.end_row is None else part.end_row,
                )
                for at, task in enumerate(part.tasks)
            ]
        found += [(task, row) for task, low, high in ranges for row in range(low, high)[::1000] if high > low]
    return found


@given(files=files, outputs=st.integers(1, 3), splice=st.sampled_from([Splice.AUTO, Splice.ALWAYS]))
def test_the_parts_hold_every_row_once_and_only_the_last_is_small(
    files: list[StoredFile], outputs: int, splice: Splice
) -> None:
    policy = replace(POLICY, splice=splice)
    for whole in split(group_of(files, outputs)):
        own = files[whole.first_task : whole.first_task + len(whole.tasks)]
        found = makeup(whole, own, policy, [OURS, "by arrow"])
        if found is None:
            continue
        rows = sum(part.end_row - part.first_row if isinstance(part, Spliced) else part.rows for part in found.parts)
        listed = thousands(whole, found.parts)
        assert rows == whole.rows
        assert listed == sorted(set(listed))
        assert sum(found.fates.values()) <= whole.size_bytes + len(files)
        recoded = [part for part in found.parts[:-1] if not isinstance(part, Spliced)]
        assert splice is Splice.ALWAYS or all(part.rows >= WHOLE_ROWS for part in recoded)
