"""The strict body parser: rows 1, 2, 3 and 5 of the fault catalogue."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regelate.entrypoints.aws.body import parse_body
from regelate.errors import InvalidRequest

SUM = "0.30000000000000004"  # 0.1 + 0.2, seventeen digits
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def refused(body: str | bytes | None, **limits: int) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        parse_body(body, **limits)
    return caught.value


@given(st.dictionaries(st.text(), JSON_VALUES, max_size=5))
def test_what_json_can_say_arrives_unchanged(value: dict[str, Any]) -> None:
    try:
        body = json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        body = json.dumps(value).encode()
    assert parse_body(body) == value


@pytest.mark.parametrize(
    ("body", "offset"),
    [
        (None, 0),
        (b"", 0),
        (b"compact users", 0),
        (b'{"operation": "COMPACT"', 23),
        (b'{"a": 1,}', 8),
        ('{"ä": 1,}'.encode(), 9),
        (b'{"a": 1} {"a": 2}', 9),
        (b'{"a": "\x01"}', 7),
        (b'{"a": 01}', 7),
        (b"{'a': 1}", 1),
        (b'\xef\xbb\xbf{"a": 1}', 0),
        ('{"a": 1}'.encode("utf-16"), 0),
        ('{"a": 1}'.encode("utf-16-le"), 0),
        ('{"a": 1}'.encode("utf-16-be"), 0),
        ('\ufeff{"a": 1}', 0),
        (b'{"a": "\xff"}', 7),
        (b'{"a": "\xed\xa0\x80"}', 7),
        ('{"a": "\ud800"}', 7),
    ],
)
def test_what_is_not_json_in_utf_8_is_refused_with_its_offset(body: str | bytes | None, offset: int) -> None:
    fault = refused(body)
    assert (fault.code, fault.status, fault.details["offset"]) == ("INVALID_JSON", 400, offset)


@pytest.mark.parametrize("body", ["[]", '"text"', "3", "null", "true", '[{"operation": "COMPACT"}]'])
def test_what_is_no_object_is_refused(body: str) -> None:
    assert (refused(body).code, refused(body).status) == ("INVALID_REQUEST", 400)


@pytest.mark.parametrize("body", ['{"a": 1, "a": 2}', '{"x": [{"a": 1, "b": 0, "a": 1}]}', '{"a": 1, "\\u0061": 2}'])
def test_a_key_that_stands_twice_is_refused_and_named(body: str) -> None:
    fault = refused(body)
    assert (fault.code, fault.status, fault.details["key"]) == ("INVALID_REQUEST", 400, '"a"')


@pytest.mark.parametrize("opening", ['{"a":', "[", '{"a":['])
def test_nesting_deeper_than_the_limit_is_refused_before_it_is_parsed(opening: str) -> None:
    fault = refused('{"a":' + opening * 200_000)
    assert (fault.code, fault.status, fault.details["max_nesting"]) == ("INVALID_REQUEST", 400, 64)


def test_nesting_is_counted_in_levels_and_not_in_brackets_or_texts() -> None:
    deep = '{"a":' * 63 + "[]" + "}" * 63
    assert parse_body(deep) is not None
    assert refused('{"a":' * 64 + "[]" + "}" * 64).code == "INVALID_REQUEST"
    wide: dict[str, object] = {"a": [[1], [2]] * 100, "b": '[[{"\\' * 100, "c\\": "{{{" * 50}
    assert parse_body(json.dumps(wide)) == wide


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity"])
def test_bare_nan_and_infinity_are_refused_anywhere(text: str) -> None:
    for body in (f'{{"max_cost": {text}}}', f'{{"records": [{{"x": {text}}}]}}'):
        assert (refused(body).code, refused(body).status) == ("INVALID_FIELD", 400)


def test_nan_and_infinity_as_texts_pass() -> None:
    assert parse_body('{"a": "NaN", "b": "-Infinity", "c": "1e400"}') == {"a": "NaN", "b": "-Infinity", "c": "1e400"}


@pytest.mark.parametrize(
    "text",
    ["1e400", "-1E+400", "1e-400", "-0.1e-9999999999999999999999", "1e0000400", "9" * 310 + ".0", "1" + "0" * 5_000],
)
def test_a_number_beyond_every_double_is_refused_not_made_infinite_or_zero(text: str) -> None:
    fault = refused(f'{{"records": [{{"x": {text}}}]}}')
    assert (fault.code, fault.status) == ("INVALID_FIELD", 400)
    assert len(fault.message) < 200


@pytest.mark.parametrize(
    "text", ["12345678901234567.89", "0.1234567890123456789", "900719925474099.3", "9007199254740993e0"]
)
def test_a_number_with_more_digits_than_a_double_keeps_arrives_exact(text: str) -> None:
    number = parse_body(f'{{"x": {text}}}')["x"]
    assert isinstance(number, Decimal)
    assert number == Decimal(text)


@pytest.mark.parametrize("text", ["0.1", "-0.0", "0e999", "1e22", "1.7976931348623157e308", "5e-324", SUM])
def test_a_number_that_a_double_keeps_is_a_float(text: str) -> None:
    number = parse_body(f'{{"x": {text}}}')["x"]
    assert isinstance(number, float)
    assert repr(number) == repr(float(text))


def test_a_body_beyond_the_limit_is_413_with_the_limit_whether_bytes_or_text() -> None:
    body = '{"a": "' + "ä" * 100 + '"}'
    size = len(body.encode())
    assert parse_body(body, max_bytes=size) == parse_body(body.encode(), max_bytes=size)
    for form in (body, body.encode()):
        fault = refused(form, max_bytes=size - 1)
        assert (fault.code, fault.status, fault.details["max_bytes"]) == ("PAYLOAD_TOO_LARGE", 413, size - 1)
