"""Rows 34 to 36 of the fault catalogue: a store that refuses, fails, drips, or says what cannot be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from regelate.adapters.duckdb import secrets
from regelate.adapters.iceberg.manifests import ManifestReader
from regelate.errors import Unavailable
from tests.aws.lake import S3Lake, add_files
from tests.servers import proxy
from tests.servers.proxy import Asked, Door, Fault
from tests.system.faults.stack import request

ALL = {"count": 50, "sum_id": 1225}
COMPACT = request("COMPACT", "users")
QUERY = request("QUERY", "users", sql="SELECT count(*) AS count, sum(id) AS sum_id FROM t")
READ_ME = {
    "manifest list": lambda asked: asked.method == "GET" and "/snap-" in asked.key,
    "manifest": lambda asked: asked.method == "GET" and asked.key.endswith("-m0.avro"),
    "metadata": lambda asked: asked.method == "GET" and asked.key.endswith(".metadata.json"),
    "data": lambda asked: asked.method == "GET" and asked.key.endswith(".parquet"),
}


def reads(what: str) -> Callable[[Asked], bool]:
    return READ_ME[what]


def writes(ending: str) -> Callable[[Asked], bool]:
    return lambda asked: asked.method == "PUT" and asked.key.endswith(ending)


@pytest.fixture
def door(aws: str) -> Iterator[Door]:
    with proxy.door_before(aws) as opened:
        yield opened


@pytest.fixture
def retry_seconds() -> float:
    return 5.0


IMPATIENT = pytest.mark.parametrize("retry_seconds", [1.0], ids=["impatient"])
"""For what never passes: it is tried again, and given up soon."""


@pytest.fixture
def lake(aws: str, door: Door, tmp_path: Path, retry_seconds: float) -> S3Lake:
    """A table `users` of five files behind a door; whatever the door breaks from now on, it may break."""
    storage = {"retry_seconds": retry_seconds, "request_seconds": 2.0}
    made = S3Lake(tmp_path / "lake", aws, store=door.url, storage=storage)
    made.stack.create("users", {"id": "long!", "name": "string"})
    add_files(made.table(), made.s3, 5, 10)
    door.heal()
    return made


def refused(lake: S3Lake, body: dict[str, Any], status: int, code: str) -> dict[str, Any]:
    return lake.stack.refused(status, code, (), body)


def untouched_after(lake: S3Lake, door: Door, head: int | None) -> None:
    """The table is what it was, can be read, and nothing of ours that nobody names has stayed."""
    door.heal()
    assert lake.table().metadata.current_snapshot_id == head
    assert lake.count() == ALL
    named = {entry["file_path"] for entry in lake.table().inspect.files().to_pylist()}
    assert {f"s3://lake/{key}" for key in lake.data_keys()} == named
    assert (lake.ledger_keys(), lake.uploads()) == (set(), [])


def head_of(lake: S3Lake) -> int | None:
    return lake.table().metadata.current_snapshot_id


@pytest.mark.parametrize("what", READ_ME)
def test_row_34_a_refusal_that_stays_is_storage_auth_after_one_renewal(lake: S3Lake, door: Door, what: str) -> None:
    head = head_of(lake)
    forget_manifests(lake)
    rule = door.breaks(reads(what), proxy.error(403, "AccessDenied"))
    error = refused(lake, COMPACT, 502, "STORAGE_AUTH")
    assert error["retryable"] is False
    assert "as the test asked" in error["message"]
    assert rule.met <= 2 * 5  # of five files at most, each tried again once
    untouched_after(lake, door, head)


@pytest.mark.parametrize("body", [COMPACT, QUERY])
@pytest.mark.parametrize("code", ["ExpiredToken", "InvalidAccessKeyId"])
def test_row_34_keys_that_expired_are_renewed_once_and_the_request_succeeds(
    aws: str, door: Door, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: dict[str, Any], code: str
) -> None:
    """The environment has other keys by the time that the old ones are refused, as a function's role has."""
    without = {"s3.access-key-id": "", "s3.secret-access-key": ""}
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "old-key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "old-secret")
    lake = S3Lake(tmp_path / "lake", aws, store=door.url, properties=without)
    lake.users()
    door.heal()
    old = door.breaks(lambda a: "old-key" in a.headers.get("Authorization", ""), proxy.error(400, code))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "new-key")
    assert lake.stack.post(body)[0] == 200
    assert old.met >= 1
    assert lake.count() == ALL


@IMPATIENT
def test_row_34_an_upload_that_says_it_succeeded_is_looked_at_and_not_believed(lake: S3Lake, door: Door) -> None:
    head = head_of(lake)
    swallow: Fault = lambda exchange: exchange.answer(200, [("ETag", '"x"')], b"")  # noqa: E731
    door.breaks(writes(".parquet"), swallow)
    error = refused(lake, COMPACT, 502, "STORAGE_INCONSISTENT")
    assert "is not shown" in error["message"]
    untouched_after(lake, door, head)


def test_row_34_no_permission_to_write_leaves_only_what_nobody_names(lake: S3Lake, door: Door) -> None:
    head = head_of(lake)
    door.breaks(writes(".avro"), proxy.error(403, "AccessDenied"))
    refused(lake, COMPACT, 502, "STORAGE_AUTH")
    untouched_after(lake, door, head)


PASSING: dict[str, Fault] = {
    "503": proxy.error(503, "SlowDown"),
    "500": proxy.error(500, "InternalError"),
    "reset": proxy.reset,
    "reset amid the body": proxy.reset_amid_the_body,
    "drip": proxy.drip,
}
AT_ONCE = [name for name in PASSING if name != "drip"]
LYING: dict[str, Fault] = {
    "cut short": proxy.cut_short,
    "an older state": proxy.an_older_state,
}


@pytest.mark.parametrize(
    ("what", "fault"),
    [(what, fault) for what in ("manifest", "data") for fault in (*PASSING, *LYING)]
    + [(what, fault) for what in ("metadata", "manifest list") for fault in ("503", "an older state")],
)
def test_row_35_what_passes_is_tried_again_and_nobody_notices(lake: S3Lake, door: Door, what: str, fault: str) -> None:
    forget_manifests(lake)
    rule = door.breaks(reads(what), {**PASSING, **LYING}[fault], times=1)
    assert lake.stack.post(COMPACT)[1]["status"] == "COMPLETED"
    assert rule.met == 1
    assert lake.count() == ALL


@pytest.mark.parametrize(
    ("what", "fault", "retry_seconds"),
    [
        (what, fault, 1.0)
        for what, fault in [("manifest", "503"), ("manifest", "reset"), *(("data", f) for f in AT_ONCE)]
    ]
    + [("data", "drip", 3.0)],  # a try takes two seconds
)
def test_row_35_what_does_not_pass_is_storage_unavailable(lake: S3Lake, door: Door, what: str, fault: str) -> None:
    """A manifest that cannot be fetched was once taken for a damaged one (424)."""
    head = head_of(lake)
    forget_manifests(lake)
    rule = door.breaks(reads(what), PASSING[fault])
    assert refused(lake, COMPACT, 503, "STORAGE_UNAVAILABLE")["retryable"] is True
    assert rule.met > 1
    untouched_after(lake, door, head)


@pytest.mark.parametrize("fault", ["503", "reset"])
def test_row_35_a_query_meets_the_same(lake: S3Lake, door: Door, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    monkeypatch.setattr(secrets, "RETRIES", 3)  # of the engine's own: the fourth and fifth come after eight seconds
    door.breaks(reads("data"), PASSING[fault], times=1)
    assert lake.stack.post(QUERY)[1]["rows"] == [ALL]
    rule = door.breaks(reads("data"), PASSING[fault])
    refused(lake, QUERY, 503, "STORAGE_UNAVAILABLE")
    assert rule.met > 1


@pytest.mark.parametrize("ending", [".parquet", ".avro", ".metadata.json"])
@pytest.mark.parametrize("fault", ["503", "reset"])
def test_row_35_an_upload_that_breaks_off_is_sent_again(lake: S3Lake, door: Door, ending: str, fault: str) -> None:
    rule = door.breaks(writes(ending), PASSING[fault], times=2)
    assert lake.stack.post(COMPACT)[1]["status"] == "COMPLETED"
    assert rule.met == 2
    assert lake.count() == ALL


@IMPATIENT
def test_row_35_an_upload_that_never_arrives_leaves_no_partial_object(lake: S3Lake, door: Door) -> None:
    head = head_of(lake)
    door.breaks(writes(".parquet"), PASSING["503"])
    refused(lake, COMPACT, 503, "STORAGE_UNAVAILABLE")
    untouched_after(lake, door, head)


@IMPATIENT
def test_row_35_the_requests_after_one_that_failed_for_good_do_not_wait_as_long_again(lake: S3Lake, door: Door) -> None:
    store = lake.table().io.store
    first = door.breaks(reads("manifest"), PASSING["503"])
    place = next(f"s3://lake/{key}" for key in lake.objects() if key.endswith("-m0.avro"))
    for _ in range(5):
        before = first.met
        with pytest.raises(Unavailable):
            store.read(place)
    assert first.met - before == 1
    door.heal()
    assert store.read(place)
    first = door.breaks(reads("manifest"), PASSING["503"], times=2)
    assert store.read(place)
    assert first.met == 2


@IMPATIENT
@pytest.mark.parametrize("fault", LYING)
@pytest.mark.parametrize("what", ["manifest", "data"])
def test_row_36_an_answer_that_is_too_short_is_noticed(lake: S3Lake, door: Door, what: str, fault: str) -> None:
    head = head_of(lake)
    forget_manifests(lake)
    door.breaks(reads(what), LYING[fault])
    assert refused(lake, COMPACT, 502, "STORAGE_INCONSISTENT")["retryable"] is True
    untouched_after(lake, door, head)


@IMPATIENT
@pytest.mark.parametrize("fault", [proxy.another_range, proxy.the_whole_object])
def test_row_36_a_wrong_range_is_noticed_when_outputs_are_read_back(lake: S3Lake, door: Door, fault: Fault) -> None:
    """`verify: strict` reads by ranges."""
    head = head_of(lake)
    ranged = door.breaks(lambda a: reads("data")(a) and "Range" in a.headers, fault)
    refused(lake, {**COMPACT, "verify": "strict"}, 502, "STORAGE_INCONSISTENT")
    assert ranged.met > 1
    untouched_after(lake, door, head)
    door.breaks(lambda a: reads("data")(a) and "Range" in a.headers, fault, times=1)
    assert lake.stack.ok("COMPACT", "users", verify="strict")["status"] == "COMPLETED"


@IMPATIENT
def test_row_36_an_object_that_changes_between_two_requests_is_noticed(lake: S3Lake) -> None:
    io = lake.table().io
    place = "s3://lake/changing"
    lake.s3.put_object(Bucket="lake", Key="changing", Body=b"x" * 100)
    with io.new_input(place).open() as source:
        assert source.read(10) == b"x" * 10
        lake.s3.put_object(Bucket="lake", Key="changing", Body=b"y" * 100)
        with pytest.raises(Unavailable, match="another one"):
            source.read(10)


def test_row_36_an_upload_that_is_shown_late_is_waited_for(lake: S3Lake, door: Door) -> None:
    late = door.breaks(lambda a: a.method == "HEAD" and a.key.endswith(".parquet"), proxy.gone, times=2)
    assert lake.stack.post(COMPACT)[1]["status"] == "COMPLETED"
    assert late.met == 2
    assert lake.count() == ALL


def test_row_36_a_data_file_that_really_has_another_size_is_damage_and_no_contradiction(lake: S3Lake) -> None:
    key = min(lake.data_keys())
    lake.s3.put_object(Bucket="lake", Key=key, Body=b"PAR1")
    error = refused(lake, COMPACT, 424, "DATA_FILE_CORRUPT")
    assert error["details"]["path"] == f"s3://lake/{key}"
    assert "4 bytes" in error["message"]


def test_a_data_file_that_is_gone_from_the_store_is_named(lake: S3Lake) -> None:
    key = min(lake.data_keys())
    lake.s3.delete_object(Bucket="lake", Key=key)
    assert refused(lake, COMPACT, 424, "DATA_FILE_MISSING")["details"]["path"] == f"s3://lake/{key}"


def forget_manifests(lake: S3Lake) -> None:
    """Manifests never change, so a process keeps them; here they are to be read."""
    lake.stack.built.again(manifests=ManifestReader())
