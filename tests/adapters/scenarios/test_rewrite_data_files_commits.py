"""Scenarios of apache/iceberg's TestRewriteDataFilesAction: rewrites, commits and outcomes that fail.

Iceberg commits once, or with partial progress several times. Here one commit lands every group that still stands.
"""

from __future__ import annotations

import pytest
from pyiceberg.table import Table

from regelate.errors import CommitStateUnknown, Conflict
from tests.adapters.scenarios.scene import BY_P, SCHEMA, batch, of, refused, snapshots, then
from tests.support.deletes_writer import add_position_deletes, flip_byte, remove_file
from tests.support.iceberg_tables import append, live_data_paths, local_path, rows, stored_files
from tests.support.lake import Lake
from tests.support.meanwhile import Line, impatient, orphans, parquet, remove_files, unnamed_metadata
from tests.support.table_model import model_rows

TEN = [f"p{i}" for i in range(10)]


@pytest.fixture
def ten(lake: Lake) -> Table:
    """Ten partitions, two small files each: ten groups."""
    return lake.table(SCHEMA, *([row for p in TEN for row in batch(10 * i, p)] for i in range(2)), spec=BY_P)


def landed(table: Table) -> list[str]:
    """The partitions that are one file now."""
    return [p for p in TEN if len(of(p, table)) == 1]


def test_partial_progress_enabled(lake: Lake, ten: Table) -> None:
    """TestRewriteDataFilesAction.testPartialProgressEnabled: Iceberg lands ten groups in ten commits, we in one."""
    before = len(snapshots(ten))
    lake.assert_rows_kept(ten)
    assert landed(ten) == TEN
    assert len(snapshots(ten)) == before + 1


def test_single_commit_with_rewrite_failure(lake: Lake, ten: Table) -> None:
    """TestRewriteDataFilesAction.testSingleCommitWithRewriteFailure: Iceberg gives up all ten; here one group is left
    out with its reason, and only if no group can be read there is no commit."""
    damaged = of("p3", ten)[0]
    flip_byte(damaged, -1)
    answer = lake.compact(ten, force=True)
    assert (answer["status"], answer["reason"]) == ("PARTIAL", "DATA_FILE_CORRUPT")
    assert landed(ten) == [p for p in TEN if p != "p3"]
    assert damaged in live_data_paths(ten.refresh())
    assert orphans(ten) == set()


def test_parallel_partial_progress_with_rewrite_failure(lake: Lake, ten: Table) -> None:
    """TestRewriteDataFilesAction.testParallelPartialProgressWithRewriteFailure: several groups, several faults, two
    rewrites at once."""
    flip_byte(of("p1", ten)[0], -1)
    remove_file(of("p7", ten)[1])
    answer = lake.compact(ten, force=True)
    assert (answer["status"], answer["stats"]["dropped_groups"]) == ("PARTIAL", 2)
    assert landed(ten) == [p for p in TEN if p not in ("p1", "p7")]
    assert len(answer["warnings"]) >= 2
    stored = {path for path in parquet(ten) if "/p=p1/" in path or "/p=p7/" in path}
    assert len(stored) == 3


def test_single_commit_with_commit_failure(lake: Lake, ten: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """TestRewriteDataFilesAction.testSingleCommitWithCommitFailure: refused for good: ten groups' outputs are gone."""
    before, expected = stored_files(ten), model_rows(ten)
    Line(lake, monkeypatch, *["refused"] * 5)
    error = refused(lake, ten, force=True, tools=impatient)
    assert (error.code, error.status) == ("COMMIT_CONFLICT", 409)
    assert stored_files(ten) == before
    assert model_rows(ten) == expected


def test_parallel_partial_progress_with_commit_failure(lake: Lake, ten: Table) -> None:
    """TestRewriteDataFilesAction.testParallelPartialProgressWithCommitFailure: a position delete hits one of ten: nine
    land in the same attempt, one is reported, its output is deleted."""
    victim, expected = of("p3", ten)[0], list[str]()
    answer = lake.compact(
        ten,
        force=True,
        between=then(ten, lambda other: add_position_deletes(other, {victim: [0]}), expected=expected),
    )
    assert (answer["status"], answer["reason"]) == ("PARTIAL", "CONFLICT_NEW_DELETE")
    assert (answer["stats"]["commit_attempts"], answer["stats"]["dropped_groups"]) == (1, 1)
    assert landed(ten) == [p for p in TEN if p != "p3"]
    assert model_rows(ten) == expected
    assert orphans(ten) == set()
    assert snapshots(ten)[-1] == "replace"


def test_parallel_partial_progress_with_max_failed_commits(lake: Lake, ten: Table) -> None:
    """TestRewriteDataFilesAction.testParallelPartialProgressWithMaxFailedCommits: when every group was changed by
    others, that is an error and no success of nothing."""
    before = stored_files(ten)
    victims = [of(p, ten)[0] for p in TEN]
    with pytest.raises(Conflict) as caught:
        lake.compact(ten, force=True, between=then(ten, lambda other: remove_files(other, data=victims)))
    assert (caught.value.code, caught.value.retryable) == ("COMMIT_CONFLICT", True)
    assert len(caught.value.details["dropped"]) == 10  # type: ignore[arg-type]
    assert {path for path in stored_files(ten) - before if path.endswith(".parquet")} == set()
    assert len(rows(ten.refresh())) == 50


def test_commit_fails_with_uncleanable_failure(lake: Lake, ten: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """TestRewriteDataFilesAction.testCommitFailsWithUncleanableFailure: a fault of no known kind on every attempt, the
    head unmoved: it may still arrive, so outputs and manifests stay."""
    expected, before = model_rows(ten), parquet(ten)
    Line(lake, monkeypatch, *["dead"] * 5)
    with pytest.raises(CommitStateUnknown):
        lake.compact(ten, force=True, tools=impatient)
    assert len(parquet(ten) - before) == 10
    assert unnamed_metadata(ten)
    assert model_rows(ten) == expected


@pytest.mark.parametrize("loss", ["lost", "lost-as-conflict"])
def test_commit_state_unknown_exception(lake: Lake, ten: Table, monkeypatch: pytest.MonkeyPatch, loss: str) -> None:
    """TestRewriteDataFilesAction.testCommitStateUnknownException: it landed, the reply did not. Where the
    catalog can be asked, it is found; where not, the answer is COMMIT_STATE_UNKNOWN, and the table is compacted."""
    expected = model_rows(ten)
    line = Line(lake, monkeypatch, loss, then_down=True)
    with pytest.raises(CommitStateUnknown) as caught:
        lake.compact(ten, force=True, tools=impatient, key="event")
    assert (caught.value.status, line.calls) == (503, 1)
    monkeypatch.undo()
    assert caught.value.details["snapshot_id"] == ten.refresh().metadata.current_snapshot_id
    assert landed(ten) == TEN
    assert model_rows(ten) == expected
    assert lake.compact(ten, force=True, key="event")["status"] == "ALREADY_DONE"
    append(ten, batch(900, "p0"))
    Line(lake, monkeypatch, loss)
    assert lake.compact(ten, force=True, tools=impatient)["status"] == "COMPLETED"


def test_manifest_not_cleaned_up_when_snapshot_not_loadable_after_commit(
    lake: Lake, ten: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TestSnapshotProducer.manifestNotCleanedUpWhenSnapshotNotLoadableAfterCommit: after a commit the table cannot be
    loaded any more: nothing is cleaned up, and the run is a success whose totals are reckoned."""
    expected = model_rows(ten)
    Line(lake, monkeypatch, "ok", then_down=True)
    answer = lake.compact(ten, force=True, tools=impatient)
    monkeypatch.undo()
    assert (answer["status"], answer["stats"]["files_after"]) == ("COMPLETED", 10)
    assert any("reckoned" in warning for warning in answer["warnings"])
    assert model_rows(ten) == expected
    head = ten.refresh().current_snapshot()
    assert head is not None
    listed = [head.manifest_list, *(m.manifest_path for m in head.manifests(ten.io))]
    assert all(local_path(path).exists() for path in listed)
