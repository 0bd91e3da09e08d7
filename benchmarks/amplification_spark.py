"""How often a byte is written by our automatic rule and by Spark's procedure, on real tables with the same appends.

Two tables get the same rows by the same writer, taking turns. After each commit to the one our rule is asked, as a
service in this process; after every 50 commits to the other Spark's `rewrite_data_files` is called with its defaults.
Bytes are those of the snapshots' summaries; the rows at the end are compared.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.lake import MB, open_catalog
from benchmarks.measuring import ROOT, Promise
from regelate.core.answers import Status
from regelate.core.policy.options import AUTOMATIC
from regelate.pipeline.session import Launch, embedded_lake, open_session
from regelate.service.build import build
from regelate.settings import load_settings
from regelate.tenancy import Address

OURS, SPARK = "our automatic rule", "Spark's defaults"
TABLES = {OURS: "ours", SPARK: "sparks"}
PROPERTIES = {"commit.manifest-merge.enabled": "true"}
"""As Java's writers have it: a thousand manifests would be what most of the time goes into."""
ROWS = 1_000
MIN_NUM_FILES = 50
SPARK_EVERY = 50
REWRITE = "CALL local.system.rewrite_data_files('bench.sparks')"
LIMIT, SHARE = 2.5, 0.5
"""Bytes written per byte of data, and our rewritten bytes per rewritten byte of Spark's, at most."""
TARGET_BYTES = 128 * MB


def amplification_spark(work: Path, runs: int, quick: bool) -> tuple[dict[str, Any], list[Promise]]:
    """How often is a byte written by automatic runs and by Spark's procedure, on real tables?"""
    commits = 120 if quick else 1_000
    home = work / "lake"
    conf = {"spark.jars.ivy": str(ROOT / ".servers" / "ivy")}
    spark = open_session(embedded_lake(home), Launch(conf=conf), app_name="amplification")
    catalog = open_catalog(home)
    catalog.create_namespace_if_not_exists("bench")
    batch = _batch(0)
    arms = {
        name: Arm(catalog.create_table(f"bench.{table}", batch.schema, properties=PROPERTIES))
        for name, table in TABLES.items()
    }
    service = build(load_settings({"REGELATE_HOME": str(home), "REGELATE_SPARK": "none"}))
    address = Address(tenant_id="default", catalog="local", ident="bench.ours", table="ours")
    rule = replace(AUTOMATIC, expire_snapshots=False)
    began = time.monotonic()
    for number in range(1, commits + 1):
        batch = _batch(number)
        for arm in arms.values():
            arm.append(batch)
        arms[OURS].compact(lambda: service.compactions.compact(address, rule).status is Status.COMPLETED)
        if number % SPARK_EVERY == 0:
            arms[SPARK].compact(lambda: bool(spark.sql(REWRITE).collect()))
            told = {name: round(arm.outcome()["amplification"], 2) for name, arm in arms.items()}
            print(f"  {number:,} commits in {time.monotonic() - began:.0f} s: {told}", flush=True)
    counts = {table: _counted(spark, table) for table in TABLES.values()}
    spark.stop()
    if len(set(counts.values())) != 1:
        raise SystemExit(f"the tables have not the same rows: {counts}")
    found = {f"{commits:,} commits of {ROWS:,} rows, {name}": [arm.outcome()] for name, arm in arms.items()}
    (ours,), (sparks,) = found.values()
    return {"commits": commits, "rows": commits * ROWS, **found}, [
        Promise(name="bytes written / bytes of data, ours", ratio=ours["amplification"], limit=LIMIT),
        Promise(name="bytes written / bytes of data, Spark's", ratio=sparks["amplification"], limit=None),
        Promise(
            name="bytes rewritten, ours / Spark's", ratio=ours["rewritten_mb"] / sparks["rewritten_mb"], limit=SHARE
        ),
        Promise(name="most small files, ours / 2 x min-num-files", ratio=ours["most"] / (2 * MIN_NUM_FILES), limit=1),
    ]


class Arm:
    """A table with no partitions, and what was written into it."""

    def __init__(self, table: Any) -> None:
        self._table = table
        self._seen: set[int] = set()
        self._data = self._rewritten = self._compactions = self._most = 0
        self._seconds = 0.0

    def append(self, batch: pa.Table) -> None:
        self._table.append(batch)
        self._count()

    def compact(self, compact: Callable[[], bool]) -> None:
        """Call a compaction, which says whether there may be a new snapshot, and count what it wrote."""
        before = time.perf_counter()
        has_changed = compact()
        self._seconds += time.perf_counter() - before
        if has_changed:
            self._table.refresh()
            self._count()

    def _count(self) -> None:
        """Count the head, if it is new: every commit here is followed by this, and makes one snapshot."""
        head = self._table.current_snapshot()
        if head.snapshot_id in self._seen:
            return
        self._seen.add(head.snapshot_id)
        if head.parent_snapshot_id is not None and head.parent_snapshot_id not in self._seen:
            raise SystemExit(f"{self._table.name()} has a snapshot that was not counted")
        summary = head.summary.additional_properties
        added = int(summary.get("added-files-size", 0))
        if head.summary.operation.value == "replace":
            self._compactions, self._rewritten = self._compactions + 1, self._rewritten + added
        else:
            self._data += added
        if int(summary["total-files-size"]) >= TARGET_BYTES // 2:
            raise SystemExit("some file may be no small one any more: total-data-files counts too many")
        self._most = max(self._most, int(summary["total-data-files"]))

    def outcome(self) -> dict[str, Any]:
        return {
            "amplification": (self._data + self._rewritten) / self._data,
            "most": self._most,
            "written_mb": (self._data + self._rewritten) / MB,
            "rewritten_mb": self._rewritten / MB,
            "compactions": self._compactions,
            "output_files": int(self._table.current_snapshot().summary.additional_properties["total-data-files"]),
            "seconds": self._seconds,
        }


def _batch(number: int) -> pa.Table:
    ids = range(number * ROWS, (number + 1) * ROWS)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "user_id": pa.array([i * 2_654_435_761 % 10_007 for i in ids], pa.int64()),
            "amount": pa.array([i * 40_503 % 100_003 / 100 for i in ids], pa.float64()),
            "text": pa.array([f"{i * 2_654_435_761 % 4_294_967_291:08x}" for i in ids], pa.string()),
        }
    )


def _counted(spark: Any, table: str) -> tuple[Any, ...]:
    row = spark.sql(
        f"SELECT count(*), count(DISTINCT id), sum(xxhash64(id, user_id, amount, text)) FROM local.bench.{table}"
    ).collect()[0]
    return tuple(row)
