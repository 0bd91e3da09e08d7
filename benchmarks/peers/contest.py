"""COMPACT and its peers on the same tables: one program, taking turns, the same rows afterwards.

`python -m benchmarks peers` (or `make bench-peers`). A peer that is not installed, or cannot do a case, is left out
with the reason. Every run is saved as soon as it is
done, and a case replaces only itself.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks import process_tree
from benchmarks.lake import MB, open_catalog
from benchmarks.measuring import RESULTS, Lake
from benchmarks.peers.cases import CASES, Case

OURS, FLOOR = "regelate COMPACT", "bare DuckDB COPY"
BY_HAND, POLARS, RUST = "PyIceberg overwrite", "Polars scan to sink", "iceberg-compaction (Rust)"
WARM, ONE_SHOT = "Spark, warm", "Spark, one shot"
NOT_TO_BE_HAD = {RUST: "it is not on crates.io, and builds on a fork that is not either"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Who takes part, by a worker of work.py."""

    worker: str
    missing: Callable[[], str] = str
    """Says why it cannot take part; empty where it can."""
    on_spark: bool = False


def _no_module(name: str, how: str) -> Callable[[], str]:
    return lambda: "" if importlib.util.find_spec(name) else f"{name} is not installed ({how})"


NO_SPARK = _no_module("pyspark", "make setup-spark")
PEERS: dict[str, Peer] = {
    OURS: Peer(worker="compact"),
    FLOOR: Peer(worker="duckdb-copy"),
    BY_HAND: Peer(worker="pyiceberg-overwrite"),
    POLARS: Peer(worker="polars-sink", missing=_no_module("polars", "make setup-peers")),
    WARM: Peer(worker="spark-warm", missing=NO_SPARK, on_spark=True),
    ONE_SHOT: Peer(worker="spark-one-shot", missing=NO_SPARK, on_spark=True),
}


Keep = Callable[[dict[str, Any]], None]


class PeerFailed(Exception):
    """A peer could not do a case, or changed its rows; the message says how."""


class PeerLake(Lake):
    """A lake of one case; its files are linked back to what they were, as nobody changes one in place."""

    def restore(self) -> None:
        shutil.rmtree(self.home, ignore_errors=True)
        shutil.copytree(self._kept, self.home, copy_function=_link)

    def command(self, worker: str, *options: str) -> list[str]:
        return [sys.executable, "-m", "benchmarks.peers.work", worker, str(self.home)]

    def environment(self, worker: str) -> dict[str, str]:
        """Keep what the caller has on his path: a peer may be installed elsewhere."""
        found = super().environment(worker)
        return {**found, "PYTHONPATH": os.pathsep.join([found["PYTHONPATH"], *sys.path[1:]])}

    def run(self, peer: Peer) -> dict[str, Any]:
        """Return seconds and processor seconds of the work and of the whole process, peak memory, and what was left."""
        self.restore()
        load = os.getloadavg()[0]
        done = process_tree.run(self.command(peer.worker), self.environment(peer.worker), self.home.parent)
        if done.returncode:
            raise PeerFailed(_last_line(done.errors) or f"it ended with {done.returncode}")
        found: dict[str, Any] = json.loads(done.output.splitlines()[-1])
        whole = {"seconds": done.seconds, "processor_seconds": done.processor_seconds}
        return {
            **whole,
            **{key: found[key] for key in whole if found.get(key) is not None},
            **{f"whole_{key}": value for key, value in whole.items()},
            "peak_mb": max(done.peak_mb, found.get("peak_mb", 0.0)),
            "load": load,
            **self.outcome(found.get("outputs", [])),
        }

    def outcome(self, outputs: Sequence[str] = ()) -> dict[str, Any]:
        """Return files, bytes, row groups and a fingerprint of all rows: of the outputs, or else of the table."""
        import duckdb
        import pyarrow.parquet as pq

        table = open_catalog(self.home).load_table("bench.events")
        tasks = [] if outputs else list(table.scan().plan_files())
        paths = [urlsplit(path).path for path in outputs or [task.file.file_path for task in tasks]]
        deletes = {file.file_path for task in tasks for file in task.delete_files}
        with duckdb.connect(config={"threads": "2"}) as connection:
            source = f"read_parquet({paths!r})"
            if deletes:
                connection.register("found", table.scan().to_arrow())
                source = "found"
            columns = ", ".join(_alike(connection, source, field.name) for field in table.schema().fields)
            row = connection.execute(f"SELECT count(*), sum(hash({columns})) FROM {source}").fetchone()
        assert row is not None
        return {
            "output_files": len(paths),
            "output_mb": sum(Path(path).stat().st_size for path in paths) / MB,
            "row_groups": sum(pq.read_metadata(path).num_row_groups for path in paths),
            "delete_files": len(deletes),
            "row_count": row[0],
            "rows": f"{row[0]} rows, {row[1]}",
        }


def _alike(connection: Any, source: str, column: str) -> str:
    """Return a column; a map as the list of its entries, which is what some writers make of one."""
    row = connection.execute(f'SELECT typeof("{column}") FROM {source} LIMIT 1').fetchone()
    return f'map_entries("{column}")' if row[0].startswith("MAP") else f'"{column}"'


def _link(source: str, target: str) -> None:
    if ".parquet" in source:
        os.link(source, target)
    else:
        shutil.copy2(source, target)


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns:
    """How often each takes its turn; Spark may take fewer, as it takes longest."""

    runs: int
    on_spark: int

    def of(self, number: int, case: Case, skipped: Container[str]) -> list[str]:
        """Return who takes the turn of this number."""
        taking = [OURS, FLOOR] if case.scaling else [*PEERS]
        return [
            name for name in taking if name not in skipped and not (PEERS[name].on_spark and number >= self.on_spark)
        ]


def measure(
    case: Case, turns: Turns, quick: bool, missing: dict[str, str], work: Path, keep: Keep = lambda found: None
) -> dict[str, Any]:
    """Measure all peers of one case, in turns; a peer that fails is left out from then on.

    `keep` is given what is known after each turn, as a run of an hour may be cut short.
    """
    lake = PeerLake(work / "lake")
    files, rows = case.small if quick else (case.files, case.rows)
    case.make(lake.home, files, rows)
    lake.keep()
    before = lake.outcome()
    skipped = {} if case.scaling else dict(missing)
    found: dict[str, list[dict[str, Any]]] = {}
    answer = {
        "words": case.words,
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        **{key: before[key] for key in ("output_files", "output_mb", "row_groups", "delete_files", "row_count")},
        "runs": found,
        "skipped": skipped,
    }
    for number in range(turns.runs):
        for name in turns.of(number, case, skipped):
            try:
                run = lake.run(PEERS[name])
                if run["rows"] != before["rows"]:
                    raise PeerFailed(f"its rows are others: {before['rows']} became {run['rows']}")
            except PeerFailed as failed:
                skipped[name] = str(failed)
                print(f"  run {number + 1}/{turns.runs} {name:28} {failed}", flush=True)
                continue
            found.setdefault(name, []).append(run)
            print(
                f"  run {number + 1}/{turns.runs} {name:20} {run['processor_seconds']:7.2f} processor s "
                f"{run['seconds']:8.2f} s {run['peak_mb']:7.0f} MB, load {run['load']:.1f}",
                flush=True,
            )
            keep(answer)
    if OURS in skipped:
        raise SystemExit(f"COMPACT failed: {skipped[OURS]}")
    return answer


def contest(names: Sequence[str], turns: Turns, quick: bool, host: dict[str, Any]) -> None:
    """Measure the cases and publish what is known of all of them after each."""
    from benchmarks.peers import pages

    missing = NOT_TO_BE_HAD | {name: why for name, peer in PEERS.items() if (why := peer.missing())}
    if turns.on_spark == 0:
        missing |= dict.fromkeys((WARM, ONE_SHOT), "it was given no turn (--spark-runs)")
    for name, why in missing.items():
        print(f"  without {name}: {why}", flush=True)
    path = RESULTS / f"peers{'-quick' if quick else ''}.json"
    known = json.loads(path.read_text()) if path.is_file() else {"cases": {}}
    for name in names:
        print(f"{name}: {CASES[name].words}", flush=True)
        work = Path(tempfile.mkdtemp(prefix="regelate-bench-peers-"))

        def keep(found: dict[str, Any], name: str = name) -> None:
            cases = {**known["cases"], name: found}
            known["cases"] = {case: cases[case] for case in CASES if case in cases}
            known["machine"] = host
            path.write_text(json.dumps(known, indent=1) + "\n")

        try:
            measure(CASES[name], turns, quick, missing, work, keep)
        finally:
            shutil.rmtree(work, ignore_errors=True)
        pages.publish(known, quick)
