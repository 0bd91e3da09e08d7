"""What nothing reaches: after an expiry, and in a table's folder."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regelate.core.upkeep.quarantine import Quarantine, plan_deletion
from regelate.core.upkeep.reachability import StoredFile, of_other_tables, overlapping, plan_orphans, plan_reclaim

HOUR_MS = 3_600_000
NOW_MS = 1_000 * HOUR_MS
ROOT = "s3://b/t"
NAMES = st.sampled_from([f"data/p={p}/{i}.parquet" for p in ("a", "b%20c") for i in range(6)])
ROOTS = st.sampled_from(["s3://b/t", "s3a://b/t", "S3N://b//t/", "s3://B/t"])


def spelled(root: str, name: str) -> str:
    return f"{root.rstrip('/')}/{name}"


def old(path: str, hours: float = 100) -> StoredFile:
    return StoredFile(path=path, size_bytes=10, modified_ms=NOW_MS - int(hours * HOUR_MS))


def orphans(listing: list[str], reachable: list[str], root: str = ROOT, **more: object) -> tuple[list[str], int]:
    plan = plan_orphans(
        [old(p) for p in listing],
        reachable,
        NOW_MS,
        older_than_ms=72 * HOUR_MS,
        root=root,
        **more,  # type: ignore[arg-type]
    )
    return [f.path for f in plan.orphans], len(plan.mismatches)


@given(st.sets(NAMES), st.sets(NAMES), ROOTS, ROOTS)
def test_reclaimed_is_what_was_reached_before_and_not_after_however_it_is_spelled(
    before: set[str], after: set[str], here: str, there: str
) -> None:
    found = plan_reclaim({spelled(here, n): 1 for n in before}, [spelled(there, n) for n in after])
    assert {f.path for f in found} == {spelled(here, n) for n in before - after}


@given(st.sets(NAMES), st.sets(NAMES), st.sets(NAMES))
def test_what_becomes_reachable_is_never_reclaimed(before: set[str], after: set[str], more: set[str]) -> None:
    sizes = dict.fromkeys(before, 1)
    fewer = set(plan_reclaim(sizes, after | more))
    assert fewer <= set(plan_reclaim(sizes, after))
    assert not {f.path for f in fewer} & more


def test_reclaiming_reads_no_more_of_what_is_reached_than_it_needs() -> None:
    read = []

    def after() -> object:
        for name in ("a", "b", "c"):
            read.append(name)
            yield name

    assert plan_reclaim({"a": 1, "b": 1}, after()) == ()  # type: ignore[arg-type]
    assert read == ["a", "b"]


@pytest.mark.parametrize(
    ("path", "foreign"),
    [
        ("s3://b/mine/data/f", False),
        ("s3a://b//mine/inner/data/f", True),
        ("s3://b/other/f", True),
        ("s3://b/other/mine-too/f", False),
        ("s3://b/others/f", False),
        ("s3://elsewhere/f", False),
        ("s3://b/root/f", True),
        ("file:///shared/f", False),
    ],
)
def test_a_file_belongs_to_the_table_with_the_nearest_folder_and_in_doubt_to_ours(path: str, foreign: bool) -> None:
    mine = ["s3://b/mine", "s3://b/other/mine-too/", "file:/shared"]
    theirs = ["s3://b/mine/inner", "s3://b/other", "s3://b/root/", "file:///shared"]
    assert of_other_tables([path], mine, theirs) == ({path} if foreign else set())


def test_what_an_undo_needs_is_not_deleted_with_another_list_however_it_is_spelled() -> None:
    due = tuple(StoredFile(path=p, size_bytes=1) for p in ("s3://b/a", "s3://b/b", "s3://b/c%20d"))
    assert [f.path for f in plan_deletion(due, {"s3a://b/b", "s3://b/c d", "s3://b/x"})] == ["s3://b/a"]


@pytest.mark.parametrize(
    ("grace_hours", "hours", "due"),
    [(24, 24, False), (24, 24.2, False), (24, 24.25, True), (0.1, 0.15, False), (0.1, 0.2, True), (0, 0, True)],
)
def test_nothing_is_due_before_the_grace_and_the_time_of_an_undo_are_over(
    grace_hours: float, hours: float, due: bool
) -> None:
    listed = Quarantine(
        undo_id="1",
        table_uuid="u",
        metadata_location="m",
        snapshot_ids=(),
        recorded_ms=NOW_MS,
        grace_ms=int(grace_hours * HOUR_MS),
        files=(),
    )
    assert listed.is_due(NOW_MS + int(hours * HOUR_MS)) is due
    under_way = replace(listed, files=None)
    assert under_way.is_due(NOW_MS + int(hours * HOUR_MS)) is (due and hours >= 0.25)
    assert under_way.is_due(NOW_MS + 25 * HOUR_MS)
    assert listed.undo_until_ms <= listed.deletable_ms
    without_files = replace(listed, files=None)
    assert without_files.is_due(NOW_MS + int(hours * HOUR_MS)) is (due and hours >= 0.25)
    assert without_files.is_due(max(listed.deletable_ms, NOW_MS + HOUR_MS // 4))


# --- orphan files -----------------------------------------------------------------------------------------------------


@given(st.sets(NAMES), st.sets(NAMES), ROOTS, ROOTS, st.integers(0, 200))
def test_an_orphan_is_old_and_unreachable_and_everything_else_stays(
    stored: set[str], reachable: set[str], here: str, there: str, hours: int
) -> None:
    listing = [old(spelled(here, n), hours) for n in sorted(stored)]
    plan = plan_orphans(listing, [spelled(there, n) for n in reachable], NOW_MS, older_than_ms=72 * HOUR_MS, root=here)
    expected = {spelled(here, n) for n in stored - reachable} if hours >= 72 else set()
    assert {f.path for f in plan.orphans} == expected
    assert plan.mismatches == ()
    assert plan.kept + plan.young + len(plan.orphans) == len(stored)


@pytest.mark.parametrize(
    ("stored", "reachable"),
    [
        ("s3://b/t/data/1", "gs://b/t/data/1"),
        ("s3://b/t/data/1", "s3://other/t/data/1"),
        ("s3://b/t/data/p=a b/1", "s3://b/t/data/p=a%20b/1"),
        ("s3://b/t/data/p=a%2520b/1", "s3://b/t/data/p=a%20b/1"),
    ],
)
def test_a_file_that_may_be_a_reachable_one_under_another_name_is_a_mismatch(stored: str, reachable: str) -> None:
    found, mismatches = orphans([stored], [reachable])
    assert (found, mismatches) == ([], 1) or ((found, mismatches) == ([stored], 0) and "%25" in stored)


@pytest.mark.parametrize(
    ("stored", "reachable"),
    [
        ("file:///w/t/data/1", "file:/w/t/data/1"),
        ("file:/w/t/data/1", "/w/t/data/1"),
        ("file://localhost/w/t/data/1", "/w/t//data/1"),
        ("hdfs://name:8020/w/t/data/1", "hdfs:///w/t/data/1"),
        ("s3://b/t/data/1", "s3n://b/t//data///1"),
    ],
)
def test_one_file_under_two_spellings_is_kept(stored: str, reachable: str) -> None:
    assert orphans([stored], [reachable]) == ([], 0)


def test_hidden_files_stay_and_so_do_not_partitions_that_look_hidden() -> None:
    listing = [f"{ROOT}/{n}" for n in ("_tmp/1", "data/.crc", "data/_p=1/1", "data/_q=1/1", "data/x_/1")]
    found, _ = orphans(listing, [], partition_names=["_p", "y"])
    assert found == [f"{ROOT}/data/_p=1/1", f"{ROOT}/data/x_/1"]


def test_a_root_that_looks_hidden_hides_nothing() -> None:
    root = "s3://b/_warehouse/.t"
    assert orphans([f"{root}/data/1"], [], root)[0] == [f"{root}/data/1"]


@pytest.mark.parametrize(
    ("mine", "theirs", "shared"),
    [
        ("s3://b/t", "s3a://b/t/", True),
        ("s3://b/t", "s3://b/t/inner", True),
        ("s3://b/t/inner", "s3://b/t", True),
        ("s3://b/t", "s3://b/t2", False),
        ("s3://b/t", "s3://c/t", False),
        ("file:///w/t", "/w//t/data", True),
        ("hdfs:///w", "hdfs://name/w/t", True),
    ],
)
def test_folders_overlap_when_one_lies_in_the_other(mine: str, theirs: str, shared: bool) -> None:
    assert (overlapping([mine], [theirs]) is not None) is shared
