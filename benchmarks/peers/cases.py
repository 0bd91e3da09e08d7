"""The tables that all peers compact: how they are made, and what is aimed at."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.lake import make_table, open_catalog, write_files
from benchmarks.splice import write_tier

WIDE_COLUMNS = 200
DELETED = 50
"""Every so many-th row of a file is deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One table: so many files of so many rows. `small`: the same, to see that everything runs.

    `scaling` says that the case is measured for ours and the bare COPY alone.
    """

    words: str
    make: Callable[[Path, int, int], None]
    files: int
    rows: int
    small: tuple[int, int]
    scaling: bool = False


def plain(home: Path, files: int, rows: int) -> None:
    make_table(home, write_files(home / "files", files, rows))


EVENTS = (
    "i * 7919 + (hash(i) % 1000)::BIGINT AS id, 'user-' || (hash(i + 1) % 20000) AS user_id, "
    "md5((hash(i) % 8000)::VARCHAR) AS session, (hash(i + 2) % 1000000) / 100.0 AS amount, "
    "['view', 'click', 'cart', 'purchase', 'refund'][(1 + hash(i + 3) % 5)::BIGINT] AS kind, "
    "'https://shop.example/p/' || (hash(i + 4) % 3000) AS url, "
    "TIMESTAMP '2025-01-01' + INTERVAL (i * 37) MILLISECOND AS happened_at"
)
"""Unique ids, four texts, a number and a time: 18 bytes a row, 64,000 of them 1.1 MB."""


def events(home: Path, files: int, rows: int) -> None:
    make_table(home, write_files(home / "files", files, rows, columns=EVENTS))


def tier(home: Path, files: int, rows: int) -> None:
    make_table(home, write_tier(home / "files", files, rows))


def deleted(home: Path, files: int, rows: int) -> None:
    """Ten delete files at most, each for a tenth of the data files."""
    from tests.support.deletes_writer import add_position_deletes

    table = make_table(home, write_files(home / "files", files, rows))
    paths = table.inspect.files()["file_path"].to_pylist()
    for low in range(min(10, files)):
        add_position_deletes(table, {path: range(low, rows, DELETED) for path in sorted(paths[low::10])})


WIDE = ", ".join(
    ["i AS id"]
    + [
        (
            f"(hash(i + {n}) % 1000)::INTEGER AS c{n}",
            f"(i * {n} % 977) / 7.0 AS c{n}",
            f"'word ' || (hash(i * {n}) % 50) AS c{n}",
            f"TIMESTAMP '2025-01-01' + INTERVAL (i % {n + 60}) MINUTE AS c{n}",
        )[n % 4]
        for n in range(1, WIDE_COLUMNS)
    ]
)
NESTED = (
    "i AS id, {'city': 'city ' || (i % 300), 'place': {'lat': (hash(i) % 180)::DOUBLE, 'lon': (hash(i + 1) % 360)"
    "::DOUBLE}} AS address, [('tag ' || ((i + n) % 40)) FOR n IN range(i % 5)] AS tags, "
    "MAP {'views': i % 1000, 'clicks': hash(i) % 50::BIGINT} AS counts, "
    "[{'sku': i * n % 5000, 'price': (hash(i + n) % 9999) / 100.0} FOR n IN range(i % 3)] AS items"
)


def wide(home: Path, files: int, rows: int) -> None:
    _by_arrow(home, files, rows, WIDE)


def nested(home: Path, files: int, rows: int) -> None:
    _by_arrow(home, files, rows, NESTED)


def _by_arrow(home: Path, files: int, rows: int, columns: str) -> None:
    """Write files by PyArrow, with the field ids of the table, which a list of DuckDB's would be long for."""
    import duckdb
    import pyarrow.parquet as pq
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    def batch(number: int, count: int) -> Any:
        low = number * rows
        return connection.execute(f"SELECT {columns} FROM range({low}, {low + count}) t(i)").to_arrow_table()

    catalog, folder = open_catalog(home), home / "files"
    folder.mkdir(parents=True, exist_ok=True)
    catalog.create_namespace_if_not_exists("bench")
    with duckdb.connect() as connection:
        table = catalog.create_table("bench.events", batch(0, 1).schema)
        schema = schema_to_pyarrow(table.schema())
        paths = [folder / f"{number:05d}.parquet" for number in range(files)]
        for number, path in enumerate(paths):
            pq.write_table(batch(number, rows).cast(schema), path, compression="zstd")
    for low in range(0, files, 50):
        table.add_files([path.as_uri() for path in paths[low : low + 50]], check_duplicate_files=False)


CASES: Mapping[str, Case] = {
    "A": Case(words="files of a megabyte", make=events, files=400, rows=64_000, small=(10, 10_000)),
    "B": Case(words="files of 60 KB", make=events, files=4_000, rows=3_200, small=(100, 1_000)),
    "tiny": Case(words="files of few values", make=plain, files=2_000, rows=5_000, small=(100, 1_000)),
    "small": Case(words="files of few values", make=plain, files=100, rows=48_000, small=(10, 10_000)),
    "tier": Case(words="files with healthy row groups", make=tier, files=32, rows=3_400_000, small=(3, 300_000)),
    "wide": Case(words=f"files of {WIDE_COLUMNS} columns", make=wide, files=100, rows=3_000, small=(5, 300)),
    "nested": Case(words="files of structs, lists and a map", make=nested, files=200, rows=20_000, small=(10, 1_000)),
    "deletes": Case(
        words=f"files with position deletes of every {DELETED}th row",
        make=deleted,
        files=100,
        rows=48_000,
        small=(10, 5_000),
    ),
    "1x": Case(
        words="files of A, a quarter of it", make=events, files=100, rows=64_000, small=(5, 5_000), scaling=True
    ),
    "4x": Case(words="files of A, all of it", make=events, files=400, rows=64_000, small=(10, 5_000), scaling=True),
    "16x": Case(
        words="files of A, four times of it", make=events, files=1_600, rows=64_000, small=(20, 5_000), scaling=True
    ),
}
