"""Where a plan runs: in this process, or not here; what it takes; and how many outputs may be written at once."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from regelate.core.plan import CompactionPlan
from regelate.core.policy import GB, MAX_FILES_PER_GROUP, MB, CompactionPolicy, Engine, PlacementPolicy, Strategy

BYTES_PER_SECOND_AND_THREAD = 55 * MB / 2
"""Measured: two cores rewrite about 55 MB of compressed Parquet per second."""
SECONDS_PER_FILE = 0.005
"""Measured: 400 files of together 125 MB took 4 s on two cores, where their bytes alone would take 2.3 s."""
PROCESS_BYTES = 200 * MB
"""Measured: Python, PyIceberg, PyArrow and DuckDB take 150 MB once loaded; the rest is for manifests and the plan."""
SCAN_BYTES_PER_FILE = MB // 5
"""DuckDB takes about 0.2 MB per file when it binds a scan (trap T13)."""
OUTPUT_BYTES = 128 * MB
"""One output under way: a row group of up to a million rows decoded, and its columns encoded again. Measured: 400 files
of 20,000 rows each in one scan peaked at 420 MB; less the process (200) and the scan (80) that leaves about as much."""
SORTED_BYTES_PER_BYTE = 4
"""A sort holds its rows decoded: Parquet of ours is about a quarter of that, and much less where values repeat."""
LAMBDA_DOLLARS_PER_GB_SECOND = 0.0000166667
LAMBDA_DOLLARS_PER_REQUEST = 0.0000002
"""AWS Lambda's list price, x86, us-east-1, first tier; https://aws.amazon.com/lambda/pricing/"""


class PlacementReason(StrEnum):
    IN_PROCESS = "IN_PROCESS"
    TOO_LARGE = "TOO_LARGE"
    """More bytes than `max_in_process_bytes`."""
    TOO_LONG = "TOO_LONG"
    """A longer run than `max_in_process_seconds`, by the estimate."""
    MEMORY = "MEMORY"
    """Not even one output at a time fits into the memory; only said where another engine has more."""
    DISK = "DISK"
    """The outputs that wait for their upload do not fit on the disk; likewise."""
    SORT_SPILL = "SORT_SPILL"
    """A group's rows, sorted, fit neither into the memory nor on the disk; likewise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The decision for one plan; `engine` is None where it is refused: `explanation` says why, `advice` what to do."""

    engine: Engine | None
    reason: PlacementReason
    explanation: str
    size_bytes: int
    files: int
    estimated_seconds: float

    @property
    def advice(self) -> str:
        return (
            self.explanation
            and f"{self.explanation}: narrow it with partition_filter or where, or set max_files and repeat"
        )


def place(plan: CompactionPlan, policy: PlacementPolicy) -> Placement:
    """Judge a plan by its bytes and its estimated seconds: it runs in this process, or is refused with advice."""
    seconds = estimate_seconds(plan.size_bytes, plan.files, threads=policy.threads)
    reason, explanation = PlacementReason.IN_PROCESS, ""
    if plan.size_bytes > policy.max_in_process_bytes:
        size, limit = plan.size_bytes / GB, policy.max_in_process_bytes / GB
        reason = PlacementReason.TOO_LARGE
        explanation = f"the plan reads {size:.1f} GB, this process takes {limit:.1f} GB"
    elif seconds > policy.max_in_process_seconds:
        reason = PlacementReason.TOO_LONG
        limit = policy.max_in_process_seconds
        explanation = f"the plan takes about {seconds:.0f} s, this process has {limit:.0f} s"
    return Placement(
        engine=Engine.DUCKDB if reason is PlacementReason.IN_PROCESS else None,
        reason=reason,
        explanation=explanation,
        size_bytes=plan.size_bytes,
        files=plan.files,
        estimated_seconds=seconds,
    )


def too_much_for_machine(
    plan: CompactionPlan, policy: CompactionPolicy, placement: PlacementPolicy
) -> tuple[PlacementReason, str] | None:
    """Say why a plan that is not too large as a whole asks too much of this machine; None where it does not.

    The rewrite is not refused for it, because these are worst cases, but an engine with more room does it better.
    """
    scan = max((len(g.tasks) for g in plan.groups), default=0) * SCAN_BYTES_PER_FILE
    if placement.memory_bytes < PROCESS_BYTES + OUTPUT_BYTES + scan:
        have = placement.memory_bytes / MB
        return PlacementReason.MEMORY, f"one output at a time may take more than the {have:.0f} MB of memory"
    if placement.disk_bytes is None:
        return None
    largest = max((g.size_bytes for g in plan.groups), default=0)
    room, disk = placement.memory_bytes + placement.disk_bytes, placement.disk_bytes / GB
    if policy.strategy is Strategy.SORT and largest * SORTED_BYTES_PER_BYTE > room:
        size = largest * SORTED_BYTES_PER_BYTE / GB
        return PlacementReason.SORT_SPILL, f"sorting a group may spill {size:.1f} GB, the disk has {disk:.1f} GB free"
    waiting = parallelism(placement) * min(policy.target_file_size_bytes, largest)
    if waiting > placement.disk_bytes:
        return PlacementReason.DISK, f"outputs of {waiting / GB:.1f} GB do not fit on a disk with {disk:.1f} GB free"
    return None


def estimate_seconds(size_bytes: int, files: int, *, threads: int) -> float:
    """Return a cautious number of seconds for rewriting this many bytes and files."""
    return size_bytes / (BYTES_PER_SECOND_AND_THREAD * max(threads, 1)) + files * SECONDS_PER_FILE


def estimate_dollars(seconds: float, memory_bytes: int) -> float:
    """Return what a run of this length costs on AWS Lambda with this memory."""
    return seconds * memory_bytes / GB * LAMBDA_DOLLARS_PER_GB_SECOND + LAMBDA_DOLLARS_PER_REQUEST


def parallelism(policy: PlacementPolicy, *, files_per_scan: int = MAX_FILES_PER_GROUP) -> int:
    """Return how many outputs may be written at once: at least 1, at most one per thread.

    Each takes `OUTPUT_BYTES`, and 0.2 MB for every file of its group: the worst case, as if each output read them all.
    """
    each = OUTPUT_BYTES + files_per_scan * SCAN_BYTES_PER_FILE
    free = policy.memory_bytes - PROCESS_BYTES
    return max(1, min(max(policy.threads, 1), free // each))
