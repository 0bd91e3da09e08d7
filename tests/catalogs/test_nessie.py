"""The service on a real Nessie, which shows of a table nothing but its head (trap T16), with its tables in S3."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table

from regelate.adapters.duckdb.engine import DuckDBRewriteEngine
from tests.catalogs.served import lossy, stack_on
from tests.servers.moto_aws import KEYS, REGION
from tests.support.iceberg_tables import live_data_paths
from tests.support.table_model import model_rows
from tests.system.faults.stack import Stack, request

pytestmark = pytest.mark.catalogs
COLUMNS = {"id": "long!", "kind": "string"}
PARTITIONED = {"partition_spec": [{"source": "kind", "transform": "identity"}]}


def catalog_at(uri: str, s3: str) -> Mapping[str, str]:
    return {
        "type": "rest",
        "uri": uri,
        "s3.endpoint": s3,
        "s3.region": REGION,
        "s3.access-key-id": KEYS["aws_access_key_id"],
        "s3.secret-access-key": KEYS["aws_secret_access_key"],
    }


@pytest.fixture
def stack(nessie_rest: tuple[str, str], folder: Path) -> Stack:
    return stack_on(folder, catalog_at(*nessie_rest))


def written(stack: Stack, table: str, writes: int = 5) -> Table:
    stack.create(table, COLUMNS, **PARTITIONED)
    for n in range(writes):
        stack.ok("WRITE", table, records=[{"id": 2 * n, "kind": "a"}, {"id": 2 * n + 1, "kind": "b"}])
    return stack.table(f"default.{table}")


def after_the_rewrite(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Let somebody act once, when all outputs are written and nothing is committed."""
    rewrite = DuckDBRewriteEngine.rewrite

    def acted(*arguments: Any, **options: Any) -> Any:
        found = rewrite(*arguments, **options)
        monkeypatch.setattr(DuckDBRewriteEngine, "rewrite", rewrite)
        act()
        return found

    monkeypatch.setattr(DuckDBRewriteEngine, "rewrite", acted)


def test_the_server_shows_nothing_but_the_head(stack: Stack) -> None:
    table = written(stack, "shown").refresh()
    assert len(table.snapshots()) == 1
    assert table.snapshots()[0].parent_snapshot_id is None
    assert table.properties["gc.enabled"] == "false"


def test_small_writes_are_compacted_and_every_row_is_still_there(stack: Stack) -> None:
    table = written(stack, "events")
    stack.ok("WRITE", "events", mode="upsert", key=["id"], records=[{"id": 0, "kind": "a"}, {"id": 99, "kind": "b"}])
    rows, asked = model_rows(table), stack.rows("events")
    answer = stack.ok("COMPACT", "events", force=True)
    assert (answer["status"], answer["stats"]["groups"]) == ("COMPLETED", 2)
    assert len(live_data_paths(table.refresh())) == 2
    assert (model_rows(table), stack.rows("events")) == (rows, asked)


def test_what_others_commit_meanwhile_is_found_without_a_history(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    """An append lands beside the compaction; an overwrite of a planned partition drops that group, however deep."""
    table = written(stack, "meanwhile")
    new = [{"id": 100, "kind": "a"}]
    after_the_rewrite(monkeypatch, lambda: stack.ok("WRITE", "meanwhile", records=new))
    assert stack.ok("COMPACT", "meanwhile", force=True)["stats"]["groups"] == 2
    assert stack.rows("meanwhile", filter={"id": 100}) == new

    for n in range(3):
        stack.ok("WRITE", "meanwhile", records=[{"id": 200 + n, "kind": "a"}, {"id": 300 + n, "kind": "b"}])

    def overwritten_and_appended() -> None:
        stack.ok("WRITE", "meanwhile", mode="overwrite_partitions", records=[{"id": 7, "kind": "a"}])
        stack.ok("WRITE", "meanwhile", records=[{"id": 8, "kind": "b"}])

    after_the_rewrite(monkeypatch, overwritten_and_appended)
    answer = stack.ok("COMPACT", "meanwhile", force=True)
    assert (answer["status"], answer["stats"]["dropped_groups"]) == ("PARTIAL", 1)
    assert any("CONFLICT_INPUT_REMOVED" in warning for warning in answer["warnings"]), answer["warnings"]
    assert stack.rows("meanwhile", filter={"kind": "a"}) == [{"id": 7, "kind": "a"}]
    assert model_rows(table).count("(8, 'b')") == 1


def test_a_commit_whose_answer_is_lost_lands_once(nessie_rest: tuple[str, str], folder: Path) -> None:
    uri, s3 = nessie_rest
    with lossy(uri) as proxy:
        stack = stack_on(folder, catalog_at(f"{proxy.uri}/iceberg", s3))
        table = written(stack, "lost_answers")
        rows = model_rows(table)
        proxy.cut_commits = 1
        stack.ok("WRITE", "lost_answers", records=[{"id": 50, "kind": "a"}])
        proxy.cut_commits = 1
        stack.ok("COMPACT", "lost_answers", force=True)
        assert proxy.commits_cut == 2
        assert model_rows(table) == sorted([*rows, "(50, 'a')"])
        assert len(live_data_paths(table)) == 2


@pytest.mark.parametrize("operation", ["EXPIRE_SNAPSHOTS", "REMOVE_ORPHAN_FILES"])
def test_what_would_delete_files_is_refused_because_branches_may_need_them(stack: Stack, operation: str) -> None:
    table = f"kept_{operation.lower()}"
    written(stack, table, writes=2)
    stack.refused(403, "GC_DISABLED", ["gc.enabled"], request(operation, table))
