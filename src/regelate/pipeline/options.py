"""The flags of a rewrite -> core's policy, and the options that Iceberg's procedure takes for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum

from regelate.core.planning.partition_rule import PartitionRule
from regelate.core.policy.option_values import MAX_INT, MAX_LONG, boolean, refused, whole
from regelate.core.policy.options import ICEBERG_OPTIONS, CompactionDefaults, resolve_policy
from regelate.core.policy.policy import CompactionPolicy, SortField
from regelate.core.policy.table_properties import Use, refuse_unusable
from regelate.core.requests import CompactRequest
from regelate.core.values import dataclass
from regelate.pipeline.names import quoted

STARTING_SEQUENCE_NUMBER = "use-starting-sequence-number"
_MIN_V2 = 2


class Layout(StrEnum):
    BINPACK = "binpack"
    SORT = "sort"
    ZORDER = "zorder"


def _between(name: str, value: object, low: int, high: int) -> str:
    return str(whole(name, value, low, high))


def _flag(name: str, value: object) -> str:
    return "true" if boolean(name, value) else "false"


def _factor(name: str, value: object) -> str:
    try:
        found = float(str(value))
    except ValueError:
        found = 0.0
    if not 0 < found < MAX_INT:
        raise refused(name, value, "must be a number above 0")
    return str(found)


SPARK_OPTIONS: Mapping[str, tuple[int, int] | str] = {
    "max-concurrent-file-group-rewrites": (1, MAX_INT),
    "partial-progress.enabled": "flag",
    "partial-progress.max-commits": (1, MAX_INT),
    "partial-progress.max-failed-commits": (0, MAX_INT),
    "remove-dangling-deletes": "flag",
    "output-spec-id": (0, MAX_INT),
    "compression-factor": "factor",
    "shuffle-partitions-per-file": (1, MAX_INT),
    "max-output-size": (1, MAX_INT),
    "var-length-contribution": (1, MAX_INT),
    STARTING_SEQUENCE_NUMBER: "flag",
}
"""What Spark takes beside the options that core decides by (RewriteDataFiles and its shufflers, 1.10)."""
_ALWAYS = ("target-file-size-bytes", "min-file-size-bytes", "max-file-size-bytes", "min-input-files")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """What rewrite_data_files was asked for. `options`: by Iceberg's names; `zorder`: columns to interleave."""

    layout: Layout = Layout.BINPACK
    sort: tuple[SortField, ...] = ()
    zorder: tuple[str, ...] = ()
    where: str | None = None
    selection: str | None = None
    partition_filters: tuple[Mapping[str, str], ...] = ()
    rule: PartitionRule = field(default_factory=PartitionRule)
    force: bool = False
    options: Mapping[str, str] = field(default_factory=dict)
    defaults: CompactionDefaults = field(default_factory=CompactionDefaults)
    """What holds where neither a flag nor a table property says anything; then Iceberg's own defaults do."""

    def __post_init__(self) -> None:
        if bool(self.zorder) is not (self.layout is Layout.ZORDER):
            raise refused("zorder", ",".join(self.zorder), "strategy zorder and the columns of zorder go together")
        if self.sort and self.layout is not Layout.SORT:
            raise refused("sort", self.sort[0].column, "needs strategy sort")


def policy_of(rewrite: Rewrite, properties: Mapping[str, str], *, now_ms: int, table_bytes: int) -> CompactionPolicy:
    """Resolve the policy as COMPACT does: flag, then table property, then default, then Iceberg's default.

    How the rows are laid out is Spark's business, so the policy is a bin-pack's. Errors: InvalidRequest, also for table
    properties at which Iceberg would stop in the middle of the rewrite.
    """
    refuse_unusable(properties, Use.COMPACT, Use.SPARK)
    chosen = {name: value for name, value in rewrite.options.items() if name not in SPARK_OPTIONS}
    unknown = [name for name in chosen if name not in ICEBERG_OPTIONS]
    if unknown:
        valid = sorted({*ICEBERG_OPTIONS, *SPARK_OPTIONS})
        raise refused(unknown[0][:100], chosen[unknown[0]], f"unknown option; valid are {', '.join(valid)}")
    request = CompactRequest(
        where=rewrite.where,
        selection=rewrite.selection,
        partition_filter=list(rewrite.partition_filters) or None,
        force=rewrite.force,
        options=chosen,
    )
    return resolve_policy(
        request=request,
        table_properties=properties,
        config=rewrite.defaults,
        now_ms=now_ms,
        table_bytes=table_bytes,
    )


def procedure_options(rewrite: Rewrite, policy: CompactionPolicy, format_version: int) -> dict[str, str]:
    """Return the `options` of rewrite_data_files that make Spark's planner select what core selected.

    Errors: InvalidRequest INVALID_OPTION for a value out of range, and for use-starting-sequence-number=true, with
    which a rewrite can bring deleted rows back (trap T9: a concurrent equality delete is lost).
    """
    ours = {
        "target-file-size-bytes": policy.target_file_size_bytes,
        "min-file-size-bytes": policy.min_file_size_bytes,
        "max-file-size-bytes": policy.max_file_size_bytes,
        "min-input-files": 2 if policy.force else policy.min_input_files,
        "delete-file-threshold": policy.delete_file_threshold,
        "delete-ratio-threshold": policy.delete_ratio_threshold,
        "max-file-group-size-bytes": policy.max_file_group_size_bytes,
        "rewrite-all": "true" if policy.rewrite_all else "false",
        "rewrite-job-order": policy.job_order.value,
    }
    default = CompactionPolicy()
    named = {
        "delete-file-threshold": policy.delete_file_threshold != default.delete_file_threshold,
        "delete-ratio-threshold": policy.delete_ratio_threshold != default.delete_ratio_threshold,
        "max-file-group-size-bytes": policy.max_file_group_size_bytes != default.max_file_group_size_bytes,
        "rewrite-all": policy.rewrite_all,
        "rewrite-job-order": policy.job_order is not default.job_order,
    }
    found = {name: str(value) for name, value in ours.items() if name in _ALWAYS or named[name]}
    found |= {name: _read(name, value) for name, value in rewrite.options.items() if name in SPARK_OPTIONS}
    if found.get(STARTING_SEQUENCE_NUMBER) == "true" and format_version >= _MIN_V2:
        rule = "a rewrite with it can lose an equality delete that is committed meanwhile: deleted rows come back"
        raise refused(STARTING_SEQUENCE_NUMBER, "true", rule)
    if format_version >= _MIN_V2:
        found[STARTING_SEQUENCE_NUMBER] = "false"
    return found


def _read(name: str, value: str) -> str:
    kind = SPARK_OPTIONS[name]
    if isinstance(kind, tuple):
        return _between(name, value, *kind)
    return _flag(name, value) if kind == "flag" else _factor(name, value)


def sort_argument(rewrite: Rewrite) -> str | None:
    """Return the `sort_order` argument; None for bin-pack, and for a sort by the table's own order."""
    if rewrite.layout is Layout.ZORDER:
        return f"zorder({','.join(_column(name) for name in rewrite.zorder)})"
    fields = [
        f"{_column(f.column)} {'DESC' if f.descending else 'ASC'} NULLS {'FIRST' if f.nulls_first else 'LAST'}"
        for f in rewrite.sort
    ]
    return ", ".join(fields) or None


def _column(name: str) -> str:
    return quoted(*name.split("."))


def strategy_argument(rewrite: Rewrite) -> str:
    """Return the `strategy` argument: to Iceberg, z-order is a sort."""
    return Layout.SORT.value if rewrite.layout is Layout.ZORDER else rewrite.layout.value


def size_options(target_mb: int | None, min_mb: int | None) -> dict[str, str]:
    """Return the options of sizes in MB. Errors: InvalidRequest INVALID_OPTION for one below its minimum."""
    found: dict[str, str] = {}
    if target_mb is not None:
        found["target-file-size-bytes"] = str(whole("target-size-mb", target_mb, 1, MAX_LONG >> 20) << 20)
    if min_mb is not None:
        found["min-file-size-bytes"] = str(whole("min-size-mb", min_mb, 0, MAX_LONG >> 20) << 20)
    return found
