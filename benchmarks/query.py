"""What a query costs before and after a COMPACT: a table of very many small files, with and without deletes, on this
machine and in a store that takes 20 ms a request.

The readers are our QUERY (DuckDB), PyIceberg, which reads no equality deletes, and Spark, where it is installed. Each
has asked once before the clock starts: what a table costs every time is measured, not a start. QUERY and PyIceberg are
a new process each time. Spark is one JVM for all, which keeps delete files in memory from the question before, as it
does by default. Before and after take turns: the catalog names the one metadata file or the other.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.lake import make_table, open_catalog, write_files
from benchmarks.measuring import Lake, Promise, interleaved, median
from benchmarks.query_child import SQL
from benchmarks.s3 import catalog_of, counted, make_remote_table, object_store, remote_service
from benchmarks.spark_reader import SparkReader, is_installed

OURS, PYICEBERG, SPARK = "QUERY", "PyIceberg", "Spark"
WORKERS = {OURS: "query-warm", PYICEBERG: "pyiceberg-read"}
PLAIN, EQUALITY, POSITION = "no deletes", "equality deletes", "position deletes"
LEAST = {PLAIN: 5, EQUALITY: 10}
"""How many times faster a QUERY of the store shall be afterwards."""
ALL_DELETES = {"delete-file-threshold": 1}
HERE, THERE = "on this machine", "20 ms a request"
BEFORE, AFTER = "before", "after"


def query(work: Path, runs: int, quick: bool) -> tuple[dict[str, Any], list[Promise]]:
    """What does a query cost before and after a COMPACT?"""
    files, rows, deletes = (40, 500, 4) if quick else (1_000, 2_000, 20)
    paths = write_files(work / "files", files, rows)
    found: dict[str, Any] = {}
    promises = []
    spark = SparkReader(work / "spark") if is_installed() else None
    for kind in (PLAIN, EQUALITY, POSITION):
        for place in (HERE, THERE):
            print(f" {kind}, {place}", flush=True)
            with object_store() as store:
                case = Case(work / f"{kind}-{place}".replace(" ", "-"), store if place == THERE else "", kind, spark)
                case.make(paths, deletes)
                told = case.measured(runs)
            found |= {f"{kind}, {place}, {name}": each for name, each in told.items()}
            promises += _promises(kind, place, told)
    if spark is not None:
        spark.stop()
    return {"files": files, "rows": files * rows, **found}, promises


def _promises(kind: str, place: str, told: dict[str, list[dict[str, Any]]]) -> list[Promise]:
    found = []
    for reader in (OURS, PYICEBERG, SPARK):
        before, after = told.get(f"{reader} {BEFORE}"), told.get(f"{reader} {AFTER}")
        if before is not None and after is not None:
            least = LEAST.get(kind) if (reader, place) == (OURS, THERE) else None
            ratio = median(after, "seconds") / median(before, "seconds")
            name = f"{kind}, {place}, {reader}: seconds after / before ({1 / ratio:.1f} times as fast)"
            found.append(Promise(name=name, ratio=ratio, limit=least and 1 / least))
    return found


class Case:
    """One table, in one place. `store` is empty where it lies on this machine."""

    def __init__(self, home: Path, store: str, kind: str, spark: SparkReader | None) -> None:
        self._lake = Lake(home)
        self._store = store
        self._kind = kind
        self._spark = spark

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

    def measured(self, runs: int) -> dict[str, list[dict[str, Any]]]:
        """Fails where the readers, or before and after, do not count the same rows."""
        home = self._lake.home
        places, shapes = {BEFORE: place_of(home)}, {BEFORE: shape(home, self._store)}
        compacted(home, self._store)
        places[AFTER], shapes[AFTER] = place_of(home), shape(home, self._store)
        asked = {
            f"{name} {when}": partial(self._asked, ask, places[when], shapes[when])
            for name, ask in self._readers().items()
            for when in (BEFORE, AFTER)
            if (name, self._kind, when) != (PYICEBERG, EQUALITY, BEFORE)
        }
        found = interleaved(runs, asked)
        counts = {name: each[0]["rows_counted"] for name, each in found.items()}
        if len(set(counts.values())) != 1:
            raise SystemExit(f"the readers do not count the same rows: {counts}")
        return found

    def _readers(self) -> dict[str, Callable[[], dict[str, Any]]]:
        options = [self._store] if self._store else []
        found: dict[str, Callable[[], dict[str, Any]]] = {
            name: partial(self._lake.ask, worker, *options) for name, worker in WORKERS.items()
        }
        if self._spark is not None and not (self._store and self._kind == EQUALITY):  # it takes ten minutes and more
            found[SPARK] = SparkAsked(self._spark.session(self._lake.home, self._store), self._store)
        return found

    def _asked(self, ask: Callable[[], dict[str, Any]], place: str, shape: dict[str, Any]) -> dict[str, Any]:
        """Leave out the peak memory: Linux counts a child's from its parent's, and this one has Spark and the files."""
        point_to(self._lake.home, place)
        found = {**shape, **ask()}
        found.pop("peak_mb", None)
        return found


def place_of(home: Path) -> str:
    """Return the metadata file that the catalog names."""
    with closing(sqlite3.connect(home / "catalog.db")) as connection:
        found: str = connection.execute("SELECT metadata_location FROM iceberg_tables").fetchone()[0]
    return found


def point_to(home: Path, place: str) -> None:
    with closing(sqlite3.connect(home / "catalog.db", timeout=60)) as connection, connection:
        connection.execute("UPDATE iceberg_tables SET metadata_location = ?", [place])


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

    def asked() -> int:
        return sum(int(row["n"]) for row in service.queries.query(address, request).rows)

    return timed(asked, store)


def pyiceberg_read(home: Path, store: str = "") -> dict[str, Any]:
    """The same by PyIceberg and Arrow."""

    def asked() -> int:
        rows = opened(home, store).scan(selected_fields=("kind", "amount")).to_arrow()
        groups = rows.group_by("kind").aggregate([("amount", "count"), ("amount", "sum")])
        return sum(groups["amount_count"].to_pylist())

    return timed(asked, store)


class SparkAsked:
    """The same by Spark, in this process, which is asked once more before the first time that is measured."""

    def __init__(self, session: Any, store: str) -> None:
        self._session = session
        self._store = store
        self._is_warm = False

    def __call__(self) -> dict[str, Any]:
        found = timed(self._ask, self._store, is_warm=self._is_warm)
        self._is_warm = True
        return found

    def _ask(self) -> int:
        statement = SQL.replace("FROM t ", "FROM local.bench.events ")
        return sum(row["n"] for row in self._session.sql(statement).collect())


def timed(ask: Callable[[], int], store: str, *, is_warm: bool = False) -> dict[str, Any]:
    """Ask, twice if nobody has asked before, and return what the last time took."""
    if not is_warm:
        ask()
    if store:
        counted(store)
    before = time.perf_counter()
    rows = ask()
    found: dict[str, Any] = {"seconds": time.perf_counter() - before, "rows_counted": rows}
    if store:
        requests = counted(store)
        found |= {"requests": requests, "requests_made": sum(requests.values())}
    return found


def shape(home: Path, store: str) -> dict[str, Any]:
    """Return the files and row groups that a reader opens, those of deletes too."""
    import pyarrow.parquet as pq

    table = opened(home, store)
    paths = [
        entry.data_file.file_path
        for manifest in table.current_snapshot().manifests(table.io)
        for entry in manifest.fetch_manifest_entry(table.io)
    ]

    def groups(path: str) -> int:
        with table.io.new_input(path).open() as source:
            return int(pq.read_metadata(source).num_row_groups)

    with ThreadPoolExecutor(16) as pool:
        return {"files_opened": len(paths), "row_groups": sum(pool.map(groups, paths))}
