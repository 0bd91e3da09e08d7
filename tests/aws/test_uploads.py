"""What a dead run left half uploaded is ended by a sweep, and nobody else's upload is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from moto.s3.models import s3_backends

from regelate.adapters.iceberg.files.ledger import RunLedger
from regelate.adapters.iceberg.s3 import streams
from tests.aws.lake import BUCKET, S3Lake
from tests.servers import proxy
from tests.system.faults.stack import request

ACCOUNT = "123456789012"


def dead_run(lake: S3Lake, path: str, *, hours: float) -> None:
    """Leave an entry that names one output, as old as that, and a part of the output."""
    table = lake.table()
    uuid, folder = str(table.metadata.table_uuid), table.location_provider().metadata_path
    RunLedger(table.io, folder, table_uuid=uuid, run="a-dead-run").record([path])
    backend = s3_backends[ACCOUNT]["aws"]
    for key in lake.ledger_keys():
        backend.get_object(BUCKET, key).last_modified = datetime.now(UTC).replace(tzinfo=None) - timedelta(hours=hours)
    started(lake, path)


def started(lake: S3Lake, path: str) -> None:
    key = path.removeprefix(f"s3://{BUCKET}/")
    upload = lake.s3.create_multipart_upload(Bucket=BUCKET, Key=key)["UploadId"]
    lake.s3.upload_part(Bucket=BUCKET, Key=key, UploadId=upload, PartNumber=1, Body=b"x" * 100)


def test_a_sweep_ends_the_uploads_of_a_dead_run_only(lake: S3Lake) -> None:
    lake.users(writes=1)
    path = f"{lake.table().location()}/data/00000-a-dead-run.parquet"
    dead_run(lake, path, hours=3)
    started(lake, path + "2")  # another writer's, of which no entry speaks
    lake.stack.ok("SWEEP", dry_run=True)
    assert len(lake.uploads()) == 2
    swept = lake.stack.ok("SWEEP")
    assert swept["errors"] == 0
    assert lake.uploads() == [path.removeprefix(f"s3://{BUCKET}/") + "2"]
    assert lake.ledger_keys() == set()


def test_a_sweep_leaves_the_uploads_of_a_run_that_may_be_alive(lake: S3Lake) -> None:
    lake.users(writes=1)
    dead_run(lake, f"{lake.table().location()}/data/00000-a-dead-run.parquet", hours=0.5)
    lake.stack.ok("SWEEP")
    assert len(lake.uploads()) == 1
    assert len(lake.ledger_keys()) == 1


def test_an_entry_stays_until_its_uploads_are_ended(aws: str, tmp_path: Path) -> None:
    with proxy.door_before(aws) as door:
        patience = {"retry_seconds": 0.5, "request_seconds": 20.0}
        lake = S3Lake(tmp_path / "lake", aws, store=door.url, storage=patience)
        lake.users(writes=1)
        dead_run(lake, f"{lake.table().location()}/data/00000-a-dead-run.parquet", hours=3)
        door.breaks(lambda asked: asked.kind == "DELETE upload", proxy.error(503, "SlowDown"))
        assert lake.stack.ok("SWEEP")["errors"] == 1
        assert (len(lake.uploads()), len(lake.ledger_keys())) == (1, 1)
        door.heal()
        assert lake.stack.ok("SWEEP")["errors"] == 0
        assert (lake.uploads(), lake.ledger_keys()) == ([], set())


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of a kilobyte, so that every output goes up in several; moto's own least size is lowered too."""
    monkeypatch.setattr(streams, "PART_BYTES", 1_000)
    monkeypatch.setattr("moto.s3.models.S3_UPLOAD_PART_MIN_SIZE", 1)


def wide(lake: S3Lake) -> None:
    lake.stack.create("users", {"id": "long!", "name": "string"})
    for number in range(3):
        rows = [{"id": number * 500 + i, "name": f"{hash((number, i)):x}"} for i in range(500)]
        lake.stack.ok("WRITE", "users", records=rows)


@pytest.mark.usefixtures("small_parts")
def test_a_large_output_goes_up_in_parts_and_is_checked(aws: str, tmp_path: Path) -> None:
    with proxy.door_before(aws) as door:
        lake = S3Lake(tmp_path / "lake", aws, store=door.url)
        wide(lake)
        door.heal()
        assert lake.stack.ok("COMPACT", "users")["status"] == "COMPLETED"
        asked = door.count(".parquet")
        assert asked["POST upload"] == 2  # begun and completed
        assert asked["PUT upload"] > 5
        assert asked["HEAD"] == 1
        assert asked["PUT"] == 0
        assert lake.count() == {"count": 1_500, "sum_id": 1_500 * 1_499 // 2}
        assert lake.uploads() == []


@pytest.mark.usefixtures("small_parts")
def test_a_part_that_never_arrives_ends_the_upload_and_nothing_is_committed(aws: str, tmp_path: Path) -> None:
    with proxy.door_before(aws) as door:
        lake = S3Lake(tmp_path / "lake", aws, store=door.url, storage={"retry_seconds": 0.5})
        wide(lake)
        before, files = lake.table().metadata.current_snapshot_id, lake.data_keys()
        third = door.breaks(lambda a: a.query.get("partNumber") == ["3"], proxy.error(503, "SlowDown"))
        lake.stack.refused(503, "STORAGE_UNAVAILABLE", (), request("COMPACT", "users"))
        assert third.met >= 1
        assert lake.table().metadata.current_snapshot_id == before
        assert (lake.uploads(), lake.data_keys(), lake.ledger_keys()) == ([], files, set())


@pytest.mark.usefixtures("small_parts")
def test_a_completion_whose_reply_is_lost_is_found_to_have_happened(aws: str, tmp_path: Path) -> None:
    with proxy.door_before(aws) as door:
        lake = S3Lake(tmp_path / "lake", aws, store=door.url)
        wide(lake)

        def lose(exchange: proxy.Exchange) -> None:
            exchange.forward()
            exchange.drop()

        lost = door.breaks(lambda a: a.method == "POST" and "uploadId" in a.query, lose, times=1)
        assert lake.stack.ok("COMPACT", "users")["status"] == "COMPLETED"
        assert lost.met == 1
        assert lake.count() == {"count": 1_500, "sum_id": 1_500 * 1_499 // 2}
