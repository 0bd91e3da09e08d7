"""Which manifests are written anew: a plan with a fixed point."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from regelate.core.upkeep.manifests import MOST_ENTRIES, ManifestGroup, ManifestSummary, plan_manifest_rewrite

TARGET = 900


def manifest(
    number: int, size: int, *, entries: int = 10, dead: int = 0, low: int | None = None, high: int | None = None
) -> ManifestSummary:
    return ManifestSummary(
        path=f"m{number}",
        holds_deletes=False,
        spec_id=0,
        size_bytes=size,
        live_entries=entries,
        dead_entries=dead,
        lower=None if low is None else (0, low),
        upper=None if high is None else (0, high),
    )


SIZES = st.lists(st.integers(1, 3 * TARGET), max_size=40)
RANGES = st.lists(st.tuples(st.integers(1, 3 * TARGET), st.integers(0, 50), st.integers(0, 20)), max_size=40)


def written(
    manifests: list[ManifestSummary], groups: tuple[ManifestGroup, ...], shrink: float
) -> list[ManifestSummary]:
    """The manifests after a rewrite: evenly filled, sorted by partition, a little smaller than before."""
    taken = {p for g in groups for p in g.paths}
    left = [m for m in manifests if m.path not in taken]
    for number, group in enumerate(groups):
        inputs = [m for m in manifests if m.path in group.paths]
        size = int(sum(m.live_bytes for m in inputs) * shrink / group.outputs)
        edges = sorted(v for m in inputs for e in (m.lower, m.upper) if e is not None for v in [e[1]])  # type: ignore[type-var]
        step = max(1, len(edges) // group.outputs)
        for part in range(group.outputs):
            low = edges[min(part * step, len(edges) - 1)] if edges else None
            high = edges[min((part + 1) * step, len(edges) - 1)] if edges else None
            low_high = {"low": low, "high": high}
            entries = max(1, group.entries // group.outputs)
            left.append(manifest(1000 * (number + 1) + part, size, entries=entries, **low_high))  # type: ignore[arg-type]
    return left


@given(SIZES, st.sets(st.integers(0, 39)), st.floats(0.6, 1.1))
def test_what_java_cannot_read_is_always_taken_and_then_there_is_nothing_left_to_do(
    sizes: list[int], hurt: set[int], shrink: float
) -> None:
    manifests = [replace(manifest(i, size), unreadable=i in hurt) for i, size in enumerate(sizes)]
    groups = plan_manifest_rewrite(manifests, TARGET)
    assert {m.path for m in manifests if m.unreadable} <= {p for g in groups for p in g.paths}
    assert plan_manifest_rewrite(written(manifests, groups, shrink), TARGET) == ()


def test_what_java_cannot_read_is_taken_before_all_else_that_fits_in_memory() -> None:
    many = [manifest(i, 10, entries=MOST_ENTRIES // 2, low=i, high=i) for i in range(4)]
    (group,) = plan_manifest_rewrite([*many[:3], replace(many[3], unreadable=True)], TARGET)
    assert set(group.paths) == {"m3", "m0"}


@given(SIZES, st.floats(0.6, 1.1))
def test_after_a_rewrite_there_is_nothing_left_to_do(sizes: list[int], shrink: float) -> None:
    manifests = [manifest(i, size) for i, size in enumerate(sizes)]
    groups = plan_manifest_rewrite(manifests, TARGET)
    assert plan_manifest_rewrite(written(manifests, groups, shrink), TARGET) == ()


@given(RANGES)
def test_after_a_rewrite_scattered_partitions_lie_together(ranges: list[tuple[int, int, int]]) -> None:
    manifests = [manifest(i, size, low=low, high=low + width) for i, (size, low, width) in enumerate(ranges)]
    left = written(manifests, plan_manifest_rewrite(manifests, TARGET), 1.0)
    again = written(left, plan_manifest_rewrite(left, TARGET), 1.0)
    assert plan_manifest_rewrite(again, TARGET) == ()


@given(SIZES)
def test_no_manifest_is_taken_twice_and_there_are_never_more_than_before(sizes: list[int]) -> None:
    manifests = [manifest(i, size) for i, size in enumerate(sizes)]
    for group in plan_manifest_rewrite(manifests, TARGET):
        assert len(set(group.paths)) == len(group.paths) > group.outputs >= 1
        assert group.entries == 10 * len(group.paths)


def test_small_ones_are_merged_and_healthy_ones_are_left_alone() -> None:
    sizes = [10, TARGET, 20, 30, 2 * TARGET]
    (group,) = plan_manifest_rewrite([manifest(i, s) for i, s in enumerate(sizes)], TARGET)
    assert (group.paths, group.outputs) == (("m0", "m2", "m3"), 1)


def test_one_small_manifest_is_no_work_and_neither_is_none() -> None:
    assert plan_manifest_rewrite([manifest(0, 10), manifest(1, TARGET)], TARGET) == ()
    assert plan_manifest_rewrite([], TARGET) == ()


def test_content_and_spec_are_never_mixed() -> None:
    manifests = [
        ManifestSummary(path=f"m{i}", holds_deletes=i % 2 == 0, spec_id=i // 2, size_bytes=10, live_entries=1)
        for i in range(4)
    ]
    assert plan_manifest_rewrite(manifests, TARGET) == ()


def test_dead_entries_do_not_count_as_size() -> None:
    mostly_dead = [manifest(i, 2 * TARGET, entries=1, dead=99) for i in range(2)]
    (group,) = plan_manifest_rewrite(mostly_dead, TARGET)
    assert (group.entries, group.outputs) == (2, 1)


def test_what_does_not_fit_in_memory_waits_for_the_next_run() -> None:
    manifests = [manifest(i, 10, entries=MOST_ENTRIES // 2) for i in range(5)]
    (group,) = plan_manifest_rewrite(manifests, TARGET)
    assert group.entries == MOST_ENTRIES


def test_partitions_scattered_over_healthy_manifests_are_clustered() -> None:
    scattered = [manifest(i, TARGET, low=0, high=100) for i in range(5)]
    (group,) = plan_manifest_rewrite(scattered, TARGET)
    assert (len(group.paths), group.outputs) == (5, 5)
    apart = [manifest(i, TARGET, low=10 * i, high=10 * i + 10) for i in range(5)]
    assert plan_manifest_rewrite(apart, TARGET) == ()
