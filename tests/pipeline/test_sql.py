"""Texts of a caller on their way into SQL: nothing in them ends a literal or a name."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regelate.errors import InvalidRequest
from regelate.pipeline import sql
from regelate.pipeline.names import TableName, quoted

LITERAL = re.compile(r"'(?:[^'\\]|\\.)*'", re.DOTALL)
"""A string literal as Spark's grammar and Iceberg's have it."""
NASTY = st.text(alphabet=st.sampled_from("'\\\"`;-$/*{} ab%_\n"), max_size=12) | st.text(max_size=12)


@given(NASTY)
def test_a_text_is_one_literal_and_reads_back_as_itself(value: str) -> None:
    literal = sql.text(value)
    assert LITERAL.fullmatch(literal)
    assert re.sub(r"\\(.)", r"\1", literal[1:-1], flags=re.DOTALL) == value


@given(st.lists(NASTY, min_size=1, max_size=3))
def test_a_quoted_name_holds_its_parts_and_nothing_else(parts: list[str]) -> None:
    found = re.findall(r"`((?:[^`]|``)*)`(?:\.|\Z)", quoted(*parts))
    assert [part.replace("``", "`") for part in found] == parts


@given(NASTY, NASTY)
def test_a_call_holds_each_text_as_one_literal(where: str, value: str) -> None:
    statement = sql.call("c", "p", {"where": where, "options": {"k": value}, "none": None})
    assert re.sub(LITERAL, "?", statement) == "CALL `c`.system.p(where => ?, options => map(?, ?))"


def test_arguments_are_written_as_spark_reads_them() -> None:
    given_ = {"a": True, "b": 7, "c": ("x", "y"), "d": datetime(2025, 1, 17, 5, tzinfo=UTC)}
    assert sql.call("c", "p", given_) == (
        "CALL `c`.system.p(a => true, b => 7, c => array('x', 'y'), d => TIMESTAMP '2025-01-17 05:00:00+00:00')"
    )


def test_a_table_is_named_by_catalog_namespace_and_name() -> None:
    found = TableName.parse("lakehouse.production.cdc.users")
    assert (found.catalog, found.namespace, found.table) == ("lakehouse", ("production", "cdc"), "users")
    assert found.sql == "`lakehouse`.`production`.`cdc`.`users`"
    assert str(found) == "lakehouse.production.cdc.users"


@pytest.mark.parametrize(
    "text", ["", "t", "ns.t", "a..t", ".ns.t", "c.ns.", "c d.ns.t", "c.n/s.t", "c.ns.t\n", "1c.n.t"]
)
def test_what_is_no_table_name_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="INVALID_IDENTIFIER"):
        TableName.parse(text)
