"""What each peer does, each a process of its own: `python -m benchmarks.peers.work NAME HOME` prints one JSON line.

Imports stand before the clock. `seconds` and `processor_seconds` are those of the work alone.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import workers
from benchmarks.lake import MB, open_catalog

TARGET_MB = 512


def ours(home: Path) -> dict[str, Any]:
    """COMPACT with verification and commit."""
    found = workers.compact(home, str(workers.MEMORY_MB), str(TARGET_MB))
    if not found["stats"]:
        raise SystemExit(f"COMPACT says {found['status']}, and rewrote nothing")
    return found


def copy(home: Path) -> dict[str, Any]:
    """A bare COPY by DuckDB of the live files; where there are deletes, of what its own extension for Iceberg reads."""
    import duckdb

    from regelate.adapters.duckdb.session import extension_path

    table = open_catalog(home).load_table("bench.events")
    if not any(task.delete_files for task in table.scan().plan_files()):
        return workers.duckdb_copy(home)
    connection = duckdb.connect(config={"threads": str(workers.THREADS), "memory_limit": f"{workers.MEMORY_MB}MB"})
    for name in ("avro", "iceberg"):
        connection.execute(f"LOAD '{extension_path(name)}'")
    target = home / "copied.parquet"
    clock = workers.Clock()
    connection.execute(
        f"COPY (SELECT * FROM iceberg_scan('{table.metadata_location}')) TO '{target}' "
        "(FORMAT parquet, COMPRESSION zstd)"
    )
    return {**clock.read(), "outputs": [str(target)]}


def polars(home: Path) -> dict[str, Any]:
    """Polars' scan of the table into one file; it commits nothing."""
    import polars as pl

    table, target = open_catalog(home).load_table("bench.events"), home / "sunk.parquet"
    clock = workers.Clock()
    pl.scan_iceberg(table).sink_parquet(target, compression="zstd")
    return {**clock.read(), "outputs": [str(target)]}


def warm(home: Path) -> dict[str, Any]:
    from benchmarks import spark_workers

    return spark_workers.warm(home, str(TARGET_MB))


def one_shot(home: Path) -> dict[str, Any]:
    from benchmarks import spark_workers

    return spark_workers.one_shot(home, str(TARGET_MB))


WORK: dict[str, Callable[[Path], dict[str, Any]]] = {
    "compact": ours,
    "duckdb-copy": copy,
    "polars-sink": polars,
    "pyiceberg-overwrite": workers.pyiceberg_overwrite,
    "spark-one-shot": one_shot,
    "spark-warm": warm,
}


def peak_bytes() -> int:
    """Return the most resident memory that this program has had; `ru_maxrss` would begin with that of its parent."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def main() -> None:
    name, home = sys.argv[1], Path(sys.argv[2])
    found = WORK[name](home)
    found["peak_mb"] = peak_bytes() / MB
    print(json.dumps(found))


if __name__ == "__main__":
    main()
