"""What is measured, each as a process of its own: `python -m benchmarks.workers NAME HOME ...` prints one JSON line."""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.lake import MB, open_catalog
from benchmarks.metadata_memory import cached
from benchmarks.query import pyiceberg_read, query_warm
from benchmarks.s3 import compact_remote
from benchmarks.splice import compact_spliced, measured
from benchmarks.vast_metadata import fleet_step, make_vast

TARGET_MB = 128
MEMORY_MB = 2048
THREADS = 2


class Clock:
    """Reads the seconds since it was made: of the wall, and of all processors."""

    def __init__(self) -> None:
        self._wall, self._processor = time.perf_counter(), time.process_time()

    def read(self) -> dict[str, Any]:
        return {
            "seconds": time.perf_counter() - self._wall,
            "processor_seconds": time.process_time() - self._processor,
        }


def lake_of(home: Path, memory_mb: int) -> tuple[Any, Any]:
    """Return the settings of a lake, and the address of its table."""
    from regelate.settings import load_settings
    from regelate.tenancy import Address

    settings = load_settings({"REGELATE_HOME": str(home), "REGELATE_CONFIG": _config(home, memory_mb)})
    return settings, Address(tenant_id="default", catalog="local", ident="bench.events", table="events")


def compact_few(home: Path, *_: str) -> dict[str, Any]:
    """A COMPACT with `max_files` of a table with very many files, and nothing before it."""
    from benchmarks import metadata_memory

    return metadata_memory.compact_few(*lake_of(home, 512))


def compact(home: Path, *options: str) -> dict[str, Any]:
    """Our COMPACT, through the service, with its own imports before the clock starts."""
    from regelate.core.requests import CompactRequest
    from regelate.service.build import build

    memory = int(options[0]) if options else MEMORY_MB
    target = int(options[1]) if len(options) > 1 else TARGET_MB
    verify = options[2] if len(options) > 2 else "fast"
    settings, address = lake_of(home, memory)
    service = build(settings)
    service.health.table_health(address, explain=False)
    clock = Clock()
    request = CompactRequest(target_file_size_mb=target, expire_snapshots=False, verify=verify)
    answer = service.compactions.compact(address, request)
    return {**clock.read(), "status": answer.status.value, "stats": answer.stats and answer.stats.as_dict()}


def compact_counted(home: Path, *_: str) -> dict[str, Any]:
    """A COMPACT whose requests are counted."""
    from benchmarks import requests

    return requests.compact_counted(*lake_of(home, MEMORY_MB))


def duckdb_copy(home: Path, *_: str) -> dict[str, Any]:
    """The floor: a bare COPY of the same files by DuckDB, same threads, memory, codec and row groups."""
    import duckdb

    from regelate.adapters.duckdb.sql import row_group_rows

    paths = _live_files(home)
    size = sum(Path(p).stat().st_size for p in paths)
    connection = duckdb.connect(config={"threads": str(THREADS), "memory_limit": f"{MEMORY_MB}MB"})
    rows = connection.execute("SELECT sum(num_rows) FROM parquet_file_metadata(?)", [paths]).fetchone()
    group = row_group_rows(int(rows[0]) if rows else 0, size, _columns(home), MEMORY_MB * MB // (2 * THREADS))
    target = home / "copied.parquet"
    clock = Clock()
    connection.execute(
        f"COPY (SELECT * FROM read_parquet({paths!r})) TO '{target}' "
        f"(FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {group})"
    )
    return {**clock.read(), "outputs": [str(target)], "output_bytes": [target.stat().st_size]}


def duckdb_copy_view(home: Path, *_: str) -> dict[str, Any]:
    """The floor of a merge-on-read table: one bare COPY per partition of what DuckDB's own iceberg_scan reads."""
    import duckdb

    from regelate.adapters.duckdb.session import extension_path

    table = open_catalog(home).load_table("bench.events")
    connection = duckdb.connect(config={"threads": str(THREADS), "memory_limit": f"{MEMORY_MB}MB"})
    for name in ("avro", "iceberg"):
        connection.execute(f"LOAD '{extension_path(name)}'")
    kinds = sorted({task.file.partition[0] for task in table.scan().plan_files()})
    outputs = [str(home / f"copied-{kind}.parquet") for kind in kinds]
    before = time.perf_counter()
    for kind, target in zip(kinds, outputs, strict=True):
        connection.execute(
            f"COPY (SELECT * FROM iceberg_scan('{table.metadata_location}') WHERE kind = '{kind}') TO '{target}' "
            "(FORMAT parquet, COMPRESSION zstd)"
        )
    return {"seconds": time.perf_counter() - before, "outputs": outputs}


def query(home: Path, *_: str, here: bool = False) -> dict[str, Any]:
    """The first QUERY of a new process."""
    from benchmarks import query_child

    return query_child.first(*lake_of(home, MEMORY_MB), here=here)


def queries(home: Path, *_: str) -> dict[str, Any]:
    """Queries in this process and by one of their own, in turn."""
    from benchmarks import query_child

    return query_child.in_turn(*lake_of(home, MEMORY_MB))


def _on_spark(name: str) -> Callable[..., dict[str, Any]]:
    """Return a worker of spark_workers.py, imported only where it is asked for."""

    def work(home: Path, *options: str) -> dict[str, Any]:
        from benchmarks import spark_workers

        found: dict[str, Any] = getattr(spark_workers, name)(home, *options)
        return found

    return work


def pyiceberg_overwrite(home: Path, *_: str) -> dict[str, Any]:
    """What one would write by hand: read all with PyIceberg, overwrite all."""
    table = open_catalog(home).load_table("bench.events")
    clock = Clock()
    table.overwrite(table.scan().to_arrow())
    return clock.read()


def _spliced(home: Path, *options: str) -> dict[str, Any]:
    return compact_spliced(lake_of(home, MEMORY_MB), *options)


def _live_files(home: Path) -> list[str]:
    table = open_catalog(home).load_table("bench.events")
    return [t.file.file_path.removeprefix("file://") for t in table.scan().plan_files()]


def _columns(home: Path) -> tuple[Any, ...]:
    from regelate.adapters.iceberg.tables.schema import columns_of

    return columns_of(open_catalog(home).load_table("bench.events").schema())


def _config(home: Path, memory_mb: int) -> str:
    path = home / "bench-config.json"
    catalog = {
        "type": "sql",
        "uri": f"sqlite:///{home}/catalog.db?timeout=60",
        "warehouse": str(home / "warehouse"),
        "namespace_template": "{namespace}",
    }
    section = {
        "auth": "none",
        "tenants": "*",
        "default_catalog": "local",
        "catalogs": {"local": catalog},
        "placement": {"memory_mb": memory_mb, "threads": THREADS},
    }
    path.write_text(json.dumps({"environments": {"development": section}}))
    return str(path)


WORKERS: dict[str, Callable[..., dict[str, Any]]] = {
    "cached-entries": cached,
    "compact": compact,
    "compact-counted": compact_counted,
    "compact-few": compact_few,
    "compact-remote": compact_remote,
    "compact-spliced": _spliced,
    "duckdb-copy": measured(duckdb_copy),
    "duckdb-copy-view": duckdb_copy_view,
    "fleet-step": fleet_step,
    "make-vast": make_vast,
    "pyiceberg-overwrite": pyiceberg_overwrite,
    "pyiceberg-read": pyiceberg_read,
    "queries": queries,
    "query": query,
    "query-here": partial(query, here=True),
    "query-warm": query_warm,
    "spark-make-deletes": _on_spark("make_deletes"),
    "spark-one-shot": _on_spark("one_shot"),
    "spark-warm": _on_spark("warm"),
}

if __name__ == "__main__":
    found = WORKERS[sys.argv[1]](Path(sys.argv[2]), *sys.argv[3:])
    found["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MB
    print(json.dumps(found))
