"""Mutated Parquet files through splicing: `python -m tests.adapters.mutated_files [count] [seed]` counts their ends.

Each is looked at and, where nothing is in doubt, joined with a sound file. The output must have the sound rows, or
those that the mutated file is read with by itself, or be unreadable. Readers may end the process on a garbled footer
(trap T31: a garbled footer ends the process): a child reads, and one that ends so is a finding.
"""

from __future__ import annotations

import logging
import multiprocessing
import random
import sys
import tempfile
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyiceberg.schema import Schema

from regelate.adapters.iceberg.tables.schema import columns_of
from regelate.adapters.parquet.footer import read_footer
from regelate.adapters.parquet.splicing import ParquetSplicer
from regelate.core.running.parts import Source
from regelate.errors import InvariantViolated
from tests.support.writers import EVERY, WRITERS, every

ROWS, GROUP = 60, 40
NAMES = ("n", "text", "d9", "d38", "li")
SCHEMA = Schema(*(field for field in EVERY.fields if field.name in NAMES))
COUNT, SEED = 100_000, 1


def samples(folder: Path) -> list[tuple[str, bytes, int]]:
    """Return a file of each writer as bytes, and where its footer begins."""
    found = []
    for name, write in WRITERS.items():
        path = folder / "sample.parquet"
        write(path, every(0, ROWS).select(NAMES), SCHEMA, GROUP, "zstd")
        with path.open("rb") as file:
            start = read_footer(file).start
        found.append((name, path.read_bytes(), start))
    return found


def mutated(data: bytes, start: int, chance: random.Random) -> tuple[bytes, bool]:
    """Change a file in one to three places; say whether it was in its footer."""
    in_footer = chance.random() < 0.7
    low, high = (start, len(data)) if in_footer else (4, start)
    made = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        at = chance.randrange(low, min(high, len(made)))
        kind = chance.randrange(5)
        if kind == 0:
            made[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            made[at] = chance.randrange(256)
        elif kind == 2 and in_footer:
            del made[at : at + chance.choice((1, 2, 9))]
        elif kind == 3 and in_footer:
            made[at:at] = bytes(chance.randrange(256) for _ in range(chance.choice((1, 2, 9))))
        else:
            other = chance.randrange(low, min(high, len(made)))
            made[at : at + 4] = made[other : other + 4]
    if in_footer and chance.random() < 0.8:  # else the length is wrong, and nothing more is looked at
        made[-8:] = (len(made) - 8 - start).to_bytes(4, "little", signed=False) + b"PAR1"
    return bytes(made), in_footer


def rows_of(path: str, skip: int) -> Any:
    """Return the rows of a file after the first ones as text, or the kind of the error."""
    try:
        return repr(pq.read_table(path, page_checksum_verification=True).to_pylist()[skip:])
    except Exception as error:  # noqa: BLE001  whatever a reader says of nonsense
        return type(error).__name__


def _reader() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))


def fuzz(count: int, seed: int) -> Counter[str]:
    """Return how many came to which end; what must not be begins with FOUND."""
    chance, found = random.Random(seed), Counter[str]()
    splicer = ParquetSplicer(columns_of(SCHEMA))
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        given = samples(folder)
        sound, path, target = folder / "sound.parquet", folder / "mutated.parquet", folder / "whole.parquet"
        sound.write_bytes(given[0][1])
        pool = _reader()
        wanted = pool.submit(rows_of, str(sound), 0).result()
        usual = {}
        for name, data, _ in given:
            path.write_bytes(data)
            numbers = tuple(range(len(splicer.look(str(path)).groups)))
            sources = [Source(path=str(sound), numbers=(0, 1)), Source(path=str(path), numbers=numbers)]
            if not splicer.join(sources, str(target)):
                raise SystemExit(f"{name}: a sound file is not joined")
            usual[name] = target.read_bytes()
        for number in range(count):
            name, data, start = chance.choice(given)
            changed, in_footer = mutated(data, start, chance)
            path.write_bytes(changed)
            looked = splicer.look(str(path))
            if looked.doubt is not None:
                found["in doubt"] += 1
                continue
            groups = tuple(at for at, group in enumerate(looked.groups) if group.rows)
            sources = [Source(path=str(sound), numbers=(0, 1)), Source(path=str(path), numbers=groups)]
            try:
                joined = splicer.join(sources, str(target))
            except InvariantViolated:
                found["FOUND: the proof failed"] += 1
                continue
            if not joined:
                found["not joined"] += 1
                continue
            if target.read_bytes() == usual[name]:
                found["the very output of the file as it was"] += 1
                continue
            try:
                whole = pool.submit(rows_of, str(target), ROWS).result(60)
                alone = pool.submit(rows_of, str(path), 0).result(60)
            except BrokenProcessPool:
                found["FOUND: a reader ended the process"] += 1
                (Path(tempfile.gettempdir()) / f"splice-fuzz-{seed}-{number}.parquet").write_bytes(changed)
                pool = _reader()
                continue
            found[_judged(whole, alone, wanted, changed == data, in_footer)] += 1
        pool.shutdown()
    return found


def _judged(whole: str, alone: str, wanted: str, same: bool, in_footer: bool) -> str:
    where = "footer" if in_footer else "pages"
    if whole == wanted:
        return (
            "the sound rows" if same or alone == wanted else "the sound rows, where the mutated file had others or none"
        )
    if whole == alone:
        return f"what the mutated file is read as ({where})"
    if not whole.startswith("["):
        return f"unreadable, and the mutated file is read as something ({where})"
    return f"FOUND: other rows than the sound or the mutated file has ({where})"


def main() -> int:
    count, seed = (int(text) for text in (*sys.argv[1:3], *(COUNT, SEED)[len(sys.argv[1:3]) :]))
    logging.disable(logging.WARNING)
    found = fuzz(count, seed)
    for what, times in sorted(found.items()):
        sys.stdout.write(f"{times:>8,}  {what}\n")
    sys.stdout.write(f"{sum(found.values()):>8,}  mutated files, seed {seed}\n")
    return 1 if any(what.startswith("FOUND") for what in found) else 0


if __name__ == "__main__":
    sys.exit(main())
