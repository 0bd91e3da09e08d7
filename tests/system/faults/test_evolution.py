"""ALTER_TABLE behind the door: columns and partition fields change beside writes and compactions; no row is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.iceberg_tables import append
from tests.support.lake import Lake
from tests.support.table_model import model_rows
from tests.system.faults.stack import Stack, request


@pytest.fixture
def stack(tmp_path: Path) -> Stack:
    made = Stack(tmp_path / "lake")
    made.create("t", {"id": "int!", "kind": "string"})
    for number in range(3):
        made.ok("WRITE", "t", records=[{"id": number, "kind": "a"}])
    return made


def test_a_table_is_written_asked_and_compacted_as_it_was_changed_to(stack: Stack) -> None:
    told = stack.ok(
        "ALTER_TABLE",
        "t",
        set_properties={"owner": "me"},
        add_columns={"who": {"type": "struct", "fields": {"name": {"type": "string"}}, "doc": "by whom"}},
        rename_columns={"kind": "sort"},
        alter_columns={"id": {"type": "long", "required": False}},
        add_partition_fields=[{"source": "sort", "transform": "identity"}],
    )
    described = stack.ok("DESCRIBE_TABLE", "t")
    assert told["changed"] is True
    assert (told["schema"], told["partition_spec"]) == (described["schema"], described["partition_spec"])
    assert told["properties"]["owner"] == "me"
    assert described["schema"]["fields"]["who"]["doc"] == "by whom"
    stack.ok("WRITE", "t", records=[{"id": 2**40, "sort": "b", "who": {"name": "n"}}])
    stack.ok("WRITE", "t", mode="upsert", key=["id"], records=[{"id": 1, "sort": "c"}])
    rows = stack.rows("t")
    assert [(row["id"], row["sort"], row["who"]) for row in sorted(rows, key=lambda r: r["id"])] == [
        (0, "a", None),
        (1, "c", None),
        (2, "a", None),
        (2**40, "b", {"name": "n"}),
    ]
    stack.ok("COMPACT", "t", force=True, options={"rewrite-all": True})
    assert stack.rows("t") == rows


def test_a_repeated_change_says_that_it_was_so_already_or_what_is_in_its_way(stack: Stack) -> None:
    widen = {"alter_columns": {"id": {"type": "long"}}}
    assert [stack.ok("ALTER_TABLE", "t", **widen)["changed"] for _ in range(2)] == [True, False]
    stack.ok("ALTER_TABLE", "t", add_columns={"note": {"type": "string"}})
    body = request("ALTER_TABLE", "t", add_columns={"note": {"type": "string"}})
    stack.refused(400, "INVALID_SCHEMA", ["note", "already exists"], body)


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ({}, "MISSING_FIELD", ["add_columns", "drop_partition_fields"]),
        ({"alter_columns": {"id": {}}}, "MISSING_FIELD", ["type", "required", "doc"]),
        ({"add_columns": {"x": {"type": "struct"}}}, "INVALID_SCHEMA", ["add_columns.x", "fields"]),
        ({"add_columns": {"x": {"type": "long", "required": True}}}, "INVALID_SCHEMA", ["optional"]),
        ({"add_columns": {"KIND": {"type": "long"}}}, "INVALID_SCHEMA", ["kind", "only in case"]),
        ({"drop_columns": ["id", "kind"]}, "INVALID_SCHEMA", ["at least one column"]),
        ({"drop_columns": [""]}, "INVALID_FIELD", ["drop_columns"]),
        ({"rename_columns": {"kind": "a\x00"}}, "INVALID_SCHEMA", ["control character"]),
        ({"add_partition_fields": [{"source": "kind", "transform": "day"}]}, "INVALID_PARTITION_SPEC", ["day"]),
        ({"drop_partition_fields": ["kind"]}, "INVALID_PARTITION_SPEC", ["not partitioned"]),
    ],
)
def test_what_cannot_be_changed_is_refused_by_its_name_and_changes_nothing(
    stack: Stack, change: dict[str, object], code: str, words: list[str]
) -> None:
    with stack.untouched():
        stack.refused(400, code, words, request("ALTER_TABLE", "t", **change))


def test_nothing_of_a_change_is_made_where_a_part_of_it_is_refused(stack: Stack) -> None:
    body = request(
        "ALTER_TABLE", "t", set_properties={"a": "b"}, add_columns={"x": {"type": "long"}}, drop_columns=["y"]
    )
    with stack.untouched():
        stack.refused(400, "INVALID_SCHEMA", ["y"], body)


def test_a_compaction_lands_beside_a_change_of_columns_and_partitions(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    stack = Stack(tmp_path)
    stack.create("t", {"id": "int", "kind": "string"})
    table = lake.catalog.load_table("default.t")
    for number in range(4):
        append(table, [(number, "a")])

    def change() -> None:
        stack.ok(
            "ALTER_TABLE",
            "t",
            add_columns={"x": {"type": "long"}},
            rename_columns={"kind": "sort"},
            alter_columns={"id": {"type": "long"}},
            add_partition_fields=[{"source": "sort", "transform": "identity"}],
        )

    answer = lake.compact(table, force=True, between=change)
    assert (answer["status"], answer["stats"]["files_added"]) == ("COMPLETED", 1)
    rows = model_rows(lake.catalog.load_table("default.t"))
    assert len(rows) == 4
    assert stack.rows("t") == [{"id": number, "sort": "a", "x": None} for number in range(4)]
