"""The steps after the rewrite: core decides from the metadata whether there is work, then Iceberg does it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from regelate.core.policy.option_retention import resolve_orphan_age, resolve_retention
from regelate.core.policy.policy import CompactionPolicy
from regelate.core.policy.table_properties import Use, refuse_unusable
from regelate.core.table.position_deletes import GRANULARITY_PROPERTY, dangling, mergeable
from regelate.core.upkeep.manifests import ManifestSummary, plan_manifest_rewrite
from regelate.core.upkeep.retention import plan_expiry
from regelate.pipeline.choose import PARTITIONS_PER_CALL, any_of, predicate
from regelate.pipeline.neighbours import check_deletable
from regelate.pipeline.orphans import remove_orphans
from regelate.pipeline.spark_errors import spark_faults
from regelate.pipeline.sql import Argument
from regelate.pipeline.steps import Decide, StepKnobs, StepName, Todo
from regelate.pipeline.tables import SparkTable

MANIFEST_TARGET_PROPERTY, MANIFEST_TARGET_BYTES = "commit.manifest.target-size-bytes", 8 * 1024 * 1024
"""Iceberg's default (TableProperties, 1.10)."""
LISTED = 100
EMPTY = Todo(reason="the table is empty")


def decisions(knobs: StepKnobs, *, now_ms: int) -> dict[StepName, Decide]:
    """Return how each step is decided; each looks at the table as the steps before left it."""
    return {
        StepName.POSITION_DELETES: _position_deletes,
        StepName.DANGLING: _dangling,
        StepName.MANIFESTS: _manifests,
        StepName.EXPIRE: lambda table: _expiry(table, knobs, now_ms),
        StepName.ORPHANS: lambda table: _orphans(table, knobs, now_ms),
        StepName.STATISTICS: lambda table: _statistics(table, knobs),
    }


def _position_deletes(table: SparkTable) -> Todo:
    if table.snapshot_id is None:
        return EMPTY
    snapshot = table.snapshot(CompactionPolicy())
    by_partition = table.properties.get(GRANULARITY_PROPERTY, "file").lower() == "partition"
    partitions = mergeable(snapshot.delete_files, by_partition=by_partition)
    if not partitions:
        return Todo(reason="no position delete files could be merged")
    named = [predicate(table.metadata, table.name.catalog, table.spec_id, p) for p in partitions]
    texts = [text for text in named if text is not None]
    wheres: list[str | None] = [
        any_of(texts[i : i + PARTITIONS_PER_CALL]) for i in range(0, len(texts), PARTITIONS_PER_CALL)
    ]
    if len(texts) < len(named):
        wheres = [None]
    statements = tuple(
        table.statement(StepName.POSITION_DELETES, {"where": where, "options": {"min-input-files": "2"}})
        for where in wheres
    )
    return Todo(statements=statements, found={"partitions": len(partitions)})


def _dangling(table: SparkTable) -> Todo:
    if table.snapshot_id is None:
        return EMPTY
    snapshot = table.snapshot(CompactionPolicy())
    found = dangling(snapshot.delete_files, snapshot.delete_references)
    if not found:
        return Todo(reason="every delete file applies to a data file")
    return Todo(found={"dangling_delete_files": len(found)}, run=lambda: _remove_dangling(table))


def _remove_dangling(table: SparkTable) -> Mapping[str, object]:
    """Run the action that rewrite_data_files runs for `remove-dangling-deletes`; no procedure has it alone.

    It judges by sequence numbers per partition, so a delete file that only its bounds keep from applying stays.
    """
    jvm: Any = table.spark._jvm
    with spark_faults(str(table.name)):
        actions = jvm.org.apache.iceberg.spark.actions.SparkActions.get(table.spark._jsparkSession)
        removed = actions.removeDanglingDeleteFiles(table.java).execute().removedDeleteFiles()
        return {"removed_delete_files_count": len(list(removed))}


def _manifests(table: SparkTable) -> Todo:
    if table.snapshot_id is None:
        return EMPTY
    refuse_unusable(table.properties, Use.SPARK)
    target = int(table.properties.get(MANIFEST_TARGET_PROPERTY, MANIFEST_TARGET_BYTES))
    groups = plan_manifest_rewrite([_manifest(row) for row in table.rows("manifests")], target)
    if not groups:
        return Todo(reason="no manifests could be merged")
    statements = tuple(
        table.statement(StepName.MANIFESTS, {"use_caching": False, "spec_id": spec_id})
        for spec_id in sorted({g.spec_id for g in groups})
    )
    small = sum(len(g.paths) for g in groups)
    return Todo(statements=statements, found={"manifests_to_merge": small})


def _manifest(row: Mapping[str, Any]) -> ManifestSummary:
    kind = "data" if row["content"] == 0 else "delete"
    added, kept, gone = (row[f"{word}_{kind}_files_count"] or 0 for word in ("added", "existing", "deleted"))
    return ManifestSummary(
        path=row["path"],
        holds_deletes=kind == "delete",
        spec_id=row["partition_spec_id"],
        size_bytes=row["length"],
        live_entries=added + kept,
        dead_entries=gone,
    )


def _expiry(table: SparkTable, knobs: StepKnobs, now_ms: int) -> Todo:
    refuse_unusable(table.properties, Use.EXPIRE, Use.SPARK)
    policy = resolve_retention(
        request_hours=knobs.retention_hours,
        request_min=knobs.min_snapshots_to_keep,
        table_properties=table.properties,
        config=knobs.defaults,
    )
    check_deletable(table)
    plan = plan_expiry(table.log, table.refs, table.snapshot_id, policy, now_ms)
    if plan.is_empty:
        return Todo(reason="no snapshot is old enough")
    arguments: dict[str, Argument | None] = {
        "older_than": datetime.fromtimestamp((now_ms - policy.max_snapshot_age_ms) / 1000, UTC),
        "retain_last": policy.min_snapshots_to_keep,
        "stream_results": True,
    }
    return Todo(
        statements=(table.statement(StepName.EXPIRE, arguments),),
        found={
            "snapshots_to_expire": len(plan.snapshot_ids),
            "refs_to_expire": len(plan.ref_names),
            "snapshot_ids": list(plan.snapshot_ids[:LISTED]),
        },
    )


def _orphans(table: SparkTable, knobs: StepKnobs, now_ms: int) -> Todo:
    age_ms = resolve_orphan_age(knobs.orphan_age_hours, knobs.defaults)
    check_deletable(table)
    if table.has_quarantine():
        reason = "an expiry of the service can still be undone, its files would look like orphans; reclaim them first"
        return Todo(reason=reason)
    older_than = datetime.fromtimestamp((now_ms - age_ms) / 1000, UTC)
    arguments: dict[str, Argument | None] = {"older_than": older_than, "dry_run": True}
    arguments |= {"prefix_listing": True} if table.is_listed_by_prefix else {}
    listed = [str(row["orphan_file_location"]) for row in table.run(table.statement(StepName.ORPHANS, arguments))]
    orphans = [path for path in listed if not table.is_own(path)]
    found = {"orphan_files": len(orphans), "orphans": orphans[:LISTED]}
    if not orphans:
        return Todo(reason="no file is orphaned and old enough", found=found)
    if not knobs.delete_orphans:
        return Todo(reason="listed only; --delete-orphans deletes them", found=found)
    return Todo(found=found, run=lambda: remove_orphans(table, orphans, older_than))


def _statistics(table: SparkTable, knobs: StepKnobs) -> Todo:
    head = table.snapshot_id
    if head is None:
        return EMPTY
    columns: Sequence[str] = knobs.statistics_columns
    statements = []
    if not _has(table, "statistics", head):
        statements.append(table.statement("compute_table_stats", {"columns": tuple(columns) or None}))
    if table.is_partitioned and not _has(table, "partition-statistics", head):
        statements.append(table.statement("compute_partition_stats", {}))
    return Todo(statements=tuple(statements), reason="" if statements else "the head has its statistics")


def _has(table: SparkTable, kind: str, snapshot_id: int) -> bool:
    return any(entry["snapshot-id"] == snapshot_id for entry in table.metadata.get(kind, ()))
