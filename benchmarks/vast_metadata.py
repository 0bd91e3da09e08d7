"""Tables that are almost nothing but metadata: found, ranked and cured by a fleet, each step a process of its own."""

from __future__ import annotations

import json
import os
import threading
import time
import uuid
from pathlib import Path
from typing import Any

from benchmarks.history import with_history
from benchmarks.lake import MB, make_table, open_catalog, write_files
from benchmarks.measuring import Lake, Promise
from benchmarks.metadata_memory import (
    commit_manifests,
    entry_records,
    listed_manifest,
    numbered,
    write_manifest_of,
)

SNAPSHOTS, MANIFESTS = 70_000, 20_000
QUICK_SNAPSHOTS, QUICK_MANIFESTS = 12_000, 1_000
KEPT_SNAPSHOTS = 7 * 24 * 60 + 60
"""Of one a minute what the retention of a week keeps, and an hour for the time that the making takes."""
FILE_BYTES = 256 * MB
"""Of each entry, as its manifest says: large enough for COMPACT to leave it, so that no file need be there."""
MOST_MB = 1024
STEPS = ("scan", "plan", "apply", "scan again")
TABLES = {"deep": ("bench.deep", "expire-snapshots"), "wide": ("bench.wide", "rewrite-manifests")}


def vast_metadata(work: Path, runs: int, quick: bool) -> tuple[dict[str, Any], list[Promise]]:
    """Are 70,000 snapshots and 20,000 tiny manifests found, ranked and cured by a fleet, within 1 GB?"""
    snapshots, manifests = (QUICK_SNAPSHOTS, QUICK_MANIFESTS) if quick else (SNAPSHOTS, MANIFESTS)
    found: dict[str, Any] = {"snapshots": snapshots, "manifests": manifests, "load_at_start": os.getloadavg()[0]}
    promises: list[Promise] = []
    for name, (table, operation) in TABLES.items():
        lake = Lake(work / name)
        lake.ask("make-vast", name, str(snapshots if name == "deep" else manifests))
        before = lake.ask("fleet-step", "count")["counts"]
        steps = {step: lake.ask("fleet-step", step.split()[0]) for step in STEPS}
        after = lake.ask("fleet-step", "count")["counts"]
        for step, told in steps.items():
            print(f"  {name}: {step:12} {told['seconds']:8.2f} s {told['peak_mb']:8.0f} MB", flush=True)
            found[f"{name}: {step}"] = [{"seconds": told["seconds"], "peak_mb": told["peak_mb"]}]
        planned = [(run["table"], run["operation"]) for run in steps["plan"]["answer"]["runs"]]
        ran = [(run["table"], run["operation"], run["outcome"]) for run in steps["apply"]["answer"]["runs"]]
        found[f"counts of {name}"] = {"planned": planned, "ran": ran, "before": before, "after": after}
        what, most = ("snapshots", KEPT_SNAPSHOTS) if name == "deep" else ("manifests", before["manifests"] // 50)
        promises += [
            Promise(
                name=f"{name}: peak memory of any step, MB",
                ratio=max(told["peak_mb"] for told in steps.values()),
                limit=MOST_MB,
            ),
            Promise(
                name=f"{name}: runs that are not {operation} of {table}, or were not done",
                ratio=float(planned[:1] != [(table, operation)] or any(run[2] != "DONE" for run in ran)),
                limit=0,
            ),
            Promise(name=f"{name}: {what} left / may be left", ratio=after[what] / most, limit=1.0),
            Promise(
                name=f"{name}: files and rows that changed",
                ratio=float((before["files"], before["rows"]) != (after["files"], after["rows"])),
                limit=0,
            ),
        ]
    return found, promises


def make_vast(home: Path, name: str, size: str) -> dict[str, Any]:
    """Make one of the tables, in a process of its own: its memory would be counted as that of the steps."""
    home.mkdir(parents=True, exist_ok=True)
    (make_deep if name == "deep" else make_wide)(home, int(size))
    return {}


def make_deep(home: Path, snapshots: int) -> None:
    """Create `bench.deep`: one file, and so many snapshots, one a minute, each with a manifest list of its own."""
    import pyarrow.parquet as pq

    (path,) = write_files(home / "files", 1, 1_000)
    catalog = open_catalog(home)
    catalog.create_namespace("bench")
    table = catalog.create_table("bench.deep", pq.read_schema(path))

    def commit(empty: Any) -> None:
        empty.add_files([Path(path).as_uri()], check_duplicate_files=False)

    with_history(catalog, table, snapshots - 1, commit)


def make_wide(home: Path, manifests: int) -> None:
    """Create `bench.wide`: so many manifests of one entry each, all in one snapshot."""
    table = make_table(home, write_files(home / "files", 1, 500), commits=1)
    snapshot_id = table.metadata.new_snapshot_id()
    templates, header, sync = entry_records(table, snapshot_id, file_bytes=FILE_BYTES)
    listed = []
    for record in numbered(templates[-1], 0, manifests):
        path = f"{table.location()}/metadata/{uuid.uuid4()}-m0.avro"
        written = write_manifest_of(Path(path.removeprefix("file://")), header, sync, [record])
        listed.append(listed_manifest(path, written, 1, snapshot_id))
    commit_manifests(table, snapshot_id, listed, manifests)
    table.catalog.rename_table("bench.events", "bench.wide")


def fleet_step(home: Path, step: str) -> dict[str, Any]:
    """One step of a fleet's turn over the lake at `home`, or a `count`; a plan is kept in a file for `apply`."""
    if step == "count":
        return {"seconds": 0.0, "counts": _counts(home)}
    service, plan = _service(home), home / "plan-id"
    before = time.perf_counter()
    if step == "scan":
        answer = _asked(service, "FLEET_SCAN", time_budget_seconds=3600)
    elif step == "plan":
        answer = _asked(service, "FLEET_PLAN")
        plan.write_text(answer["plan_id"])
    else:
        answer = _asked(service, "FLEET_APPLY", plan_id=plan.read_text(), time_budget_seconds=3600)
        while service.worker.run_due_job(stopping=threading.Event()):
            pass
    return {"seconds": time.perf_counter() - before, "answer": answer}


def _service(home: Path) -> Any:
    from regelate.service.build import build
    from regelate.settings import load_settings

    catalog = {"type": "sql", "uri": f"sqlite:///{home}/catalog.db", "warehouse": (home / "warehouse").as_uri()}
    section = {
        "auth": "none",
        "tenants": "*",
        "catalogs": {"local": catalog},
        "jobs": {"store": "sqlite", "path": f"{home}/jobs.db"},
        "fleet": {"store": "sqlite", "path": f"{home}/fleet.db", "scan_seconds": 3600, "apply_seconds": 3600},
        "spark": {"run": "none"},
    }
    config = home / "fleet-config.json"
    config.write_text(json.dumps({"environments": {"development": section}}))
    return build(load_settings({"REGELATE_CONFIG": str(config), "REGELATE_HOME": str(home)}))


def _asked(service: Any, operation: str, **fields: Any) -> dict[str, Any]:
    from regelate.core.answers import answer_fields
    from regelate.entrypoints.actions import execute, parse_request
    from regelate.entrypoints.caller import Caller

    request = parse_request({"operation": operation, **fields})
    return answer_fields(execute(service, request, Caller(request_id="benchmark", trusted=True)))


def _counts(home: Path) -> dict[str, int]:
    """Count by the metadata what a cure changes, and what it must not."""
    from regelate.adapters.iceberg.manifests import ManifestReader

    catalog, reader = open_catalog(home), ManifestReader()
    (table,) = (catalog.load_table(table) for table, _ in TABLES.values() if catalog.table_exists(table))
    manifests = reader.manifests(table.io, table.current_snapshot().manifest_list)
    entries = [entry.data_file for manifest in manifests for entry in reader.entries(table.io, manifest)]
    return {
        "snapshots": len(table.metadata.snapshots),
        "manifests": len(manifests),
        "files": len({file.file_path for file in entries}),
        "rows": sum(file.record_count for file in entries),
    }
