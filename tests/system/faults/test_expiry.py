"""Rows 50 to 52 of the fault catalogue: expiry, and what it may never take."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import SetSnapshotRefUpdate

from tests.support.iceberg_tables import rows
from tests.system.faults.hooks import Hooked, PatientClock
from tests.system.faults.stack import Stack, request

MONTH_MS = 30 * 24 * 3600 * 1000


class NextMonth(PatientClock):
    def now_ms(self) -> int:
        return super().now_ms() + MONTH_MS


@pytest.fixture
def hooked(stack: Stack) -> Stack:
    """A table `t` of four snapshots that are a month old, behind a service that a test can step into."""
    built = Hooked(stack.folder)
    stack.built = built
    stack.create("t", {"id": "long"})
    for i in range(4):
        stack.ok("WRITE", "t", records=[{"id": i}])
    built.again(clock=NextMonth())
    return stack


def hooks(stack: Stack) -> Hooked:
    assert isinstance(stack.built, Hooked)
    return stack.built


def of(stack: Stack) -> Table:
    return stack.table("default.t")


@pytest.mark.parametrize("kind", [SnapshotRefType.TAG, SnapshotRefType.BRANCH])
@pytest.mark.parametrize("grace", [0, 24])
def test_row_50_a_ref_made_before_or_during_expiry_keeps_its_snapshot(
    hooked: Stack, kind: SnapshotRefType, grace: int
) -> None:
    first, second, *_ = [s.snapshot_id for s in of(hooked).snapshots()]

    def make(name: str, snapshot_id: int) -> None:
        other = Hooked(hooked.folder).catalog()
        more = {"min_snapshots_to_keep": None, "max_snapshot_age_ms": None, "max_ref_age_ms": None}
        update = SetSnapshotRefUpdate(ref_name=name, type=kind, snapshot_id=snapshot_id, **more)
        other.commit_table(other.load_table("default.t"), (), (update,))

    make("before", first)
    hooks(hooked).hooked.before_commit.append(lambda: make("during", second))
    answer = hooked.ok("EXPIRE_SNAPSHOTS", "t", retention_hours=1, grace_hours=grace)
    assert answer["snapshots_expired"] == 1
    table = of(hooked)
    assert {"before", "during"} <= set(table.refs())
    assert [len(rows(table, i)) for i in (first, second)] == [1, 2]
    assert len(rows(table)) == 4


def test_row_50_a_rollback_that_races_expiry_keeps_main_and_its_rows(hooked: Stack) -> None:
    first, *_ = [s.snapshot_id for s in of(hooked).snapshots()]

    def roll_back() -> None:
        other = Hooked(hooked.folder).catalog()
        with other.load_table("default.t").manage_snapshots() as manage:
            manage.set_current_snapshot(first)

    hooks(hooked).hooked.before_commit.append(roll_back)
    hooked.ok("EXPIRE_SNAPSHOTS", "t", retention_hours=1, grace_hours=0)
    assert len(rows(of(hooked))) == 1
    assert of(hooked).metadata.current_snapshot_id == first


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"retention_hours": -0.001}, "retention_hours"),
        ({"retention_hours": -1}, "retention_hours"),
        ({"retention_hours": 1e9}, "retention_hours"),
        ({"min_snapshots_to_keep": 0}, "min_snapshots_to_keep"),
        ({"grace_hours": -1}, "grace_hours"),
        ({"grace_hours": 1e9}, "grace_hours"),
    ],
)
def test_row_51_an_age_that_keeps_nothing_is_refused_with_the_minimum(
    hooked: Stack, fields: dict[str, float], named: str
) -> None:
    with hooked.untouched():
        error = hooked.refused(400, "INVALID_RETENTION", [named, "between"], request("EXPIRE_SNAPSHOTS", "t", **fields))
    assert error["details"]["option"] == named
    assert error["details"]["minimum_hours"] == 0
    assert len(rows(of(hooked))) == 4


def test_on_one_machine_expiry_can_be_tried_on_the_first_day(hooked: Stack) -> None:
    """The shipped configuration lets development ask for any age; the grace protects whoever reads."""
    found = hooked.ok("EXPIRE_SNAPSHOTS", "t", retention_hours=0)
    assert (found["snapshots_expired"], found["files_deleted"]) == (3, 0)
    assert hooked.ok("EXPIRE_SNAPSHOTS", "t", undo=found["undo_id"])["snapshots_restored"] == 3


@pytest.mark.parametrize("hours", [-0.001, -1, 1e9])
def test_row_51_compact_names_its_own_field(hooked: Stack, hours: float) -> None:
    with hooked.untouched():
        hooked.refused(
            400,
            "INVALID_RETENTION",
            ["snapshot_retention_hours", "between 0 and"],
            request("COMPACT", "t", force=True, snapshot_retention_hours=hours),
        )


def test_row_51_a_table_whose_property_says_nothing_sensible_is_refused_by_its_name(hooked: Stack) -> None:
    body = request("ALTER_TABLE", "t", set_properties={"regelate.expiry.grace-hours": "soon"})
    with hooked.untouched():
        hooked.refused(400, "INVALID_RETENTION", ["regelate.expiry.grace-hours", "soon"], body)


def test_row_51_the_head_stays_whatever_is_asked_for(hooked: Stack) -> None:
    hooked.ok("EXPIRE_SNAPSHOTS", "t", retention_hours=1, min_snapshots_to_keep=1, grace_hours=0)
    assert len(of(hooked).snapshots()) == 1
    assert len(rows(of(hooked))) == 4


@pytest.mark.parametrize("operation", ["EXPIRE_SNAPSHOTS", "undo"])
def test_row_52_a_table_whose_files_must_not_be_deleted_is_refused(hooked: Stack, operation: str) -> None:
    hooked.ok("ALTER_TABLE", "t", set_properties={"gc.enabled": "false"})
    fields: dict[str, object] = {"undo": "1"} if operation == "undo" else {"retention_hours": 1}
    with hooked.untouched():
        hooked.refused(403, "GC_DISABLED", ["gc.enabled=false"], request("EXPIRE_SNAPSHOTS", "t", **fields))


def test_row_52_files_shared_with_another_table_are_not_deleted(hooked: Stack, tmp_path: Path) -> None:
    hooked.built.catalog().register_table("default.secret_twin", of(hooked).metadata_location)
    for fields in ({"retention_hours": 1}, {"retention_hours": 1, "grace_hours": 0}, {"dry_run": True}):
        with hooked.untouched():
            error = hooked.refused(403, "GC_DISABLED", ["another table"], request("EXPIRE_SNAPSHOTS", "t", **fields))
        assert "twin" not in str(error)


def test_row_52_a_table_that_shares_its_files_is_not_purged(hooked: Stack, tmp_path: Path) -> None:
    hooked.built.catalog().register_table("default.secret_twin", of(hooked).metadata_location)
    with hooked.untouched():
        error = hooked.refused(403, "GC_DISABLED", ["another table"], request("DROP_TABLE", "t", purge=True))
    assert "twin" not in str(error)
    hooked.ok("DROP_TABLE", "t")
    assert len(rows(hooked.table("default.secret_twin"))) == 4


def test_row_47_a_table_that_was_made_again_is_not_dropped_with_the_files_of_the_first(hooked: Stack) -> None:
    catalog = hooked.built.catalog()

    def renamed_and_made_again() -> None:
        catalog.on_load.clear()
        catalog.rename_table("default.t", "default.renamed")
        hooked.create("t", {"id": "long"})

    catalog.on_load += [lambda: None, renamed_and_made_again]
    hooked.refused(409, "TABLE_REPLACED", ["nothing was dropped"], request("DROP_TABLE", "t", purge=True))
    assert len(rows(hooked.table("default.renamed"))) == 4
    assert rows(of(hooked)) == []
