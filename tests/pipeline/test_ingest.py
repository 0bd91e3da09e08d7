"""Ingest on real Spark: what was sent is what is there, however it was written and however often it was stopped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from regelate.entrypoints.demo.flights import read_flights
from regelate.pipeline.__main__ import main
from regelate.pipeline.events import Stream
from regelate.pipeline.names import TableName
from regelate.pipeline.tables import SparkTable
from tests.support.iceberg_tables import live_delete_files
from tests.support.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
SMALL = ["--num-events", "60", "--num-batches", "3"]


@pytest.fixture
def write(lake: Lake, name: TableName, tmp_path: Path) -> Any:
    """Return a function that ingests into a table and returns what the result says of it."""

    def write(*flags: str, into: str = str(name)) -> dict[str, Any]:
        own = ["--uri", f"{lake.folder}/catalog.db", "--warehouse", (lake.folder / "warehouse").as_uri(), "--quiet"]
        assert main(["ingest", "--table", into, *own, *flags, "--result", str(tmp_path / "result.json")]) == 0
        found: dict[str, Any] = json.loads((tmp_path / "result.json").read_text())
        return dict(found["ingest"])

    return write


def test_optimized_write_makes_one_file_per_partition_where_each_task_made_its_own(
    spark: SparkSession, name: TableName, write: Any
) -> None:
    plain = write(*SMALL)
    optimized = write(*SMALL, "--optimized-write", into=f"{name}_o")
    assert (plain["rows"], plain["commits"]) == (optimized["rows"], optimized["commits"]) == (60, 3)
    assert optimized["files"] == 3 * 5
    assert plain["files"] > 1.5 * optimized["files"]
    sent = sorted(event for batch in Stream(events=60, batches=3) for event in batch)
    for table in (name, TableName.parse(f"{name}_o")):
        rows = spark.sql(f"SELECT event_id, user_id, event_type, event_value FROM {table.sql} ORDER BY event_id")
        assert [tuple(row) for row in rows.collect()] == [(e[0], e[1], e[2], e[4]) for e in sent]


def test_a_merge_corrects_a_tenth_by_position_deletes(
    spark: SparkSession, lake: Lake, name: TableName, write: Any
) -> None:
    found = write(*SMALL, "--mode", "merge")
    stream = Stream(events=60, batches=3, update_share=0.1)
    assert (found["commits"], found["rows"]) == (3, 60)
    last = {event[0]: event for batch in stream for event in batch}
    rows = spark.sql(f"SELECT event_id, user_id, event_type, event_value FROM {name.sql}").collect()
    assert sorted(map(tuple, rows)) == sorted((e[0], e[1], e[2], e[4]) for e in last.values())
    assert len(rows) == len(last) == 56
    assert live_delete_files(lake.other_client().load_table((*name.namespace, name.table)))


def test_a_stream_that_is_stopped_and_started_loses_and_doubles_nothing(
    spark: SparkSession, name: TableName, write: Any, tmp_path: Path
) -> None:
    flags = [*SMALL, "--source", "rate", "--checkpoint", str(tmp_path / "checkpoint")]
    first, second = write(*flags), write(*flags)
    assert first["commits"] >= 3
    # A batch that lands while the first run is stopped is counted there; the second repeats it and commits nothing.
    assert first["commits"] + second["commits"] >= 6
    ids = [row[0] for row in spark.sql(f"SELECT event_id FROM {name.sql}").collect()]
    assert len(ids) == first["rows"] + second["rows"]
    assert sorted(ids) == [f"evt_{i:08d}" for i in range(len(ids))]


def test_a_folder_of_json_lines_is_read_once_each_file_and_new_ones_by_the_next_run(
    spark: SparkSession, name: TableName, write: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "incoming"
    folder.mkdir()
    columns = ("event_id", "user_id", "event_type", "event_timestamp", "event_value", "device_type", "session_id")
    batches = [
        "\n".join(json.dumps(dict(zip(columns, event, strict=True)), default=str) for event in batch)
        for batch in Stream(events=30, batches=3)
    ]
    flags = ["--source", "json", "--folder", str(folder), "--checkpoint", str(tmp_path / "checkpoint")]
    for number, text in enumerate(batches[:2]):
        (folder / f"{number}.json").write_text(text)
    assert (write(*flags)["commits"], SparkTable(spark, name).file_metrics().whole.rows) == (2, 20)
    (folder / "2.json").write_text(batches[2])
    assert write(*flags)["rows"] == 10
    assert write(*flags)["commits"] == 0
    assert spark.table(name.sql).select("event_id").distinct().count() == spark.table(name.sql).count() == 30


def test_a_line_that_is_no_event_fails_the_stream_and_what_landed_before_stays(
    spark: SparkSession, lake: Lake, name: TableName, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "incoming").mkdir()
    (tmp_path / "incoming" / "0.json").write_text('{"event_id": "e", "user_id": "not a number"')
    flags = ["--source", "json", "--folder", str(tmp_path / "incoming"), "--checkpoint", str(tmp_path / "checkpoint")]
    own = ["--uri", f"{lake.folder}/catalog.db", "--warehouse", (lake.folder / "warehouse").as_uri()]
    assert main(["ingest", "--table", str(name), *own, *flags]) == 1
    assert "DATA_FILE_CORRUPT: a record of the input cannot be read" in capsys.readouterr().err
    assert SparkTable(spark, name).snapshot_id is None


def test_real_flights_are_written_by_month(spark: SparkSession, name: TableName, write: Any) -> None:
    found = write("--source", "flights", "--rows", "400", "--num-batches", "2")
    assert (found["rows"], found["commits"]) == (400, 2)
    keys = ("time_hour", "carrier", "flight")
    flights = read_flights().select([*keys, "dep_delay", "tailnum"]).sort_by([(key, "ascending") for key in keys])
    rows = spark.sql(f"SELECT time_hour, carrier, flight, dep_delay, tailnum FROM {name.sql}").collect()
    sent = [tuple(row.values()) for row in flights.slice(0, 400).to_pylist()]
    assert sorted((row[1:] for row in rows), key=repr) == sorted((row[1:] for row in sent), key=repr)
    assert spark.sql(f"SELECT CAST(min(time_hour) AS STRING) FROM {name.sql}").collect()[0][0] == "2013-01-01 10:00:00"
    assert [p.path for p in SparkTable(spark, name).file_metrics().partitions] == ["time_hour_month=2013-01"]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--source", "rate"], "--checkpoint"),
        (["--source", "flights", "--mode", "merge"], "--mode merge"),
        (["--source", "json", "--checkpoint", "x"], "--folder"),
        (["--num-events", "2"], "num-batches"),
        (["--execution-date", "yesterday"], "2025-01-17"),
    ],
)
def test_flags_that_do_not_go_together_are_refused_and_no_table_is_made(
    spark: SparkSession, lake: Lake, name: TableName, capsys: pytest.CaptureFixture[str], flags: list[str], words: str
) -> None:
    own = ["--uri", f"{lake.folder}/catalog.db", "--warehouse", (lake.folder / "warehouse").as_uri()]
    try:
        code = main(["ingest", "--table", str(name), *own, *flags])
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 1
    assert code == 2
    assert words in capsys.readouterr().err
    assert not spark.catalog.tableExists(name.sql)
