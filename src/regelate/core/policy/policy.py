"""The knobs of a compaction, under Iceberg's names, and the order in which they win."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from enum import StrEnum

from regelate.core.engines import COST_HERE
from regelate.core.values import dataclass
from regelate.errors import InvalidRequest

MB = 1024 * 1024
GB = 1024 * MB
MAX_TARGET_BYTES = 1024 * GB
ONE_DAY_MS = 24 * 3600 * 1000


class Strategy(StrEnum):
    BINPACK = "binpack"
    SORT = "sort"


class Selection(StrEnum):
    SMALL_FILES = "small-files"
    SIZE_TIERED = "size-tiered"
    """What an automatic run takes: of each partition its small files up to a size of which there are many."""
    TIME_SERIES = "time-series"
    PARTITION = "partition"

    @property
    def reads_time(self) -> bool:
        """Whether the policy's `now_ms` counts."""
        return self is Selection.TIME_SERIES


class JobOrder(StrEnum):
    NONE = "none"
    BYTES_ASC = "bytes-asc"
    BYTES_DESC = "bytes-desc"
    FILES_ASC = "files-asc"
    FILES_DESC = "files-desc"


class Verify(StrEnum):
    """How a rewrite is proven before its commit (law 7: rows are conserved)."""

    FAST = "fast"
    """Rows, null counts and bounds against the metadata."""
    STRICT = "strict"
    """And the content: a fingerprint of the rows read, and one of the outputs as another reader reads them back."""


class Splice(StrEnum):
    """Whether row groups of inputs may be copied into an output as they are."""

    AUTO = "auto"
    """Those that are large enough, where writing them anew would not make them much smaller."""
    NEVER = "never"
    ALWAYS = "always"
    """Small ones too; what would be wrong in the output is recoded all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SortField:
    column: str
    descending: bool = False
    nulls_first: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPolicy:
    """What to rewrite and how large. Defaults and ratios are Iceberg's (SizeBasedFileRewritePlanner, 1.10).

    `partition_filters`: each a mapping of partition field or source column to the value as people write it; OR.
    `max_files` caps the input files of one run; None means no cap. `now_ms` is only read by time-series selection.
    """

    target_file_size_bytes: int = 512 * MB
    min_file_size_bytes: int = int(0.75 * 512 * MB)
    max_file_size_bytes: int = int(1.80 * 512 * MB)
    min_input_files: int = 5
    max_file_group_size_bytes: int = 100 * GB
    max_files_per_group: int = COST_HERE.max_files_per_scan
    delete_file_threshold: int = 2**31 - 1
    delete_ratio_threshold: float = 0.3
    rewrite_all: bool = False
    force: bool = False
    max_files: int | None = None
    job_order: JobOrder = JobOrder.NONE
    strategy: Strategy = Strategy.BINPACK
    sort_order: tuple[SortField, ...] = ()
    selection: Selection = Selection.SMALL_FILES
    partition_filters: tuple[tuple[tuple[str, str], ...], ...] = ()
    where: str | None = None
    quiet_window_seconds: int = 3600
    now_ms: int = 0
    compression_codec: str = "zstd"
    splice: Splice = Splice.AUTO

    def __post_init__(self) -> None:
        low, target, high = self.min_file_size_bytes, self.target_file_size_bytes, self.max_file_size_bytes
        if not 0 < target <= MAX_TARGET_BYTES:
            raise _option("target-file-size-bytes", target, f"must be between 1 and {MAX_TARGET_BYTES}")
        if not 0 <= low < target:
            raise _option("min-file-size-bytes", low, f"must be below target-file-size-bytes ({target})")
        if not target < high:
            raise _option("max-file-size-bytes", high, f"must be above target-file-size-bytes ({target})")
        if self.min_input_files < 1:
            raise _option("min-input-files", self.min_input_files, "must be at least 1")
        if self.max_file_group_size_bytes < 1:
            raise _option("max-file-group-size-bytes", self.max_file_group_size_bytes, "must be positive")
        most = COST_HERE.max_files_per_scan
        if not 1 <= self.max_files_per_group <= most:
            raise _option("max-files-per-group", self.max_files_per_group, f"must be 1 to {most}")
        if self.delete_file_threshold < 1:
            raise _option("delete-file-threshold", self.delete_file_threshold, "must be at least 1")
        if not 0 < self.delete_ratio_threshold <= 1:
            raise _option("delete-ratio-threshold", self.delete_ratio_threshold, "must be above 0 and at most 1")
        if self.max_files is not None and self.max_files < 1:
            raise _option("max_files", self.max_files, "must be at least 1")
        if self.strategy is Strategy.BINPACK and self.sort_order:
            raise _option("sort_order", len(self.sort_order), "needs strategy sort")

    def fingerprint(self) -> str:
        """Return a stable text of every knob; part of the plan id."""
        return json.dumps(asdict(self), sort_keys=True, default=str)


def _option(name: str, value: object, rule: str) -> InvalidRequest:
    return InvalidRequest("INVALID_OPTION", f"{name} = {value}: {rule}", option=name, value=value)


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPolicy:
    """What expiry keeps. Ages in milliseconds; defaults are Iceberg's `history.expire.*` unless given.

    `grace_ms`: how long the files of expired snapshots stay in quarantine, and the expiry can be undone; 0 deletes at
    once.
    """

    max_snapshot_age_ms: int = 5 * ONE_DAY_MS
    min_snapshots_to_keep: int = 1
    max_ref_age_ms: int = 2**63 - 1
    grace_ms: int = ONE_DAY_MS

    def __post_init__(self) -> None:
        if self.max_snapshot_age_ms < 0:
            raise InvalidRequest(
                "INVALID_RETENTION",
                f"retention of {self.max_snapshot_age_ms} ms: must not be negative",
                minimum_hours=0,
            )
        if self.min_snapshots_to_keep < 1:
            raise InvalidRequest(
                "INVALID_RETENTION",
                f"min_snapshots_to_keep {self.min_snapshots_to_keep}: at least 1 is kept",
                minimum=1,
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementPolicy:
    """How much one process may take on."""

    memory_bytes: int
    threads: int
    max_in_process_bytes: int = 10 * GB
    max_in_process_seconds: float = 840.0
    disk_bytes: int | None = None
    """Free on the disk for temporary files; None where nobody knows."""


def layered(*layers: Mapping[str, object]) -> dict[str, object]:
    """Merge option layers, highest precedence first; the first that has a key wins, None counts as absent."""
    merged: dict[str, object] = {}
    for layer in layers:
        for key, value in layer.items():
            if value is not None:
                merged.setdefault(key, value)
    return merged


def sized(policy: CompactionPolicy, layers: Sequence[Mapping[str, int]]) -> CompactionPolicy:
    """Resolve target, min and max file size from layers, highest precedence first.

    A min or max of a LOWER layer than the one that set the target does not survive a clash with that target: it falls
    back to Iceberg's 0.75 and 1.80 of the target. A clash within the target's own layer or above is refused.
    """
    target, level = policy.target_file_size_bytes, len(layers)
    for index, layer in enumerate(layers):
        if "target" in layer:
            target, level = layer["target"], index
            break
    low = _bound(layers, "min", level, int(0.75 * target), lambda v: v < target)
    high = _bound(layers, "max", level, int(1.80 * target), lambda v: v > target)
    return replace(policy, target_file_size_bytes=target, min_file_size_bytes=low, max_file_size_bytes=high)


def _bound(layers: Sequence[Mapping[str, int]], name: str, level: int, fallback: int, fits: object) -> int:
    for index, layer in enumerate(layers):
        if name in layer:
            value = layer[name]
            ok = fits(value)  # type: ignore[operator]
            return value if ok or index <= level else fallback
    return fallback
