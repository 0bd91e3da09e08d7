"""The seed's scenario on Glue and S3, and what a lake there leaves behind, shows and survives."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from regelate.adapters.clock import SystemClock
from regelate.adapters.duckdb.session import open_session
from regelate.core.planning import lanes, splicing
from regelate.core.requests import CompactRequest
from regelate.core.table.storage import ObjectStoreAccess
from regelate.tenancy import Address
from tests.aws.lake import CATALOG, SECRET, S3Lake
from tests.servers.moto_aws import client
from tests.system.faults.stack import request

MONTH_MS = 30 * 24 * 3600 * 1000
USERS = Address(tenant_id="default", catalog=CATALOG, ident="default.users", table="users")


class NextMonth(SystemClock):
    def now_ms(self) -> int:
        return super().now_ms() + MONTH_MS


def test_five_writes_recommend_a_compaction_and_it_changes_no_row(lake: S3Lake) -> None:
    lake.users(writes=4)
    fifth = lake.stack.ok("WRITE", "users", records=[{"id": 40 + i, "name": None} for i in range(10)])
    assert fifth["compaction_recommended"] is True
    before = lake.stack.rows("users", limit=100)
    answer = lake.stack.ok("COMPACT", "users")
    assert answer["status"] == "COMPLETED"
    assert (answer["stats"]["files_before"], answer["stats"]["files_after"]) == (5, 1)
    assert lake.stack.rows("users", limit=100) == before
    assert len(before) == 50
    assert lake.stack.ok("COMPACT", "users")["status"] == "NOTHING_TO_DO"


@pytest.mark.parametrize("how", [{"verify": "strict"}, {"strategy": "sort", "sort_order": [{"column": "id"}]}])
def test_every_way_of_compacting_works_on_s3(lake: S3Lake, how: dict[str, object]) -> None:
    lake.users()
    assert lake.stack.ok("COMPACT", "users", **how)["status"] == "COMPLETED"
    assert lake.count() == {"count": 50, "sum_id": 1225}


def test_an_upsert_an_overwrite_and_a_query_by_sql_work_on_s3(lake: S3Lake) -> None:
    lake.users(writes=2)
    lake.stack.ok("WRITE", "users", records=[{"id": 3, "name": "new"}], mode="upsert", key=["id"])
    assert lake.stack.rows("users", sql="SELECT name FROM users WHERE id = 3") == [{"name": "new"}]
    assert lake.count() == {"count": 20, "sum_id": 190}
    lake.stack.ok("WRITE", "users", records=[{"id": 1, "name": "only"}], mode="overwrite_partitions")
    assert lake.count() == {"count": 1, "sum_id": 1}


def test_an_expiry_deletes_the_inputs_and_nothing_else(lake: S3Lake) -> None:
    lake.users()
    inputs = lake.data_keys()
    lake.stack.ok("COMPACT", "users")
    kept = lake.data_keys() - inputs
    head = lake.table().metadata.current_snapshot_id
    lake.stack.built.again(clock=NextMonth())
    answer = lake.stack.ok("EXPIRE_SNAPSHOTS", "users", retention_hours=1, grace_hours=0)
    assert answer["snapshots_expired"] == 5
    assert lake.data_keys() == kept
    assert lake.count() == {"count": 50, "sum_id": 1225}
    assert [s.snapshot_id for s in lake.table().snapshots()] == [head]


def test_a_run_leaves_no_ledger_entry_no_upload_and_no_folder_object(lake: S3Lake) -> None:
    lake.users()
    lake.stack.ok("COMPACT", "users")
    lake.stack.ok("MAINTAIN", "users")
    assert lake.ledger_keys() == set()
    assert lake.uploads() == []
    assert not any(key.endswith("/") for key in lake.objects())


def test_a_dropped_table_takes_its_objects_along(lake: S3Lake) -> None:
    lake.users()
    lake.stack.ok("COMPACT", "users")
    lake.stack.ok("DROP_TABLE", "users", purge=True)
    assert lake.objects() == {}


def test_glue_refuses_an_update_of_an_older_version(lake: S3Lake) -> None:
    """Trap T14: without this check of ours moto takes it, and the next test would prove nothing."""
    lake.users(writes=1)
    glue = client("glue", lake.endpoint)
    found = glue.get_table(DatabaseName="default", Name="users")["Table"]
    told = {"Name": "users", "Parameters": found["Parameters"]}
    glue.update_table(DatabaseName="default", TableInput=told, VersionId=found["VersionId"])
    with pytest.raises(glue.exceptions.ConcurrentModificationException):
        glue.update_table(DatabaseName="default", TableInput=told, VersionId=found["VersionId"])


def test_writers_at_once_and_a_compaction_among_them_lose_no_row(lake: S3Lake) -> None:
    lake.users()
    write, compact = lake.stack.service.writes.write, lake.stack.service.compactions.compact

    def append(number: int) -> None:
        for i in range(3):
            rows = [{"id": 1_000 * number + i, "name": "late"}]
            write(USERS, rows, mode="append", key=(), idempotency_key=None)

    with ThreadPoolExecutor(4) as pool:
        done = [pool.submit(append, number) for number in (1, 2, 3)]
        compacted = pool.submit(compact, USERS, CompactRequest(force=True))
        for future in done:
            future.result()
    assert compacted.result().compacted
    assert lake.count() == {"count": 59, "sum_id": 1225 + 3 * 6_000 + 9}


def test_no_secret_is_in_a_log_line_an_answer_or_a_setting(
    lake: S3Lake, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG, logger="regelate")
    lake.users()
    answers = [lake.stack.ok("COMPACT", "users"), lake.stack.ok("DESCRIBE_TABLE", "users")]
    answers.append(lake.stack.post(request("QUERY", "users", sql="SELECT x FROM t"))[1])
    settings = repr(lake.stack.service.settings)
    assert "answered" in caplog.text
    for text in (repr(answers), caplog.text, settings, "".join(capsys.readouterr())):
        assert SECRET not in text


def test_the_engine_holds_the_keys_as_a_secret_that_it_does_not_show(tmp_path: Path) -> None:
    access = ObjectStoreAccess(
        scope="s3://lake/",
        endpoint="127.0.0.1:1",
        region="us-east-1",
        path_style=True,
        encrypted=False,
        key_id="key",
        secret="it's secret",
        session_token="token of a session",
    )
    with open_session(memory_bytes=2**28, threads=1, folder=tmp_path, store=access) as connection:
        settings = connection.execute("SELECT * FROM duckdb_settings()").fetchall()
        secrets = connection.execute("SELECT * FROM duckdb_secrets()").fetchall()
        used = connection.execute("SELECT name FROM which_secret('s3a://lake/x', 's3')").fetchall()
        elsewhere = connection.execute("SELECT name FROM which_secret('s3://other/x', 's3')").fetchall()
    assert (used, elsewhere) == ([("regelate_store",)], [])
    for shown in (settings, secrets, access):
        assert "it's secret" not in repr(shown)
        assert "token of a session" not in repr(shown)


def test_keys_come_from_the_environment_where_the_properties_name_none(
    aws: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without = {"s3.access-key-id": "", "s3.secret-access-key": "", "s3.region": ""}
    lake = S3Lake(tmp_path / "lake", aws, properties=without)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "from-the-environment")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    lake.users()
    assert lake.stack.ok("COMPACT", "users")["status"] == "COMPLETED"
    assert lake.count() == {"count": 50, "sum_id": 1225}


def test_a_role_is_assumed_where_the_properties_name_one(
    aws: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", aws)
    role = {"s3.role-arn": "arn:aws:iam::123456789012:role/lake"}
    lake = S3Lake(tmp_path / "lake", aws, properties=role)
    lake.users()
    assert lake.stack.ok("COMPACT", "users")["status"] == "COMPLETED"
    with lake.stack.built.open(USERS) as session:
        access = session.store_access
    assert access is not None
    assert (access.key_id or "").startswith("ASIA")  # of a session, not the user's own
    assert access.session_token


def test_another_file_io_of_pyiceberg_still_works(aws: str, tmp_path: Path) -> None:
    lake = S3Lake(tmp_path / "lake", aws, properties={"py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO"})
    lake.users()
    assert lake.stack.ok("COMPACT", "users")["status"] == "COMPLETED"
    assert lake.count() == {"count": 50, "sum_id": 1225}


@pytest.mark.parametrize("target", [None, 20_000], ids=["one output", "several"])
def test_files_that_were_fetched_are_recoded_in_a_lane(
    lake: S3Lake, monkeypatch: pytest.MonkeyPatch, target: int | None
) -> None:
    """One output is made in pieces by all workers, which none of them can look at before the files are here."""
    monkeypatch.setattr(lanes, "LANE_ROWS", 10)
    monkeypatch.setattr(splicing, "WHOLE_ROWS", 100)
    monkeypatch.setattr(splicing, "WHOLE_BYTES", 2**40)
    lake.stack.create("users", {"id": "long!", "name": "string"})
    for low in range(0, 6_000, 1_000):
        rows = [{"id": n, "name": f"{n * 7919 % 6007:x}" * 3} for n in range(low, low + 1_000)]
        lake.stack.ok("WRITE", "users", records=rows)
    options = {"splice": "never"} | ({} if target is None else {"target-file-size-bytes": target})
    assert lake.stack.ok("COMPACT", "users", verify="strict", force=True, options=options)["status"] == "COMPLETED"
    assert lake.count() == {"count": 6_000, "sum_id": 17_997_000}
    paths = [task.file.file_path for task in lake.table().scan().plan_files()]
    assert (len(paths) > 1) == (target is not None)
    for path in paths:
        with lake.table().io.new_input(path).open() as file:
            assert "parquet-cpp-arrow" in pq.read_metadata(file).created_by
