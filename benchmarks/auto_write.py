"""What it costs a WRITE that its table has automatic runs on: beside the same WRITEs to a table that has them off."""

from __future__ import annotations

import json
import statistics
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.counting import IMPLEMENTATION, counting
from benchmarks.measuring import Promise

WRITES = 120
PROPERTIES = {"off": "false", "on": "true"}
_CATALOG_CALLS = ("load_table", "commit_table", "namespace_exists")


def auto_write(work: Path, runs: int, quick: bool) -> tuple[dict[str, Any], list[Promise]]:
    """What does a WRITE pay for automatic runs, in time, and in requests to catalog and store?"""
    writes = 20 if quick else WRITES
    service = _service(work)
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in PROPERTIES}
    for run in range(1 if quick else runs):
        tables = {name: _table(service, f"{name}{run}", enabled) for name, enabled in PROPERTIES.items()}
        for name, measured in _taking_turns(service, tables, writes).items():
            found[name].append(measured)
            print(f"  run {run + 1} {name:4} {measured['seconds']:8.2f} s", flush=True)
    on, off = found["on"], found["off"]
    every = [key for key in off[0] if key.startswith(("catalog", "GET", "PUT", "HEAD", "LIST", "DELETE"))]
    promises = [
        Promise(name=f"time of {writes} WRITEs, on / off", ratio=_ratio(on, off, "seconds"), limit=1.02),
        Promise(name="time of the middle WRITE, on / off", ratio=_ratio(on, off, "middle_ms"), limit=1.02),
        Promise(
            name="requests to catalog and store, on / off",
            ratio=statistics.median(
                sum(a[key] for key in every) / sum(b[key] for key in every) for a, b in zip(on, off, strict=True)
            ),
            limit=1.0,
        ),
    ]
    for runs_of in found.values():
        for measured in runs_of:
            measured["requests"] = every
    return {"writes": writes, **found}, promises


def _ratio(on: list[dict[str, Any]], off: list[dict[str, Any]], key: str) -> float:
    return statistics.median(a[key] / b[key] for a, b in zip(on, off, strict=True))


def _service(work: Path) -> Any:
    """A service with jobs that nobody works on: the same table is written from the first WRITE to the last."""
    from regelate.service.build import build
    from regelate.settings import load_settings

    lake = work / "auto"
    lake.mkdir(parents=True)
    catalog = {"type": "sql", "uri": f"sqlite:///{lake}/catalog.db", "warehouse": f"file://{lake}/warehouse"}
    section = {"auth": "none", "tenants": "*", "catalogs": {"lake": catalog}}
    section["jobs"] = {"store": "sqlite", "path": f"{lake}/jobs.db"}
    (lake / "config.json").write_text(json.dumps({"environments": {"development": section}}))
    service = build(load_settings({"REGELATE_CONFIG": str(lake / "config.json"), "REGELATE_HOME": str(lake)}))
    service.access.survey().properties["py-io-impl"] = IMPLEMENTATION
    return service


def _table(service: Any, name: str, enabled: str) -> Any:
    from regelate.core.table.schema import Column, TableDefinition

    address = service.tenancy.resolve(None, None, None, "bench", name)
    properties = {"regelate.auto.enabled": enabled}
    definition = TableDefinition(columns=(Column(name="id", type="long"),), properties=properties)
    service.tables.create_table(address, definition, if_not_exists=False)
    return address


def _taking_turns(service: Any, tables: dict[str, Any], writes: int) -> dict[str, dict[str, Any]]:
    """Write to one table and the other, the first of a pair last in the next: what slows the machine slows both."""
    seconds: dict[str, list[float]] = {name: [] for name in tables}
    counted: dict[str, Counter[str]] = {name: Counter() for name in tables}
    catalog = service.access.survey()
    for number in range(writes):
        for name in sorted(tables, reverse=number % 2 == 1):
            with counting() as asked, _Calls(catalog, counted[name]):
                before = time.perf_counter()
                service.writes.write(tables[name], [{"id": number}], mode="append", key=(), idempotency_key=None)
                seconds[name].append(time.perf_counter() - before)
            for (verb, kind), times in asked.counted.items():
                counted[name][f"{verb} {kind}"] += times
    kinds = sorted({kind for found in counted.values() for kind in found})
    return {
        name: {
            "seconds": sum(found),
            "middle_ms": statistics.median(found) * 1000,
            **{kind: counted[name][kind] for kind in kinds},
        }
        for name, found in seconds.items()
    }


class _Calls:
    """Counts what is asked of a catalog for a while."""

    def __init__(self, catalog: Any, counted: Counter[str]) -> None:
        self._catalog = catalog
        self._counted = counted

    def __enter__(self) -> None:
        for name in _CATALOG_CALLS:
            setattr(self._catalog, name, partial(self._called, name, getattr(self._catalog, name)))

    def __exit__(self, *_: object) -> None:
        for name in _CATALOG_CALLS:
            delattr(self._catalog, name)

    def _called(self, name: str, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        self._counted[f"catalog {name}"] += 1
        return call(*arguments, **options)
