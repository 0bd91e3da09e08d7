"""Which data files want rewriting, and why: every file falls into exactly one reason.

Rules: Iceberg 1.10, `SizeBasedFileRewritePlanner.outsideDesiredFileSizeRange` and `BinPackRewriteFilePlanner`
(`tooManyDeletes`, `tooHighDeleteRatio`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum

from regelate.core.policy.policy import CompactionPolicy, Selection
from regelate.core.policy.targets import reached_its_target
from regelate.core.table.table import DataFile, DeleteContent, DeleteFile, Partition, PartitionTotals
from regelate.core.values import dataclass
from regelate.errors import InvalidRequest

_SHOWN_FILTERS, _SHOWN_PARTITIONS, _SHOWN_CHARACTERS = 5, 3, 100


class Reason(StrEnum):
    """Why a data file is a candidate, or why not; in the order in which `classify` asks."""

    PARTITION_NOT_SELECTED = "partition-not-selected"
    PARTITION_NOT_QUIET = "partition-not-quiet"
    REWRITE_ALL = "rewrite-all"
    TOO_MANY_DELETE_FILES = "too-many-delete-files"
    DELETED_ROWS_RATIO = "deleted-rows-ratio"
    LARGE = "large"
    SMALL = "small"
    RIGHT_SIZED = "right-sized"
    NOT_IN_WHERE = "not-in-where"
    """Never given by `classify`: the reader, which can compare `where` with bounds, puts it over a selected reason."""

    @property
    def selected(self) -> bool:
        return self in _SELECTED


_SELECTED = frozenset(
    {Reason.TOO_MANY_DELETE_FILES, Reason.DELETED_ROWS_RATIO, Reason.REWRITE_ALL, Reason.LARGE, Reason.SMALL}
)


def classify(data_file: DataFile, deletes: Sequence[DeleteFile], policy: CompactionPolicy) -> Reason:
    """Return the one reason of a live data file, given the delete files that apply to it.

    The first rule that holds wins: partition filters, quiet window, rewrite-all, deletes, then size. Deletes come
    before size, so a reason tells whether a group must be rewritten however few files it has.
    """
    if not partition_selected(data_file.partition, policy):
        return Reason.PARTITION_NOT_SELECTED
    rule = SELECTIONS[policy.selection]
    if rule.takes is not None and not rule.takes(data_file.partition, policy):
        return rule.left_as
    if policy.rewrite_all:
        return Reason.REWRITE_ALL
    if len(deletes) >= policy.delete_file_threshold:
        return Reason.TOO_MANY_DELETE_FILES
    if deletes and deleted_share(data_file, deletes) >= policy.delete_ratio_threshold:
        return Reason.DELETED_ROWS_RATIO
    if data_file.size_bytes > policy.max_file_size_bytes:
        return Reason.LARGE
    small = counts_as_small(data_file, policy) if rule.tiered else is_small(data_file.size_bytes, policy)
    return Reason.SMALL if small else Reason.RIGHT_SIZED


def counts_as_small(data_file: DataFile, policy: CompactionPolicy) -> bool:
    """Say whether an automatic run counts a file as small: never one that has reached half of the target that it was
    made for, however large targets have become since."""
    return is_small(data_file.size_bytes, policy) and not reached_its_target(data_file.path, data_file.size_bytes)


def is_small(size_bytes: int, policy: CompactionPolicy) -> bool:
    """Say whether a file is small: the one definition of it everywhere."""
    return size_bytes < policy.min_file_size_bytes


def deleted_share(data_file: DataFile, deletes: Sequence[DeleteFile]) -> float:
    """Return the share (0 to 1) of a file's rows that are known to be deleted.

    Iceberg counts only the records of delete files that name this one data file, and never more than its rows: what a
    partition-wide or equality delete removes of it is not known from metadata.
    """
    if data_file.record_count <= 0:
        return 0.0
    known = sum(
        d.record_count for d in deletes if d.content is DeleteContent.POSITION and d.exact_reference is not None
    )
    return min(known, data_file.record_count) / data_file.record_count


def partition_selected(partition: Partition, policy: CompactionPolicy) -> bool:
    """Say whether a partition matches the filters: AND over the keys of one filter, OR over the filters.

    A partition of an older spec that lacks a key does not match.
    """
    if not policy.partition_filters:
        return True
    return any(_holds(partition, one) for one in policy.partition_filters)


def _holds(partition: Partition, one: Sequence[tuple[str, str]]) -> bool:
    return all(partition.source_values.get(key) == wanted for key, wanted in one)


def _filter_text(one: Sequence[tuple[str, str]]) -> str:
    text = ", ".join(f"{key}={wanted}" for key, wanted in one)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def check_partition_filters(partitions: Iterable[Partition], policy: CompactionPolicy) -> None:
    """Refuse a filter key that no partition of the table has (INVALID_FIELD). An empty table refuses none."""
    if not policy.partition_filters:
        return
    found = tuple(partitions)
    known = sorted({key for partition in found for key in partition.source_values})
    for key in (key for one in policy.partition_filters for key, _ in one):
        if found and key not in known:
            keys = f"known keys: {', '.join(known)}" if known else "the table is not partitioned"
            raise InvalidRequest(
                "INVALID_FIELD",
                f"partition_filter: {key!r} is neither a partition field nor the source column of one; {keys}",
                field="partition_filter",
                key=key,
                known=known,
            )


def takes(partition: Partition, policy: CompactionPolicy) -> bool:
    """Say whether the partition filters and the selection take a partition, whatever its files are."""
    rule = SELECTIONS[policy.selection]
    return partition_selected(partition, policy) and (rule.takes is None or rule.takes(partition, policy))


def unmatched(partitions: Sequence[Partition], policy: CompactionPolicy) -> tuple[str, ...]:
    """Say of the partition filters, and of the selection, which of them take none of a table's partitions.

    An empty table is told nothing, and of the selection only what the filters leave to it.
    """
    if not partitions:
        return ()
    paths = sorted({p.path or "(none)" for p in partitions})
    some = ", ".join(paths[:_SHOWN_PARTITIONS]) + (
        f" and {len(paths) - _SHOWN_PARTITIONS} more" if paths[_SHOWN_PARTITIONS:] else ""
    )
    filters = [one for one in policy.partition_filters if not any(_holds(p, one) for p in partitions)]
    found = [
        f"partition_filter {_filter_text(one)} matches no partition; there are {some}"
        for one in filters[:_SHOWN_FILTERS]
    ]
    left = [p for p in partitions if partition_selected(p, policy)]
    if left and not any(takes(p, policy) for p in left):
        timed = any(p.ends_at_ms is not None for p in left)
        why = (
            f"none of them ended {policy.quiet_window_seconds} s ago or more (quiet-window-seconds)"
            if timed
            else "none of them has a time range: it needs a partition field such as day or hour of a time"
        )
        found.append(f"selection {policy.selection.value} takes no partition of {len(left)}: {why}")
    return tuple(found)


def is_quiet(partition: Partition, policy: CompactionPolicy) -> bool:
    """Say whether a partition's time range ended a quiet window ago; one without a time range never is."""
    if partition.ends_at_ms is None:
        return False
    return partition.ends_at_ms + policy.quiet_window_seconds * 1000 <= policy.now_ms


def is_ill(totals: PartitionTotals, policy: CompactionPolicy) -> bool:
    """Say whether a partition as a whole wants work, for `selection: partition`.

    Either its average live file is small, or it has more than `delete-ratio-threshold` delete files per data file.
    """
    if totals.files == 0:
        return False
    if is_small(totals.size_bytes // totals.files, policy):
        return True
    return totals.delete_files / totals.files > policy.delete_ratio_threshold


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionRule:
    """What a selection asks beside the filters and the sizes of files; None asks nothing.

    `takes`: of a partition, before any of its files is looked at, which are otherwise `left_as`. `wants_work`: of a
    partition's totals, before its candidates are grouped; `force` and `rewrite-all` overrule it. `tiered`: of a
    partition only the small files up to the end of a full tier are taken (`tiers.small_end`); they overrule that too.
    """

    takes: Callable[[Partition, CompactionPolicy], bool] | None = None
    left_as: Reason = Reason.PARTITION_NOT_SELECTED
    wants_work: Callable[[PartitionTotals, CompactionPolicy], bool] | None = None
    tiered: bool = False

    @property
    def narrows(self) -> bool:
        """Whether it leaves partitions alone that Iceberg's own planner would take."""
        return self.takes is not None or self.wants_work is not None


SELECTIONS: Mapping[Selection, SelectionRule] = {
    Selection.SMALL_FILES: SelectionRule(),
    Selection.SIZE_TIERED: SelectionRule(tiered=True),
    Selection.TIME_SERIES: SelectionRule(takes=is_quiet, left_as=Reason.PARTITION_NOT_QUIET),
    Selection.PARTITION: SelectionRule(wants_work=is_ill),
}
