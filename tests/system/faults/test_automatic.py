"""Automatic runs of tables that others write: a notice of a commit, or of a file of metadata, leads to one job."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from regelate.adapters.clock import SystemClock
from regelate.core.policy.options import AUTO_PROPERTY
from regelate.entrypoints.dispatch import Unserved
from regelate.errors import Unavailable
from regelate.operations.automatic import LOOK_SECONDS
from regelate.service.job_desk import JobDesk
from regelate.service.open_tables import OpenTables
from tests.system.faults.jobs import JobStack
from tests.system.faults.stack import Answer, Stack, request, stack_of_tenants

ON = {AUTO_PROPERTY: "true", "regelate.auto.min-num-files": "5"}
LEAST = 5


@pytest.fixture
def stack(tmp_path: Path) -> JobStack:
    made = JobStack(tmp_path)
    made.built.again(clock=SystemClock())
    return made


def written(stack: Stack, files: int, table: str = "default.w", first: int = 0) -> None:
    """Append so many files by plain PyIceberg, as a writer does that knows nothing of us."""
    loaded = stack.table(table)
    for number in range(first, first + files):
        loaded.append(pa.table({"id": pa.array([number], pa.int64())}))


def foreign(stack: Stack, files: int = LEAST, properties: Mapping[str, str] = ON) -> None:
    stack.create("w", {"id": "long"}, properties=dict(properties))
    written(stack, files)


def notified(stack: Stack, table: str = "w") -> Answer:
    return stack.ok("NOTIFY_COMMIT", table)


def s3_event(location: str) -> dict[str, Any]:
    bucket, _, key = location.removeprefix("s3://").partition("/")
    detail = {"bucket": {"name": bucket}, "object": {"key": key, "size": 1}}
    return {"source": "aws.s3", "detail-type": "Object Created", "id": "e-1", "detail": detail}


def test_a_notice_of_a_foreign_commit_submits_the_job_of_a_write_and_others_find_that_job(stack: JobStack) -> None:
    foreign(stack)
    first = notified(stack)
    assert (first["status"], first["small_files"], first["table"]) == ("SUBMITTED", LEAST, "default.w")
    assert [notified(stack)["status"], notified(stack)["job_id"]] == ["JOB_RUNNING", first["job_id"]]
    stack.work()
    job = stack.job(first["job_id"])
    assert (job["origin"], job["state"], job["totals"]["files_compacted"]) == ("EVENT", "SUCCEEDED", LEAST)
    assert len(stack.rows("w")) == LEAST
    assert notified(stack)["status"] == "NOT_DUE"
    assert len(list(stack.table("default.w").scan().plan_files())) == 1


def test_a_table_that_is_written_for_ever_keeps_few_files_and_every_row(stack: JobStack) -> None:
    foreign(stack, 0)
    most = 0
    for number in range(60):
        written(stack, 1, first=number)
        notified(stack)
        if number % 3 == 2:
            stack.work()
        most = max(most, len(list(stack.table("default.w").scan().plan_files())))
    assert [row["id"] for row in sorted(stack.rows("w"), key=lambda row: row["id"])] == list(range(60))
    assert most <= 2 * 32


def test_a_thousand_notices_of_one_commit_are_one_job(stack: JobStack) -> None:
    foreign(stack)
    with ThreadPoolExecutor(32) as pool:
        answers = list(pool.map(lambda _: notified(stack), range(1_000)))
    assert len({answer["job_id"] for answer in answers}) == 1
    assert {answer["status"] for answer in answers} == {"SUBMITTED", "JOB_RUNNING"}
    stack.work()
    assert len(stack.ok("LIST_JOBS")["jobs"]) == 1


def test_a_write_to_a_table_with_a_job_finds_it_while_another_writes_to_the_job_store(stack: JobStack) -> None:
    stack.create("a", {"id": "long"}, properties=dict(ON))
    first = next(filter(None, (stack.ok("WRITE", "a", records=[{"id": 1}])["compaction_job_id"] for _ in range(20))))
    with closing(sqlite3.connect(stack.folder / "jobs.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        again = next(
            filter(None, (stack.ok("WRITE", "a", records=[{"id": 2}])["compaction_job_id"] for _ in range(20)))
        )
    assert again == first
    assert len(stack.ok("LIST_JOBS")["jobs"]) == 1


def test_a_state_whose_job_failed_is_not_tried_again_by_every_notice_of_it(stack: JobStack) -> None:
    def fail() -> None:
        raise Unavailable("STORAGE_AUTH", "no", retryable=False)

    foreign(stack)
    job_id = notified(stack)["job_id"]
    stack.before_batch = fail
    stack.work()
    assert stack.job(job_id)["state"] == "FAILED"
    assert (notified(stack)["status"], notified(stack)["job_id"]) == ("ALREADY_DONE", job_id)
    written(stack, 1, first=LEAST)
    assert notified(stack)["status"] == "SUBMITTED"


@pytest.mark.parametrize(
    ("properties", "status", "word"),
    [
        ({}, "OFF", AUTO_PROPERTY),
        ({AUTO_PROPERTY: "false"}, "OFF", AUTO_PROPERTY),
        ({"regelate.compaction.auto": "async"}, "OFF", AUTO_PROPERTY),
        ({AUTO_PROPERTY: "true", "regelate.auto.min-num-files": "6"}, "NOT_DUE", None),
    ],
)
def test_a_notice_of_a_table_that_is_not_due_or_not_on_does_nothing_and_says_so(
    stack: JobStack, properties: Mapping[str, str], status: str, word: str | None
) -> None:
    foreign(stack, properties=properties)
    told = notified(stack)
    assert (told["status"], told["job_id"], stack.work()) == (status, None, 0)
    assert (told["explanation"] is None) if word is None else (word in told["explanation"])


@pytest.mark.parametrize("name", [AUTO_PROPERTY, "regelate.auto.min-num-files"])
def test_a_property_that_another_engine_set_wrongly_is_reported_and_not_obeyed(stack: JobStack, name: str) -> None:
    foreign(stack)
    with stack.table("default.w").transaction() as change:
        change.set_properties({name: "yes"})
    told = notified(stack)
    assert (told["status"], told["job_id"], stack.work()) == ("INVALID_TABLE_PROPERTY", None, 0)
    assert name in told["explanation"]
    for body in (
        request("ALTER_TABLE", "w", set_properties={name: "yes"}),
        request("CREATE_TABLE", "x", schema={"fields": {"id": {"type": "long"}}}, properties={name: "yes"}),
    ):
        stack.refused(400, "INVALID_OPTION", [name], body)


def test_without_jobs_a_notice_says_that_a_run_is_due(tmp_path: Path) -> None:
    stack = JobStack(tmp_path, store="none")
    stack.built.again(clock=SystemClock())
    foreign(stack)
    told = notified(stack)
    assert (told["status"], told["job_id"]) == ("NO_JOBS", None)
    assert "jobs.store" in told["explanation"]


def test_a_look_that_takes_too_long_is_given_up_and_said(stack: JobStack, monkeypatch: pytest.MonkeyPatch) -> None:
    foreign(stack)
    monkeypatch.setattr("regelate.operations.automatic.LOOK_SECONDS", -LOOK_SECONDS)
    assert notified(stack)["status"] == "TIME_CAP_EXCEEDED"


def test_too_few_files_are_seen_from_the_summary_without_a_manifest(stack: JobStack) -> None:
    foreign(stack, LEAST - 1)
    for path in (stack.folder / "warehouse" / "default" / "w" / "metadata").glob("*.avro"):
        path.unlink()
    assert notified(stack)["status"] == "NOT_DUE"


# Where a file of metadata is


def test_a_new_file_of_metadata_is_a_notice_of_its_table(stack: JobStack) -> None:
    foreign(stack)
    location = stack.table("default.w").metadata_location
    told = stack.accepted("NOTIFY_COMMIT", {"metadata_location": location}, path="/events/commit")
    assert (told["table"], told["status"]) == ("default.w", "SUBMITTED")
    stack.work()
    plain = location.removeprefix("file://")
    again = stack.accepted("NOTIFY_COMMIT", {"metadata_location": plain}, path="/events/commit")
    assert (again["table"], again["status"]) == ("default.w", "NOT_DUE")


def test_the_file_that_called_for_nothing_is_not_looked_at_again_and_the_next_one_is(
    stack: JobStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign(stack, LEAST - 1)
    before = stack.table("default.w").metadata_location
    assert stack.ok("NOTIFY_COMMIT", metadata_location=before)["status"] == "NOT_DUE"
    with monkeypatch.context() as blind:
        blind.setattr(OpenTables, "open", lambda *_, **__: pytest.fail("the table was opened"))
        assert stack.ok("NOTIFY_COMMIT", metadata_location=before)["status"] == "NOT_DUE"
    written(stack, 1, first=LEAST)
    after = stack.table("default.w").metadata_location
    assert stack.ok("NOTIFY_COMMIT", metadata_location=after)["status"] == "SUBMITTED"


@pytest.mark.parametrize(
    "where",
    [
        "{w}/default/nobody/metadata/1.metadata.json",
        "{w}/nobody/w/metadata/1.metadata.json",
        "{w}/default/w/metadata/snap-1.avro",
        "{w}/default/w/data/1.metadata.json",
        "{w}/default/w/metadata/deeper/1.metadata.json",
        "{w}/default/../default/w/metadata/1.metadata.json",
        "{w}/default/%2e%2e/default/w/metadata/1.metadata.json",
        "{w}/default/w/metadata/..",
        "{w}/../warehouse/default/w/metadata/1.metadata.json",
        "{w}-other/default/w/metadata/1.metadata.json",
        "{w}",
        "w/metadata/1.metadata.json",
        "s3://elsewhere/default/w/metadata/1.metadata.json",
        "https://example.com/default/w/metadata/1.metadata.json",
        "\u0000",
    ],
)
def test_a_place_where_no_table_keeps_its_metadata_is_answered_and_nothing_is_done(stack: JobStack, where: str) -> None:
    foreign(stack)
    location = where.format(w=f"file://{stack.folder}/warehouse")
    told = stack.ok("NOTIFY_COMMIT", metadata_location=location)
    assert (told["status"], told["table"], told["job_id"], stack.work()) == ("UNKNOWN_LOCATION", None, None, 0)


def test_the_folder_of_a_table_that_lies_elsewhere_is_nobodys(stack: JobStack) -> None:
    warehouse = f"file://{stack.folder}/warehouse"
    elsewhere = {**ON, "location": f"{warehouse}/default/other"}
    stack.create("w", {"id": "long"}, properties=elsewhere)
    written(stack, LEAST)
    for folder in ("w", "other"):
        told = stack.ok("NOTIFY_COMMIT", metadata_location=f"{warehouse}/default/{folder}/metadata/1.metadata.json")
        assert told["status"] == "UNKNOWN_LOCATION"
    assert notified(stack)["status"] == "SUBMITTED"


# Whose it is


def test_a_notice_reaches_no_table_of_another_tenant(tmp_path: Path) -> None:
    stack = stack_of_tenants(tmp_path / "lake", "acme", "other")
    acme, other = {"custom:tenant_id": "acme"}, {"custom:tenant_id": "other"}
    body = request("CREATE_TABLE", "w", tenant_id="acme", schema={"fields": {"id": {"type": "long"}}}, properties=ON)
    stack.accepted("CREATE_TABLE", body, claims=acme)
    written(stack, LEAST, "acme__default.w")
    location = stack.table("acme__default.w").metadata_location
    notice = {"metadata_location": location}
    mine = stack.accepted("NOTIFY_COMMIT", notice, path="/events/commit", claims=acme)
    assert (mine["table"], mine["status"]) == ("default.w", "NO_JOBS")
    theirs = stack.accepted("NOTIFY_COMMIT", notice, path="/events/commit", claims=other)
    nobodys = {"metadata_location": location.replace("/w/", "/nobody/")}
    nothing = stack.accepted("NOTIFY_COMMIT", nobodys, path="/events/commit", claims=other)
    assert theirs | {"request_id": ""} == nothing | {"request_id": ""}
    assert theirs["status"] == "UNKNOWN_LOCATION"
    stack.refused(403, "FORBIDDEN", [], {**notice, "tenant_id": "acme"}, path="/events/commit", claims=other)
    stack.refused(403, "FORBIDDEN", [], notice, path="/events/commit")
    told = stack.invoke(s3_event(location))
    assert told["status"] == "UNKNOWN_LOCATION"  # it is no place in S3


def test_a_bucket_tells_of_the_tables_of_all_tenants_and_each_is_found_by_its_folder(tmp_path: Path) -> None:
    stack = stack_of_tenants(tmp_path / "lake", "acme", "other")
    warehouse = f"file://{stack.folder}/warehouse"
    tenancy = stack.service.tenancy
    for tenant in ("acme", "other"):
        (found,) = tenancy.located(
            None, None, None, f"{warehouse}/{tenant}__sales.db/w/metadata/1.metadata.json", trusted=True
        )
        assert (found.tenant_id, found.ident, found.told_ident) == (tenant, f"{tenant}__sales.w", "sales.w")
    for folder in ("nobody__sales", "acme", "__sales", "acme____x", "acme__sales/deeper"):
        location = f"{warehouse}/{folder}/w/metadata/1.metadata.json"
        assert tenancy.located(None, None, None, location, trusted=True) == ()


# What others send


def test_a_cloud_event_and_the_records_of_s3_are_notices_too(stack: JobStack) -> None:
    foreign(stack)
    data = {"namespace": "default", "table": "w"}
    event = {"specversion": "1.0", "id": "1", "source": "/x", "type": "committed", "data": data}
    told = stack.accepted("NOTIFY_COMMIT", event, path="/events/commit")
    assert told["status"] == "SUBMITTED"
    assert stack.invoke({**event, "data": {**data, "tenant_id": "default"}})["status"] == "JOB_RUNNING"
    key = {"bucket": {"name": "lake"}, "object": {"key": "a+b/c%3D1/metadata/1.metadata.json"}}
    record = {"eventSource": "aws:s3", "eventName": "ObjectCreated:Put", "s3": key}
    assert stack.invoke({"Records": [record]})["status"] == "UNKNOWN_LOCATION"
    many = stack.invoke({"Records": [record, {**record, "eventName": "ObjectRemoved:Delete"}, record]})
    assert [found["status"] for found in many["notices"]] == ["UNKNOWN_LOCATION"] * 2
    assert stack.invoke({"Service": "Amazon S3", "Event": "s3:TestEvent"}) == {"success": True, "notices": []}


def test_a_notice_that_is_refused_is_answered_and_only_one_that_may_pass_comes_again(
    stack: JobStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign(stack)
    event = {"specversion": "1.0", "data": {"tenant_id": "default", "table": "nobody"}}
    assert stack.invoke(event)["error"]["code"] == "TABLE_NOT_FOUND"

    def fail(*_: object, **__: object) -> None:
        raise Unavailable("JOBS_UNAVAILABLE", "not now")

    monkeypatch.setattr(JobDesk, "submit", fail)
    with pytest.raises(Unserved, match="JOBS_UNAVAILABLE"):
        stack.invoke({**event, "data": {"tenant_id": "default", "table": "w"}})


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ("{", 400, "INVALID_JSON"),
        ("[]", 400, "INVALID_REQUEST"),
        ("{}", 400, "MISSING_FIELD"),
        (json.dumps({"table": "w", "more": 1}), 400, "UNKNOWN_FIELD"),
        (json.dumps({"operation": "DROP_TABLE", "table": "w", "purge": True}), 400, "UNKNOWN_FIELD"),
        (json.dumps({"table": "w", "x": "x" * 1_000_000}), 413, "PAYLOAD_TOO_LARGE"),
        (json.dumps({"metadata_location": "x" * 5_000}), 400, "INVALID_FIELD"),
        (json.dumps({"metadata_location": 7}), 400, "INVALID_FIELD"),
        (json.dumps({"table": "../w"}), 400, "INVALID_IDENTIFIER"),
        (json.dumps({"specversion": "1.0"}), 400, "UNKNOWN_EVENT"),
        (json.dumps({"specversion": "1.0", "data": "w"}), 400, "UNKNOWN_EVENT"),
        (json.dumps({"source": "aws.s3", "detail-type": "Object Created", "detail": {}}), 400, "UNKNOWN_EVENT"),
        (json.dumps({"source": "aws.s3", "detail-type": "Object Deleted", "detail": {}}), 400, "UNKNOWN_EVENT"),
        (json.dumps({"tenant_id": ["a"], "table": "w"}), 400, "INVALID_FIELD"),
    ],
)
def test_a_hostile_notice_is_refused_by_name(stack: JobStack, body: str, status: int, code: str) -> None:
    foreign(stack)
    with stack.untouched():
        stack.refused(status, code, [], body, path="/events/commit")
    assert stack.work() == 0
