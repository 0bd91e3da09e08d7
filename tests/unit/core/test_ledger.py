"""Which ledger entries a sweep leaves alone, and which files of the others it may delete."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regelate.core.upkeep.ledger import (
    REMOVED,
    EntryVerdict,
    LedgerEntry,
    TableFacts,
    as_young_as_its_run,
    judge_entry,
    judge_files,
    sweep_order,
)

HOUR = 3600.0
TABLE = TableFacts(table_uuid="u", folders=("s3://b/t",), gc_enabled=True)
DEAD = LedgerEntry(
    location="s3://b/t/metadata/regelate/ledger/r-0.json",
    run="r",
    table_uuid="u",
    paths=("s3://b/t/data/1-r.parquet",),
    age_seconds=HOUR + 1,
    lives_seconds=HOUR,
)
PATHS = [f"s3://b/t/data/{n}" for n in range(6)]


def test_a_dead_run_of_this_table_is_looked_into() -> None:
    assert judge_entry(DEAD, TABLE, HOUR) is None


@pytest.mark.parametrize(
    ("entry", "table", "verdict"),
    [
        (replace(DEAD, age_seconds=HOUR), TABLE, EntryVerdict.RUN_MAY_BE_ALIVE),
        (replace(DEAD, lives_seconds=2 * HOUR), TABLE, EntryVerdict.RUN_MAY_BE_ALIVE),
        (replace(DEAD, newer_format=True), TABLE, EntryVerdict.NEWER_FORMAT),
        (replace(DEAD, table_uuid=None, paths=()), TABLE, EntryVerdict.NOTHING_LEFT),
        (DEAD, replace(TABLE, table_uuid="another"), EntryVerdict.OTHER_TABLE),
        (DEAD, replace(TABLE, gc_enabled=False), EntryVerdict.GC_DISABLED),
        (replace(DEAD, paths=("s3://b/t2/data/1",)), TABLE, EntryVerdict.OUTSIDE_TABLE),
        (replace(DEAD, paths=("s3://b/t/../x",)), TABLE, EntryVerdict.OUTSIDE_TABLE),
        (replace(DEAD, paths=(*DEAD.paths, "/etc/passwd")), TABLE, EntryVerdict.OUTSIDE_TABLE),
    ],
)
def test_what_is_left_alone_and_why(entry: LedgerEntry, table: TableFacts, verdict: EntryVerdict) -> None:
    assert judge_entry(entry, table, HOUR) is verdict


def test_a_run_is_as_long_alive_as_the_longer_of_its_word_and_ours() -> None:
    assert judge_entry(replace(DEAD, lives_seconds=1.0), TABLE, 2 * HOUR) is EntryVerdict.RUN_MAY_BE_ALIVE


@given(ages=st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 2 * HOUR)), max_size=12))
def test_a_run_that_writes_on_is_alive_in_all_of_its_entries(ages: Sequence[tuple[str, float]]) -> None:
    entries = [replace(DEAD, run=run, age_seconds=age) for run, age in ages]
    for entry in as_young_as_its_run(entries):
        assert entry.age_seconds == min(age for run, age in ages if run == entry.run)


@given(paths=st.lists(st.sampled_from(PATHS), unique=True), existing=st.sets(st.sampled_from(PATHS)),
       referenced=st.sets(st.sampled_from(PATHS)))  # fmt: skip
def test_only_files_of_the_entry_that_exist_and_that_nothing_references_are_deleted(
    paths: list[str], existing: set[str], referenced: set[str]
) -> None:
    verdict, loose = judge_files(replace(DEAD, paths=tuple(paths)), existing, referenced)
    assert set(loose) == (set(paths) & existing) - referenced
    assert verdict in REMOVED
    assert (verdict is EntryVerdict.DEAD_RUN) == bool(loose)
    assert (verdict is EntryVerdict.NOTHING_LEFT) == (not set(paths) & existing)


@given(idents=st.sets(st.text(min_size=1), max_size=20), hour=st.integers(0, 10**6))
def test_a_sweep_comes_to_every_table_once_in_an_order_that_depends_on_the_hour_alone(
    idents: set[str], hour: int
) -> None:
    order = sweep_order(idents, hour)
    assert sorted(order) == sorted(idents)
    assert order == sweep_order(sorted(idents), hour)


def test_every_table_comes_first_in_some_hour() -> None:
    idents = [f"db.t{n}" for n in range(10)]
    assert {sweep_order(idents, hour)[0] for hour in range(200)} == set(idents)
