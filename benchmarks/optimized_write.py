"""What an optimized write brings, and costs: upserts of 100 keys each, with `regelate.write.optimized` and without.

Two parts. The service is measured on real tables, whose rows are compared with a model at the end. Rules for what is
taken along are compared in a model of files as sets of keys: a file weighs a footer and its rows.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.lake import open_catalog
from benchmarks.measuring import Promise
from regelate.core.planning.neighbours import GROWTH, SMALL_SHARE
from regelate.core.policy.policy import MB
from regelate.service.build import build
from regelate.settings import load_settings
from regelate.tenancy import Address

KEYS = 100
PARTITIONS = 4
UPDATES = 0.1
"""Of the keys of a request; the others are new. Each key has its partition for ever."""
SIDES: Mapping[str, Mapping[str, str]] = {"plain": {}, "optimized": {"regelate.write.optimized": "true"}}
Batch = Sequence[int]


def batches(count: int, updates: float, first: int, seed: int = 7) -> Iterator[Batch]:
    """Yield the keys of each request: new ones, and ones that are there, any of them alike."""
    rng, known = random.Random(seed), first
    for _ in range(count):
        found: dict[int, None] = {}
        while len(found) < KEYS:
            is_update = known and rng.random() < updates
            found[rng.randrange(known) if is_update else known] = None
            known += not is_update
        yield list(found)


def home_of(key: int, partitions: int) -> int:
    return (key * 2_654_435_761 >> 7) % partitions


# --- measured ---


def measured(home: Path, properties: Mapping[str, str], upserts: int) -> dict[str, float]:
    """Send the upserts of one side to a service, and return what they wrote and left.

    Fails where the rows at the end are not those of the model: for each key the number of the last request with it.
    """
    table = _made(home, properties)
    service = build(load_settings({"REGELATE_HOME": str(home), "REGELATE_ENVIRONMENT": "development"}))
    address = Address(tenant_id="default", catalog="local", ident="bench.events", table="events")
    expected: dict[int, int] = {}
    seconds = most = 0.0
    for number, keys in enumerate(batches(upserts, UPDATES, 0)):
        records = [{"id": key, "p": home_of(key, PARTITIONS), "n": number, "text": f"{key:x}"} for key in keys]
        began = time.perf_counter()
        service.writes.write(address, records, mode="upsert", key=("id",), idempotency_key=None)
        seconds += time.perf_counter() - began
        expected |= dict.fromkeys(keys, number)
        if _total_files(table.refresh()) - PARTITIONS + 1 > most:  # else no partition can have more than one had
            most = max(most, *_files_by_partition(table).values())
    found = table.refresh().scan(selected_fields=("id", "n")).to_arrow()
    rows = dict(zip(found["id"].to_pylist(), found["n"].to_pylist(), strict=True))
    if rows != expected or len(found) != len(expected):
        raise SystemExit(f"{dict(properties)}: the rows are not those of the model")
    summaries = [dict(s.summary.additional_properties) for s in table.snapshots() if s.summary]
    return {
        "most": most,
        "written_mb": sum(int(s.get("added-files-size", 0)) for s in summaries) / MB,
        "taken": sum(int(s.get("regelate.files-taken-along", 0)) for s in summaries),
        "rows": len(found),
        "output_files": sum(_files_by_partition(table).values()),
        "seconds": seconds,
    }


def _made(home: Path, properties: Mapping[str, str]) -> Any:
    schema = pa.schema([("id", pa.int64()), ("p", pa.int64()), ("n", pa.int64()), ("text", pa.string())])
    catalog = open_catalog(home)
    catalog.create_namespace_if_not_exists("bench")
    table = catalog.create_table("bench.events", schema, properties=dict(properties))
    with table.update_spec() as change:
        change.add_identity("p")
    return table


def _total_files(table: Any) -> int:
    return int(table.current_snapshot().summary.additional_properties["total-data-files"])


def _files_by_partition(table: Any) -> Counter[Any]:
    head = table.current_snapshot()
    entries = (e for m in head.manifests(table.io) for e in m.fetch_manifest_entry(table.io))
    return Counter(e.data_file.partition[0] for e in entries)


# --- the model ---

FOOTER, ROW = 1_250, 6
"""Bytes of a file of this table without rows, and of each row, as measured."""
TARGET = 128 * MB
MODELLED = 400
"""Upserts of the model, which keeps every key in memory."""
Rule = Callable[[int, Sequence[int]], int]
"""Bytes that are written anyway, and the sizes of the others, smallest first -> how many join."""


def nothing(own: int, others: Sequence[int]) -> int:
    return 0


def while_at_most(share: float, *, of_own: bool = False) -> Rule:
    """Take the next while it has at most so many times the bytes before it; `of_own`: all of them, of the request's."""

    def rule(own: int, others: Sequence[int]) -> int:
        taken, written = 0, own
        for size in others:
            too_much = written + size - own > share * own if of_own else size > share * written
            if size >= SMALL_SHARE * TARGET or written + size > TARGET or too_much:
                break
            taken, written = taken + 1, written + size
        return taken

    return rule


RULES: Mapping[str, Rule] = {
    "none (plain)": nothing,
    "all small files": while_at_most(float("inf")),
    "as much as the request writes": while_at_most(1, of_own=True),
    "the next while it is no larger": while_at_most(1),
    f"the next while it is at most {GROWTH} times": while_at_most(GROWTH),
    "the next while it is at most 4 times": while_at_most(4),
}


class Model:
    """A partitioned table of sets of keys, upserted under one rule."""

    def __init__(self, partitions: int, rule: Rule) -> None:
        self._rule = rule
        self._partitions = partitions
        self._files: list[dict[int, set[int]]] = [{} for _ in range(partitions)]
        self._file_of: dict[int, int] = {}
        self._made = 0
        self.written = self.most = 0

    def upsert(self, keys: Iterable[int]) -> None:
        parts: dict[int, set[int]] = {}
        for key in keys:
            parts.setdefault(home_of(key, self._partitions), set()).add(key)
        for partition, own in parts.items():
            self._merge(self._files[partition], own)

    def _merge(self, files: dict[int, set[int]], own: set[int]) -> None:
        touched = {self._file_of[key] for key in own if key in self._file_of}
        own = own.union(*(files.pop(number) for number in touched))
        others = sorted((_bytes(keys), number) for number, keys in files.items())
        taken = self._rule(_bytes(own), [size for size, _ in others])
        own = own.union(*(files.pop(number) for _, number in others[:taken]))
        self._made += 1
        files[self._made] = own
        self._file_of.update(dict.fromkeys(own, self._made))
        self.written += _bytes(own)
        self.most = max(self.most, len(files))


def _bytes(keys: Collection[int]) -> int:
    return FOOTER + ROW * len(keys)


SHAPES: Mapping[str, tuple[int, float]] = {
    "4 partitions, half updates": (4, 0.5),
    "4 partitions, a tenth updates": (4, 0.1),
    "4 partitions, one in fifty updates": (4, 0.02),
    "10 partitions, a tenth updates": (10, 0.1),
    "50 partitions, half updates": (50, 0.5),
    "10 partitions, new keys alone": (10, 0.0),
}


def optimized_write(work: Path, runs: int, quick: bool) -> tuple[dict[str, Any], list[Promise]]:
    """What does an optimized write bring, and what does it write for it, upsert after upsert of 100 keys?"""
    upserts = 60 if quick else 1_000
    found: dict[str, Any] = {}
    with ProcessPoolExecutor(len(SIDES), mp_context=get_context("spawn")) as pool:  # beside each other: a fair pair
        jobs = {side: pool.submit(measured, work / side, asked, upserts) for side, asked in SIDES.items()}
        for side, job in jobs.items():
            found[f"{side}, {upserts:,} upserts"] = [job.result()]
            print(f"  {side}: {job.result()}", flush=True)
    (plain,), (ours,) = found.values()
    for shape, (partitions, updates) in SHAPES.items():
        models = {name: Model(partitions, rule) for name, rule in RULES.items()}
        for keys in batches(min(upserts, MODELLED), updates, 0):
            for model in models.values():
                model.upsert(keys)
        for name, model in models.items():
            found[f"model, {shape}: {name}"] = [{"most": model.most, "written_mb": model.written / MB}]
    promises = [
        Promise(name="files of a partition, at most, optimized", ratio=ours["most"], limit=3),
        Promise(name="bytes written, optimized / plain", ratio=ours["written_mb"] / plain["written_mb"], limit=2),
        Promise(name="files of a partition, at most, plain", ratio=plain["most"], limit=None),
        Promise(name="time of the requests, optimized / plain", ratio=ours["seconds"] / plain["seconds"], limit=None),
    ]
    return {"keys": KEYS, "partitions": PARTITIONS, "updates": UPDATES, **found}, promises
