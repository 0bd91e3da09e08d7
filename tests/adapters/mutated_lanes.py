"""`python -m tests.adapters.mutated_lanes COUNT [SEED]`: garbled files that pass the look at their footers, in a lane.

A lane may refuse what it gets or recode it; it may not end the process, nor write other rows than PyArrow reads from
the same file without dictionaries.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.schema import Schema

from regelate.adapters.duckdb.lanes import NoLane, recode
from regelate.adapters.iceberg.tables.schema import columns_of
from regelate.adapters.parquet.splicing import ParquetSplicer
from regelate.core.planning.lanes import lane_of
from regelate.core.planning.plan import FileGroup
from regelate.core.running.slices import Slice
from regelate.core.table.schema import Column
from regelate.core.table.table import FileScanTask
from tests.support.writers import EVERY, WRITERS, every
from tests.unit.core.model_table import UNPARTITIONED, data_file

FLAT = Schema(*(field for field in EVERY.fields if field.field_id < 50))
COLUMNS: tuple[Column, ...] = tuple(columns_of(FLAT))
ROWS, GROUP, MEMORY = 400, 150, 1 << 28
REFUSED, NO_LANE, SAME, ENDED, OTHER = (
    "refused by its footer",
    "no lane",
    "the rows that are read without a lane",
    "FOUND: it ended the process",
    "FOUND: other rows than are read without a lane",
)


def mutations(folder: Path, count: int, seed: int) -> Counter[str]:
    """Try so many and return how they ended."""
    chance, splicer, found = random.Random(seed), ParquetSplicer(COLUMNS), Counter[str]()
    sound = [_written(folder, name) for name in WRITERS]
    pool = _pool()
    for number in range(count):
        path = folder / f"m{number}.parquet"
        path.write_bytes(_mutated(chance.choice(sound), chance))
        if splicer.look(str(path)).doubt is not None:
            found[REFUSED] += 1
        else:
            try:
                found[what := pool.submit(outcome, str(path)).result(120)] += 1
                if what.startswith("FOUND"):
                    kept = path.rename(Path(tempfile.gettempdir()) / f"lane-{seed}-{number}.parquet")
                    sys.stdout.write(f"{what}: {kept}\n")
            except BrokenProcessPool:
                found[ENDED] += 1
                kept = path.rename(Path(tempfile.gettempdir()) / f"lane-{seed}-{number}.parquet")
                sys.stdout.write(f"{ENDED}: {kept}\n")
                pool = _pool()
        path.unlink(missing_ok=True)
    pool.shutdown()
    return found


def outcome(path: str) -> str:
    """Recode one file, and hold what came out against what is read of it otherwise."""
    target = f"{path}.out"
    task = FileScanTask(data_file=data_file(path, Path(path).stat().st_size, rows=ROWS))
    group = FileGroup(index=0, partition=UNPARTITIONED, tasks=(task,), expected_output_files=1)
    splicer = ParquetSplicer(COLUMNS)
    file = splicer.look(path)
    columns = splicer.by_arrow(file.shape)
    lane = None if columns is None else lane_of({path: file}, columns, MEMORY)
    try:
        if lane is None:
            return NO_LANE
        recode(lane, Slice(group=group, tasks=(task,)), target, codec="zstd", rows=1_000, memory_bytes=MEMORY)
        try:
            otherwise = _texts(path)
        except (pa.ArrowException, OSError) as error:
            return f"FOUND: without a lane it cannot be read: {type(error).__name__}"
        return SAME if _texts(target) == otherwise else OTHER
    except NoLane:
        return NO_LANE
    finally:
        Path(target).unlink(missing_ok=True)


def _texts(path: str) -> list[Any]:
    """Return the columns as bytes would have them: NaN is NaN, and a text need not be UTF-8."""
    table = pq.read_table(path)
    return [_bits(column) for column in table.columns]


def _bits(column: pa.ChunkedArray) -> Any:
    whole = column.combine_chunks()
    storage = whole.storage if isinstance(whole, pa.ExtensionArray) else whole
    if pa.types.is_floating(storage.type):
        storage = storage.view(pa.int64() if storage.type == pa.float64() else pa.int32())
    elif pa.types.is_temporal(storage.type):
        storage = storage.view(pa.int32() if storage.type.bit_width == 32 else pa.int64())
    elif pa.types.is_string(storage.type) or pa.types.is_large_string(storage.type):
        storage = storage.cast(pa.large_binary())
    return storage.to_pylist()


def _written(folder: Path, name: str) -> bytes:
    path = folder / f"{name.replace(' ', '-')}.parquet"
    rows = every(0, ROWS).select([field.name for field in FLAT.fields])
    WRITERS[name](path, rows, FLAT, GROUP, "uncompressed" if name.startswith("plain") else "snappy")
    return path.read_bytes()


def _mutated(sound: bytes, chance: random.Random) -> bytes:
    made = bytearray(sound)
    footer = len(made) - 8 - int.from_bytes(made[-8:-4], "little")
    places = range(4, footer) if chance.random() < 0.8 else range(footer, len(made) - 8)
    for _ in range(chance.choice((1, 1, 2, 5, 20))):
        at = chance.choice(places)
        made[at] = chance.choice((made[at] ^ 1 << chance.randrange(8), chance.randrange(256), 0, 255))
    return bytes(made)


def _pool() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, mp_context=get_context("spawn"))


def main(argv: list[str], say: Callable[[str], object] = sys.stdout.write) -> int:
    count, seed = int(argv[0]), int(argv[1]) if len(argv) > 1 else 1
    with tempfile.TemporaryDirectory() as folder:
        found = mutations(Path(folder), count, seed)
    for what, times in found.most_common():
        say(f"{times:9,d}  {what}\n")
    return int(any(what.startswith("FOUND") for what in found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
