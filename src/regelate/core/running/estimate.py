"""What a plan will take, said before anything is done: time, money, bytes, memory."""

from __future__ import annotations

from collections.abc import Iterator

from regelate.core.engines import COST_HERE, HERE, LAMBDA, OBJECT_STORE
from regelate.core.planning.plan import CompactionPlan
from regelate.core.policy.policy import MB, PlacementPolicy
from regelate.core.running.batches import spliced_here
from regelate.core.running.placement import parallelism
from regelate.core.table.storage import is_remote
from regelate.core.table.table import DeleteFile
from regelate.core.values import dataclass

LAMBDA_TIERS_MB = ((100 * MB, 512), (500 * MB, 1024), (1000 * MB, 2048))
"""Memory of a function by the bytes that a plan reads; more than these get `MOST_TIER_MB`."""
MOST_TIER_MB = 3008
MEMORY_STEP_MB = 64
UPLOAD_PART_BYTES = 8 * MB
COMMIT_GETS, COMMIT_PUTS = 8, 8
"""Metadata that every COMPACT reads and writes: metadata.json, manifest lists, the ledger; manifests come on top."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Seconds of work in this process; dollars of AWS's list prices; bytes of data and delete files.

    `bytes_rewritten_again`: of outputs that `max_files` makes so small that a later run takes them again. Requests are
    those to an object store, 0 for files on this machine. `peak_memory_mb` is an upper bound for this process,
    `recommended_memory_mb` what to give a function that does only this.
    """

    seconds: float
    bytes_read: int
    bytes_written: int
    bytes_rewritten_again: int
    get_requests: int
    put_requests: int
    compute_dollars: float
    request_dollars: float
    peak_memory_mb: int
    recommended_memory_mb: int

    @property
    def dollars(self) -> float:
        return self.compute_dollars + self.request_dollars

    def as_dict(self) -> dict[str, object]:
        """Return the fields of an answer."""
        return {
            "engine": HERE.value,
            "seconds": round(self.seconds, 3),
            "dollars": round(self.dollars, 6),
            "compute_dollars": round(self.compute_dollars, 6),
            "request_dollars": round(self.request_dollars, 6),
            "bytes_read": self.bytes_read,
            "bytes_written": self.bytes_written,
            "bytes_rewritten_again": self.bytes_rewritten_again,
            "get_requests": self.get_requests,
            "put_requests": self.put_requests,
            "peak_memory_mb": self.peak_memory_mb,
            "recommended_memory_mb": self.recommended_memory_mb,
        }


def estimate(plan: CompactionPlan, placement: PlacementPolicy, *, read_again: bool = False) -> Estimate:
    """Say what a plan takes on this machine. `read_again`: inputs and outputs are read once more to verify them."""
    deletes = {delete.path: delete.size_bytes for delete in _deletes(plan)}
    reads, read = (2 if read_again else 1), plan.size_bytes + sum(deletes.values())
    written = sum(g.expected_output_bytes for g in plan.groups)
    spliced, threads = sum(spliced_here(group) for group in plan.groups), placement.threads
    seconds = COST_HERE.seconds(plan.size_bytes, plan.files, threads=threads, spliced_bytes=spliced)
    if read_again:  # whatever was spliced is decoded then
        seconds += COST_HERE.seconds(plan.size_bytes, plan.files, threads=threads)
    seconds = seconds if plan.groups else 0.0
    remote = any(is_remote(path) for g in plan.groups[:1] for path in g.paths)
    gets = puts = 0
    if remote:
        manifests = {task.data_file.manifest_path for g in plan.groups for task in g.tasks}
        gets = (plan.files + len(deletes)) * reads + len(manifests) + COMMIT_GETS
        puts = plan.expected_output_files + written // UPLOAD_PART_BYTES + len(manifests) + COMMIT_PUTS
    return Estimate(
        seconds=seconds,
        bytes_read=read * reads + (written if read_again else 0),
        bytes_written=written,
        bytes_rewritten_again=0 if plan.cut_short is None else plan.cut_short.output_bytes,
        get_requests=gets,
        put_requests=puts,
        compute_dollars=LAMBDA.dollars(seconds, placement.memory_bytes) if plan.groups else 0.0,
        request_dollars=gets * OBJECT_STORE.dollars_per_get + puts * OBJECT_STORE.dollars_per_put,
        peak_memory_mb=_peak_bytes(plan, placement) // MB,
        recommended_memory_mb=_recommended_mb(plan),
    )


def _deletes(plan: CompactionPlan) -> Iterator[DeleteFile]:
    return (delete for group in plan.groups for task in group.tasks for delete in task.deletes)


def _peak_bytes(plan: CompactionPlan, placement: PlacementPolicy) -> int:
    """Bound the memory: the rows of the groups that are under way at once, decoded, as far as the engine may hold them.

    What it may hold is the memory limit; beyond that it spills.
    """
    at_once = parallelism(placement)
    decoded = sorted((g.size_bytes * COST_HERE.sorted_bytes_per_byte for g in plan.groups), reverse=True)[:at_once]
    scans = sorted((COST_HERE.bytes_of_output(_files_in_scan(len(g.tasks))) for g in plan.groups), reverse=True)
    return COST_HERE.process_bytes + min(max(placement.memory_bytes, 0), sum(decoded) + sum(scans[:at_once]))


def _recommended_mb(plan: CompactionPlan) -> int:
    tier = next((mb for least, mb in LAMBDA_TIERS_MB if plan.size_bytes < least), MOST_TIER_MB)
    files = max((len(g.tasks) for g in plan.groups), default=0)
    needed = COST_HERE.process_bytes + COST_HERE.bytes_of_output(_files_in_scan(files))
    return max(tier, -(-needed // (MEMORY_STEP_MB * MB)) * MEMORY_STEP_MB)


def _files_in_scan(files: int) -> int:
    return min(files, COST_HERE.max_files_per_scan)
