"""One trial: a table, its appenders, deleters and compactors as real processes, and the audit of what they leave."""

from __future__ import annotations

import json
import multiprocessing
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, LongType, NestedField

from regelate.service.build import build
from regelate.settings import load_settings
from tests.support.iceberg_tables import live_data_files, make_table
from tests.support.meanwhile import orphans
from tests.support.table_model import model_rows
from tests.system.concurrency.actors import IDENT, Assignment, Deeds, act

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "p", IntegerType()))
BY_P = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "p"))


@dataclass(frozen=True, kw_only=True)
class Trial:
    """How many of whom, and how busy. Appenders write as fast as they can; deleters pause between two deletes, and
    compactors between two runs."""

    catalog: str
    appenders: int
    writes: int
    deletes: int
    deleters: int = 2
    compactors: int = 2
    deleters_pause_seconds: float = 2.0
    compactors_pause_seconds: float = 0.5
    seed: int = 1


@dataclass(frozen=True, kw_only=True)
class Report:
    """What came out. `lost`, `doubled` and `returned` are ids of rows; all must be empty."""

    trial: Trial
    deeds: tuple[Deeds, ...]
    lost: tuple[int, ...]
    doubled: tuple[int, ...]
    returned: tuple[int, ...]
    rows: int
    files: int
    snapshots: int
    unnamed_files: int
    """Data files in the store that no snapshot ever named; those of the deleters' lost races are not ours."""

    def of(self, *roles: str) -> list[Deeds]:
        return [d for d in self.deeds if d.role in roles]

    @property
    def wrong_rows(self) -> int:
        return len(self.lost) + len(self.doubled) + len(self.returned)

    @property
    def writes(self) -> tuple[int, int]:
        """(succeeded, asked) of the appenders."""
        mine = self.of("appender")
        return sum(d.succeeded for d in mine), sum(d.asked for d in mine)

    @property
    def deletes(self) -> tuple[int, int]:
        mine = self.of("equality", "position")
        return sum(d.succeeded for d in mine), sum(d.asked for d in mine)

    @property
    def groups(self) -> tuple[int, int]:
        """(landed, rewritten)."""
        mine = self.of("compactor")
        return sum(d.groups_landed for d in mine), sum(d.groups for d in mine)

    @property
    def wasted(self) -> tuple[int, int]:
        """(bytes of outputs deleted again, bytes of all outputs) of the compactors."""
        mine = self.of("compactor")
        wasted = sum(d.bytes_wasted for d in mine)
        return wasted, wasted + sum(d.bytes_landed for d in mine)


def run(trial: Trial, catalog: Mapping[str, str], folder: Path) -> Report:
    """Play a trial over a catalog (PyIceberg's properties) and audit the table."""
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "config.json"
    environment = {"auth": "none", "tenants": "*", "catalogs": {"local": dict(catalog)}}
    config.write_text(json.dumps({"environments": {"development": environment}}))
    service = build(load_settings({"REGELATE_CONFIG": str(config)}))
    table = make_table(service.access.survey(), IDENT, SCHEMA, BY_P)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.system.concurrency.actors"])  # one import for all of them
    cast = _cast(trial, config)
    with context.Manager() as manager:
        done = manager.Event()
        with ProcessPoolExecutor(len(cast), mp_context=context) as pool:
            playing = [pool.submit(act, one, done) for one in cast]  # type: ignore[arg-type]  # a proxy of an Event
            try:
                for play in [p for p, one in zip(playing, cast, strict=True) if one.role != "compactor"]:
                    play.result()
            finally:
                done.set()
            return audit(trial, table, [play.result() for play in playing])


def _cast(trial: Trial, config: Path) -> list[Assignment]:
    def one(role: str, number: int, turns: int, pause_seconds: float) -> Assignment:
        return Assignment(
            role=role, number=number, config=config, seed=trial.seed * 1000 + number, turns=turns,
            pause_seconds=pause_seconds, compactors=trial.compactors,
        )  # fmt: skip

    kinds = ("equality", "position")
    return [
        *(one("appender", n, trial.writes, 0.0) for n in range(trial.appenders)),
        *(one(kinds[n % 2], n, trial.deletes, trial.deleters_pause_seconds) for n in range(trial.deleters)),
        *(one("compactor", n, 0, trial.compactors_pause_seconds) for n in range(trial.compactors)),
    ]


def audit(trial: Trial, table: Table, deeds: Sequence[Deeds]) -> Report:
    """Compare the rows that an independent reader sees with what the actors were told."""
    found = Counter(int(row[1:].split(",")[0]) for row in model_rows(table))
    written = set().union(*(d.written for d in deeds))
    deleted = set().union(*(d.deleted for d in deeds))
    perhaps = set().union(*(d.perhaps for d in deeds))
    certain = written - deleted - perhaps
    return Report(
        trial=trial,
        deeds=tuple(deeds),
        lost=tuple(sorted(certain - found.keys())),
        doubled=tuple(sorted(i for i, n in found.items() if n > 1)),
        returned=tuple(sorted(found.keys() - written - perhaps | (found.keys() & deleted - perhaps))),
        rows=found.total(),
        files=len(live_data_files(table.refresh())),
        snapshots=len(table.snapshots()),
        unnamed_files=sum(not path.endswith("-deletes.parquet") for path in orphans(table)),
    )
