"""Measures a table before and after a job, judges the difference, and goes back where it was asked to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, field, replace
from typing import Any

from regelate.core.measures.impact import (
    LISTED_PARTITIONS,
    Check,
    FileMetrics,
    Fingerprint,
    Observed,
    PartitionFiles,
    QueryRuns,
    failed,
    judge,
    noise_seconds,
    own_stretches,
)
from regelate.core.running.stats import CompactionStats
from regelate.core.table.table import MAIN_BRANCH
from regelate.core.values import dataclass
from regelate.errors import InvalidRequest, InvariantViolated, RegelateError
from regelate.pipeline.measure import Query, fingerprint
from regelate.pipeline.metadata import shows_head_alone
from regelate.pipeline.spark_errors import spark_faults
from regelate.pipeline.tables import SparkTable
from regelate.pipeline.terminal import Terminal


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What is to be measured. `query`: of the user's, asked `query_runs` times on each side."""

    query: str | None = None
    query_runs: int = 5
    rollback: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Impact:
    """What a job changed. `went_back_to`: the snapshot after a rollback; `left`: why there was none."""

    files: tuple[FileMetrics, FileMetrics]
    queries: tuple[QueryRuns, QueryRuns] | None
    checks: tuple[Check, ...]
    target_file_size_bytes: int | None = None
    query: str | None = None
    foreign_commits: int = 0
    went_back_to: int | None = None
    left: str = ""
    error: RegelateError | None = field(default=None, compare=False)

    def as_dict(self) -> dict[str, object]:
        before, after = (_metrics(m) for m in self.files)
        timed = None
        if self.queries is not None:
            ill, well = self.queries
            timed = {
                "sql": self.query,
                "runs": len(ill.seconds),
                "before_seconds": round(ill.median_seconds, 4),
                "after_seconds": round(well.median_seconds, 4),
                "noise_seconds": round(noise_seconds(ill, well), 4),
            }
        return {
            "files": {"before": before, "after": after, "target_file_size_bytes": self.target_file_size_bytes},
            "query": timed,
            "checks": [asdict(check) for check in self.checks],
            "foreign_commits": self.foreign_commits,
            "went_back_to": self.went_back_to,
            "not_gone_back_because": self.left or None,
        }


def _metrics(metrics: FileMetrics) -> dict[str, object]:
    return {
        "snapshot_id": metrics.snapshot_id,
        "partitions": len(metrics.partitions),
        **_counts(metrics.whole),
        "by_partition": [{"partition": p.path, **_counts(p)} for p in metrics.partitions[:LISTED_PARTITIONS]],
    }


def _counts(found: PartitionFiles) -> dict[str, object]:
    return {
        "files": found.files,
        "size_bytes": found.size_bytes,
        "average_bytes": round(found.average_bytes),
        "min_bytes": found.min_bytes,
        "max_bytes": found.max_bytes,
        "rows": found.rows,
    }


class Prover:
    """Stands at the table before the job; `judge` looks again afterwards."""

    def __init__(self, table: SparkTable, proof: Proof) -> None:
        self._table = table
        self._proof = proof
        self._known = {entry.snapshot_id for entry in table.log}
        self._base = table.head
        self._query = None if proof.query is None else Query(table.spark, proof.query)
        self._before = table.file_metrics()
        self._base_rows = None
        if self._base is not None and shows_head_alone(table.log):
            self._base_rows = fingerprint(table, self._base.snapshot_id)  # it may not be there to read later
        self._runs = None if self._query is None else self._query.measure(proof.query_runs)

    def judge(self, stats: CompactionStats | None, *, planned: tuple[int, int], target_bytes: int | None) -> Impact:
        """Return the impact with its checks. `planned`: data files in and out, as core expected them."""
        table = self._table
        table.refresh()
        own = self._own()
        pairs, foreign, between = self._compared(own)
        runs = None if self._query is None else self._query.measure(self._proof.query_runs)
        queries = None if self._runs is None or runs is None else (self._runs, runs)
        observed = Observed(
            files=(self._before, table.file_metrics()),
            pairs=pairs,
            queries=queries,
            committed=bool(own),
            fewer_files_planned=stats is not None and planned[1] < planned[0],
            deletes_applied=stats is not None and stats.delete_files_removed > 0,
            foreign_commits=foreign,
            between=between,
        )
        return Impact(
            files=observed.files,
            queries=queries,
            checks=judge(observed),
            target_file_size_bytes=target_bytes,
            query=self._proof.query,
            foreign_commits=foreign,
        )

    def _compared(self, own: frozenset[int]) -> tuple[tuple[tuple[Fingerprint, Fingerprint], ...], int, bool]:
        """Return fingerprints before and after the job's own commits, how many commits others made, and whether those
        lie between the two of a pair."""
        table, base, head = self._table, self._base, self._table.head
        if base is None or head is None or self._base_rows is None or base in table.log:
            stretches, foreign = own_stretches(table.log, self._base_id, table.snapshot_id, own)
            return tuple((fingerprint(table, a), fingerprint(table, b)) for a, b in stretches), foreign, False
        foreign = max(0, head.sequence_number - base.sequence_number - len(own))
        return ((self._base_rows, fingerprint(table, head.snapshot_id)),), foreign, foreign > 0

    @property
    def _base_id(self) -> int | None:
        return None if self._base is None else self._base.snapshot_id

    def conclude(self, impact: Impact, terminal: Terminal) -> Impact:
        """Return the impact with the fault of a check that failed, and go back where that was asked for."""
        wrong = failed(impact.checks)
        if not wrong:
            return impact
        said = "; ".join(f"{check.name}: {check.detail}" for check in wrong)
        error = InvariantViolated(
            "VALIDATION_FAILED",
            f"the validation of {self._table.name} failed ({said}); the snapshot to go back to is {self._base_id}",
            checks=[check.name.value for check in wrong],
            snapshot_id=self._base_id,
        )
        impact = replace(impact, error=error)
        if not self._proof.rollback or not self._own():
            return impact
        try:
            why = self._go_back(impact)
        except RegelateError as fault:
            why = str(fault)
        gone = None if why else self._base_id
        terminal.say(f"Not gone back: {why}." if why else f"Gone back to snapshot {gone}.")
        return replace(impact, went_back_to=gone, left=why)

    def _own(self) -> frozenset[int]:
        return frozenset(entry.snapshot_id for entry in self._table.own_commits(self._known, "replace"))

    def _go_back(self, impact: Impact) -> str:
        """Put the branch back, unless somebody has committed since: their rows would be lost. Return why not.

        One attempt against the very metadata that was looked at; Iceberg's procedure would try again over others.
        """
        if self._base is None:
            return "the table had no snapshot before"
        if impact.foreign_commits:
            return f"{impact.foreign_commits} commit(s) of others would be lost"
        if self._base not in self._table.log:
            return "the catalog shows no snapshot but the head; on Nessie, assign the branch to the commit before"
        jvm: Any = self._table.spark._jvm
        with spark_faults(str(self._table.name)):
            operations = self._table.java.operations()
            base = operations.refresh()
            head = base.currentSnapshot()
            if head is None or head.snapshotId() != self._table.snapshot_id:
                return "others have committed since"
            builder = jvm.org.apache.iceberg.TableMetadata.buildFrom(base)
            operations.commit(base, builder.setBranchSnapshot(self._base.snapshot_id, MAIN_BRANCH).build())
        self._table.refresh()
        return ""


def proof_of(asked: Mapping[str, Any]) -> Proof | None:
    """Return what the flags `validate`, `query`, `query_runs` and `rollback_on_failure` ask for."""
    if not (asked["validate"] or asked["query"] or asked["rollback_on_failure"]):
        return None
    if asked["query"] is not None and not asked["query"].strip():
        raise InvalidRequest("INVALID_FIELD", "query is empty", field="query")
    return Proof(query=asked["query"], query_runs=asked["query_runs"], rollback=asked["rollback_on_failure"])
