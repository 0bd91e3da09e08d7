"""Results that are too large for an answer: a file on the way, an object in a bucket, a URL for whoever asked."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import boto3
import httpx
import pytest

from regelate.adapters.aws.results import BucketResults, s3_client
from regelate.adapters.local_results import FolderResults
from regelate.core.policy.timeouts import Timeouts
from regelate.entrypoints.log import logger
from regelate.errors import Unavailable
from regelate.settings import SettingsError, load_settings
from tests.servers.moto_aws import aws_server, client
from tests.system.faults.stack import LOCAL_CATALOG, Stack, request, schema, stack_with

BUCKET = "results"
NOW_MS = 1_737_090_000_000
ROWS = 400
WIDE = "SELECT id, repeat('ü', 100) AS x FROM t ORDER BY id"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with aws_server() as found:
        client("s3", found).create_bucket(Bucket=BUCKET)
        yield found


@pytest.fixture
def aws(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in (("ACCESS_KEY_ID", "AKIDEXAMPLE"), ("SECRET_ACCESS_KEY", "secret"), ("SESSION_TOKEN", "token")):
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", endpoint)
    return endpoint


def lake(folder: Path, location: str | None, **limits: object) -> Stack:
    """A lake of two tenants with a table of 400 ids, whose answers hold 10,000 bytes."""
    catalog = {**LOCAL_CATALOG, "namespace_template": "{tenant_id}__{namespace}"}
    stack = stack_with(
        folder,
        environment="development",
        auth="none",
        tenants=["acme", "other"],
        catalogs={"shared": catalog},
        limits={"max_result_bytes": 10_000, **limits},
        results={"location": location, "url_seconds": 60},
    )
    for tenant in ("acme", "other"):
        stack.accepted("CREATE_TABLE", request("CREATE_TABLE", "t", tenant_id=tenant, schema=schema({"id": "long"})))
        records = [{"id": n} for n in range(ROWS)]
        stack.accepted("WRITE", request("WRITE", "t", tenant_id=tenant, records=records))
    return stack


def query(tenant: str = "acme", **fields: object) -> dict[str, Any]:
    return request("QUERY", "t", tenant_id=tenant, **fields)


def lines(text: str) -> list[dict[str, Any]]:
    assert text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def leftovers(folder: Path) -> list[Path]:
    return list(folder.rglob("*.ndjson"))


# --- in a bucket ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("fields", "most"), [({"sql": WIDE}, 10_000), ({"columns": ["id"], "limit": 400}, 99)])
def test_a_result_above_the_limit_is_fetched_from_the_bucket_by_its_url(
    tmp_path: Path, aws: str, fields: dict[str, Any], most: int
) -> None:
    stack = lake(tmp_path / "lake", f"s3://{BUCKET}/some/prefix/", max_result_bytes=most)
    answer = stack.accepted("QUERY", query(**fields))
    assert (answer["rows"], answer["row_count"], answer["truncated"]) == ([], ROWS, False)
    fetched = httpx.get(answer["result_url"])
    assert (fetched.status_code, fetched.headers["content-type"]) == (200, "application/x-ndjson")
    assert len(fetched.content) == answer["result_bytes"]
    found = lines(fetched.text)
    assert [row["id"] for row in found] == list(range(ROWS))
    assert [c["name"] for c in answer["columns"]] == list(found[0])
    if "sql" in fields:
        assert found[7] == {"id": 7, "x": "ü" * 100}


def test_the_key_is_the_tenants_and_cannot_be_guessed_and_the_url_ends(tmp_path: Path, aws: str) -> None:
    stack = lake(tmp_path / "lake", f"s3://{BUCKET}/p")
    urls = [urlsplit(stack.accepted("QUERY", query(t, sql=WIDE))["result_url"]) for t in ("acme", "acme", "other")]
    folders = [url.path.rpartition("/")[0] for url in urls]
    assert folders[0] == folders[1] != folders[2]
    assert [folder.split("/")[3] for folder in folders] == ["acme", "acme", "other"]
    names = {url.path.rpartition("/")[2] for url in urls}
    assert len(names) == 3
    assert {len(name) for name in names} == {len("0" * 32 + ".ndjson")}
    for url in urls:
        signed = parse_qs(url.query)
        assert signed["X-Amz-Algorithm"] == ["AWS4-HMAC-SHA256"]
        assert signed["X-Amz-Expires"] == ["60"]
        assert signed["X-Amz-SignedHeaders"] == ["host"]


def test_a_url_stands_in_no_log_line_and_no_file_stays_behind(
    tmp_path: Path, aws: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(logger.registered_handler, "stream", stream)
    stack = lake(tmp_path / "lake", f"s3://{BUCKET}/p")
    answer = stack.accepted("QUERY", query(sql=WIDE))
    assert '"QUERY"' in stream.getvalue()
    assert urlsplit(answer["result_url"]).path not in stream.getvalue()
    assert "X-Amz" not in stream.getvalue()
    assert leftovers(tmp_path) == []


def test_a_small_result_stays_in_the_answer_and_the_bucket_is_not_asked(tmp_path: Path) -> None:
    """No bucket, no credentials, no endpoint: nothing may be opened."""
    stack = lake(tmp_path / "lake", "s3://no-such-bucket/p")
    answer = stack.accepted("QUERY", query(sql="SELECT id FROM t LIMIT 3"))
    assert (answer["row_count"], len(answer["rows"])) == (3, 3)
    assert not {"result_url", "result_expires_at", "result_bytes"} & set(answer)


def test_a_result_above_what_may_be_stored_is_refused_by_that_limit(tmp_path: Path, aws: str) -> None:
    stack = lake(tmp_path / "lake", f"s3://{BUCKET}/large", max_stored_result_bytes=20_000)
    error = stack.refused(413, "RESULT_TOO_LARGE", ["20000 bytes"], query(sql=WIDE))
    assert error["details"] == {"max_bytes": 20_000}
    listed = client("s3", aws).list_objects_v2(Bucket=BUCKET, Prefix="large/")
    assert listed["KeyCount"] == 0
    assert leftovers(tmp_path) == []


def test_the_limit_on_rows_cuts_a_stored_result_too(tmp_path: Path, aws: str) -> None:
    stack = lake(tmp_path / "lake", f"s3://{BUCKET}/p", max_result_rows=250)
    answer = stack.accepted("QUERY", query(sql=WIDE))
    assert (answer["row_count"], answer["truncated"]) == (250, True)
    assert len(lines(httpx.get(answer["result_url"]).text)) == 250


@pytest.mark.parametrize(
    ("change", "code", "status"),
    [
        ({"bucket": "no-such-bucket"}, "STORAGE_AUTH", 502),
        ({"endpoint": "http://127.0.0.1:9"}, "STORAGE_UNAVAILABLE", 503),
    ],
)
def test_a_bucket_that_cannot_be_written_is_a_typed_fault_without_its_name(
    tmp_path: Path, aws: str, monkeypatch: pytest.MonkeyPatch, change: dict[str, str], code: str, status: int
) -> None:
    if "endpoint" in change:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", change["endpoint"])
        monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    stack = lake(tmp_path / "lake", f"s3://{change.get('bucket', BUCKET)}/p")
    error = stack.refused(status, code, ["the result could not be stored"], query(sql=WIDE))
    assert change.get("bucket", BUCKET) not in error["message"]


def test_credentials_that_s3_refuses_are_named_as_such(tmp_path: Path, endpoint: str) -> None:
    path = tmp_path / "result.ndjson"
    path.write_text("{}\n")
    refusing = boto3.client(
        "s3", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b"
    )
    answer = {"Error": {"Code": "AccessDenied", "Message": "arn:aws:iam::1:role/x may not"}}

    def refuse(**_: object) -> None:
        raise refusing.exceptions.ClientError(answer, "PutObject")

    refusing.meta.events.register("before-call.s3.PutObject", refuse)
    with pytest.raises(Unavailable) as caught:
        BucketResults(refusing, f"s3://{BUCKET}", "acme", url_seconds=60).keep(str(path), now_ms=NOW_MS)
    assert (caught.value.code, caught.value.status, caught.value.retryable) == ("STORAGE_AUTH", 502, False)
    assert "arn:" not in caught.value.message


def test_several_requests_at_once_store_their_own_results(tmp_path: Path, aws: str) -> None:
    stack = lake(tmp_path / "lake", f"s3://{BUCKET}/p")
    found: dict[int, list[dict[str, Any]]] = {}

    def ask(number: int) -> None:
        answer = stack.accepted("QUERY", query(sql=WIDE.replace("ORDER", f"WHERE id % 4 = {number} ORDER")))
        found[number] = lines(httpx.get(answer["result_url"]).text)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {n: [row["id"] for row in rows] for n, rows in found.items()} == {
        n: list(range(n, ROWS, 4)) for n in range(4)
    }


def test_the_client_signs_as_every_region_takes_it(aws: str) -> None:
    assert s3_client(Timeouts()).meta.config.signature_version == "s3v4"


# --- in a folder ------------------------------------------------------------------------------------------------------


def test_without_a_bucket_a_folder_takes_the_result_for_its_owner_alone(tmp_path: Path) -> None:
    stack = lake(tmp_path / "lake", str(tmp_path / "results"))
    answer = stack.accepted("QUERY", query(sql=WIDE))
    assert answer["result_url"].startswith(f"file://{tmp_path}/results/acme/")
    path = Path(urlsplit(answer["result_url"]).path)
    assert path.stat().st_mode & 0o077 == 0
    assert len(lines(path.read_text())) == ROWS


def test_a_result_in_a_folder_is_deleted_by_the_first_one_that_comes_after_its_time(tmp_path: Path) -> None:
    def keep(tenant: str, now_ms: int) -> Path:
        path = tmp_path / "result.ndjson"
        path.write_text("{}\n")
        stored = FolderResults(tmp_path / "results", tenant, lives_seconds=60).keep(str(path), now_ms=now_ms)
        assert stored.expires_ms == now_ms + 60_000
        return Path(urlsplit(stored.url).path)

    first = keep("acme", NOW_MS)
    second = keep("other", NOW_MS + 60_000)
    assert (first.exists(), second.exists()) == (True, True)
    third = keep("other", NOW_MS + 60_001)
    assert (first.exists(), second.exists(), third.exists()) == (False, True, True)


@pytest.mark.parametrize("location", ["results", "http://b/p", "s3://", "s3:///p", "s3://B/p", "s3:b"])
def test_a_place_that_is_none_stops_the_start(tmp_path: Path, location: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"defaults": {"results": {"location": location}}}))
    with pytest.raises(SettingsError) as caught:
        load_settings({"REGELATE_CONFIG": str(path)})
    assert "results.location" in caught.value.message


def test_the_shipped_overlays_take_the_place_from_the_environment_and_development_has_none() -> None:
    root = Path(__file__).parents[2] / "config.json"
    environ = {"REGELATE_CONFIG": str(root), "REGELATE_WAREHOUSE": "s3://b/w"}
    for environment in ("staging", "production"):
        plain = load_settings({**environ, "REGELATE_ENVIRONMENT": environment}).results
        assert (plain.location, plain.is_bucket) == ("", False)
        told = load_settings({**environ, "REGELATE_ENVIRONMENT": environment, "REGELATE_RESULTS": "s3://results/p"})
        assert (told.results.location, told.results.is_bucket) == ("s3://results/p", True)
    assert load_settings(environ).results.location is None
