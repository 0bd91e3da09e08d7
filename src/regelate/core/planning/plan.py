"""What should happen: file groups, what was left out, and the one reason. Dry run and real run read the same plan."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import field
from enum import StrEnum
from itertools import accumulate

from regelate.core.planning.packing import Candidate, cut_groups, output_files, predicted, right_sized
from regelate.core.planning.prediction import achieved_ratio, clamped, weighed, written_by_us
from regelate.core.planning.selection import (
    SELECTIONS,
    Reason,
    SelectionRule,
    classify,
    counts_as_small,
    takes,
    unmatched,
)
from regelate.core.planning.splicing import Fate
from regelate.core.planning.tiers import small_end
from regelate.core.policy.policy import CompactionPolicy, JobOrder, digest
from regelate.core.table.table import FileScanTask, Partition, PartitionTotals, TableSnapshot
from regelate.core.values import dataclass
from regelate.errors import InvalidRequest

__all__ = [
    "CompactionPlan",
    "CutShort",
    "FileGroup",
    "GroupSkip",
    "PlanReason",
    "SkipReason",
    "achieved_ratio",
    "plan_compaction",
]

MOST_OUTPUT_FILES = 10_000
"""Of one group: each costs some 20 ms and more, and with a target of a few bytes there would be one for every row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileGroup:
    """Files of one partition that are rewritten together, in table order (sequence number, then path)."""

    index: int
    partition: Partition
    tasks: tuple[FileScanTask, ...]
    expected_output_files: int
    expected_output_bytes: int = 0
    reasons: tuple[tuple[Reason, int], ...] = ()
    size_ratios: tuple[float, ...] = ()
    """What recoding is expected to make of a byte of each file; none where nothing is expected."""
    spliced_bytes: int = 0
    """Of files that are copied as they are, as far as their manifests tell: their footers have the last word."""

    def __post_init__(self) -> None:
        if not self.tasks:
            raise ValueError(f"group {self.index} has no files")
        if self.expected_output_files < 1:
            raise ValueError(f"group {self.index}: {self.expected_output_files} output files, at least 1 is due")
        for task in self.tasks:
            if task.data_file.partition != self.partition:
                other = task.data_file.partition
                raise ValueError(f"group {self.index} of {self.partition} holds a file of {other}")

    @property
    def size_bytes(self) -> int:
        return sum(t.data_file.size_bytes for t in self.tasks)

    @property
    def rows(self) -> int:
        return sum(t.data_file.record_count for t in self.tasks)

    @property
    def paths(self) -> frozenset[str]:
        return frozenset(t.data_file.path for t in self.tasks)


class SkipReason(StrEnum):
    """Why candidates of a partition stay as they are."""

    LONE_FILE = "lone-file"
    """One small file with nothing to merge with: no work."""
    NOTHING_TO_MERGE = "nothing-to-merge"
    """The two smallest do not fit into one target (Amoro, `CommonPartitionEvaluator`), or no fewer files would come
    out: merging would only move bytes."""
    NOTHING_TO_SPLIT = "nothing-to-split"
    """A large file whose pieces would be small."""
    BELOW_MIN_INPUT_FILES = "below-min-input-files"
    """Fewer than `min-input-files`, and together not more than one target."""
    PARTITION_BELOW_THRESHOLD = "partition-below-threshold"
    """`selection: partition`, and the partition as a whole is well (`selection.is_ill`)."""
    TIER_NOT_FULL = "tier-not-full"
    """`selection: size-tiered`: it waits for more files of its size, or is none of the small ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSkip:
    partition: Partition
    tasks: tuple[FileScanTask, ...] = field(repr=False)
    reason: SkipReason

    @property
    def files(self) -> int:
        return len(self.tasks)

    @property
    def size_bytes(self) -> int:
        return sum(t.data_file.size_bytes for t in self.tasks)


@dataclass(frozen=True, slots=True, kw_only=True)
class CutShort:
    """A group that `max_files` cut where its outputs come out small: a later run takes `output_bytes` once more.

    `max_files` of `enough_files` would not.
    """

    files: int
    of_files: int
    enough_files: int
    output_bytes: int

    @property
    def warning(self) -> str:
        return (
            f"max_files takes {self.files} of the {self.of_files} files of a group, and what they become is still "
            f"small: a later run rewrites it again; max_files of {self.enough_files} or more spares that"
        )


_BELOW_THRESHOLD = frozenset(
    {SkipReason.BELOW_MIN_INPUT_FILES, SkipReason.PARTITION_BELOW_THRESHOLD, SkipReason.TIER_NOT_FULL}
)


class PlanReason(StrEnum):
    RECOMMENDED = "RECOMMENDED"
    """There are groups, and all of them are in the plan."""
    NO_SNAPSHOT = "NO_SNAPSHOT"
    """The table has no snapshot."""
    NO_PARTITION = "NO_PARTITION"
    """No partition matches the partition filters and the selection; `unmatched` says which of them takes none."""
    NO_CANDIDATE = "NO_CANDIDATE"
    """No file is selected, or at most a lone small file per partition: nothing could ever merge."""
    NO_GROUPS = "NO_GROUPS"
    """Files are selected, but rewriting them would not leave fewer or better ones."""
    BELOW_THRESHOLD = "BELOW_THRESHOLD"
    """Some files could be merged, but no partition reaches a threshold; `force` would merge them."""
    BUDGET_CAPPED = "BUDGET_CAPPED"
    """`max_files` left groups for another run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPlan:
    """What one COMPACT does. `deferred` groups did not fit into `max_files`, `cut_short` is one that it cut in an ill
    place; `size_ratio` is bytes out per byte in; `unmatched` says which filters take no partition at all."""

    plan_id: str
    ident: str
    table_uuid: str
    starting_snapshot_id: int | None
    starting_sequence_number: int
    schema_id: int
    groups: tuple[FileGroup, ...]
    deferred: tuple[FileGroup, ...]
    skipped: tuple[GroupSkip, ...]
    reason: PlanReason
    size_ratio: float
    cut_short: CutShort | None = None
    unmatched: tuple[str, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        return (*self.unmatched, *(() if self.cut_short is None else (self.cut_short.warning,)))

    @property
    def files(self) -> int:
        return sum(len(g.tasks) for g in self.groups)

    @property
    def size_bytes(self) -> int:
        return sum(g.size_bytes for g in self.groups)

    @property
    def spliced_bytes(self) -> int:
        """Of files that are copied and not recoded, as far as the manifests tell."""
        return sum(g.spliced_bytes for g in self.groups)

    @property
    def rows(self) -> int:
        return sum(g.rows for g in self.groups)

    @property
    def expected_output_files(self) -> int:
        return sum(g.expected_output_files for g in self.groups)


def plan_compaction(
    snapshot: TableSnapshot, policy: CompactionPolicy, *, size_ratio: float | None = None
) -> CompactionPlan:
    """Plan the rewrite of one table at one snapshot; every candidate is in exactly one group or counted in one skip.

    `size_ratio`: bytes out per byte in that this table's rewrites achieve (`achieved_ratio`, or a probe); None: 1.0.
    """
    ratio = 1.0 if size_ratio is None else clamped(size_ratio)
    totals = {t.partition: t for t in snapshot.totals}
    groups: list[tuple[Candidate, ...]] = []
    skipped: list[GroupSkip] = []
    for partition, candidates in _by_partition(snapshot, policy, ratio):
        kept, left = _partition_plan(partition, candidates, totals.get(partition), policy)
        groups += kept
        skipped += left
    ordered = sorted(groups, key=lambda g: _rank(g, policy.job_order))
    taken, deferred, cut_short = _within_budget(ordered, policy)
    numbered = [_group(index, group, policy) for index, group in enumerate((*taken, *deferred))]
    chosen = tuple(numbered[: len(taken)])
    live = [t.partition for t in snapshot.totals if t.files]
    return CompactionPlan(
        plan_id=_plan_id(snapshot, policy, chosen),
        ident=snapshot.ident,
        table_uuid=snapshot.uuid,
        starting_snapshot_id=snapshot.snapshot_id,
        starting_sequence_number=snapshot.sequence_number,
        schema_id=snapshot.schema_id,
        groups=chosen,
        deferred=tuple(numbered[len(taken) :]),
        skipped=tuple(skipped),
        reason=_reason(snapshot, policy, live, bool(taken), bool(deferred), skipped),
        size_ratio=ratio,
        cut_short=cut_short,
        unmatched=unmatched(live, policy),
    )


def _by_partition(
    snapshot: TableSnapshot, policy: CompactionPolicy, ratio: float
) -> list[tuple[Partition, tuple[Candidate, ...]]]:
    """Return the selected files by partition (one spec each), partitions by name, files in table order."""
    ours = frozenset(s.snapshot_id for s in snapshot.snapshots if written_by_us(s))
    found: dict[Partition, list[Candidate]] = {}
    for task in snapshot.candidates:
        reason = classify(task.data_file, task.deletes, policy)
        if reason.selected:
            own = task.data_file.snapshot_id in ours
            found.setdefault(task.data_file.partition, []).append(weighed(task, reason, policy, ratio, own=own))
    names = sorted(found, key=lambda p: (p.spec_id, p.path, p.key))
    return [(p, tuple(sorted(found[p], key=lambda c: c.task.table_order))) for p in names]


def _partition_plan(
    partition: Partition, candidates: tuple[Candidate, ...], totals: PartitionTotals | None, policy: CompactionPolicy
) -> tuple[list[tuple[Candidate, ...]], list[GroupSkip]]:
    """Return the groups of one partition, and what of it is left alone."""
    rule = SelectionRule() if policy.force or policy.rewrite_all else SELECTIONS[policy.selection]
    if rule.wants_work is not None and totals is not None and not rule.wants_work(totals, policy):
        return [], [_skip(partition, candidates, SkipReason.PARTITION_BELOW_THRESHOLD)]
    if rule.tiered:
        return _tiered_plan(partition, candidates, policy)
    unsplittable = tuple(c for c in candidates if c.reason is Reason.LARGE and not c.required)
    skipped = [_skip(partition, unsplittable, SkipReason.NOTHING_TO_SPLIT)] if unsplittable else []
    mergeable = tuple(c for c in candidates if c.reason is not Reason.LARGE or c.required)
    refused = _refusal(mergeable, policy)
    if refused is not None:
        return [], skipped + ([_skip(partition, mergeable, refused)] if mergeable else [])
    kept, useless = _cut(partition, mergeable, policy)
    return kept, skipped + useless


def _tiered_plan(
    partition: Partition, candidates: tuple[Candidate, ...], policy: CompactionPolicy
) -> tuple[list[tuple[Candidate, ...]], list[GroupSkip]]:
    """Plan a partition by `tiers.small_end`: files of which there are many are merged, whatever else there is."""
    if [(c.reason, c.required) for c in candidates] == [(Reason.SMALL, False)]:
        return [], [_skip(partition, candidates, SkipReason.LONE_FILE)]
    small = [c for c in candidates if counts_as_small(c.task.data_file, policy)]
    chosen = {c.task.data_file.path for c in small_end(small, lambda c: c.size_bytes, full=policy.min_input_files)}
    waiting = tuple(c for c in candidates if c.task.data_file.path not in chosen)
    kept, useless = _cut(partition, tuple(c for c in candidates if c.task.data_file.path in chosen), policy)
    return kept, [*([_skip(partition, waiting, SkipReason.TIER_NOT_FULL)] if waiting else []), *useless]


def _cut(
    partition: Partition, mergeable: tuple[Candidate, ...], policy: CompactionPolicy
) -> tuple[list[tuple[Candidate, ...]], list[GroupSkip]]:
    """Cut candidates into groups, and leave those alone that would not come out fewer or better."""
    kept: list[tuple[Candidate, ...]] = []
    skipped: list[GroupSkip] = []
    for group in cut_groups(mergeable, policy):
        useless = _useless(group, policy)
        if useless is None:
            kept.append(group)
        else:
            skipped.append(_skip(partition, group, useless))
    return kept, skipped


def _refusal(candidates: Sequence[Candidate], policy: CompactionPolicy) -> SkipReason | None:
    """Say why a partition's candidates are not worth a rewrite, or None.

    Iceberg's rule (`BinPackRewriteFilePlanner.filterFileGroups`), asked once per partition instead of once per bin, so
    that no remainder bin is left behind; and before it Amoro's test, so that what comes out is not rewritten again.
    """
    if any(c.required for c in candidates):
        return None
    if len(candidates) < 2:
        return SkipReason.LONE_FILE
    if policy.force:
        return None
    smallest = sorted(max(c.size_bytes, c.predicted_bytes) for c in candidates)[:2]
    if sum(smallest) > policy.target_file_size_bytes:
        return SkipReason.NOTHING_TO_MERGE
    enough_content = sum(c.size_bytes for c in candidates) > policy.target_file_size_bytes
    if len(candidates) >= policy.min_input_files or enough_content:
        return None
    return SkipReason.BELOW_MIN_INPUT_FILES


def _useless(group: Sequence[Candidate], policy: CompactionPolicy) -> SkipReason | None:
    if any(c.required for c in group):
        return None
    if len(group) == 1:
        return SkipReason.LONE_FILE
    if not policy.force and output_files(predicted(group), policy) >= len(group):
        return SkipReason.NOTHING_TO_MERGE
    return None


def _skip(partition: Partition, candidates: Sequence[Candidate], reason: SkipReason) -> GroupSkip:
    return GroupSkip(partition=partition, tasks=tuple(c.task for c in candidates), reason=reason)


def _rank(group: Sequence[Candidate], order: JobOrder) -> int:
    """Sort key of a group; equal keys keep the order of partitions."""
    size, files = sum(c.size_bytes for c in group), len(group)
    ranks = {
        JobOrder.BYTES_ASC: size,
        JobOrder.BYTES_DESC: -size,
        JobOrder.FILES_ASC: files,
        JobOrder.FILES_DESC: -files,
    }
    return ranks.get(order, 0)


def _within_budget(
    groups: Sequence[tuple[Candidate, ...]], policy: CompactionPolicy
) -> tuple[list[tuple[Candidate, ...]], list[tuple[Candidate, ...]], CutShort | None]:
    """Take groups while their files fit into `max_files`, and of those that do not the longest piece that comes out
    right-sized.

    Pieces that come out small would be merged again by the next run, and again: log(N) rewrites of N files. So one is
    taken only where nothing else fits, in order that a run always gets on.
    """
    if policy.max_files is None:
        return list(groups), [], None
    taken: list[tuple[Candidate, ...]] = []
    deferred: list[tuple[Candidate, ...]] = []
    budget = policy.max_files
    for group in groups:
        size = len(group) if len(group) <= budget else _whole_piece(group, budget, policy)
        if size:
            taken.append(group[:size])
            budget -= size
        if size < len(group):
            deferred.append(group[size:])
    begun = () if taken or budget < 2 else enumerate(groups)
    at = next((i for i, group in begun if _useless(group[:budget], policy) is None), None)
    if at is None:
        return taken, deferred, None
    ill, piece = groups[at], groups[at][:budget]
    cut_short = CutShort(
        files=budget,
        of_files=len(ill),
        enough_files=_least_piece(ill, budget, policy),
        output_bytes=predicted(piece),
    )
    return [piece], [*groups[:at], ill[budget:], *groups[at + 1 :]], cut_short


def _whole_piece(group: Sequence[Candidate], budget: int, policy: CompactionPolicy) -> int:
    """Return how many files the longest piece has that fits and leaves only right-sized files; 0: there is none."""
    sums = tuple(accumulate(c.predicted_bytes for c in group[:budget]))
    sizes = (size for size in range(budget, 1, -1) if right_sized(sums[size - 1], policy))
    return next((size for size in sizes if _useless(group[:size], policy) is None), 0)


def _least_piece(group: Sequence[Candidate], budget: int, policy: CompactionPolicy) -> int:
    """Return the least number of files, above the budget, that would be taken without a small file coming out."""
    sums = tuple(accumulate(c.predicted_bytes for c in group))
    return next((n for n in range(budget + 1, len(group)) if right_sized(sums[n - 1], policy)), len(group))


def _group(index: int, group: Sequence[Candidate], policy: CompactionPolicy) -> FileGroup:
    counts = Counter(c.reason for c in group)
    files = output_files(predicted(group), policy)
    if files > MOST_OUTPUT_FILES:
        raise InvalidRequest(
            "INVALID_OPTION",
            f"target-file-size-bytes = {policy.target_file_size_bytes}: {files:,} files would come out of a group of "
            f"{len(group):,}; at most {MOST_OUTPUT_FILES:,} are written: choose a larger target",
            option="target-file-size-bytes",
        )
    return FileGroup(
        index=index,
        partition=group[0].task.data_file.partition,
        tasks=tuple(c.task for c in group),
        expected_output_files=files,
        expected_output_bytes=predicted(group),
        reasons=tuple((reason, counts[reason]) for reason in Reason if counts[reason]),
        size_ratios=tuple(c.size_ratio for c in group),
        spliced_bytes=sum(c.size_bytes for c in group if c.likely_fate is Fate.SPLICED),
    )


def _reason(
    snapshot: TableSnapshot,
    policy: CompactionPolicy,
    live: Sequence[Partition],
    any_taken: bool,
    any_deferred: bool,
    skipped: Sequence[GroupSkip],
) -> PlanReason:
    if snapshot.snapshot_id is None:
        return PlanReason.NO_SNAPSHOT
    if any_deferred:
        return PlanReason.BUDGET_CAPPED
    if any_taken:
        return PlanReason.RECOMMENDED
    reasons = {s.reason for s in skipped}
    if not reasons and live and not any(takes(p, policy) for p in live):
        return PlanReason.NO_PARTITION
    if reasons <= {SkipReason.LONE_FILE}:
        return PlanReason.NO_CANDIDATE
    if reasons & _BELOW_THRESHOLD:
        return PlanReason.BELOW_THRESHOLD
    return PlanReason.NO_GROUPS


def _plan_id(snapshot: TableSnapshot, policy: CompactionPolicy, groups: Sequence[FileGroup]) -> str:
    """Name a plan by its snapshot and what it rewrites; neither the size ratio nor where groups are cut counts.

    Where the selection depends on time, the time of the request follows, so that executing the plan can take it.
    """
    paths = sorted(path for group in groups for path in group.paths)
    plan_id = f"{snapshot.snapshot_id}-{digest(json.dumps([snapshot.uuid, policy.fingerprint(), paths]))}"
    return f"{plan_id}-{policy.now_ms}" if policy.now_ms else plan_id
