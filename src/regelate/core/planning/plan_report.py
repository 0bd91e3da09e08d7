"""A plan as JSON-ready fields (API names, plain types): what a dry run answers, whichever engine would run it."""

from __future__ import annotations

from regelate.core.planning.plan import CompactionPlan, FileGroup

LISTED_GROUPS = 100
"""Groups and skips listed in an answer; the counts always cover all of them."""

Fields = dict[str, object]


def planned(plan: CompactionPlan) -> Fields:
    """Return what a plan does; what it takes is the `Estimate` beside it."""
    return {
        "plan_id": plan.plan_id if plan.starting_snapshot_id is not None else None,
        "reason": plan.reason.value,
        "starting_snapshot_id": plan.starting_snapshot_id,
        "groups": len(plan.groups),
        "groups_deferred": len(plan.deferred),
        "files": plan.files,
        "bytes": plan.size_bytes,
        "bytes_spliced": plan.spliced_bytes,
        "bytes_recoded": plan.size_bytes - plan.spliced_bytes,
        "rows": plan.rows,
        "expected_output_files": plan.expected_output_files,
        "file_groups": [_group(g) for g in plan.groups[:LISTED_GROUPS]],
        "skipped": [
            {"partition": s.partition.path, "files": s.files, "bytes": s.size_bytes, "reason": s.reason.value}
            for s in plan.skipped[:LISTED_GROUPS]
        ],
    }


def _group(group: FileGroup) -> Fields:
    return {
        "index": group.index,
        "partition": group.partition.path,
        "files": len(group.tasks),
        "bytes": group.size_bytes,
        "bytes_spliced": group.spliced_bytes,
        "rows": group.rows,
        "expected_output_files": group.expected_output_files,
        "reasons": {reason.value: count for reason, count in group.reasons},
    }
