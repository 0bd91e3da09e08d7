"""Laws of expiry that hold for every log and every set of refs; the cases are in tests/unit/golden/retention_*.txt."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from regelate.core.policy.policy import RetentionPolicy
from regelate.core.table.table import RefKind, SnapshotEntry, SnapshotRef
from regelate.core.upkeep.retention import plan_expiry

NOW = 1_000_000


@st.composite
def logs(draw: st.DrawFn) -> tuple[SnapshotEntry, ...]:
    ages = sorted(draw(st.lists(st.integers(0, 100), min_size=1, max_size=12)), reverse=True)
    return tuple(
        SnapshotEntry(
            snapshot_id=number,
            parent_id=draw(st.none() | st.integers(1, number - 1)) if number > 1 else None,
            sequence_number=number,
            timestamp_ms=NOW - age,
            operation="append",
        )
        for number, age in enumerate(ages, start=1)
    )


@st.composite
def tables(draw: st.DrawFn) -> tuple[tuple[SnapshotEntry, ...], tuple[SnapshotRef, ...]]:
    log = draw(logs())
    names = draw(st.lists(st.sampled_from(["a", "b", "c"]), unique=True))
    refs = tuple(
        SnapshotRef(
            name=name,
            kind=RefKind.BRANCH if name == "main" else draw(st.sampled_from(RefKind)),
            snapshot_id=draw(st.integers(1, len(log))),
            min_snapshots_to_keep=draw(st.none() | st.integers(1, 4)),
            max_snapshot_age_ms=draw(st.none() | st.integers(1, 100)),
            max_ref_age_ms=draw(st.none() | st.integers(1, 100)),
        )
        for name in ["main", *names]
    )
    return log, refs


POLICIES = st.builds(
    RetentionPolicy,
    max_snapshot_age_ms=st.integers(1, 100),
    min_snapshots_to_keep=st.integers(1, 5),
    max_ref_age_ms=st.integers(0, 100),
)


@given(table=tables(), policy=POLICIES)
def test_heads_of_refs_that_stay_are_kept_and_main_stays(
    table: tuple[tuple[SnapshotEntry, ...], tuple[SnapshotRef, ...]], policy: RetentionPolicy
) -> None:
    log, refs = table
    plan = plan_expiry(log, refs, None, policy, NOW)
    assert "main" not in plan.ref_names
    heads = {r.snapshot_id for r in refs if r.name not in plan.ref_names}
    assert not heads & set(plan.snapshot_ids)


@given(table=tables(), policy=POLICIES)
def test_every_snapshot_is_expired_or_kept_with_a_reason_and_a_second_expiry_removes_nothing(
    table: tuple[tuple[SnapshotEntry, ...], tuple[SnapshotRef, ...]], policy: RetentionPolicy
) -> None:
    log, refs = table
    plan = plan_expiry(log, refs, None, policy, NOW)
    kept = [number for number, _ in plan.kept]
    assert sorted([*plan.snapshot_ids, *kept]) == [s.snapshot_id for s in log]
    left = tuple(s for s in log if s.snapshot_id in kept)
    assert plan_expiry(left, tuple(r for r in refs if r.name not in plan.ref_names), None, policy, NOW).is_empty


@given(log=logs(), policy=POLICIES, keep=st.integers(1, 5))
def test_main_alone_keeps_its_newest_and_everything_young(
    log: tuple[SnapshotEntry, ...], policy: RetentionPolicy, keep: int
) -> None:
    chain = tuple(
        SnapshotEntry(
            snapshot_id=s.snapshot_id,
            parent_id=s.snapshot_id - 1 or None,
            sequence_number=s.sequence_number,
            timestamp_ms=s.timestamp_ms,
            operation="append",
        )
        for s in log
    )
    chosen = RetentionPolicy(max_snapshot_age_ms=policy.max_snapshot_age_ms, min_snapshots_to_keep=keep)
    plan = plan_expiry(chain, (), chain[-1].snapshot_id, chosen, NOW)
    young = {s.snapshot_id for s in chain if s.timestamp_ms >= NOW - chosen.max_snapshot_age_ms}
    newest = {s.snapshot_id for s in chain[-keep:]}
    assert set(plan.snapshot_ids) == {s.snapshot_id for s in chain} - young - newest
