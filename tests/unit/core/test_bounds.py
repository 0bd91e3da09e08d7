"""Bounds as manifests hold them: decoded, ordered, and compared although writers truncate them."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from regelate.core.table.bounds import contained, decode, order_key, raised, truncated

INTEGRAL = ("int", "long", "date", "time", "timestamp", "timestamptz")
longs = st.integers(-(2**63), 2**63 - 1)


def whole(value: int, size: int = 8) -> bytes:
    return value.to_bytes(size, "little", signed=True)


def real(value: float, form: str = "<d") -> bytes:
    return struct.pack(form, value)


def unscaled(value: int) -> bytes:
    """Return a decimal's bound: as few big-endian bytes as hold it."""
    return value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)


def cut_low(raw: bytes, length: int) -> bytes:
    return raw[:length]


def cut_high(raw: bytes, length: int) -> bytes:
    """Truncate an upper bound as writers do: cut, then raise the last byte that can be raised; else leave it."""
    if len(raw) <= length:
        return raw
    kept = raw[:length].rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else raw


def cut_text_high(text: str, length: int) -> bytes:
    """Truncate a string's upper bound by characters, as Iceberg's `UnicodeUtil.truncateStringMax` does."""
    if len(text) <= length:
        return text.encode()
    for at in range(length - 1, -1, -1):
        raised = ord(text[at]) + 1
        raised = 0xE000 if raised == 0xD800 else raised
        if raised <= 0x10FFFF:
            return (text[:at] + chr(raised)).encode()
    return text.encode()


@pytest.mark.parametrize("type_text", INTEGRAL)
@given(value=longs)
def test_a_whole_number_decodes_to_itself(type_text: str, value: int) -> None:
    assert decode(type_text, whole(value)) == value


@given(value=st.integers(-(2**31), 2**31 - 1))
def test_an_int_bound_of_a_column_promoted_to_long_is_the_same_number(value: int) -> None:
    assert decode("long", whole(value, 4)) == decode("long", whole(value)) == value
    assert contained("long", (whole(value), whole(value)), (whole(value, 4), whole(value, 4)))


@given(value=st.floats(width=32, allow_nan=False))
def test_a_float_bound_of_a_column_promoted_to_double_is_the_same_number(value: float) -> None:
    assert decode("double", real(value, "<f")) == decode("double", real(value)) == value


@given(value=st.integers(-(10**38) + 1, 10**38 - 1), padding=st.integers(0, 3))
def test_a_decimal_decodes_however_many_bytes_hold_it(value: int, padding: int) -> None:
    raw = unscaled(value)
    padded = (b"\xff" if value < 0 else b"\x00") * padding + raw
    assert decode("decimal(38,2)", padded) == value


@pytest.mark.parametrize(
    ("type_text", "pack", "values"),
    [
        *[(name, whole, longs) for name in INTEGRAL if name != "int"],
        ("int", lambda value: whole(value, 4), st.integers(-(2**31), 2**31 - 1)),
        ("double", real, st.floats(allow_nan=False)),
        ("decimal(38,9)", unscaled, st.integers(-(10**38) + 1, 10**38 - 1)),
        ("boolean", lambda value: bytes([value]), st.booleans()),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@given(data=st.data())
def test_containment_is_that_of_the_values(
    type_text: str, pack: Callable[..., bytes], values: st.SearchStrategy[float], data: st.DataObject
) -> None:
    inner = sorted((data.draw(values), data.draw(values)))
    outer = sorted((data.draw(values), data.draw(values)))
    expected = outer[0] <= inner[0] and inner[1] <= outer[1]
    found = contained(type_text, (pack(inner[0]), pack(inner[1])), (pack(outer[0]), pack(outer[1])))
    assert found is expected


def test_the_two_zeros_are_one_value() -> None:
    minus, plus = real(-0.0), real(0.0)
    assert contained("double", (minus, minus), (plus, plus))
    assert contained("double", (plus, plus), (minus, minus))


def test_a_nan_bound_proves_nothing_and_sorts_first() -> None:
    nan, one = real(float("nan")), real(1.0)
    assert decode("double", nan) is None
    assert contained("double", (real(5.0), real(5.0)), (nan, one))
    assert contained("double", (nan, nan), (one, one))
    assert sorted([one, nan, real(-1.0)], key=lambda raw: order_key("double", raw)) == [nan, real(-1.0), one]


@pytest.mark.parametrize("type_text", ["uuid", "geometry", "timestamp_ns"])
def test_a_type_without_an_order_here_is_never_judged(type_text: str) -> None:
    assert decode(type_text, bytes(16)) is None
    assert contained(type_text, (bytes(16), b"\xff" * 16), (b"\x01" * 16, b"\x01" * 16))


lengths = st.integers(1, 6)


@pytest.mark.parametrize("type_text", ["binary", "fixed[8]"])
@given(values=st.lists(st.binary(max_size=8), min_size=1), more=st.lists(st.binary(max_size=8)), n=lengths, m=lengths)
@example(values=[b"\xff\xff\xff"], more=[], n=1, m=2)
def test_truncated_binary_bounds_of_a_subset_are_contained(
    type_text: str, values: list[bytes], more: list[bytes], n: int, m: int
) -> None:
    everything = values + more
    inner = (cut_low(min(values), n), cut_high(max(values), n))
    outer = (cut_low(min(everything), m), cut_high(max(everything), m))
    assert contained(type_text, inner, outer)


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


@given(values=st.lists(texts, min_size=1), more=st.lists(texts), n=lengths, m=lengths)
@example(values=["a\U0010ffff\U0010ffff"], more=[], n=2, m=1)
@example(values=["ééé"], more=["z"], n=1, m=2)
@example(values=["\x7f\x7f"], more=[], n=1, m=6)
@example(values=["\uffff\uffff"], more=[], n=1, m=6)
def test_truncated_string_bounds_of_a_subset_are_contained(values: list[str], more: list[str], n: int, m: int) -> None:
    everything = values + more
    # UTF-8 keeps the order of code points.
    inner = (min(values)[:n].encode(), cut_text_high(max(values), n))
    outer = (min(everything)[:m].encode(), cut_text_high(max(everything), m))
    assert contained("string", inner, outer)


@pytest.mark.parametrize(
    ("type_text", "inner", "outer"),
    [
        ("string", (b"apple", b"banana"), (b"b", b"c")),
        ("string", (b"b", b"zebra"), (b"b", b"c")),
        ("string", ("é".encode(), "éé".encode()), (b"a", b"z")),
        ("binary", (b"\x01\x02", b"\x05\x06"), (b"\x02", b"\x06")),
        ("binary", (b"\x02", b"\x09\x00"), (b"\x02", b"\x06")),
        ("fixed[2]", (b"\x02\x00", b"\x09\x00"), (b"\x02\x00", b"\x06\x00")),
        ("int", (whole(-1, 4), whole(1, 4)), (whole(0, 4), whole(1, 4))),
        ("decimal(9,2)", (unscaled(-129), unscaled(0)), (unscaled(-128), unscaled(0))),
    ],
)
def test_values_outside_are_seen(type_text: str, inner: tuple[bytes, bytes], outer: tuple[bytes, bytes]) -> None:
    assert not contained(type_text, inner, outer)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("x" * 16, "x" * 16),
        ("x" * 17, "x" * 15 + "y"),
        ("x" * 15 + "\ud7ffz", "x" * 15 + "\ue000"),
        ("x" * 15 + "\uffffz", "x" * 15 + "\U00010000"),
        ("x" * 14 + "\ud7ff\U0010ffffz", "x" * 14 + "\ue000"),
        ("x" * 15 + "\U0010ffffz", "x" * 14 + "y"),
        ("\U0010ffff" * 16, "\U0010ffff" * 16),
        ("\U0010ffff" * 17, None),
    ],
)
def test_an_upper_bound_of_text_is_raised_over_the_surrogates(text: str, wanted: str | None) -> None:
    assert raised("string", text.encode(), 16) == (None if wanted is None else wanted.encode())


@given(st.text(st.sampled_from("ax\ud7ff\ue000\uffff\U0010ffff"), max_size=6), st.integers(1, 5))
def test_cut_bounds_hold_what_they_are_cut_from(text: str, length: int) -> None:
    for kind, raw in (("string", text.encode()), ("binary", text.encode("utf-16"))):
        upper = raised(kind, raw, length)
        assert truncated(kind, raw, length) <= raw
        assert upper is None or (upper >= raw and contained(kind, (raw, raw), (truncated(kind, raw, length), upper)))


def test_no_shorter_bytes_are_above_those_of_ones_alone() -> None:
    assert raised("binary", b"\xff" * 3, 2) is None
    assert raised("binary", b"a\xff\xff", 2) == b"b"
