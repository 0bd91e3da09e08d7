"""The codec of Thrift's compact protocol: what it takes it gives back byte for byte, and it takes nothing else."""

from __future__ import annotations

import io
import os
import random
import sys
import tracemalloc
from collections.abc import Callable
from functools import cache
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from regelate.adapters.parquet.footer import read_footer, replace_footer
from regelate.adapters.parquet.thrift import (
    BINARY,
    BITS,
    DOUBLE,
    FALSE,
    I8,
    I16,
    I32,
    I64,
    LIST,
    MAP,
    MAX_FIELD_ID,
    SET,
    STRUCT,
    TRUE,
    UUID,
    WIDTHS,
    Items,
    Malformed,
    Pairs,
    Raw,
    Struct,
    Value,
)
from regelate.adapters.parquet.thrift_reader import MAX_DEPTH, decode, decode_from
from regelate.adapters.parquet.thrift_writer import encode

RECORDED = sorted((Path(__file__).parent / "recorded").glob("*.footer"))
FLIPS = int(os.environ.get("REGELATE_FUZZ", "700"))
"""Damaged footers to try: `REGELATE_FUZZ=1000000` tries for some minutes."""
KINDS = (TRUE, I8, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT, UUID)


def values_of(kind: int, depth: int) -> st.SearchStrategy[Value]:
    if kind in BITS:
        return st.integers(-(1 << BITS[kind] - 1), (1 << BITS[kind] - 1) - 1)
    if kind == I8:
        return st.integers(-128, 127)
    if kind in WIDTHS:
        return st.binary(min_size=WIDTHS[kind], max_size=WIDTHS[kind])
    if kind in (LIST, SET):
        return inner_kinds(depth).flatmap(lambda inner: items_of(inner, depth - 1))
    if kind == MAP:
        return st.tuples(inner_kinds(depth), inner_kinds(depth)).flatmap(lambda kinds: pairs_of(*kinds, depth - 1))
    return structs(depth - 1) if kind == STRUCT else st.binary(max_size=20)


def inner_kinds(depth: int) -> st.SearchStrategy[int]:
    return st.sampled_from(KINDS if depth > 1 else tuple(k for k in KINDS if k not in (LIST, SET, MAP, STRUCT)))


def items_of(kind: int, depth: int) -> st.SearchStrategy[Items]:
    if kind in (TRUE, I8):
        return st.builds(Items, st.just(kind), st.binary(max_size=40))
    return st.builds(Items, st.just(kind), st.lists(values_of(kind, depth), max_size=18))


def pairs_of(key: int, value: int, depth: int) -> st.SearchStrategy[Pairs]:
    pairs = st.lists(st.tuples(values_of(key, depth), values_of(value, depth)), max_size=4)
    return pairs.map(lambda found: Pairs(key, value, found) if found else Pairs(0, 0, []))


def structs(depth: int) -> st.SearchStrategy[Struct]:
    field = inner_kinds(depth + 1).flatmap(
        lambda kind: (
            st.booleans().map(lambda v: (TRUE if v else FALSE, v))
            if kind == TRUE
            else values_of(kind, depth).map(lambda v: (kind, v))
        )
    )
    ids = st.one_of(st.integers(1, 20), st.integers(0, MAX_FIELD_ID))
    return st.dictionaries(ids, field, max_size=8).map(Struct)


@cache
def footers() -> tuple[bytes, ...]:
    """Footers of parquet-mr, of PyArrow and of DuckDB."""
    found = [path.read_bytes() for path in RECORDED]
    table = pa.table({"i": [1, None], "s": ["a", "b"], "l": [[1], None], "m": [{"x": 1}, None], "t": [0.5, -0.0]})
    for options in ({}, {"write_page_index": True, "use_dictionary": False}):
        sink = io.BytesIO()
        pq.write_table(table, sink, row_group_size=1, **options)
        found.append(read_footer(sink).data)
    return tuple(found)


@pytest.fixture(scope="module")
def by_duckdb(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("duckdb") / "a.parquet"
    columns = "range AS i, 'x' || range AS s, [range] AS l, MAP {'k': range} AS m, {'a': range} AS st, uuid() AS u"
    duckdb.execute(f"COPY (SELECT {columns} FROM range(5000)) TO '{path}' (ROW_GROUP_SIZE 2048)")
    with path.open("rb") as file:
        return read_footer(file).data


@given(tree=structs(4))
@settings(max_examples=70)
def test_a_tree_survives_its_bytes(tree: Struct) -> None:
    data = encode(tree)
    found = decode(data)
    assert list(found.items()) == list(tree.items())
    assert encode(found) == data
    assert encode(decode(data, raw=frozenset(tree))) == data
    assert decode_from(b"ab" + data + b"cd", 2) == (tree, len(data) + 2)


def test_footers_of_every_writer_come_back_byte_for_byte(by_duckdb: bytes) -> None:
    for data in (*footers(), by_duckdb):
        assert encode(decode(data)) == data
        walked = decode(data, raw=frozenset({2, 4}))
        assert isinstance(walked[4][1], Raw)
        assert encode(walked) == data


def taken(data: bytes) -> bool:
    """Whether these bytes are read; if so, they must come back."""
    try:
        found = decode(data)
    except Malformed:
        return False
    assert encode(found) == data
    return True


def test_a_damaged_footer_comes_back_byte_for_byte_or_is_refused(by_duckdb: bytes) -> None:
    random_ = random.Random(11)
    whole = (*footers(), by_duckdb)
    refused = 0
    for number in range(FLIPS):
        data = bytearray(random_.choice(whole))
        for _ in range(random_.choice((1, 1, 2, 8))):
            at = random_.randrange(len(data))
            how = random_.randrange(4)
            if how == 0:
                data[at] ^= 1 << random_.randrange(8)
            elif how == 1:
                data[at] = random_.randrange(256)
            elif how == 2:
                del data[at : at + random_.randrange(1, 4)]
            else:
                data[at:at] = random_.randbytes(random_.randrange(1, 4))
        refused += not taken(bytes(data))
        try:  # what is walked over is not judged, but never runs past the end, nor for ever
            walked = decode(bytes(data), raw=frozenset(range(100)))
        except Malformed:
            continue
        assert encode(walked) == bytes(data), number
    assert 0 < refused < FLIPS


@given(data=st.binary(max_size=200))
@example(data=b"\x00")
def test_noise_comes_back_byte_for_byte_or_is_refused(data: bytes) -> None:
    taken(data)


def test_a_footer_that_breaks_off_anywhere_is_refused() -> None:
    data = footers()[-1]
    assert not any(taken(data[:length]) for length in (*range(0, len(data), 9), *range(len(data) - 50, len(data))))
    assert not taken(data + b"\x00")


HOSTILE: dict[str, bytes] = {
    "nothing": b"",
    "structs without end": b"\x1c" * 100_000,
    "lists without end": b"\x19" * 100_000,
    "a list of two billion structs": b"\x19\xfc\xff\xff\xff\xff\x07",
    "a list of two billion bytes": b"\x19\xf3\xff\xff\xff\xff\x07",
    "a map of two billion": b"\x1b\xff\xff\xff\xff\x07\x88",
    "a text of two gigabytes": b"\x18\xff\xff\xff\xff\x07",
    "a length without end": b"\x18" + b"\xff" * 100_000,
    "a number without end": b"\x16" + b"\x80" * 100_000 + b"\x01\x00",
    "a number with idle bytes": b"\x15\x80\x00\x00",
    "a whole number of 40 bits": b"\x15\xff\xff\xff\xff\xff\x01\x00",
    "a field twice": b"\x15\x02\x05\x02\x02\x00",
    "a long header where a short one does": b"\x05\x02\x02\x00",
    "a long list where a short one does": b"\x19\xf3\x01\x00\x00",
    "a field without a type": b"\x10\x00",
    "a type that nobody has": b"\x1e\x00",
}


@pytest.mark.parametrize("walked_over", [False, True])
@pytest.mark.parametrize("name", HOSTILE)
def test_what_was_made_to_hurt_is_refused_and_costs_no_memory(name: str, walked_over: bool) -> None:
    data, raw = HOSTILE[name], frozenset({1}) if walked_over else frozenset[int]()
    only_judged_when_read = ("idle bytes", "40 bits", "a long list")
    tracemalloc.start()
    try:
        if walked_over and any(part in name for part in only_judged_when_read):
            assert encode(decode(data, raw=raw)) == data
        else:
            with pytest.raises(Malformed):
                decode(data, raw=raw)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_depth_and_number_of_values_are_bounded() -> None:
    deep: Callable[[int], bytes] = lambda n: b"\x1c" * n + b"\x00" * (n + 1)  # noqa: E731
    assert encode(decode(deep(MAX_DEPTH))) == deep(MAX_DEPTH)
    with pytest.raises(Malformed, match="within each other"):
        decode(deep(MAX_DEPTH + 1))
    many = Struct({1: (LIST, Items(STRUCT, [Struct()] * 1000))})
    assert decode(encode(many), max_values=1001) == many
    with pytest.raises(Malformed, match="too many"):
        decode(encode(many), max_values=1000)
    assert sys.getrecursionlimit() > 4 * MAX_DEPTH


def test_a_value_that_its_type_cannot_hold_is_not_written() -> None:
    for kind, value in ((I16, 2**15), (I32, -(2**31) - 1), (I8, 128), (DOUBLE, b"short"), (BINARY, 5), (STRUCT, b"")):
        with pytest.raises(Malformed):
            encode(Struct({1: (kind, value)}))


def test_a_new_field_takes_its_place_among_the_others() -> None:
    struct = Struct({1: (I32, 1), 9: (I32, 9)})
    struct.put(5, BINARY, b"five")
    struct.put(1, I32, 100)
    struct.drop(9, 10)
    assert list(struct.items()) == [(1, (I32, 100)), (5, (BINARY, b"five"))]
    assert (struct.whole(1), struct.binary(5), struct.whole(7), struct.structs(8)) == (100, b"five", None, [])
    for asked in (struct.whole, struct.struct, struct.structs):
        with pytest.raises(Malformed):
            asked(5)


@pytest.mark.parametrize("tail", [b"", b"\x00\x00\x00\x00PARE", b"\xff\xff\xff\x7fPAR1", b"\x09\x00\x00\x00PAR1"])
def test_what_ends_in_no_footer_is_refused(tail: bytes) -> None:
    with pytest.raises(Malformed):
        read_footer(io.BytesIO(b"PAR1" + b"\x00" * 8 + tail if tail else tail))


def test_another_footer_takes_the_place_of_one_and_nothing_before_it_moves() -> None:
    for other in (b"x", b"y" * 100):
        file = io.BytesIO(b"PAR1pages" + b"old footer" + (10).to_bytes(4, "little") + b"PAR1")
        old = read_footer(file)
        assert old.data == b"old footer"
        replace_footer(file, old, other)
        assert read_footer(file).data == other
        assert file.getvalue()[: old.start] == b"PAR1pages"
