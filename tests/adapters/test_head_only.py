"""Trap T16: a catalog that shows only the head, without parent and log, as Nessie does.

Nothing may be read from that silence: neither that nobody changed the table, nor that an attempt of ours did not land.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH

from regelate.errors import CommitStateUnknown, RegelateError
from regelate.settings import load_settings
from tests.adapters.scenarios.scene import BY_P, SCHEMA, batch, ids, of
from tests.support.built import OneCatalog
from tests.support.deletes_writer import add_equality_deletes, add_position_deletes
from tests.support.iceberg_tables import append, live_data_paths, live_delete_paths
from tests.support.lake import Lake
from tests.support.meanwhile import Line, impatient, parquet, remove_files
from tests.support.table_model import model_rows


def head_alone(metadata: TableMetadata) -> TableMetadata:
    """What Nessie serves: the current snapshot as if it were the first, no log, and deletion forbidden."""
    head = metadata.current_snapshot()
    shown = [] if head is None else [head.model_copy(update={"parent_snapshot_id": None})]
    return metadata.model_copy(
        update={
            "snapshots": shown,
            "snapshot_log": [],
            "metadata_log": [],
            "refs": {name: ref for name, ref in metadata.refs.items() if name == MAIN_BRANCH},
            "properties": {**metadata.properties, "gc.enabled": "false"},
        }
    )


class HeadOnlyCatalog(SqlCatalog):
    """A SQLite catalog that shows, and therefore also keeps, nothing but the head of a table."""

    def load_table(self, identifier: Any) -> Table:
        table = super().load_table(identifier)
        table.metadata = head_alone(table.metadata)
        return table

    def commit_table(self, *arguments: Any) -> CommitTableResponse:
        response = super().commit_table(*arguments)
        return response.model_copy(update={"metadata": head_alone(response.metadata)})


class HeadOnlyLake(Lake):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder, catalogs=OneCatalog(lambda: head_only(folder)))


def head_only(folder: Path) -> HeadOnlyCatalog:
    name, configured = load_settings({"REGELATE_HOME": str(folder)}).catalog("local")
    properties = {key: value for key, value in configured.properties.items() if key != "type"}
    return HeadOnlyCatalog(name, **{**properties, "warehouse": Path(properties["warehouse"]).as_uri()})


@pytest.fixture
def lake(tmp_path: Path) -> HeadOnlyLake:
    return HeadOnlyLake(tmp_path)


@pytest.fixture
def table(lake: HeadOnlyLake) -> Table:
    made = lake.table(SCHEMA, *(batch(10 * i, "x") + batch(100 + 10 * i, "y") for i in range(3)), spec=BY_P)
    head = made.refresh().current_snapshot()
    assert head is not None
    assert (len(made.snapshots()), head.parent_snapshot_id, head.sequence_number) == (1, None, 3)
    return made


def fresh(table: Table) -> Table:
    return table.catalog.load_table(table.name())


def meanwhile(table: Table, *acts: Callable[[Table], Any], expected: list[str]) -> Callable[[], None]:
    def between() -> None:
        for act in acts:
            act(fresh(table))
        expected[:] = model_rows(fresh(table))

    return between


def test_t16_the_table_of_such_a_catalog_is_compacted_and_nothing_is_expired(lake: Lake, table: Table) -> None:
    expected, before = model_rows(table), parquet(table)
    answer = lake.compact(table)
    assert (answer["status"], answer["stats"]["snapshots_expired"]) == ("COMPLETED", 0)
    assert any("gc.enabled" in warning for warning in answer["warnings"])
    assert model_rows(table) == expected
    assert before < parquet(table)


def test_t16_expiry_is_refused(lake: Lake, table: Table) -> None:
    with pytest.raises(RegelateError) as caught:
        lake.expire(table, hours=1, keep=1)
    assert (caught.value.code, caught.value.status) == ("GC_DISABLED", 403)
    assert "Nessie" in str(caught.value)


def test_t16_appends_meanwhile_stay_and_spoil_nothing(lake: Lake, table: Table) -> None:
    expected: list[str] = []
    acts = [lambda other, i=i: append(other, batch(500 + 10 * i, "x")) for i in range(2)]
    answer = lake.compact(table, between=meanwhile(table, *acts, expected=expected))
    assert answer["status"] == "COMPLETED"
    assert model_rows(table) == expected
    assert len(of("x", table)) == 3


def test_t16_a_position_delete_under_an_append_drops_its_group(lake: Lake, table: Table) -> None:
    """Who walks the ancestors finds no delete here: one snapshot is shown, and it is an append."""
    victim, expected = of("x", table)[0], list[str]()
    acts = (lambda other: add_position_deletes(other, {victim: [0]}), lambda other: append(other, batch(500, "x")))
    answer = lake.compact(table, between=meanwhile(table, *acts, expected=expected))
    assert (answer["status"], answer["reason"]) == ("PARTIAL", "CONFLICT_NEW_DELETE")
    assert model_rows(table) == expected
    assert len(expected) == 34


def test_t16_an_equality_delete_under_an_append_applies_to_the_outputs(lake: Lake, table: Table) -> None:
    expected: list[str] = []
    acts = (
        lambda other: add_equality_deletes(other, ["id"], [(11,)], partition={"p": "x"}),
        lambda other: append(other, [(11, "x")]),
    )
    answer = lake.compact(table, between=meanwhile(table, *acts, expected=expected))
    assert answer["status"] == "COMPLETED"
    assert model_rows(table) == expected
    assert ids(table).count(11) == 1
    assert len(live_delete_paths(table.refresh())) == 1


def test_t16_files_removed_under_an_append_do_not_come_back(lake: Lake, table: Table) -> None:
    victim, expected = of("x", table)[0], list[str]()
    acts = (lambda other: remove_files(other, data=[victim]), lambda other: append(other, batch(500, "x")))
    answer = lake.compact(table, between=meanwhile(table, *acts, expected=expected))
    assert (answer["status"], answer["reason"]) == ("PARTIAL", "CONFLICT_INPUT_REMOVED")
    assert model_rows(table) == expected


class Cover:
    """Lets another client commit right after our commit was sent: what we look for is then not shown any more."""

    def __init__(self, lake: Lake, monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
        sent, done = lake.catalog.commit_table, list[bool]()

        def covered(*arguments: Any) -> Any:
            mine = not done
            done.append(True)
            try:
                return sent(*arguments)
            finally:
                if mine:
                    act()

        monkeypatch.setattr(lake.catalog, "commit_table", covered)


@pytest.mark.parametrize("loss", ["lost", "lost-as-conflict"])
def test_t16_a_compaction_whose_reply_was_lost_is_found_under_the_append_of_another(
    lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch, loss: str
) -> None:
    """Its outputs are live; taken for lost they would be deleted."""
    expected = sorted([*model_rows(table), *(repr(row) for row in batch(500, "x"))])
    other = HeadOnlyLake(lake.folder).catalog.load_table(table.name())
    Line(lake, monkeypatch, loss)
    Cover(lake, monkeypatch, lambda: append(other.refresh(), batch(500, "x")))
    answer = lake.compact(table, tools=impatient)
    assert (answer["status"], answer["stats"]["commit_attempts"]) == ("COMPLETED", 1)
    monkeypatch.undo()
    assert model_rows(table) == expected
    assert (len(of("x", table)), len(of("y", table))) == (2, 1)


@pytest.mark.parametrize("loss", ["lost", "lost-as-conflict"])
def test_t16_a_write_whose_reply_was_lost_is_found_and_not_made_twice(
    lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch, loss: str
) -> None:
    other = HeadOnlyLake(lake.folder).catalog.load_table(table.name())
    Line(lake, monkeypatch, loss)
    Cover(lake, monkeypatch, lambda: append(other.refresh(), batch(500, "x")))
    lake.write(table, [{"id": 900, "p": "x"}])
    monkeypatch.undo()
    assert ids(table).count(900) == 1
    assert len(ids(table)) == 36


@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize("step", ["refused", "dead"])
def test_t16_an_attempt_that_did_not_land_is_known_by_who_bears_its_number_and_made_again(
    lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch, step: str, merged: bool
) -> None:
    """A manifest that was merged since has another number, its entries do not."""
    expected = sorted([*model_rows(table), *(repr(row) for row in batch(500, "x") + batch(600, "x"))])
    other = HeadOnlyLake(lake.folder).catalog.load_table(table.name())

    def cover() -> None:
        append(other.refresh(), batch(500, "x"))
        if merged:
            merging = {"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "1"}
            with other.transaction() as transaction:
                transaction.set_properties(merging)
        append(other.refresh(), batch(600, "x"))

    Line(lake, monkeypatch, step)
    Cover(lake, monkeypatch, cover)
    answer = lake.compact(table, tools=impatient)
    assert (answer["status"], answer["stats"]["commit_attempts"]) == ("COMPLETED", 2)
    monkeypatch.undo()
    assert model_rows(table) == expected


def test_t16_where_nothing_shows_who_bears_the_number_the_outcome_is_unknown(
    lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another client's append took the number, and was removed again whole: no manifest shows it or us."""
    before = parquet(table)
    rival = HeadOnlyLake(lake.folder)

    def cover() -> None:
        other = rival.catalog.load_table(table.name())
        added = append(other, batch(500, "z"))
        remove_files(other, data=added)
        append(rival.catalog.load_table(table.name()), batch(600, "z"))

    Line(lake, monkeypatch, "dead")
    Cover(lake, monkeypatch, cover)
    with pytest.raises(CommitStateUnknown):
        lake.compact(table, tools=impatient)
    monkeypatch.undo()
    assert len(parquet(table) - before) == 4
    assert len(ids(table)) == 35
    assert len(live_data_paths(table.refresh())) == 7
