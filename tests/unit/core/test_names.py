"""Names: what is refused, what is kept, and that a joined multi-tenant name has one reading."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from regelate.core.table import names
from regelate.errors import InvalidRequest

CHECKS = [names.check_tenant, names.check_namespace, names.check_table]
STRICT_NAMES = st.from_regex(r"[a-z0-9][a-z0-9_-]{0,20}", fullmatch=True).filter(lambda t: "__" not in t)
LENIENT_TEXT = st.text(
    st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp"), exclude_characters="/\\."), min_size=1
)


def refused(check: object, text: str, *, strict: bool) -> str:
    assert callable(check)
    with pytest.raises(InvalidRequest) as caught:
        check(text, strict=strict)
    assert (caught.value.code, caught.value.status) == ("INVALID_IDENTIFIER", 400)
    return caught.value.message


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize(
    "text",
    ["", "..", "a/b", "/", "\\", "a\\b", "../x", "a..b", "a\0", "a\nb", "a\x7f", "a\x85", "a\u2028b", "\ud800", "."],
)
def test_dangerous_names_are_refused_everywhere(check: object, strict: bool, text: str) -> None:
    refused(check, text, strict=strict)


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("text", ["A", "Ä", "a__b", "_a", "-a", "a b", "a%2e", "a\u202e", "é", "a\n"])
def test_strict_names_are_small_ascii_letters_digits_and_single_joiners(check: object, text: str) -> None:
    refused(check, text, strict=True)


@pytest.mark.parametrize(
    ("check", "limit"), [(names.check_tenant, 64), (names.check_namespace, 64), (names.check_table, 128)]
)
@pytest.mark.parametrize("strict", [True, False])
def test_length_is_limited_in_bytes(check: object, limit: int, strict: bool) -> None:
    assert callable(check)
    assert check("a" * limit, strict=strict) == "a" * limit
    assert str(limit) in refused(check, "a" * (limit + 1), strict=strict)


def test_length_counts_bytes_not_characters() -> None:
    assert names.check_namespace("ü" * 32, strict=False)
    refused(names.check_namespace, "ü" * 33, strict=False)


def test_a_nested_namespace_is_a_namespace_and_a_dotted_table_is_not_a_table() -> None:
    assert names.check_namespace("a.b.c", strict=True) == "a.b.c"
    refused(names.check_namespace, "a..c", strict=False)
    refused(names.check_namespace, "a.", strict=False)
    refused(names.check_table, "b.c", strict=False)
    refused(names.check_tenant, "a.b", strict=True)


@given(st.one_of(LENIENT_TEXT, STRICT_NAMES))
def test_a_strict_name_is_a_lenient_name_too(text: str) -> None:
    try:
        names.check_table(text, strict=True)
    except InvalidRequest:
        return
    assert names.check_table(text, strict=False) == text


@given(LENIENT_TEXT.filter(lambda t: len(t.encode()) <= 64))
@example("Sales Data")
@example("naïve-Tabelle")
def test_names_of_other_engines_are_accepted_leniently(text: str) -> None:
    for check in CHECKS:
        assert check(text, strict=False) == text


def verdict(check: object, text: str, *, strict: bool) -> InvalidRequest | str:
    assert callable(check)
    try:
        return str(check(text, strict=strict))
    except InvalidRequest as error:
        return error


@given(st.text(), st.sampled_from(CHECKS), st.booleans())
def test_every_text_is_either_returned_unchanged_or_refused_in_one_printable_line(
    text: str, check: object, strict: bool
) -> None:
    found = verdict(check, text, strict=strict)
    if isinstance(found, InvalidRequest):
        assert found.code == "INVALID_IDENTIFIER"
        assert len(found.message) <= 600
        assert found.message.isprintable()
    else:
        assert found == text


@given(STRICT_NAMES, STRICT_NAMES, STRICT_NAMES, STRICT_NAMES)
@example("a_", "b", "a", "b")
@example("a", "b-", "a-", "b")
def test_tenant_and_namespace_joined_by_two_underscores_have_one_reading(t1: str, n1: str, t2: str, n2: str) -> None:
    for tenant, namespace in ((t1, n1), (t2, n2)):
        names.check_tenant(tenant, strict=True)
        names.check_namespace(namespace, strict=True)
    assert (f"{t1}__{n1}" == f"{t2}__{n2}") == ((t1, n1) == (t2, n2))


@given(LENIENT_TEXT, LENIENT_TEXT)
def test_an_ident_splits_into_what_it_was_joined_from(namespace: str, table: str) -> None:
    assert names.split_ident(names.join_ident(f"{namespace}.inner", table)) == (f"{namespace}.inner", table)


@pytest.mark.parametrize("ident", ["table", ".table", "namespace.", ""])
def test_an_ident_without_namespace_or_table_is_refused(ident: str) -> None:
    with pytest.raises(InvalidRequest, match="INVALID_IDENTIFIER"):
        names.split_ident(ident)
