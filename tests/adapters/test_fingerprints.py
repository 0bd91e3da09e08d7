"""The fingerprint of rows: equal for the same multiset through both readers, different for all that Iceberg tells
apart."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regelate.adapters.duckdb.arrow_writer import _field
from regelate.adapters.duckdb.fingerprints import of_file, row_hash
from regelate.core.running.rewrite import Fingerprint
from regelate.core.table.schema import Column
from regelate.errors import Unavailable


def leaf(kind: str, name: str = "v", field_id: int = 1) -> Column:
    return Column(name=name, type=kind, field_id=field_id)


def list_of(element: Column) -> Column:
    return Column(name="v", type="list", field_id=1, children=(element,))


ITEM = leaf("long", "element", 2)
NESTED = list_of(Column(name="element", type="list", field_id=2, children=(leaf("long", "element", 3),)))
PAIR = Column(name="v", type="struct", field_id=1, children=(leaf("double", "x", 2), leaf("string", "y", 3)))
MAP = Column(name="v", type="map", field_id=1, children=(leaf("string", "key", 2), leaf("double", "value", 3)))
NAN_OF_OTHER_BITS = struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000001))[0]

DISTINCT: dict[str, tuple[Column, Sequence[object]]] = {
    "boolean": (leaf("boolean"), (None, False, True)),
    "long": (leaf("long"), (None, 0, 1, -1, 2**63 - 1, -(2**63))),
    "double": (leaf("double"), (None, 0.0, -0.0, float("nan"), float("inf"), float("-inf"), 5e-324, 0.1)),
    "float": (leaf("float"), (None, 0.0, -0.0, float("nan"), 1.5, -1.5)),
    "string": (leaf("string"), (None, "", " ", "\0", "a", "A", "null", "NULL", "é", "e\u0301", "x" * 40, "x" * 41)),
    "binary": (leaf("binary"), (None, b"", b"\0", b"\0\0", b"\xff")),
    "fixed": (leaf("fixed[2]"), (None, b"\0\0", b"\0\1", b"\1\0")),
    "narrow decimal": (leaf("decimal(9, 2)"), (None, Decimal("0.00"), Decimal("0.01"), Decimal("-0.01"))),
    "wide decimal": (leaf("decimal(38, 0)"), tuple(map(Decimal, (0, -1, 1, 2**64, 2**64 + 1, 2**65 + 2)))),
    "uuid": (leaf("uuid"), (None, *(uuid.UUID(int=n).bytes for n in (0, 1, 2**64, 2**64 + 1, 2**65 + 2)))),
    "timestamp": (leaf("timestamp"), (None, 0, 1, -1, 10**15)),
    "timestamptz": (leaf("timestamptz"), (None, 0, 1, -1)),
    "date": (leaf("date"), (None, 0, 1, -1)),
    "time": (leaf("time"), (None, 0, 1)),
    "list": (list_of(ITEM), (None, [], [None], [None, None], [0], [0, 0], [1, 2], [2, 1])),
    "nested list": (NESTED, (None, [], [[]], [None], [[1], [2]], [[1, 2]], [[], [1, 2]], [[1, 2], []])),
    "list of doubles": (list_of(leaf("double", "element", 2)), ([0.0], [-0.0], [float("nan")], [None], [])),
    "struct": (PAIR, (None, *({"x": x, "y": y} for x in (None, 0.0, -0.0) for y in (None, "", "0")))),
    "map": (MAP, (None, [], [("a", None)], [("a", 0.0)], [("a", -0.0)], [("", 0.0)], [("a", 0.0), ("b", 0.0)])),
}


def fingerprint(columns: Sequence[Column], rows: Sequence[Sequence[object]], folder: Path) -> Fingerprint:
    """Write rows with PyArrow and fingerprint them as the verification reads an output back."""
    schema = pa.schema([_field(c) for c in columns])
    arrays = [
        pa.array([row[i] for row in rows], field.type.storage_type).cast(field.type)
        if isinstance(field.type, pa.ExtensionType)
        else pa.array([row[i] for row in rows], field.type)
        for i, field in enumerate(schema)
    ]
    path = folder / f"{uuid.uuid4()}.parquet"
    pq.write_table(pa.Table.from_arrays(arrays, schema=schema), path)
    with duckdb.connect() as connection, path.open("rb") as source:
        read_back = of_file(connection, source, columns, str(path))
        query = f"SELECT count(*), sum(CAST({row_hash(columns)} AS HUGEINT)) FROM read_parquet('{path}')"
        count, total = connection.execute(query).fetchone() or (0, 0)
    assert read_back == Fingerprint(rows=count, total=int(total or 0)), "the two readers must agree"
    return read_back


@pytest.mark.parametrize("kind", DISTINCT)
def test_every_two_values_that_iceberg_tells_apart_have_different_fingerprints(tmp_path: Path, kind: str) -> None:
    column, values = DISTINCT[kind]
    totals = [fingerprint([column], [[value]], tmp_path).total for value in values]
    assert len(set(totals)) == len(values), dict(zip(map(repr, values), totals, strict=True))


def test_nan_is_nan_whatever_its_bits(tmp_path: Path) -> None:
    one, other = (fingerprint([leaf("double")], [[v]], tmp_path) for v in (float("nan"), NAN_OF_OTHER_BITS))
    assert one == other


def test_the_sum_is_exact_and_does_not_become_a_double(tmp_path: Path) -> None:
    rows = [[n] for n in range(100_000)]
    whole = fingerprint([leaf("long")], rows, tmp_path)
    parts = [fingerprint([leaf("long")], rows[low : low + 30_000], tmp_path) for low in range(0, 100_000, 30_000)]
    assert sum(parts, Fingerprint()) == whole
    assert whole.total > 2**64
    assert fingerprint([leaf("long")], [*rows[1:], [-1]], tmp_path).total != whole.total


VALUES = st.tuples(
    st.none() | st.integers(-3, 3),
    st.none() | st.sampled_from([0.0, -0.0, 1.5]),
    st.none() | st.sampled_from(["", "a", "b"]),
    st.none() | st.lists(st.none() | st.integers(0, 1), max_size=2),
)
COLUMNS = (
    leaf("int", "i", 1),
    leaf("double", "d", 2),
    leaf("string", "s", 3),
    Column(name="l", type="list", field_id=4, children=(leaf("long", "element", 5),)),
)


def multiset(rows: Sequence[Any]) -> list[str]:
    return sorted(map(repr, rows))


@settings(max_examples=40)
@given(left=st.lists(VALUES, max_size=6), right=st.lists(VALUES, max_size=6), seed=st.randoms(use_true_random=False))
def test_fingerprints_are_equal_exactly_where_the_rows_are_the_same_multiset(
    tmp_path_factory: pytest.TempPathFactory, left: list[Any], right: list[Any], seed: Any
) -> None:
    folder = tmp_path_factory.mktemp("rows")
    shuffled = list(left)
    seed.shuffle(shuffled)
    found = fingerprint(COLUMNS, left, folder)
    assert found == fingerprint(COLUMNS, shuffled, folder)
    assert (found == fingerprint(COLUMNS, right, folder)) == (multiset(left) == multiset(right))


def test_what_is_no_parquet_file_cannot_be_read_back(tmp_path: Path) -> None:
    path = tmp_path / "output.parquet"
    path.write_bytes(b"PAR1 and nothing else")
    with duckdb.connect() as connection, path.open("rb") as source, pytest.raises(Unavailable) as caught:
        of_file(connection, source, [leaf("long")], str(path))
    assert (caught.value.code, caught.value.status) == ("STORAGE_INCONSISTENT", 502)
