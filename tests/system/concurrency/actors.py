"""One process of a trial: an appender, a deleter or a compactor, each a client of its own.

An actor works until its own task is done (writers) or all writers are (compactors). What it returns is counted later.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table

from regelate.adapters.duckdb.engine import DuckDBRewriteEngine
from regelate.adapters.iceberg.files.outputs import TableOutputs
from regelate.core.planning.plan import FileGroup
from regelate.core.requests import CompactRequest
from regelate.core.running.rewrite import NewDataFile
from regelate.errors import CommitStateUnknown, RegelateError
from regelate.service.build import build
from regelate.service.facade import Service
from regelate.settings import load_settings
from tests.support.deletes_writer import add_equality_deletes, add_position_deletes
from tests.support.iceberg_tables import live_data_files, local_path
from tests.support.lake import address

IDENT = "db.t"
PARTITIONS = 8
ROWS_PER_WRITE = 4


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """What one process is to do. `turns`: writes, or deletes; `pause_seconds` between two turns, as users pause."""

    role: str
    number: int
    config: Path
    seed: int
    turns: int
    pause_seconds: float = 0.0
    compactors: int = 2


@dataclass
class Deeds:
    """What one process did. Rows whose fate nobody knows are in `perhaps`: either is right for them."""

    role: str
    asked: int = 0
    succeeded: int = 0
    seconds: float = 0.0
    written: set[int] = field(default_factory=set)
    deleted: set[int] = field(default_factory=set)
    perhaps: set[int] = field(default_factory=set)
    groups: int = 0
    groups_landed: int = 0
    runs: int = 0
    bytes_landed: int = 0
    bytes_wasted: int = 0
    faults: list[str] = field(default_factory=list)


def act(assignment: Assignment, writers_done: Event) -> Deeds:
    """Play one role to its end."""
    service = build(load_settings({"REGELATE_CONFIG": str(assignment.config)}))
    deeds = Deeds(role=assignment.role)
    begun = time.monotonic()
    play = {"appender": _append, "equality": _delete, "position": _delete, "compactor": _compact}[assignment.role]
    play(service, assignment, deeds, writers_done)
    deeds.seconds = time.monotonic() - begun
    return deeds


def rows_of(number: int, turn: int) -> list[dict[str, object]]:
    """Rows of one write: no two writes of a trial have an id in common."""
    start = 1_000_000 * (number + 1) + ROWS_PER_WRITE * turn
    return [{"id": start + i, "p": (start + i + number) % PARTITIONS} for i in range(ROWS_PER_WRITE)]


def _append(service: Service, mine: Assignment, deeds: Deeds, _: Event) -> None:
    for turn in range(mine.turns):
        rows = rows_of(mine.number, turn)
        ids = {int(str(row["id"])) for row in rows}
        deeds.asked += 1
        try:
            service.writes.write(address(IDENT), rows, mode="append", key=(), idempotency_key=None)
        except CommitStateUnknown as error:
            deeds.perhaps |= ids
            deeds.faults.append(str(error))
        except RegelateError as error:
            deeds.faults.append(str(error))
        else:
            deeds.succeeded += 1
            deeds.written |= ids
        time.sleep(mine.pause_seconds)


def _delete(service: Service, mine: Assignment, deeds: Deeds, writers_done: Event) -> None:
    """Delete one row per turn as another engine would: on the head it looked at, or again on the next one."""
    chance = random.Random(mine.seed)
    while deeds.asked < mine.turns and not writers_done.is_set():  # set early when a writer broke down
        try:
            table = service.access.survey().load_table(IDENT)
        except Exception as error:  # noqa: BLE001  a catalog under load; this is another engine's client
            deeds.faults.append(f"load: {error}")
            continue
        files = live_data_files(table)
        if not files:
            writers_done.wait(0.1)
            continue
        file = chance.choice(files)
        with contextlib.suppress(FileNotFoundError):
            ids = pq.read_table(local_path(file.file_path), columns=["id"])["id"].to_pylist()
            _delete_row(table, mine, deeds, file, ids, chance.randrange(len(ids)))
        time.sleep(mine.pause_seconds)


def _delete_row(table: Table, mine: Assignment, deeds: Deeds, file: Any, ids: list[int], row: int) -> None:
    base = table.metadata.current_snapshot_id
    try:
        if mine.role == "equality":
            add_equality_deletes(table, ["id"], [(ids[row],)], partition=file.partition, spec_id=file.spec_id)
        else:
            add_position_deletes(
                table, {file.file_path: [row]}, partition=file.partition, spec_id=file.spec_id, expected_head=base
            )
    except CommitFailedException:
        return
    except Exception as error:  # noqa: BLE001  the catalog did not say: the row may be gone or not
        deeds.perhaps.add(ids[row])
        deeds.faults.append(f"{mine.role} delete: {type(error).__name__}: {error}"[:300])
    else:
        deeds.succeeded += 1
        deeds.deleted.add(ids[row])
    deeds.asked += 1


class Gauge:
    """Counts, in this process, groups that were rewritten, bytes of outputs, and bytes of those deleted again."""

    def __init__(self) -> None:
        self.groups = self.written = self.wasted = 0
        discard, publish, rewrite = TableOutputs.discard, TableOutputs.publish, DuckDBRewriteEngine.rewrite
        gauge = self

        def counting_discard(outputs: TableOutputs, locations: Sequence[str]) -> None:
            for location in locations:
                with contextlib.suppress(OSError):
                    gauge.wasted += local_path(location).stat().st_size
            discard(outputs, locations)

        def counting_publish(outputs: TableOutputs, *arguments: Any, **options: Any) -> NewDataFile:
            made = publish(outputs, *arguments, **options)
            gauge.written += made.size_bytes
            return made

        def counting_rewrite(
            engine: DuckDBRewriteEngine, groups: Sequence[FileGroup], *more: Any, **options: Any
        ) -> Any:
            gauge.groups += len(groups)
            return rewrite(engine, groups, *more, **options)

        TableOutputs.discard = counting_discard  # type: ignore[method-assign]
        TableOutputs.publish = counting_publish  # type: ignore[method-assign]
        DuckDBRewriteEngine.rewrite = counting_rewrite  # type: ignore[method-assign]


def _compact(service: Service, mine: Assignment, deeds: Deeds, writers_done: Event) -> None:
    """COMPACT again and again; each compactor has partitions of its own, as a schedule would divide them."""
    gauge = Gauge()
    own = [{"p": p} for p in range(PARTITIONS) if p % mine.compactors == mine.number]
    last = False
    while not last:
        last = writers_done.is_set()
        request = CompactRequest(force=True, partition_filter=own, expire_snapshots=False)
        try:
            answer = service.compactions.compact(address(IDENT), request)
        except RegelateError as error:
            deeds.faults.append(str(error))
            continue
        if answer.stats is not None:
            deeds.runs += 1
            deeds.groups_landed += answer.stats.groups
        writers_done.wait(mine.pause_seconds)
    deeds.groups, deeds.bytes_wasted, deeds.bytes_landed = gauge.groups, gauge.wasted, gauge.written - gauge.wasted
