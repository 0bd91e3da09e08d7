"""What Spark is asked to rewrite: core plans from the metadata, and its plan becomes CALLs. Pure.

Spark's planner then groups the files by itself, by the same rule. Where core leaves a partition alone that Spark would
take, or the selection is by time or by partition, the CALLs name the chosen partitions, some at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regelate.core.planning.partition_rule import PartitionRule, narrowed
from regelate.core.planning.plan import CompactionPlan, SkipReason, plan_compaction
from regelate.core.planning.selection import SELECTIONS
from regelate.core.policy.policy import CompactionPolicy
from regelate.core.table.table import Partition, TableSnapshot
from regelate.core.values import dataclass
from regelate.pipeline.specs import specs_of

_SPARK_WOULD_TAKE = (
    SkipReason.NOTHING_TO_MERGE,
    SkipReason.NOTHING_TO_SPLIT,
    SkipReason.PARTITION_BELOW_THRESHOLD,
)
"""The skips that Iceberg's planner does not know; by the others it leaves the same files alone."""
ALL_PARTITIONS = PartitionRule()
PARTITIONS_PER_CALL = 100
"""Partitions that one CALL names: each call is one commit, and Spark's planner reads the manifests once per call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The plan, and one row filter per CALL (None: no filter). No CALL for a plan without groups."""

    plan: CompactionPlan
    wheres: tuple[str | None, ...]
    notes: tuple[str, ...] = ()


def choose(
    snapshot: TableSnapshot,
    metadata: Mapping[str, Any],
    policy: CompactionPolicy,
    *,
    catalog: str,
    rule: PartitionRule = ALL_PARTITIONS,
    now_ms: int = 0,
) -> Choice:
    """Plan a table at one snapshot and say which CALLs carry the plan out. `now_ms` is read only by a rule."""
    plan = plan_compaction(snapshot, policy)
    if not rule.takes_all:
        plan = narrowed(plan, rule.taken(snapshot.totals, now_ms=now_ms))
    chosen = list(dict.fromkeys(group.partition for group in plan.groups))
    if not chosen:
        return Choice(plan=plan, wheres=())
    if rule.takes_all and not _differs(plan, policy):
        return Choice(plan=plan, wheres=(policy.where,), notes=_notes(snapshot, chosen))
    named = [predicate(metadata, catalog, snapshot.spec_id, partition) for partition in chosen]
    found = [text for text in named if text is not None]
    if len(found) < len(named):
        return Choice(
            plan=plan,
            wheres=(policy.where,),
            notes=(*_notes(snapshot, chosen), "the chosen partitions cannot be named: Spark looks at all of them"),
        )
    parts = [found[i : i + PARTITIONS_PER_CALL] for i in range(0, len(found), PARTITIONS_PER_CALL)]
    return Choice(plan=plan, wheres=tuple(both(policy.where, any_of(part)) for part in parts))


def _differs(plan: CompactionPlan, policy: CompactionPolicy) -> bool:
    """Say whether Spark, left to itself, would take partitions that core leaves alone."""
    narrows = SELECTIONS[policy.selection].narrows or bool(policy.partition_filters)
    return narrows or any(skip.reason in _SPARK_WOULD_TAKE for skip in plan.skipped)


def predicate(metadata: Mapping[str, Any], catalog: str, spec_id: int, partition: Partition) -> str | None:
    """Files of an older spec cannot be named: Iceberg moves them into the current one, in groups of their own."""
    if partition.spec_id != spec_id:
        return None
    return specs_of(metadata)[spec_id].predicate(catalog, partition)


def any_of(predicates: list[str]) -> str:
    return predicates[0] if len(predicates) == 1 else " OR ".join(f"({text})" for text in predicates)


def both(where: str | None, partitions: str) -> str:
    """Join a caller's filter, which Spark has parsed alone before, with ours; a comment in it ends with its line."""
    return partitions if where is None else f"(\n{where}\n) AND ({partitions})"


def _notes(snapshot: TableSnapshot, chosen: list[Partition]) -> tuple[str, ...]:
    if any(partition.spec_id != snapshot.spec_id for partition in chosen):
        return ("some files have an older partition spec: Spark moves them into the current one",)
    return ()
