"""A table on S3: the store that stands for one, and COMPACT of it as a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
BUCKET = "bench"
REQUEST_SECONDS = 0.02


@contextmanager
def object_store() -> Iterator[str]:
    """Run the store and yield its address."""
    command = [sys.executable, "-m", "benchmarks.object_store", str(REQUEST_SECONDS)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
    finally:
        server.terminate()
        server.wait()


def catalog_of(home: Path, store: str) -> dict[str, str]:
    """Return a catalog whose table names are in SQLite and everything else in the store."""
    return {
        "type": "sql",
        "uri": f"sqlite:///{home}/catalog.db?timeout=60",
        "warehouse": f"s3://{BUCKET}/warehouse",
        "s3.endpoint": store,
        "s3.region": "us-east-1",
        "s3.access-key-id": "bench",
        "s3.secret-access-key": "bench",
    }


def make_remote_table(home: Path, store: str, paths: list[str]) -> None:
    """Upload files and make `bench.events` of them."""
    import pyarrow.parquet as pq
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.typedef import Record

    from regelate.adapters.iceberg.catalogs import Catalogs

    home.mkdir(parents=True, exist_ok=True)
    catalog = Catalogs().open("local", catalog_of(home, store))
    catalog.create_namespace_if_not_exists("bench")
    table = catalog.create_table("bench.events", pq.read_schema(paths[0]))
    places = [f"s3://{BUCKET}/warehouse/files/{Path(path).name}" for path in paths]
    for path, place in zip(paths, places, strict=True):
        with table.io.new_output(place).create(overwrite=True) as sink:
            sink.write(Path(path).read_bytes())
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        for path, place in zip(paths, places, strict=True):
            file = DataFile.from_args(
                content=DataFileContent.DATA,
                file_path=place,
                file_format=FileFormat.PARQUET,
                partition=Record(),
                record_count=pq.read_metadata(path).num_rows,
                file_size_in_bytes=Path(path).stat().st_size,
            )
            file.spec_id = 0
            append.append_data_file(file)


def remote_service(home: Path, store: str, ahead: str = "ahead") -> tuple[Any, Any]:
    """Return the service of a catalog whose tables are in the store, and the address of `bench.events`."""
    from regelate.service.build import build
    from regelate.settings import load_settings
    from regelate.tenancy import Address

    path = home / "bench-config.json"
    section = {
        "auth": "none",
        "tenants": "*",
        "default_catalog": "local",
        "catalogs": {"local": catalog_of(home, store)},
        "placement": {"memory_mb": 2048, "threads": 2},
        "storage": {"fetch_ahead_mb": 0 if ahead == "direct" else None},
        "limits": {"query_seconds": 900},
    }
    path.write_text(json.dumps({"environments": {"development": section}}))
    service = build(load_settings({"REGELATE_CONFIG": str(path), "REGELATE_HOME": str(home)}))
    return service, Address(tenant_id="default", catalog="local", ident="bench.events", table="events")


def compact_remote(home: Path, store: str, ahead: str) -> dict[str, Any]:
    """COMPACT through the service, `ahead` or `direct`, and the requests that it made."""
    from regelate.core.requests import CompactRequest

    service, address = remote_service(home, store, ahead)
    service.health.table_health(address, explain=False)
    counted(store)
    before = time.perf_counter()
    answer = service.compactions.compact(address, CompactRequest(expire_snapshots=False))
    seconds = time.perf_counter() - before
    requests = counted(store)
    files = answer.stats.files_compacted
    return {
        "seconds": seconds,
        "requests": requests,
        "gets_per_input": requests.get("GET data", 0) / files,
    }


def counted(store: str) -> dict[str, int]:
    with urllib.request.urlopen(f"{store}/counted") as answer:
        found: dict[str, int] = json.load(answer)
    return found
