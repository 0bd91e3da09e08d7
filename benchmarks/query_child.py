"""What it costs that a QUERY is answered by another process: warm, and as the first thing that a process does."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.lake import make_table, write_files
from benchmarks.measuring import Lake, Promise, interleaved

FILES, ROWS = 20, 2_000
WARM_QUERIES = 20
WARM_SECONDS, COLD_SECONDS = 0.030, 0.5
"""What a query may cost more: by a warm process, and where one must be started."""
SQL = "SELECT kind, count(*) AS n, sum(amount) AS amount FROM t GROUP BY kind ORDER BY kind"
HERE, THERE = "in this process", "by a process of its own"


def query_child(work: Path, runs: int, quick: bool) -> tuple[dict[str, Any], list[Promise]]:
    """What does it cost that a QUERY is answered by a process of its own?"""
    lake = Lake(work / "lake")
    make_table(lake.home, write_files(lake.home / "files", FILES, ROWS))
    lake.keep()
    warm, cold = f"{WARM_QUERIES} queries", "the first query"
    found: dict[str, list[dict[str, Any]]] = {f"{warm}, {where}": [] for where in (HERE, THERE)}
    for _ in range(runs):
        both = lake.measure("queries")
        for where in (HERE, THERE):
            found[f"{warm}, {where}"].append({"seconds": both[where], "peak_mb": both["peak_mb"]})
    firsts = {HERE: "query-here", THERE: "query"}
    found |= interleaved(
        runs, {f"{cold}, {where}": lambda worker=worker: lake.measure(worker) for where, worker in firsts.items()}
    )
    promises = [
        Promise(name=f"{what}: seconds more / {least:g}", ratio=more(found, what) / times / least, limit=1.0)
        for what, times, least in ((warm, WARM_QUERIES, WARM_SECONDS), (cold, 1, COLD_SECONDS))
    ]
    return {"files": FILES, "rows": FILES * ROWS, **found}, promises


def more(found: dict[str, list[dict[str, Any]]], what: str) -> float:
    """Return by how many seconds a process of its own is slower: the median of neighbours in time."""
    there, here = found[f"{what}, {THERE}"], found[f"{what}, {HERE}"]
    differences = sorted(a["seconds"] - b["seconds"] for a, b in zip(there, here, strict=True))
    return float(differences[len(differences) // 2])


class Here:
    """Answers as a child does, in the process that asks: what there was before there were children."""

    @contextmanager
    def process(self, who: str, ends: float) -> Iterator[Here]:
        yield self

    def warm(self) -> None:
        """Do nothing: there is nothing to start."""

    def ask(self, question: Any, ends: float, take: Callable[[Any, Any], None]) -> dict[str, Any]:
        import json

        import duckdb

        from regelate.adapters.duckdb.collect import collect
        from regelate.adapters.duckdb.guard import guard
        from regelate.adapters.duckdb.sandbox import Deadline, lock
        from regelate.adapters.duckdb.session import LOCAL_EXTENSIONS, open_session
        from regelate.adapters.duckdb.sql import identifier

        guard(question.statement.text, question.names)
        connection: duckdb.DuckDBPyConnection = open_session(
            memory_bytes=2**29,
            threads=question.threads,
            folder=Path(question.folder),
            extensions=LOCAL_EXTENSIONS,
        )
        with connection, Deadline(connection, question.limits.seconds) as deadline:
            lock(connection, question.files)
            for name in question.names:
                connection.execute(f"CREATE VIEW {identifier(name)} AS {question.source}")
            result = connection.execute(question.statement.text)
            return collect(result, deadline, question.limits, None, lambda kind, data: take(kind, json.loads(data)))


def first(settings: Any, address: Any, *, here: bool) -> dict[str, Any]:
    """Ask a new process its first query, imports and all."""
    before = time.perf_counter()
    rows = asked(service_of(settings, here=here), address)
    return {"seconds": time.perf_counter() - before, "rows": rows}


def in_turn(settings: Any, address: Any) -> dict[str, Any]:
    """Ask both, warm, one after the other: what the machine does beside touches both alike."""
    services = {HERE: service_of(settings, here=True), THERE: service_of(settings, here=False)}
    seconds: dict[str, list[float]] = {where: [] for where in services}
    for _ in range(WARM_QUERIES + 1):
        for where, service in services.items():
            before = time.perf_counter()
            asked(service, address)
            seconds[where].append(time.perf_counter() - before)
    return {where: statistics.median(found[1:]) * WARM_QUERIES for where, found in seconds.items()}


def asked(service: Any, address: Any) -> int:
    from regelate.core.requests import QueryRequest

    return len(service.queries.query(address, QueryRequest(sql=SQL)).rows)


def service_of(settings: Any, *, here: bool) -> Any:
    from regelate.service.build import build
    from regelate.service.engines import Engines

    if not here:
        return build(settings)
    pool: Any = Here()
    return build(settings, engines=Engines(settings.placement_policy({}), settings.storage, lambda: pool))
