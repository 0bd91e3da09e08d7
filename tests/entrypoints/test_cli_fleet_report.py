"""`regelate fleet report`: the fleet of a real lake on one page."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from regelate.adapters.records.sqlite_fleet import SqliteFleet
from regelate.core.fleet.backlog import Backlog, BacklogAt
from regelate.core.table.time_ranges import HOUR_MS
from regelate.entrypoints.cli import main


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """A lake with a table of six files and one of a single file, and a policy."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REGELATE_HOME", str(tmp_path / "lake"))
    (tmp_path / "regelate.yaml").write_text("budgets: {dollars-per-day: 2}\ntables: {sales.well: {enabled: off}}\n")
    for name, files in (("sales.orders", 6), ("sales.well", 1)):
        assert main(["create", name, "--schema", "id:long!"]) == 0
        for number in range(files):
            (tmp_path / "rows.jsonl").write_text(json.dumps({"id": number}) + "\n")
            assert main(["write", name, "rows.jsonl"]) == 0
    assert main(["fleet", "scan"]) == 0
    capsys.readouterr()
    return tmp_path


def data_of(path: Path) -> dict[str, Any]:
    (block,) = re.findall(r'id="data">(.*?)</script>', path.read_text(encoding="utf-8"))
    found: dict[str, Any] = json.loads(block)
    return found


def test_the_page_has_every_table_with_its_state_its_sentence_and_the_price_of_its_next_run(
    lake: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fleet", "report", "-f", "regelate.yaml", "--output", "out/page.html"]) == 0
    assert "Report: out/page.html (2 tables, 0 runs)" in capsys.readouterr().out
    rows = {row[1]: row for row in data_of(lake / "out" / "page.html")["tables"]}
    orders, well = rows["sales.orders"], rows["sales.well"]
    assert (orders[0], orders[3], orders[7]) == ("local", "DUE", 6)
    assert orders[5][0] > 0
    assert orders[9] > 0
    assert well[3] == "DISABLED"
    assert 'regelate.yaml line 2, tables "sales.well"' in well[4]
    assert "of $2.00" in (lake / "out" / "page.html").read_text()


def test_after_a_run_the_page_tells_what_it_was_to_cost_what_it_cost_and_what_it_left(
    lake: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fleet", "apply", "--yes"]) == 0
    capsys.readouterr()
    assert main(["fleet", "report", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {"success": True, "output": "fleet.html", "tables": 2, "runs": 1}
    (run,) = data_of(lake / "fleet.html")["runs"]
    assert run[2:5] == ["sales.orders", "compact", "DONE"]
    assert min(run[7:9]) > 0
    assert run[11:13] == [6, 1]


def test_a_page_that_cannot_be_written_is_refused_and_no_other_word_takes_an_output(
    lake: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fleet", "report", "--output", "regelate.yaml/page.html"]) == 2
    assert "--output: cannot write to" in capsys.readouterr().err
    assert main(["fleet", "plan", "--output", "page.html"]) == 2


def test_the_page_draws_what_was_left_to_do_at_each_look(lake: Path) -> None:
    store = SqliteFleet(lake / "lake" / "fleet.db")
    earlier = BacklogAt(at_ms=store.now_ms() - 5 * HOUR_MS, tenants={"default": Backlog(tables=3, files=4_321)})
    store.note_backlog(earlier)
    assert main(["fleet", "report"]) == 0
    assert "Files to rewrite: 4,321 at first, 5 now" in (lake / "fleet.html").read_text()
