"""`python -m benchmarks [--quick] [NAME...]`: every question, side by side in one run, written to
benchmarks/results."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks import spark
from benchmarks.amplification import amplification
from benchmarks.amplification_spark import amplification_spark
from benchmarks.auto_write import auto_write
from benchmarks.cold_start import measurements
from benchmarks.fleet import fleet
from benchmarks.lake import make_table, write_files
from benchmarks.long_tail import long_tail
from benchmarks.measuring import RESULTS, Lake, Promise, Question, interleaved, median, paired
from benchmarks.metadata_memory import make_many
from benchmarks.optimized_write import optimized_write
from benchmarks.peers.cases import CASES
from benchmarks.peers.contest import Turns, contest
from benchmarks.query import query
from benchmarks.query_child import query_child
from benchmarks.requests import requests
from benchmarks.s3 import make_remote_table, object_store
from benchmarks.splice import splice
from benchmarks.vast_metadata import vast_metadata


def speed(work: Path, runs: int, quick: bool) -> tuple[dict[str, Any], list[Promise]]:
    """How close is COMPACT to a bare DuckDB COPY of the same files, and how far from doing it by hand?"""
    files, rows = (100, 20_000) if quick else (400, 64_000)
    lake = Lake(work / "speed")
    make_table(lake.home, write_files(lake.home / "files", files, rows))
    lake.keep()
    found = interleaved(
        runs,
        {
            "regelate COMPACT": lambda: lake.measure("compact"),
            "DuckDB COPY": lambda: lake.measure("duckdb-copy"),
            "PyIceberg overwrite": lambda: lake.measure("pyiceberg-overwrite"),
        },
    )
    ours = found["regelate COMPACT"]
    promises = [
        Promise(name="time / bare DuckDB COPY", ratio=paired(ours, found["DuckDB COPY"], "seconds"), limit=1.25),
        Promise(
            name="time / PyIceberg read all and overwrite",
            ratio=paired(ours, found["PyIceberg overwrite"], "seconds"),
            limit=None,
        ),
        Promise(
            name="peak memory / PyIceberg read all and overwrite",
            ratio=paired(ours, found["PyIceberg overwrite"], "peak_mb"),
            limit=None,
        ),
    ]
    return {"files": files, "rows": files * rows, **found}, promises


def memory(work: Path, runs: int, quick: bool) -> tuple[dict[str, Any], list[Promise]]:
    """Does peak memory stay flat when there is 16 times the data?

    The limit of 512 MB is below what the engine would take, and the smaller table keeps both workers busy for a while:
    a run of a few parts seldom shows the moment in which both need most.
    """
    base, rows = (16, 20_000) if quick else (256, 64_000)
    lakes = {}
    for name, files in (("1x data", base), ("16x data", base * 16)):
        lake = Lake(work / name.replace(" ", "-"))
        make_table(lake.home, write_files(lake.home / "files", files, rows))
        lake.keep()
        lakes[name] = lake
    found = interleaved(
        min(runs, 3), {name: lambda lake=lake: lake.measure("compact", "512", "16") for name, lake in lakes.items()}
    )
    ratio = paired(found["16x data"], found["1x data"], "peak_mb")
    return {"files": base, "rows_per_file": rows, **found}, [
        Promise(name="peak memory at 16x the data", ratio=ratio, limit=1.15)
    ]


def healthy(work: Path, runs: int, quick: bool) -> tuple[dict[str, Any], list[Promise]]:
    """Does COMPACT of the same small files take longer beside 16 times as many healthy ones?"""
    small, base = (100, 20) if quick else (1000, 500)
    lakes = {}
    for name, count in (("1x healthy", base), ("16x healthy", base * 16)):
        lake = Lake(work / name.replace(" ", "-"))
        paths = write_files(lake.home / "files", small, 2_000)
        table = make_table(lake.home, paths)
        add_healthy(table, paths[0], count)
        lake.keep()
        lakes[name] = lake
    found = interleaved(
        runs, {name: lambda lake=lake: lake.measure("compact", "2048", "16") for name, lake in lakes.items()}
    )
    ratio = paired(found["16x healthy"], found["1x healthy"], "seconds")
    return {"small": small, "healthy": base, **found}, [
        Promise(name="time with 16x the healthy files", ratio=ratio, limit=1.30)
    ]


def strict(work: Path, runs: int, quick: bool) -> tuple[dict[str, Any], list[Promise]]:
    """What does `verify: strict` cost, in time and in memory?"""
    files, rows = (20, 20_000) if quick else (220, 20_000)
    lake = Lake(work / "strict")
    paths = write_files(lake.home / "files", files, rows)
    size = sum(Path(path).stat().st_size for path in paths)
    make_table(lake.home, paths)
    lake.keep()
    found = interleaved(
        runs, {name: lambda name=name: lake.measure("compact", "1024", "16", name) for name in ("fast", "strict")}
    )
    promises = [
        Promise(name=f"{text}, strict / fast", ratio=paired(found["strict"], found["fast"], key), limit=None)
        for text, key in (("time", "seconds"), ("peak memory", "peak_mb"))
    ]
    return {"files": files, "rows": files * rows, "bytes": size, **found}, promises


def add_healthy(table: Any, like: str, count: int) -> None:
    """Append entries that the metadata calls 16 MB each; COMPACT must not open them, so no file need be there."""
    from pyiceberg.manifest import DataFile

    file = next(t.file for t in table.scan().plan_files() if t.file.file_path.endswith(Path(like).name))
    step = -(-count // 20)
    for low in range(0, count, step):
        with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
            for number in range(low, min(low + step, count)):
                copy = DataFile.from_args(
                    content=file.content,
                    file_path=file.file_path.replace(".parquet", f"-healthy-{number}.parquet"),
                    file_format=file.file_format,
                    partition=file.partition,
                    record_count=100_000,
                    file_size_in_bytes=16 * 1024 * 1024,
                    column_sizes=file.column_sizes,
                    value_counts=file.value_counts,
                    null_value_counts=file.null_value_counts,
                    nan_value_counts=None,
                    lower_bounds=file.lower_bounds,
                    upper_bounds=file.upper_bounds,
                )
                copy.spec_id = file.spec_id
                append.append_data_file(copy)


def metadata(work: Path, runs: int, quick: bool) -> tuple[dict[str, Any], list[Promise]]:
    """What memory does a COMPACT with `max_files` take on a table of a million small files, and what the entry cache?

    The files that it takes are spread over all manifests, so that its commit edits every one of them.
    """
    files, wide_files = (20_000, 2_000) if quick else (1_000_000, 40_000)
    sizes = {"a tenth of the files": files // 10, "all files": files}
    lakes = {}
    for name, count in sizes.items():
        lakes[name] = Lake(work / f"files-{count}")
        make_many(lakes[name].home, count, 20)
        lakes[name].keep()
    wide = Lake(work / "wide")
    make_many(wide.home, wide_files, 200, real=0, in_manifest=1_000)
    wide.keep()
    found = interleaved(
        min(runs, 3),
        {
            **{f"COMPACT, {name}": lambda lake=lake: lake.measure("compact-few") for name, lake in lakes.items()},
            "entry cache, 200 columns": lambda: wide.measure("cached-entries"),
        },
    )
    many, cache = found["COMPACT, all files"], found["entry cache, 200 columns"]
    return {"files": files, "wide_files": wide_files, **found}, [
        Promise(name=f"peak memory of the process with {files:,} files, MB", ratio=median(many, "peak_mb"), limit=1200),
        Promise(
            name=f"resident entries of {wide_files:,} files of 200 columns, MB",
            ratio=median(cache, "resident_mb"),
            limit=300,
        ),
    ]


def cold_start(work: Path, runs: int, quick: bool) -> tuple[dict[str, Any], list[Promise]]:
    """How long does a fresh process take until it could serve, or has listed tables?"""
    found = interleaved(runs if quick else max(runs, 10), measurements(work))
    bare = found["bare imports of the worker's libraries"]
    return found, [
        Promise(name="API init, seconds", ratio=median(found["API init"], "seconds"), limit=0.5),
        Promise(
            name="worker init / bare imports of its libraries",
            ratio=paired(found["worker init"], bare, "seconds"),
            limit=1.15,
        ),
        Promise(
            name="the same in processor seconds, which a busy machine does not stretch",
            ratio=paired(found["worker init"], bare, "processor_seconds"),
            limit=None,
        ),
        Promise(
            name="processor seconds of `regelate list` on a catalog in SQLite, the best run",
            ratio=min(run["processor_seconds"] for run in found["regelate list"]),
            limit=1.2,
        ),
    ]


def s3(work: Path, runs: int, quick: bool) -> tuple[dict[str, Any], list[Promise]]:
    """What does it bring to fetch inputs ahead, from a store that takes 20 ms a request?"""
    files, rows = (40, 2_000) if quick else (200, 5_000)
    lake = Lake(work / "s3")
    with object_store() as store:
        paths = write_files(work / "files", files, rows)
        size = sum(Path(path).stat().st_size for path in paths)
        make_remote_table(lake.home, store, paths)
        lake.keep()
        found = interleaved(
            runs,
            {
                "fetched ahead": lambda: lake.measure("compact-remote", store, "ahead"),
                "read where they lie": lambda: lake.measure("compact-remote", store, "direct"),
            },
        )
    ahead, direct = found["fetched ahead"], found["read where they lie"]
    promises = [
        Promise(name="GETs per input file, fetched ahead", ratio=median(ahead, "gets_per_input"), limit=1.1),
        Promise(name="GETs per input file, read where they lie", ratio=median(direct, "gets_per_input"), limit=None),
        Promise(name="time, ahead / where they lie", ratio=paired(ahead, direct, "seconds"), limit=None),
    ]
    return {"files": files, "rows": files * rows, "bytes": size, **found}, promises


QUESTIONS: Mapping[str, Question] = {
    "speed": speed,
    "memory": memory,
    "healthy": healthy,
    "strict": strict,
    "metadata": metadata,
    "cold_start": cold_start,
    "s3": s3,
    "requests": requests,
    "query_child": query_child,
    "fleet": fleet,
    "amplification": amplification,
    "auto_write": auto_write,
    "query": query,
    "optimized_write": optimized_write,
    "splice": splice,
    "vast_metadata": vast_metadata,
}
ON_SPARK: Mapping[str, Question] = {
    "spark_large": spark.large,
    "spark_many": spark.many,
    "spark_deletes": spark.deletes,
    "amplification_spark": amplification_spark,
    "long_tail": long_tail,
}
"""Only by their names: they need pyspark (`make setup-spark`)."""


def machine(load_at_start: float) -> dict[str, Any]:
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "processors": os.cpu_count(),
        "memory_gb": round(memory_gb, 1),
        "system": platform.platform(terse=True),
        "python": platform.python_version(),
        "load_at_start": load_at_start,
        "load_at_end": os.getloadavg()[0],
    }


COLUMNS = (
    ("median s", "seconds", ".2f"),
    ("middle WRITE ms", "middle_ms", ".1f"),
    ("processor s", "processor_seconds", ".2f"),
    ("median peak MB", "peak_mb", ".0f"),
    ("files opened", "files_opened", ".0f"),
    ("row groups", "row_groups", ".0f"),
    ("requests", "requests_made", ".0f"),
    ("files left", "output_files", ".0f"),
    ("MB left", "output_mb", ".1f"),
    ("bytes written / bytes of data", "amplification", ".2f"),
    ("most small files", "most", ".0f"),
    ("MB written", "written_mb", ".1f"),
    ("MB rewritten", "rewritten_mb", ".1f"),
    ("most files of a small partition", "small_most", ".0f"),
    ("files of a large one", "large_files", ".1f"),
    ("largest file, MB", "largest_mb", ".1f"),
    ("MB spilled", "spilled_mb", ".0f"),
    ("taken along", "taken", ".0f"),
    ("compactions", "compactions", ".0f"),
)


def measured(details: dict[str, Any]) -> list[str]:
    """Return the table of the measurements; what came out stands in it where it was looked at."""
    found = {key: runs for key, runs in details.items() if isinstance(runs, list)}
    columns = [column for column in COLUMNS if any(column[1] in runs[0] for runs in found.values())]
    columns += [(kind, kind, ".0f") for kind in next(iter(found.values()))[0].get("columns", ())]
    lines = [f"| measurement | {' | '.join(title for title, _, _ in columns)} | runs |"]
    lines.append("|" + "---|" * (len(columns) + 2))
    for key, runs in found.items():
        shown = [format(median(runs, name), form) if name in runs[0] else "-" for _, name, form in columns]
        lines.append(f"| {key} | {' | '.join(shown)} | {len(runs)} |")
    return lines


def report(
    name: str, question: str, details: dict[str, Any], promises: Sequence[Promise], quick: bool, load_at_start: float
) -> None:
    RESULTS.mkdir(exist_ok=True)
    when = datetime.now(UTC).strftime("%Y-%m-%d")
    host = machine(load_at_start)
    lines = [
        f"# {name}: {question}",
        "",
        f"{when}, {host['processors']} processors, {host['memory_gb']} GB, "
        f"Python {host['python']}{', QUICK sizes' if quick else ''}. Load {load_at_start:.1f} at the start and "
        f"{host['load_at_end']:.1f} at the end.",
        "",
    ]
    lines += measured(details)
    lines += ["", "| ratio (median of pairs) | is | promised | verdict |", "|---|---|---|---|"]
    for p in promises:
        lines.append(f"| {p.name} | {p.ratio:.2f} | {p.limit or '-'} | {p.verdict} |")
    text = "\n".join(lines) + "\n"
    print(text)
    suffix = "-quick" if quick else ""
    (RESULTS / f"{name}{suffix}.md").write_text(text)
    body = {"machine": host, "date": when, **details}
    (RESULTS / f"{name}{suffix}.json").write_text(json.dumps(body, indent=1) + "\n")


PEERS = "peers"
"""Has tables and a picture of its own, and takes part of its cases too."""
NAMES = f"of {', '.join(QUESTIONS)}, all these by default; or of {', '.join([*ON_SPARK, PEERS])}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=NAMES)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that everything runs")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--case", action="append", choices=CASES, help="of peers: only these; all by default")
    parser.add_argument(
        "--spark-runs", type=int, help="of peers: how many of the runs Spark takes part in; none if quick"
    )
    given = parser.parse_args()
    known = {**QUESTIONS, **ON_SPARK}
    unknown = set(given.names) - set(known) - {PEERS}
    if unknown:
        parser.error(f"unknown benchmark: {', '.join(sorted(unknown))}")
    for name in given.names or QUESTIONS:
        if name == PEERS:
            runs = 1 if given.quick else given.runs
            on_spark = given.spark_runs if given.spark_runs is not None else 0 if given.quick else runs
            turns = Turns(runs=runs, on_spark=on_spark)
            contest(given.case or list(CASES), turns, given.quick, machine(os.getloadavg()[0]))
            continue
        question = known[name]
        summary = (question.__doc__ or "").splitlines()[0]
        print(f"{name}: {summary}", flush=True)
        load = os.getloadavg()[0]
        work = Path(tempfile.mkdtemp(prefix=f"regelate-bench-{name}-"))
        try:
            details, promises = question(work, given.runs, given.quick)
        finally:
            shutil.rmtree(work, ignore_errors=True)
        report(name, summary, details, promises, given.quick, load)
        if name in ON_SPARK and not given.quick:
            spark.write_docs()


if __name__ == "__main__":
    main()
