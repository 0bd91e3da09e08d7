"""`regelate watch`: rounds over a catalog whose tables others write, by the command itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog

from regelate.entrypoints.cli import main
from regelate.entrypoints.cli.watching import Rounds
from regelate.service.build import build_service

ON = {"regelate.auto.enabled": "true", "regelate.auto.min-num-files": "5"}
SCHEMA = pa.schema([("id", pa.int64())])


@pytest.fixture(params=["sqlite", "none"])
def lake(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Catalog:
    """A catalog that others write; jobs are kept beside it, or there are none."""
    jobs = {"store": "sqlite", "path": f"{tmp_path}/jobs.db"} if request.param == "sqlite" else {"store": "none"}
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}
    section = {"auth": "none", "tenants": "*", "catalogs": {"lake": catalog}, "jobs": jobs}
    (tmp_path / "config.json").write_text(json.dumps({"environments": {"development": section}}))
    monkeypatch.setenv("REGELATE_CONFIG", str(tmp_path / "config.json"))
    monkeypatch.setenv("REGELATE_ENVIRONMENT", "development")
    monkeypatch.setenv("REGELATE_HOME", str(tmp_path))
    made = load_catalog("lake", **catalog)
    made.create_namespace("a")
    return made


def written(lake: Catalog, name: str, files: int, properties: Mapping[str, str] = ON) -> None:
    table = lake.create_table_if_not_exists(f"a.{name}", SCHEMA, properties=dict(properties))
    for number in range(files):
        table.append(pa.table({"id": [number]}, SCHEMA))


def files_of(lake: Catalog, name: str) -> int:
    return len(list(lake.load_table(f"a.{name}").scan().plan_files()))


def rounds(capsys: pytest.CaptureFixture[str], *flags: str) -> dict[str, str]:
    capsys.readouterr()
    assert main(["watch", "--once", "--json", *flags]) == 0
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return {found["table"]: found["status"] for found in told}


def test_one_round_compacts_what_is_due_and_on_and_says_of_each_table_why_not(
    lake: Catalog, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, files, properties in (("due", 5, ON), ("few", 4, ON), ("off", 6, {})):
        written(lake, name, files, properties)
    found = rounds(capsys, "lake")
    assert found.pop("a.due") in ("SUBMITTED", "COMPACTED")
    assert found == {"a.few": "NOT_DUE", "a.off": "OFF"}
    assert [files_of(lake, name) for name in ("due", "few", "off")] == [1, 4, 6]
    assert sorted(lake.load_table("a.due").scan().to_arrow()["id"].to_pylist()) == list(range(5))
    assert rounds(capsys)["a.due"] == "NOT_DUE"


def test_only_a_table_whose_head_has_moved_is_looked_at_again(lake: Catalog) -> None:
    written(lake, "w", 3)
    written(lake, "still", 3)
    told: list[str | None] = []
    service = build_service()
    watched = Rounds(
        service,
        service.tenancy.everybody("lake"),
        threading.Event(),
        tell=lambda answer: told.append(answer.table),
        fail=lambda what, fault: pytest.fail(f"{what}: {fault}"),
    )
    for wanted in (["a.still", "a.w"], [], ["a.w"], []):
        told.clear()
        watched.run()
        assert sorted(map(str, told)) == wanted
        if not wanted:
            written(lake, "w", 1)


def test_a_table_that_cannot_be_looked_at_keeps_no_other_from_it(
    lake: Catalog, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    written(lake, "broken", 1)
    written(lake, "w", 5)
    Path(lake.load_table("a.broken").metadata_location.removeprefix("file://")).write_text("{")
    assert main(["watch", "--once"]) == 4
    said = capsys.readouterr()
    assert "a.broken: METADATA_CORRUPT" in said.err
    assert "a.w: " in said.out
    assert files_of(lake, "w") == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_cleanly_after_the_round(lake: Catalog, number: int) -> None:
    written(lake, "w", 5)
    program = [sys.executable, "-m", "regelate.entrypoints.cli", "watch", "lake", "--interval", "3600"]
    running = subprocess.Popen(program, env=dict(os.environ), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert running.stdout is not None
    assert running.stdout.readline().startswith("Watching the tables of catalog lake")
    assert running.stdout.readline().startswith("a.w: ")
    running.send_signal(number)
    _, err = running.communicate(timeout=60)
    assert (running.returncode, err) == (0, "")
    assert files_of(lake, "w") in (1, 5)


@pytest.mark.parametrize(("flags", "words"), [(["--interval", "0"], "--interval"), (["nobody"], "CATALOG_NOT_FOUND")])
def test_what_cannot_be_watched_is_said(
    lake: Catalog, capsys: pytest.CaptureFixture[str], flags: list[str], words: str
) -> None:
    assert main(["watch", "--once", *flags]) != 0
    assert words in capsys.readouterr().err
