"""Which deletes reach which data files, and which delete files a rewrite leaves without any."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regelate.core.table.deletes import DeleteIndex, applies, dangling_after
from regelate.core.table.table import DataFile, DeleteContent, DeleteFile, FileScanTask, Partition
from tests.unit.core.model_table import UNPARTITIONED, data_file, equality_delete, month, position_delete

JANUARY, FEBRUARY = month("2013-01"), month("2013-02")
FILE = data_file("f5", 100, partition=JANUARY, seq=5)
POSITIONS = replace(position_delete("p", 1, of=FILE), referenced_lower=None, referenced_upper=None)
EQUALITY = replace(equality_delete("e", 1, of=FILE), sequence_number=5)


@pytest.mark.parametrize(
    ("delete", "expected"),
    [
        (replace(POSITIONS, sequence_number=4), False),
        (replace(POSITIONS, sequence_number=5), True),
        (replace(POSITIONS, sequence_number=6), True),
        (replace(EQUALITY, sequence_number=4), False),
        (replace(EQUALITY, sequence_number=5), False),
        (replace(EQUALITY, sequence_number=6), True),
        (replace(POSITIONS, sequence_number=6, partition=FEBRUARY), False),
        (replace(EQUALITY, sequence_number=6, partition=FEBRUARY), False),
        (replace(POSITIONS, sequence_number=6, partition=month("2013-01", spec_id=1)), False),
        (replace(EQUALITY, sequence_number=6, partition=UNPARTITIONED, is_global=True), True),
        (replace(EQUALITY, sequence_number=5, partition=UNPARTITIONED, is_global=True), False),
        (replace(POSITIONS, referenced_lower="f5", referenced_upper="f5"), True),
        (replace(POSITIONS, referenced_lower="f4", referenced_upper="f6"), True),
        (replace(POSITIONS, referenced_lower="f6", referenced_upper="f9"), False),
        (replace(POSITIONS, referenced_lower="f1", referenced_upper="f4"), False),
        (replace(POSITIONS, referenced_lower="f6"), False),
        (replace(POSITIONS, referenced_upper="f4"), False),
    ],
)
def test_a_delete_applies_by_partition_sequence_number_and_path_range(delete: DeleteFile, expected: bool) -> None:
    assert applies(delete, FILE) is expected


def test_an_equality_delete_must_name_its_fields() -> None:
    with pytest.raises(ValueError, match="names no equality field ids"):
        replace(EQUALITY, equality_ids=())


partitions = st.sampled_from([JANUARY, FEBRUARY, month("2013-01", spec_id=1), UNPARTITIONED])
sequence_numbers = st.integers(0, 6)
names = st.sampled_from([f"f{n}" for n in range(8)])


@st.composite
def data_files(draw: st.DrawFn) -> list[DataFile]:
    paths = draw(st.lists(names, unique=True, max_size=8))
    return [data_file(p, 100, partition=draw(partitions), seq=draw(sequence_numbers)) for p in paths]


@st.composite
def one_delete(draw: st.DrawFn, path: str) -> DeleteFile:
    number, partition = draw(sequence_numbers), draw(partitions)
    if draw(st.booleans()):
        found = replace(EQUALITY, path=path, sequence_number=number, partition=partition)
        return replace(found, is_global=partition == UNPARTITIONED and draw(st.booleans()))
    low, high = draw(st.sampled_from([(None, None), ("f2", "f5"), ("f3", "f3"), ("f0", "f0"), ("f4", None)]))
    return replace(
        POSITIONS, path=path, sequence_number=number, partition=partition, referenced_lower=low, referenced_upper=high
    )


delete_files = st.integers(0, 6).flatmap(lambda count: st.tuples(*[one_delete(f"d{n}") for n in range(count)]))


@given(files=data_files(), deletes=delete_files)
def test_the_index_finds_what_asking_every_delete_finds(files: list[DataFile], deletes: tuple[DeleteFile, ...]) -> None:
    index = DeleteIndex(deletes)
    found = {f.path: index.applicable(f) for f in files}
    assert {path: sorted(d.path for d in ds) for path, ds in found.items()} == {
        f.path: sorted(d.path for d in deletes if applies(d, f)) for f in files
    }
    asked = Counter(d.path for ds in found.values() for d in ds)
    assert index.references == {d.path: asked[d.path] for d in deletes}


@given(
    files=data_files(),
    deletes=delete_files,
    data=st.data(),
    output_sequence_number=sequence_numbers,
)
def test_a_delete_file_dangles_exactly_when_no_file_left_and_no_output_needs_it(
    files: list[DataFile], deletes: tuple[DeleteFile, ...], data: st.DataObject, output_sequence_number: int
) -> None:
    index = DeleteIndex(deletes)
    tasks = [FileScanTask(data_file=f, deletes=index.applicable(f)) for f in files]
    gone = data.draw(st.sets(st.sampled_from(range(len(tasks)))) if tasks else st.just(set()))
    rewritten = [t for n, t in enumerate(tasks) if n in gone]
    left = [t.data_file for n, t in enumerate(tasks) if n not in gone]
    outputs = [
        data_file(f"out-{p.key}-{p.spec_id}", 100, partition=p, seq=output_sequence_number)
        for p in {t.data_file.partition for t in rewritten}
    ]
    dangling = dangling_after(
        rewritten, index.references, deletes, output_sequence_number, [o.partition for o in outputs]
    )
    # No position delete names an output: outputs are new, however wide its range of paths.
    expected = {
        d.path
        for d in deletes
        if not any(applies(d, f) for f in left)
        and (d.content is DeleteContent.POSITION or not any(applies(d, o) for o in outputs))
    }
    assert dangling == expected


@pytest.mark.parametrize(("output_sequence_number", "dangling"), [(5, set()), (6, {"e"}), (7, {"e"})])
def test_an_equality_delete_younger_than_the_outputs_stays(output_sequence_number: int, dangling: set[str]) -> None:
    delete = replace(EQUALITY, sequence_number=6)
    task = FileScanTask(data_file=FILE, deletes=(delete,))
    assert dangling_after([task], {"e": 1}, [delete], output_sequence_number, [JANUARY]) == dangling


def test_a_younger_equality_delete_of_another_partition_dangles_unless_it_is_global() -> None:
    delete = replace(EQUALITY, sequence_number=6)
    task = FileScanTask(data_file=FILE, deletes=(delete,))
    elsewhere: list[Partition] = [FEBRUARY]
    assert dangling_after([task], {"e": 1}, [delete], 5, elsewhere) == {"e"}
    everywhere = replace(delete, partition=UNPARTITIONED, is_global=True)
    task = FileScanTask(data_file=FILE, deletes=(everywhere,))
    assert dangling_after([task], {"e": 1}, [everywhere], 5, elsewhere) == set()


def test_a_delete_file_that_nobody_counted_is_kept() -> None:
    assert dangling_after([], {}, [POSITIONS], 5, []) == set()
    assert dangling_after([], {"p": 0}, [POSITIONS], 5, []) == {"p"}
