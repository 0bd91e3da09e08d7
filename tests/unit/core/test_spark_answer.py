"""What the pipeline writes and what the service reads of it are one language."""

from __future__ import annotations

import json
from typing import Any

import pytest

from regelate.core.answers import CompactAnswer, Status
from regelate.core.answers.spark import SparkAnswer, spark_answer
from regelate.core.running.stats import CompactionStats, PhaseSeconds
from regelate.errors import Conflict, RegelateError
from regelate.pipeline.result import Result, as_text, failure
from regelate.pipeline.result import Status as PipelineStatus

STATS = CompactionStats(
    files_before=24, files_after=8, files_compacted=24, files_removed=24, files_added=8, bytes_before=9000,
    bytes_after=8000, bytes_saved=1000, compaction_time_ms=1.0, small_files_remaining=0, engine="spark", groups=8,
    groups_deferred=0, rows=24, delete_files_removed=0, manifests_before=3, manifests_after=1, commit_attempts=1,
    dropped_groups=0, seconds=PhaseSeconds(rewrite=5.0),
)  # fmt: skip


def read_back(written: dict[str, object]) -> SparkAnswer | RegelateError:
    return spark_answer(json.loads(as_text(written)))


def result(**changes: Any) -> Result:
    fields = {
        "job": "compact", "table": "c.n.t", "status": PipelineStatus.COMPLETED, "reason": "RECOMMENDED",
        "dry_run": False, "started_at_ms": 1, "snapshot_before": 75, "snapshot_after": 78, "snapshot_ids": (76, 77),
        "stats": STATS, "warnings": ("w",),
    }  # fmt: skip
    return Result(**{**fields, **changes})


def test_what_the_pipeline_writes_of_a_rewrite_is_read_back() -> None:
    compact = CompactAnswer(
        compacted=True, status=Status.COMPLETED, reason="RECOMMENDED", snapshot_id=77, stats=STATS, warnings=("w",)
    )
    assert read_back(result().as_dict()) == SparkAnswer(compact=compact, snapshot_ids=(76, 77))


@pytest.mark.parametrize("status", [s for s in PipelineStatus if s is not PipelineStatus.FAILED])
def test_every_status_that_is_no_failure_is_one_of_compact_s(status: PipelineStatus) -> None:
    found = read_back(result(status=status, stats=None, snapshot_ids=()).as_dict())
    assert isinstance(found, SparkAnswer)
    assert (found.compact.status.value, found.compact.compacted, found.compact.snapshot_id) == (status, False, None)
    assert found.snapshot_ids == (78,)


def test_the_fault_that_ended_a_run_is_read_back() -> None:
    fault = Conflict("COMMIT_CONFLICT", "others were faster", attempts=4)
    found = read_back(failure(fault, job="compact", table="c.n.t", started_at_ms=1))
    assert isinstance(found, RegelateError)
    assert (found.code, found.message, found.retryable, found.details) == (
        "COMMIT_CONFLICT", "others were faster", True, {"attempts": 4},
    )  # fmt: skip


@pytest.mark.parametrize(
    "found", [{}, {"success": False, "error": "?"}, {"success": True}, {**result().as_dict(), "stats": {}}]
)
def test_what_cannot_be_read_is_said_to_be_so(found: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"^(KeyError|TypeError) "):
        spark_answer(found)
