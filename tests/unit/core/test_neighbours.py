"""What a WRITE takes along: nothing that it may not, within its bounds, and little again and again."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from regelate.core.planning.neighbours import GROWTH, Place, is_takable, taken_along
from regelate.core.table.table import FileScanTask, Partition
from tests.unit.core.model_table import data_file, position_delete

TARGET = 1_000


def partition(name: str, spec_id: int) -> Partition:
    return Partition(spec_id=spec_id, values=(name,), path=f"p={name}")


@st.composite
def places(draw: st.DrawFn) -> list[Place]:
    found: list[Place] = []
    for name in "abcd"[: draw(st.integers(1, 4))]:
        home = partition(name, draw(st.sampled_from((0, 1, 1, 1))))
        tasks = []
        for number in range(draw(st.integers(0, 8))):
            file = data_file(f"{name}{number}", draw(st.integers(0, 1_200)), partition=home)
            file = replace(file, sort_order_id=draw(st.sampled_from((None, None, 0, 3))))
            deletes = (position_delete("d", 1, of=file),) if draw(st.integers(0, 5)) == 0 else ()
            tasks.append(FileScanTask(data_file=file, deletes=deletes))
        if tasks and draw(st.integers(0, 5)) == 0:
            tasks.append(tasks[0])
        found.append(Place(partition=home, own_bytes=draw(st.integers(0, 1_500)), others=tuple(tasks)))
    return found


def sizes(tasks: tuple[FileScanTask, ...]) -> list[int]:
    return [t.data_file.size_bytes for t in tasks]


@given(found=places(), most=st.integers(1, 3_000))
def test_what_is_taken_is_takable_live_once_of_the_spec_and_within_both_bounds(found: list[Place], most: int) -> None:
    taken = taken_along(found, spec_id=1, target_bytes=TARGET, max_bytes=most)
    assert sum(sum(sizes(files)) for files in taken.values()) <= most
    for place in found:
        files = taken.get(place.partition, ())
        assert all(is_takable(t, TARGET) and place.others.count(t) == 1 for t in files)
        assert not files or (place.partition.spec_id == 1 and place.own_bytes + sum(sizes(files)) <= TARGET)


@given(found=places())
def test_each_file_has_at_most_twice_the_bytes_before_it_and_what_stays_behind_has_more_or_does_not_fit(
    found: list[Place],
) -> None:
    taken = taken_along(found, spec_id=1, target_bytes=TARGET, max_bytes=10**9)
    for place in found:
        if place.partition.spec_id != 1 or place.own_bytes >= TARGET:
            assert place.partition not in taken
            continue
        files, written = taken.get(place.partition, ()), place.own_bytes
        for size in sizes(files):
            assert size <= GROWTH * written
            written += size
        once = [t for t in place.others if place.others.count(t) == 1]
        left = [t.data_file.size_bytes for t in once if is_takable(t, TARGET) and t not in files]
        assert not left or min(left) > GROWTH * written or written + min(left) > TARGET


@given(found=places())
def test_what_is_taken_depends_on_no_order_of_the_files(found: list[Place]) -> None:
    turned = [replace(place, others=place.others[::-1]) for place in reversed(found)]
    first = taken_along(found, spec_id=1, target_bytes=TARGET, max_bytes=2_000)
    again = taken_along(turned, spec_id=1, target_bytes=TARGET, max_bytes=2_000)
    assert {p: sizes(files) for p, files in first.items()} == {p: sizes(files) for p, files in again.items()}


@given(steps=st.lists(st.integers(1, 30), min_size=50, max_size=300))
def test_however_many_batches_come_few_files_stay_and_each_byte_is_written_a_few_times(steps: list[int]) -> None:
    live: list[int] = []
    written = 0
    home = partition("a", 1)
    for step in steps:
        tasks = (FileScanTask(data_file=data_file(f"f{n}", size, partition=home)) for n, size in enumerate(live))
        place = Place(partition=home, own_bytes=step, others=tuple(tasks))
        taken = taken_along([place], spec_id=1, target_bytes=10**6, max_bytes=10**9).get(home, ())
        for size in sizes(taken):
            live.remove(size)
        live.append(step + sum(sizes(taken)))
        written += live[-1]
    assert len(live) <= 8
    assert written <= 10 * sum(steps)
