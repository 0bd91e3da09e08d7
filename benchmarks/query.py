"""What a query costs before and after a COMPACT: a table of very many small files, with and without deletes, on this
machine and in a store that takes 20 ms a request.

The readers are our QUERY (DuckDB) and PyIceberg, which reads no equality deletes. Each measurement is a process of its
own that has asked once before the clock starts: what a table costs every time is measured, not a start.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from benchmarks.lake import make_table, open_catalog, write_files
from benchmarks.measuring import Lake, Promise, interleaved, median
from benchmarks.query_child import SQL
from benchmarks.s3 import catalog_of, counted, make_remote_table, object_store, remote_service

OURS, PYICEBERG = "QUERY", "PyIceberg"
WORKERS = {OURS: "query-warm", PYICEBERG: "pyiceberg-read"}
PLAIN, EQUALITY, POSITION = "no deletes", "equality deletes", "position deletes"
LEAST = {PLAIN: 5, EQUALITY: 10}
"""How many times faster a QUERY of the store shall be afterwards."""
ALL_DELETES = {"delete-file-threshold": 1}
HERE, THERE = "on this machine", "20 ms a request"


def query(work: Path, runs: int, quick: bool) -> tuple[dict[str, Any], list[Promise]]:
    """What does a query cost before and after a COMPACT?"""
    files, rows, deletes = (40, 500, 4) if quick else (1_000, 2_000, 20)
    paths = write_files(work / "files", files, rows)
    found: dict[str, Any] = {}
    promises = []
    for kind in (PLAIN, EQUALITY, POSITION):
        for place in (HERE, THERE):
            with object_store() as store:
                case = Case(work / f"{kind}-{place}".replace(" ", "-"), store if place == THERE else "", kind)
                case.make(paths, deletes)
                found |= {f"{kind}, {place}, {name}": told for name, told in case.measured(runs).items()}
        before, after = (found[f"{kind}, {THERE}, {OURS} {when}"] for when in ("before", "after"))
        faster, least = median(before, "seconds") / median(after, "seconds"), LEAST.get(kind)
        promises.append(
            Promise(name=f"{kind}: seconds after / before, in the store", ratio=1 / faster, limit=least and 1 / least)
        )
    return {"files": files, "rows": files * rows, **found}, promises


class Case:
    """One table, in one place. `store` is empty where it lies on this machine."""

    def __init__(self, home: Path, store: str, kind: str) -> None:
        self._lake = Lake(home)
        self._store = store
        self._kind = kind

    def make(self, paths: list[str], deletes: int) -> None:
        from tests.support.deletes_writer import add_equality_deletes, add_position_deletes

        if self._store:
            make_remote_table(self._lake.home, self._store, paths)
        else:
            make_table(self._lake.home, paths)
        table = opened(self._lake.home, self._store)
        live = sorted(task.file.file_path for task in table.scan().plan_files())
        for number in range(deletes):
            if self._kind == EQUALITY:
                add_equality_deletes(table, ["id"], [(i,) for i in range(number, 1_000_000, 97)])
            elif self._kind == POSITION:
                add_position_deletes(table, {path: range(0, 50, 7) for path in live[number::deletes]})

    def measured(self, runs: int) -> dict[str, Any]:
        readers = [name for name in WORKERS if self._kind != EQUALITY or name == OURS]
        found = {}
        for when in ("before", "after"):
            if when == "after":
                self._lake.restore()
                compacted(self._lake.home, self._store)
            self._lake.keep()
            told = interleaved(
                runs,
                {name: lambda name=name: self._lake.measure(WORKERS[name], *self._options()) for name in readers},
            )
            found |= {f"{name} {when}": told[name] for name in readers}
        return found

    def _options(self) -> list[str]:
        return [self._store] if self._store else []


def opened(home: Path, store: str) -> Any:
    from regelate.adapters.iceberg.catalogs import Catalogs

    catalog = Catalogs().open("local", catalog_of(home, store)) if store else open_catalog(home)
    return catalog.load_table("bench.events")


def service_of(home: Path, store: str) -> tuple[Any, Any]:
    """Return the service of a lake, and the address of its table."""
    if store:
        return remote_service(home, store)
    from benchmarks.workers import MEMORY_MB, lake_of
    from regelate.service.build import build

    settings, address = lake_of(home, MEMORY_MB)
    return build(settings), address


def compacted(home: Path, store: str) -> None:
    from regelate.core.requests import CompactRequest

    service, address = service_of(home, store)
    answer = service.compactions.compact(address, CompactRequest(expire_snapshots=False, options=ALL_DELETES))
    if answer.status.value != "COMPLETED":
        raise SystemExit(f"COMPACT ended {answer.status.value}")


def query_warm(home: Path, store: str = "") -> dict[str, Any]:
    """A QUERY, by a process that has answered the same one before."""
    from regelate.core.requests import QueryRequest

    service, address = service_of(home, store)
    request = QueryRequest(sql=SQL)
    service.queries.query(address, request)
    return {**shape(home, store), **timed(lambda: service.queries.query(address, request).rows, store)}


def pyiceberg_read(home: Path, store: str = "") -> dict[str, Any]:
    """The same by PyIceberg and Arrow."""

    def asked() -> Any:
        rows = opened(home, store).scan(selected_fields=("kind", "amount")).to_arrow()
        return rows.group_by("kind").aggregate([("amount", "count"), ("amount", "sum")])

    asked()
    return {**shape(home, store), **timed(asked, store)}


def timed(ask: Any, store: str) -> dict[str, Any]:
    if store:
        counted(store)
    before = time.perf_counter()
    ask()
    seconds = time.perf_counter() - before
    return {"seconds": seconds, **({"requests": counted(store)} if store else {})}


def shape(home: Path, store: str) -> dict[str, Any]:
    """Return the files and row groups that a reader opens."""
    import pyarrow.parquet as pq

    table = opened(home, store)
    entries = [
        entry.data_file
        for manifest in table.current_snapshot().manifests(table.io)
        for entry in manifest.fetch_manifest_entry(table.io)
    ]
    groups = 0
    for file in entries:
        with table.io.new_input(file.file_path).open() as source:
            groups += pq.read_metadata(source).num_row_groups
    return {"files_opened": len(entries), "row_groups": groups}
