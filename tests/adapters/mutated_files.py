"""Mutated Parquet files through splicing: `python -m tests.adapters.mutated_files [count] [seed]` counts their ends.

Footers and page headers are changed, and judged in memory by what the splicer judges by. What is neither refused nor
judged to be what it was before is joined with a sound file: the output must have the sound rows, or those that the
mutated file is read with by itself, or be unreadable. Readers may end the process on a garbled footer (trap T31: a
garbled footer ends the process): a child reads, and one that ends over an output is a finding.
"""

from __future__ import annotations

import hashlib
import io
import logging
import multiprocessing
import random
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyiceberg.schema import Schema

from regelate.adapters.iceberg.tables.schema import columns_of
from regelate.adapters.parquet.footer import MAGIC, read_footer
from regelate.adapters.parquet.inputs import ParquetFile, read_file
from regelate.adapters.parquet.pages import checksum
from regelate.adapters.parquet.splicing import ParquetSplicer
from regelate.adapters.parquet.thrift import Malformed
from regelate.adapters.parquet.thrift_reader import decode_from
from regelate.core.running.parts import Source
from regelate.core.table.schema import Column
from regelate.errors import InvariantViolated
from tests.support.writers import EVERY, WRITERS, every

FILES = ((("n", "text"), 40), (("d9", "d38"), 60), (("li",), 60), (("st",), 60), (("id", "ma"), 60))
"""Columns of a file and the rows of its row groups: few, so that a change hits what matters."""
ROWS = 60
COUNT, SEED = 100_000, 1
PLACES = ("footer",) * 14 + ("page header",) * 5 + ("page",)
"""Where files are changed, as often as here."""
PAGE_BYTES = 3
"""The field of a page header that says how long its page is."""
BATCH = 64
"""Outputs that are read at once: asking a child takes longer than reading one."""
EACH_WHOLE = 500
"""Of so many that are refused, or what they were, one goes through the splicer itself, which must say the same."""
REFUSED, AS_IT_WAS = "refused: in doubt", "what is copied is as it was"
NOT_JOINED = "refused: its pages are not what its footer says"


@dataclass(frozen=True)
class Sample:
    """A sound file of some writer, what is read of it, where the headers of its pages lie, and who joins it."""

    name: str
    data: bytes
    start: int
    found: ParquetFile
    headers: tuple[range, ...]
    columns: tuple[Column, ...]
    splicer: ParquetSplicer
    wanted: str


@dataclass(frozen=True)
class Joined:
    """An output that a mutated file went into, to be read."""

    target: Path
    mutated: Path
    sample: Sample
    place: str


class Mutations:
    """Tries mutated files one by one; `found` counts their ends, and what must not be begins with FOUND."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.found: Counter[str] = Counter()
        self._folder, self._seed = folder, seed
        self._chance = random.Random(seed)
        self._reader = _reader()
        self._waiting: list[Joined] = []
        self._seen: set[bytes] = set()
        self._number = 0
        self._samples = tuple(self._make())

    def _make(self) -> Iterator[Sample]:
        for names, group in FILES:
            schema = Schema(*(f for f in EVERY.fields if f.name in names))
            columns = columns_of(schema)
            splicer = ParquetSplicer(columns)
            for name, write in WRITERS.items():
                path = self._folder / f"{name}-{'-'.join(names)}.parquet"
                write(path, every(0, ROWS).select(names), schema, group, "zstd")
                data = path.read_bytes()
                found = read_file(io.BytesIO(data), columns)
                start = read_footer(io.BytesIO(data)).start
                wanted = self._reader.submit(rows_of, str(path), 0).result()
                headers = tuple(_headers(data, found))
                yield Sample(f"{name} {names}", data, start, found, headers, columns, splicer, wanted)

    def try_one(self) -> None:
        self._number += 1
        sample = self._chance.choice(self._samples)
        place = self._chance.choice(PLACES)
        changed = _mutated(sample, place, self._chance)
        verdict = _judged(sample, changed, place)
        if verdict is None or self._number % EACH_WHOLE == 0:
            self._join(sample, changed, place, verdict)
        else:
            self.found[verdict] += 1

    def _join(self, sample: Sample, changed: bytes, place: str, verdict: str | None) -> None:
        mutated, sound = self._folder / f"m{self._number}.parquet", self._folder / "sound.parquet"
        target = self._folder / f"t{self._number}.parquet"
        mutated.write_bytes(changed)
        sound.write_bytes(sample.data)
        looked = sample.splicer.look(str(mutated))
        numbers = tuple(range(len(looked.groups)))
        whole = tuple(range(len(sample.found.groups)))
        sources = [Source(path=str(sound), numbers=whole), Source(path=str(mutated), numbers=numbers)]
        try:
            joined = looked.doubt is None and sample.splicer.join(sources, str(target))
        except InvariantViolated:
            self._finding("the proof failed", changed)
            return
        if verdict is not None:
            agreed = joined == (verdict == AS_IT_WAS)
            self.found[verdict] += agreed
            if not agreed:
                self._finding(f"the splicer does not say: {verdict}", changed)
        elif not joined:
            self.found["refused: by the splicer alone"] += 1
        if verdict is not None or not joined:
            self._forget(mutated, target)
            return
        digest = hashlib.sha256(target.read_bytes()).digest()
        if digest in self._seen:
            self.found["the very output of one that was read"] += 1
            self._forget(mutated, target)
            return
        self._seen.add(digest)
        self._waiting.append(Joined(target, mutated, sample, place))
        if len(self._waiting) >= BATCH:
            self.read()

    def read(self) -> None:
        """Have what is waiting read, and count what it is read as."""
        waiting, self._waiting = self._waiting, []
        texts = self._read([one.target for one in waiting])
        for one, text in zip(waiting, texts, strict=True):
            alone = "" if text == one.sample.wanted else self._read([one.mutated], skip=0)[0]
            what = _outcome(text, alone, one)
            if what.startswith("FOUND"):
                self._finding(what.removeprefix("FOUND: "), one.mutated.read_bytes())
            else:
                self.found[what] += 1
            self._forget(one.mutated, one.target)

    def _read(self, paths: Sequence[Path], skip: int = ROWS) -> list[str]:
        """Return the rows of files as text, or the kind of the error; ENDED for one over which the reader ended."""
        try:
            return self._reader.submit(all_rows_of, [str(path) for path in paths], skip).result(120)
        except BrokenProcessPool:
            self._reader = _reader()
            return [ENDED] if len(paths) == 1 else [self._read([path], skip)[0] for path in paths]

    def _finding(self, what: str, changed: bytes) -> None:
        self.found[f"FOUND: {what}"] += 1
        kept = Path(tempfile.gettempdir()) / f"splice-fuzz-{hashlib.sha256(changed).hexdigest()[:16]}.parquet"
        kept.write_bytes(changed)
        sys.stdout.write(f"{what}: {kept}\n")

    def _forget(self, *paths: Path) -> None:
        for path in paths:
            path.unlink(missing_ok=True)

    def close(self) -> None:
        self.read()
        self._reader.shutdown()


def _headers(data: bytes, found: ParquetFile) -> Iterator[range]:
    for chunk in (chunk for group in found.groups for chunk in group.chunks):
        at = chunk.start
        while at < chunk.start + chunk.size:
            header, after = decode_from(data, at)
            yield range(at, after)
            at = after + (header.whole(PAGE_BYTES) or 0)


def _mutated(sample: Sample, place: str, chance: random.Random) -> bytes:
    """Change one footer, page header or page in one to three bytes or so."""
    made = bytearray(sample.data)
    in_footer = place == "footer"
    places: Sequence[int] = range(sample.start, len(made))
    if not in_footer:
        places = chance.choice(sample.headers) if place == "page header" else range(len(MAGIC), sample.start)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        at = min(chance.choice(places), len(made) - 1)
        kind = chance.randrange(5)
        if kind == 0:
            made[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            made[at] = chance.randrange(256)
        elif kind == 2 and in_footer:
            del made[at : at + chance.choice((1, 2, 9))]
        elif kind == 3 and in_footer:
            made[at:at] = bytes(chance.randrange(256) for _ in range(chance.choice((1, 2, 9))))
        elif kind == 4:
            made[at] = (made[at] + chance.choice((1, 2, -1, -2))) % 256
        else:
            other = min(chance.choice(places), len(made) - 4)
            made[at : at + 4] = made[other : other + 4]
    if in_footer and chance.random() < 0.9:  # else the length is wrong, and nothing more is looked at
        made[-8:] = (len(made) - 8 - sample.start).to_bytes(4, "little", signed=False) + b"PAR1"
    return bytes(made)


def _judged(sample: Sample, changed: bytes, place: str) -> str | None:
    """Say what the splicer says by the footer and the pages; None where what it would copy is not what it was."""
    file = io.BytesIO(changed)
    try:
        found = read_file(file, sample.columns) if place == "footer" else sample.found
    except Malformed:
        return REFUSED
    if found == sample.found and place == "footer":
        return AS_IT_WAS
    try:
        for group in found.groups:
            for chunk in group.chunks:
                checksum(file, chunk)
    except Malformed:
        return NOT_JOINED
    return AS_IT_WAS if changed == sample.data else None


def _outcome(text: str, alone: str, one: Joined) -> str:
    if text == ENDED:
        return "FOUND: a reader ended over the output"
    if text == one.sample.wanted:
        return "the sound rows"
    if text == alone:
        return f"what the mutated file is read as ({one.place})"
    if not text.startswith("["):
        how = "readable" if alone.startswith("[") else f"{alone} by itself"
        return f"{text}, and the mutated file is {how} ({one.place})"
    return f"FOUND: other rows than the sound or the mutated file has ({one.place})"


ENDED = "ended"


def all_rows_of(paths: Sequence[str], skip: int) -> list[str]:
    return [rows_of(path, skip) for path in paths]


def rows_of(path: str, skip: int) -> str:
    """Return the rows of a file after the first ones as text, or the kind of the error."""
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            return repr(_nameless(file.read().slice(skip).to_pylist()))
    except Exception as error:  # noqa: BLE001  whatever a reader says of nonsense
        return f"{type(error).__name__}"


def _nameless(value: Any) -> Any:
    """Structs are told apart by what is in them: names come from the table, whatever a file says."""
    if isinstance(value, dict):
        return tuple(map(_nameless, value.values()))
    return [_nameless(one) for one in value] if isinstance(value, list) else value


def _reader() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))


def fuzz(count: int, seed: int) -> Counter[str]:
    """Return how many came to which end; what must not be begins with FOUND."""
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else None))
    try:
        mutations = Mutations(folder, seed)
        with suppress(KeyboardInterrupt):  # what was tried until then is told all the same
            for _ in range(count):
                mutations.try_one()
        mutations.close()
    finally:
        shutil.rmtree(folder)
    return mutations.found


def main() -> int:
    count, seed = (int(text) for text in (*sys.argv[1:3], *(COUNT, SEED)[len(sys.argv[1:3]) :]))
    logging.disable(logging.WARNING)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    found = fuzz(count, seed)
    for what, times in sorted(found.items()):
        sys.stdout.write(f"{times:>9,}  {what}\n")
    sys.stdout.write(f"{sum(found.values()):>9,}  mutated files, seed {seed}\n")
    return 1 if any(what.startswith("FOUND") for what in found) else 0


if __name__ == "__main__":
    sys.exit(main())
