"""What maintenance found, as JSON-ready fields of its answers (API names, plain types)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from regelate.core.stats import iso_time
from regelate.operations.maintain import StepResult
from regelate.operations.sweep import SweptTable
from regelate.operations.upkeep import DanglingRemoved, ManifestsRewritten, OrphansRemoved

LISTED_ORPHANS = 100

Fields = dict[str, object]


def orphans_removed(found: OrphansRemoved) -> Fields:
    return {
        "dry_run": found.dry_run,
        "orphan_files": len(found.plan.orphans),
        "orphan_bytes": found.plan.size_bytes,
        "young_files": found.plan.young,
        "files_deleted": len(found.deleted),
        "bytes_freed": sum(f.size_bytes for f in found.deleted),
        "orphans": [
            {"path": f.path, "size_bytes": f.size_bytes, "modified_at": iso_time(f.modified_ms)}
            for f in found.plan.orphans[:LISTED_ORPHANS]
        ],
    }


def manifests_rewritten(found: ManifestsRewritten) -> Fields:
    return {
        "dry_run": found.dry_run,
        "manifests_before": found.before,
        "manifests_after": found.after,
        "manifests_replaced": found.replaced,
        "manifests_created": found.created,
        "entries": found.entries,
        "commits": found.commits,
        "snapshot_id": found.snapshot_id,
    }


def dangling_removed(found: DanglingRemoved) -> Fields:
    return {
        "dry_run": found.dry_run,
        "delete_files_removed": found.delete_files,
        "snapshot_id": found.snapshot_id,
    }


def reclaimed(found: SweptTable) -> Fields:
    return {
        "files_deleted": found.files_deleted,
        "bytes_freed": found.bytes_freed,
        "expiries_finished": found.expired.lists,
        "expiries_waiting": found.expired.waiting,
    }


def maintained(results: Sequence[StepResult], *, dry_run: bool) -> Fields:
    partial = any(r.error is not None or (r.result or {}).get("status") == "PARTIAL" for r in results)
    return {
        "status": "PARTIAL" if partial else "COMPLETED",
        "dry_run": dry_run,
        "steps": [_step(r) for r in results],
        "bytes_freed": sum(_bytes_freed(r.result) for r in results if r.result is not None),
        "warnings": [f"{r.step}: {text}" for r in results for text in _warnings(r)],
    }


def _step(result: StepResult) -> Fields:
    return {
        "step": result.step.value,
        "status": result.status.value,
        "seconds": round(result.seconds, 3),
        "result": None if result.result is None else dict(result.result),
        "error": None if result.error is None else result.error.as_error(),
    }


def _bytes_freed(result: Mapping[str, object]) -> int:
    freed = result.get("bytes_freed", 0)
    return freed if isinstance(freed, int) else 0


def _warnings(result: StepResult) -> Sequence[str]:
    if result.error is not None:
        return [str(result.error)]
    found = (result.result or {}).get("warnings", [])
    return [str(text) for text in found] if isinstance(found, list) else []
