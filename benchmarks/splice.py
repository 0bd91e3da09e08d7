"""The second tier: files of 26 MB with row groups of 250,000 rows, copied as they are, recoded, and by a bare COPY."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.lake import COLUMNS, MB, make_table
from benchmarks.measuring import Lake, Promise, interleaved, paired

GROUP_ROWS = 250_000
TARGET_MB = 512
Worker = Callable[..., dict[str, Any]]


def measured(work: Worker) -> Worker:
    """Add the processor seconds of a worker's whole work, its imports left out as far as it makes them before."""

    def around(home: Path, *options: str) -> dict[str, Any]:
        before = time.process_time()
        found = work(home, *options)
        return {**found, "processor_seconds": found.get("processor_seconds", time.process_time() - before)}

    return around


def compact_spliced(lake: tuple[Any, Any], splice: str, verify: str) -> dict[str, Any]:
    """Our COMPACT of everything into files of 512 MB."""
    from regelate.core.requests import CompactRequest
    from regelate.service.build import build

    settings, address = lake
    service = build(settings)
    service.health.table_health(address, explain=False)
    before, processor = time.perf_counter(), time.process_time()
    request = CompactRequest(
        target_file_size_mb=TARGET_MB, expire_snapshots=False, verify=verify, force=True, options={"splice": splice}
    )
    answer = service.compactions.compact(address, request)
    stats = answer.stats
    if stats is None:
        raise SystemExit(f"nothing was compacted: {answer.reason}")
    return {
        "seconds": time.perf_counter() - before,
        "processor_seconds": time.process_time() - processor,
        "output_files": stats.files_added,
        "output_mb": stats.bytes_after / MB,
        "spliced_mb": stats.bytes_spliced / MB,
        "row_groups": stats.row_groups_after,
    }


def write_tier(folder: Path, files: int, rows: int) -> list[str]:
    import duckdb

    folder.mkdir(parents=True)
    paths = []
    with duckdb.connect() as connection:
        for number in range(files):
            path, low = folder / f"{number:05d}.parquet", number * rows
            connection.execute(
                f"COPY (SELECT {COLUMNS} FROM range({low}, {low + rows}) t(i)) TO '{path}' (FORMAT parquet, "
                f"COMPRESSION zstd, ROW_GROUP_SIZE {GROUP_ROWS}, "
                "FIELD_IDS {id: 1, user_id: 2, session: 3, amount: 4, kind: 5, happened_at: 6, flag: 7})"
            )
            paths.append(str(path))
    return paths


def splice(work: Path, runs: int, quick: bool) -> tuple[dict[str, Any], list[Promise]]:
    """What does it cost to merge files whose row groups are healthy, copied, recoded, and by a bare COPY?"""
    files, rows = (4, 1_000_000) if quick else (32, 3_400_000)
    lake = Lake(work / "splice")
    paths = write_tier(lake.home / "files", files, rows)
    size = sum(Path(path).stat().st_size for path in paths)
    make_table(lake.home, paths)
    lake.keep()
    found = interleaved(
        runs,
        {
            "splice: auto": lambda: lake.measure("compact-spliced", "auto", "fast"),
            "splice: auto, strict": lambda: lake.measure("compact-spliced", "auto", "strict"),
            "splice: never": lambda: lake.measure("compact-spliced", "never", "fast"),
            "bare COPY": lambda: lake.measure("duckdb-copy"),
        },
    )
    copied, recoded, bare = found["splice: auto"], found["splice: never"], found["bare COPY"]
    for run in bare:
        run["output_mb"] = sum(run["output_bytes"]) / MB
    promises = [
        Promise(name=f"{text} / a bare COPY", ratio=paired(runs_, bare, key), limit=limit)
        for text, runs_, key, limit in (
            ("processor seconds, copied", copied, "processor_seconds", 0.1),
            ("time, copied", copied, "seconds", 0.1),
            ("processor seconds, copied and strict", found["splice: auto, strict"], "processor_seconds", None),
            ("processor seconds, recoded", recoded, "processor_seconds", None),
            ("MB out, copied", copied, "output_mb", 1.25),
            ("peak memory, copied", copied, "peak_mb", None),
        )
    ]
    return {"files": files, "rows": files * rows, "bytes": size, **found}, promises
