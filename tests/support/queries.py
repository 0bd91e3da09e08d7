"""One pool of processes for all tests that ask queries: to start one costs more than most tests."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from regelate.adapters.duckdb.query import DuckDBQueryEngine
from regelate.adapters.duckdb.query_pool import QueryPool

MEGABYTE = 1024 * 1024


@cache
def shared_pool() -> QueryPool:
    return QueryPool(size=2, memory_bytes=384 * MEGABYTE)


def query_engine(folder: Path) -> DuckDBQueryEngine:
    return DuckDBQueryEngine(shared_pool(), folder=folder, threads=1)
