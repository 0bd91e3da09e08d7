"""Which position delete files are merged, and which dangle."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from regelate.core.table.position_deletes import dangling, mergeable
from regelate.core.table.table import DeleteFile
from tests.unit.core.model_table import data_file, equality_delete, month, position_delete

JANUARY, FEBRUARY = month("2013-01"), month("2013-02")
A, B = data_file("a", 100, partition=JANUARY), data_file("b", 100, partition=JANUARY)


def wide(path: str) -> DeleteFile:
    """A position delete file that names several data files."""
    return replace(position_delete(path, 1, of=A), referenced_lower="a", referenced_upper="b")


def test_files_that_name_one_data_file_are_merged_only_with_their_like() -> None:
    two = [position_delete("p1", 1, of=A), position_delete("p2", 1, of=B)]
    assert mergeable(two, by_partition=False) == ()
    assert mergeable(two, by_partition=True) == (JANUARY,)
    assert mergeable([*two, position_delete("p3", 1, of=A)], by_partition=False) == (JANUARY,)


def test_files_that_name_several_data_files_are_merged_within_their_partition() -> None:
    assert mergeable([wide("p1")], by_partition=False) == ()
    assert mergeable([wide("p1"), wide("p2")], by_partition=False) == (JANUARY,)
    assert mergeable([wide("p1"), replace(wide("p2"), partition=FEBRUARY)], by_partition=False) == ()


def test_deletion_vectors_and_equality_deletes_are_left_alone() -> None:
    vectors = [replace(position_delete(n, 1, of=A), file_format="PUFFIN") for n in ("v1", "v2")]
    equality = [equality_delete(n, 1, of=A) for n in ("e1", "e2")]
    assert mergeable([*vectors, *equality], by_partition=True) == ()


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=12), st.booleans())
def test_what_a_merge_leaves_is_not_merged_again(drawn: list[tuple[str, bool]], by_partition: bool) -> None:
    files = {n: data_file(n, 100, partition=JANUARY) for n in "abc"}
    deletes = [wide(f"w{i}") if is_wide else position_delete(f"p{i}", 1, of=files[n])
               for i, (n, is_wide) in enumerate(drawn)]  # fmt: skip
    merged = {None if by_partition else d.exact_reference: d for d in deletes}
    assert mergeable(merged.values(), by_partition=by_partition) == ()


def test_only_a_delete_file_that_was_counted_and_found_useless_dangles() -> None:
    used, useless, unknown = (position_delete(n, 1, of=A) for n in ("used", "useless", "unknown"))
    assert dangling([used, useless, unknown], {"used": 1, "useless": 0}) == (useless,)
