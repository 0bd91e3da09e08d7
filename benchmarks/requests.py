"""What one COMPACT and the expiry after it ask of the store, by kind, beside histories of different lengths."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.counting import IMPLEMENTATION, counting
from benchmarks.history import with_history
from benchmarks.lake import open_catalog, write_files
from benchmarks.measuring import Lake, Promise, interleaved, median

CANDIDATES, EXPIRING = 20, 10
HOURS_LATER_MS = 2 * 3600 * 1000
KINDS = (
    ("GET", "metadata.json"), ("GET", "manifest list"), ("GET", "manifest"), ("GET", "quarantine"),
    ("LIST", "quarantine"), ("PUT", "metadata.json"), ("PUT", "manifest list"), ("PUT", "manifest"),
    ("PUT", "ledger"), ("PUT", "quarantine"), ("DELETE", "ledger"),
)  # fmt: skip
READS = ("GET metadata.json", "GET manifest list", "GET manifest", "GET quarantine", "LIST quarantine")


def requests(work: Path, runs: int, quick: bool) -> tuple[dict[str, Any], list[Promise]]:
    """Do the requests of a COMPACT grow with the number of snapshots that are kept?"""
    lengths = (50, 200) if quick else (100, 1_000, 10_000)
    lakes = {}
    for kept in lengths:
        lake = Lake(work / str(kept))
        make_old_table(lake.home, kept)
        lake.keep()
        lakes[f"{kept:,} snapshots kept"] = lake
    found = interleaved(
        min(runs, 3), {name: lambda lake=lake: lake.measure("compact-counted") for name, lake in lakes.items()}
    )
    shortest, *_, longest = (sum(median(runs, kind) for kind in READS) for runs in found.values())
    promises = [
        Promise(name=f"reads, {lengths[-1]:,} / {lengths[0]:,} snapshots", ratio=longest / shortest, limit=1.0),
        Promise(
            name="reads / (8 + manifests of the candidates + 2 per expired snapshot)",
            ratio=longest / (8 + CANDIDATES + 2 * EXPIRING),
            limit=1.0,
        ),
    ]
    return {"candidates": CANDIDATES, "expiring": EXPIRING, **found}, promises


def make_old_table(home: Path, kept: int) -> None:
    """Make a table of small files whose next COMPACT expires `EXPIRING` snapshots and keeps `kept`."""
    import pyarrow.parquet as pq

    paths = write_files(home / "files", CANDIDATES, 1_000)
    catalog = open_catalog(home)
    catalog.create_namespace("bench")
    properties = {"history.expire.min-snapshots-to-keep": str(kept), "history.expire.max-snapshot-age-ms": "3600000"}
    table = catalog.create_table("bench.events", pq.read_schema(paths[0]), properties=properties)

    def commit(empty: Any) -> None:
        for path in paths:
            empty.refresh().add_files([Path(path).as_uri()], check_duplicate_files=False)

    with_history(catalog, table, kept + EXPIRING - CANDIDATES - 1, commit)


def compact_counted(settings: Any, address: Any) -> dict[str, Any]:
    """A COMPACT with expiry by a process that has read nothing of the table before."""
    from regelate.adapters.clock import SystemClock
    from regelate.core.requests import CompactRequest
    from regelate.service.build import build

    class ThisEvening(SystemClock):
        def now_ms(self) -> int:
            return super().now_ms() + HOURS_LATER_MS

    service = build(settings, clock=ThisEvening())
    service.access.survey().properties["py-io-impl"] = IMPLEMENTATION
    before = time.perf_counter()
    with counting() as asked:
        answer = service.compactions.compact(address, CompactRequest(force=True))
    seconds = time.perf_counter() - before
    if (answer.status, answer.stats and answer.stats.snapshots_expired) != ("COMPLETED", EXPIRING):
        raise SystemExit(f"not what was to be measured: {answer}")
    counted = {f"{verb} {kind}": asked.of(verb, kind) for verb, kind in KINDS}
    return {"seconds": seconds, "phases": asdict(answer.stats.seconds), "columns": list(counted), **counted}
