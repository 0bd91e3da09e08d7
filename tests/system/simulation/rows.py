"""Rows of the simulated table, and the data and delete files that hold them.

A data file is a JSON list of rows; a delete file of keys is a JSON list of keys. Delete files of positions that name
several data files are real Parquet, because the committer reads them.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa
import pyarrow.parquet as pq

from regelate.core.running.rewrite import NewDataFile
from regelate.core.table.table import ColumnMetrics, Partition

ID, KEY, PART = 1, 2, 3
FIRST_EXTRA = 4
"""Field ids: the row's id, its key, its partition column, and columns that come and go."""


@dataclass(frozen=True, slots=True)
class Row:
    id: int
    key: int | None
    part: int
    extras: tuple[tuple[int, int], ...] = ()

    def within(self, field_ids: Iterable[int]) -> Row:
        """Return the row without the columns that a schema does not have."""
        known = set(field_ids)
        if all(f in known for f, _ in self.extras):
            return self
        return Row(self.id, self.key, self.part, tuple((f, v) for f, v in self.extras if f in known))

    def rewritten(self, found: Row | None, field_ids: Iterable[int]) -> Row:
        """Return what a rewrite must have made of the row: of columns that the schema does not have, what it kept."""
        kept = () if found is None else (f for f, _ in found.extras)
        return self.within({*field_ids, *kept})

    def value(self, field_id: int) -> int | None:
        if field_id < FIRST_EXTRA:
            return (self.id, self.key, self.part)[field_id - 1]
        return dict(self.extras).get(field_id)


def encode(rows: Sequence[Row]) -> bytes:
    return json.dumps([[r.id, r.key, r.part, r.extras] for r in rows]).encode()


@lru_cache(maxsize=20_000)
def decode(data: bytes) -> tuple[Row, ...]:
    return tuple(Row(i, k, p, tuple((f, v) for f, v in extras)) for i, k, p, extras in json.loads(data))


def encode_positions(named: Mapping[str, Sequence[int]], *, as_parquet: bool) -> bytes:
    pairs = [(path, at) for path, positions in sorted(named.items()) for at in sorted(positions)]
    if not as_parquet:
        return json.dumps(pairs).encode()
    sink = io.BytesIO()
    pq.write_table(pa.table({"file_path": [p for p, _ in pairs], "pos": [at for _, at in pairs]}), sink)
    return sink.getvalue()


@lru_cache(maxsize=5_000)
def decode_positions(data: bytes) -> tuple[tuple[str, int], ...]:
    if data.startswith(b"PAR1"):
        table = pq.read_table(io.BytesIO(data), use_threads=False)
        return tuple(zip(table["file_path"].to_pylist(), table["pos"].to_pylist(), strict=True))
    return tuple((path, at) for path, at in json.loads(data))


def encode_keys(keys: Iterable[int | None]) -> bytes:
    return json.dumps(sorted(keys, key=lambda k: (k is None, k or 0))).encode()


@lru_cache(maxsize=5_000)
def decode_keys(data: bytes) -> frozenset[int | None]:
    return frozenset(json.loads(data))


def describe(path: str, partition: Partition, rows: Sequence[Row], size: int, field_ids: Iterable[int]) -> NewDataFile:
    """Say of a file what a Parquet footer would say: counts of values and nulls, and bounds."""
    values = {f: [r.value(f) for r in rows] for f in field_ids}
    known = {f: [v for v in found if v is not None] for f, found in values.items()}
    return NewDataFile(
        path=path,
        partition=partition,
        record_count=len(rows),
        size_bytes=size,
        metrics=ColumnMetrics(
            value_counts={f: len(found) for f, found in values.items()},
            null_counts={f: len(values[f]) - len(known[f]) for f in values},
            lower_bounds={f: _bound(f, min(found)) for f, found in known.items() if found},
            upper_bounds={f: _bound(f, max(found)) for f, found in known.items() if found},
        ),
    )


def _bound(field_id: int, value: int) -> bytes:
    return struct.pack("<i" if field_id == PART else "<q", value)
