"""What it costs that a QUERY is answered by another process: warm, and as the first thing that a process does."""

from __future__ import annotations

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
    found = interleaved(
        runs,
        {
            f"{what}, {where}": lambda worker=worker, what=what: lake.measure(worker, str(what == warm))
            for what in (warm, cold)
            for where, worker in ((HERE, "query-here"), (THERE, "query"))
        },
    )
    promises = [
        Promise(name=f"{what}, {least * 1000:.0f} ms", ratio=more(found, what) / times / least, limit=1.0)
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


def answered(settings: Any, address: Any, warm: bool, *, here: bool) -> dict[str, Any]:
    """Ask a new service: its first query, or those after it."""
    before = time.perf_counter()
    from regelate.core.requests import QueryRequest
    from regelate.service.build import build
    from regelate.service.engines import Engines

    if here:
        placement = settings.placement_policy({})
        pool: Any = Here()
        service = build(settings, engines=Engines(placement, settings.storage, lambda: pool))
    else:
        service = build(settings)
    request = QueryRequest(sql=SQL)
    rows = service.queries.query(address, request).rows
    seconds = time.perf_counter() - before
    if warm:
        before = time.perf_counter()
        for _ in range(WARM_QUERIES):
            rows = service.queries.query(address, request).rows
        seconds = time.perf_counter() - before
    return {"seconds": seconds, "rows": len(rows)}
