"""Where a plan runs: in this process, or not here; what it takes; and how many outputs may be written at once."""

from __future__ import annotations

from enum import StrEnum

from regelate.core.engines import COST_HERE
from regelate.core.planning.plan import CompactionPlan
from regelate.core.policy.policy import GB, MB, CompactionPolicy, PlacementPolicy, Strategy
from regelate.core.running.batches import spliced_here
from regelate.core.values import dataclass


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
    """The decision for one plan. Where it does not fit here `explanation` says why, and `advice` what to do."""

    reason: PlacementReason
    explanation: str
    size_bytes: int
    files: int
    estimated_seconds: float

    @property
    def fits(self) -> bool:
        return self.reason is PlacementReason.IN_PROCESS

    @property
    def advice(self) -> str:
        return (
            self.explanation
            and f"{self.explanation}: narrow it with partition_filter or where, or set max_files and repeat"
        )


def place(plan: CompactionPlan, policy: PlacementPolicy) -> Placement:
    """Judge a plan by its bytes and its estimated seconds: it runs in this process, or is refused with advice."""
    spliced = sum(spliced_here(group) for group in plan.groups)
    seconds = COST_HERE.seconds(plan.size_bytes, plan.files, threads=policy.threads, spliced_bytes=spliced)
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
    output = COST_HERE.bytes_of_output(max((len(g.tasks) for g in plan.groups), default=0))
    if placement.memory_bytes < COST_HERE.process_bytes + output:
        have = placement.memory_bytes / MB
        return PlacementReason.MEMORY, f"one output at a time may take more than the {have:.0f} MB of memory"
    if placement.disk_bytes is None:
        return None
    largest = max((g.size_bytes for g in plan.groups), default=0)
    room, disk = placement.memory_bytes + placement.disk_bytes, placement.disk_bytes / GB
    decoded = largest * COST_HERE.sorted_bytes_per_byte
    if policy.strategy is Strategy.SORT and decoded > room:
        size = decoded / GB
        return PlacementReason.SORT_SPILL, f"sorting a group may spill {size:.1f} GB, the disk has {disk:.1f} GB free"
    waiting = parallelism(placement) * min(policy.target_file_size_bytes, largest)
    if waiting > placement.disk_bytes:
        return PlacementReason.DISK, f"outputs of {waiting / GB:.1f} GB do not fit on a disk with {disk:.1f} GB free"
    return None


def parallelism(policy: PlacementPolicy, *, files_per_scan: int = COST_HERE.max_files_per_scan) -> int:
    """Return how many outputs may be written at once: at least 1, at most one per thread.

    Each takes what an output takes that reads every file of its group.
    """
    free = policy.memory_bytes - COST_HERE.process_bytes
    return max(1, min(max(policy.threads, 1), free // COST_HERE.bytes_of_output(files_per_scan)))
