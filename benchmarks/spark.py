"""COMPACT beside Spark, PyIceberg and a bare COPY: the same files in one run, interleaved, the same rows afterwards.

`python -m benchmarks spark_large spark_many spark_deletes` (or `make bench-spark`). Every engine has two cores. The
figures go to benchmarks/results, and from there into docs/spark.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks import process_tree
from benchmarks.lake import MB, make_table, open_catalog, write_files
from benchmarks.measuring import RESULTS, ROOT, Lake, Promise, interleaved, median, paired

OURS, FLOOR = "regelate COMPACT", "bare DuckDB COPY"
WARM, ONE_SHOT, BY_HAND = "Spark, warm", "Spark, one shot", "PyIceberg overwrite"
WORKERS = {OURS: "compact", FLOOR: "duckdb-copy", WARM: "spark-warm", ONE_SHOT: "spark-one-shot"}
WORKERS |= {BY_HAND: "pyiceberg-overwrite"}
COLUMNS = "id, user_id, session, amount, kind, happened_at, flag"
Answer = tuple[dict[str, Any], list[Promise]]


def large(work: Path, runs: int, quick: bool) -> Answer:
    """What does each engine take for 400 files of 1 MB?"""
    return _unpartitioned(work, runs, *((20, 10_000) if quick else (400, 115_000)))


def many(work: Path, runs: int, quick: bool) -> Answer:
    """What does each engine take for 4,000 files of 50 KB?"""
    return _unpartitioned(work, runs, *((100, 1_000) if quick else (4_000, 5_000)))


def deletes(work: Path, runs: int, quick: bool) -> Answer:
    """What does each engine take for a partitioned table with merge-on-read deletes?"""
    inserts, rows, statements = (3, 8_000, 1) if quick else (50, 256_000, 5)
    lake = MeasuredLake(work / "lake")
    write_files(work / "files", inserts, rows)
    made = lake.run("spark-make-deletes", str(work / "files"), str(statements))
    if made.returncode:
        raise SystemExit(f"the table was not made:\n{made.errors[-2000:]}")
    return _side_by_side(lake, runs, {**WORKERS, FLOOR: "duckdb-copy-view"})


def _unpartitioned(work: Path, runs: int, files: int, rows: int) -> Answer:
    lake = MeasuredLake(work / "lake")
    make_table(lake.home, write_files(lake.home / "files", files, rows))
    return _side_by_side(lake, runs, WORKERS)


def _side_by_side(lake: MeasuredLake, runs: int, workers: dict[str, str]) -> Answer:
    lake.keep()
    before = lake.outcome()
    measurements: dict[str, Callable[[], dict[str, Any]]] = {
        name: lambda worker=worker: lake.measure(worker) for name, worker in workers.items()
    }
    found = interleaved(runs, measurements)
    for name, measured in found.items():
        if {run["rows"] for run in measured} != {before["rows"]}:
            raise SystemExit(f"{name} changed rows: {before['rows']} became {[run['rows'] for run in measured]}")
    promises = [
        Promise(name=f"{what} / {name}", ratio=paired(found[OURS], found[name], key), limit=None)
        for what, key in (("time", "seconds"), ("peak memory", "peak_mb"))
        for name in (FLOOR, WARM, ONE_SHOT, BY_HAND)
    ]
    size = {"files": before["output_files"], "delete_files": before["delete_files"], "mb": before["output_mb"]}
    return {**size, "rows": before["rows"], **found}, promises


class MeasuredLake(Lake):
    """A lake whose workers are measured with all their child processes, and whose rows are looked at afterwards."""

    def run(self, worker: str, *options: str) -> process_tree.Done:
        self.home.mkdir(parents=True, exist_ok=True)
        return process_tree.run(self.command(worker, *options), self.environment(worker), self.home.parent)

    def measure(self, worker: str, *options: str) -> dict[str, Any]:
        """Return seconds (of the work alone, or of the whole process where the worker leaves that open), peak memory,
        and what was left."""
        self.restore()
        done = self.run(worker, *options)
        if done.returncode:
            raise SystemExit(f"{worker} failed:\n{done.errors[-2000:]}")
        found: dict[str, Any] = json.loads(done.output.splitlines()[-1])
        found["seconds"] = done.seconds if found["seconds"] is None else found["seconds"]
        return {**found, "peak_mb": done.peak_mb, **self.outcome(found.pop("outputs", None))}

    def outcome(self, outputs: list[str] | None = None) -> dict[str, Any]:
        """Return files, bytes and a fingerprint of all rows: of the table, or of the files that a bare COPY left."""
        import duckdb

        table = open_catalog(self.home).load_table("bench.events")
        tasks = [] if outputs else list(table.scan().plan_files())
        paths = outputs or [urlsplit(task.file.file_path).path for task in tasks]
        delete_files = {file.file_path for task in tasks for file in task.delete_files}
        connection = duckdb.connect()
        if delete_files:
            connection.register("found", table.scan().to_arrow_batch_reader())
        source = "found" if delete_files else f"read_parquet({paths!r})"
        row = connection.execute(f"SELECT count(*), sum(hash({COLUMNS})) FROM {source}").fetchone()
        assert row is not None
        return {
            "output_files": len(paths),
            "output_mb": sum(Path(path).stat().st_size for path in paths) / MB,
            "delete_files": len(delete_files),
            "rows": f"{row[0]} rows, {row[1]}",
        }


DOCS = ROOT / "docs" / "spark.md"
OPENING, CLOSING = "<!-- figures of make bench-spark -->", "<!-- end of the figures -->"
NAMES = ("spark_large", "spark_many", "spark_deletes")


def write_docs() -> None:
    """Put the figures of the results that are there into docs/spark.md, between the marks that stand in it."""
    text = DOCS.read_text()
    before, _, rest = text.partition(OPENING)
    _, mark, after = rest.partition(CLOSING)
    if not mark:
        raise SystemExit(f"{DOCS} has no place for the figures")
    DOCS.write_text(f"{before}{OPENING}\n{figures()}\n{CLOSING}{after}")


def figures() -> str:
    """Return the tables of the results as Markdown: an engine a line, with the ratio of its time to COMPACT's."""
    parts = []
    for name in NAMES:
        path = RESULTS / f"{name}.json"
        if not path.is_file():
            continue
        found = json.loads(path.read_text())
        host = found["machine"]
        parts += [
            "",
            f"**{found['files']:,} data files, {found['mb']:,.0f} MB, {found['delete_files']:,} delete files, "
            f"{found['rows'].partition(' ')[0]} rows** ({found['date']}, {host['processors']} processors, "
            f"median of {len(found[OURS])}; [all of it](../benchmarks/results/{name}.md))",
            "",
            "| engine | seconds | times COMPACT's | peak MB | files left | MB left |",
            "| --- | ---: | ---: | ---: | ---: | ---: |",
        ]
        for engine in WORKERS:
            runs = found[engine]
            parts.append(
                f"| {engine} | {median(runs, 'seconds'):.1f} | {paired(runs, found[OURS], 'seconds'):.1f} | "
                f"{median(runs, 'peak_mb'):,.0f} | {median(runs, 'output_files'):.0f} | "
                f"{median(runs, 'output_mb'):,.0f} |"
            )
    return "\n".join([*parts, ""]) if parts else "\nNo figures yet: `make bench-spark` writes them here.\n"
