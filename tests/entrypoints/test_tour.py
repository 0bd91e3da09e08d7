"""The first tour, as the guide gives it to a newcomer: its curl requests, byte for byte, against the real server."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from regelate.entrypoints.serve import Server
from regelate.entrypoints.server.door import INVOCATIONS_PATH
from regelate.service.build import build
from regelate.service.facade import Service
from regelate.settings import load_settings
from tests.entrypoints.serving import serving
from tests.support.answers import check_answer
from tests.support.iceberg_tables import rows
from tests.support.table_model import model_rows

CREATE = r"""{
    "httpMethod": "POST",
    "path": "/database",
    "body": "{\"operation\": \"CREATE_TABLE\", \"tenant_id\": \"test-tenant\", \"namespace\": \"default\", \"table\": \"test_users\", \"schema\": {\"fields\": {\"name\": {\"type\": \"string\", \"required\": true}, \"age\": {\"type\": \"integer\", \"required\": false}}}, \"if_not_exists\": true}"
  }"""  # noqa: E501  one line in the guide
WRITES = [
    (
        '{"httpMethod":"POST","path":"/database","body":"{\\"operation\\":\\"WRITE\\",\\"tenant_id\\":\\"test-tenant\\",'
        '\\"namespace\\":\\"default\\",\\"table\\":\\"test_users\\",\\"records\\":[{\\"name\\":\\"User-'
        f'{number}\\",\\"age\\":{20 + number}}}]}}"}}'
    )
    for number in range(1, 6)
]
COMPACT = r"""{
    "httpMethod": "POST",
    "path": "/database",
    "body": "{\"operation\": \"COMPACT\", \"tenant_id\": \"test-tenant\", \"namespace\": \"default\", \"table\": \"test_users\", \"force\": true, \"expire_snapshots\": false}"
  }"""  # noqa: E501  one line in the guide
QUERY = r"""{
    "httpMethod": "POST",
    "path": "/database",
    "body": "{\"operation\": \"QUERY\", \"tenant_id\": \"test-tenant\", \"namespace\": \"default\", \"table\": \"test_users\"}"
  }"""  # noqa: E501  as long as the others
SHORT_FORM = {
    "table": "sales",
    "strategy": "time-series",
    "options": {"target_file_size": "1GB", "max_cost": 10.0},
}
GUIDES_STATS = {
    "files_before",
    "files_after",
    "files_compacted",
    "files_removed",
    "bytes_before",
    "bytes_after",
    "bytes_saved",
    "snapshots_expired",
    "compaction_time_ms",
    "small_files_remaining",
}
USERS = [{"name": f"User-{number}", "age": 20 + number} for number in range(1, 6)]


class Tour:
    """A server on a free port over an empty lake, and a client that checks every answer."""

    def __init__(self, server: Server, service: Service, client: httpx.Client, home: Path) -> None:
        self.server = server
        self.home = home
        self.service = service
        self._client = client

    def emulated(self, event: str) -> dict[str, Any]:
        """Send an event as the guide's curl does, and return the answer inside of Lambda's answer."""
        answer = self._client.post(INVOCATIONS_PATH, content=event, headers={"Content-Type": "application/json"})
        assert answer.status_code == 200
        result = answer.json()
        assert result["statusCode"] == 200, result
        assert result["headers"]["Content-Type"] == "application/json"
        return checked(json.loads(json.loads(event)["body"])["operation"], json.loads(result["body"]))

    def posted(self, event: str) -> dict[str, Any]:
        """Send the request inside of an event to `/database`."""
        return self.asked(json.loads(event)["body"])

    def asked(self, body: str) -> dict[str, Any]:
        answer = self._client.post("/database", content=body)
        assert answer.status_code == 200, answer.text
        return checked(json.loads(body)["operation"], answer.json())

    def short(self, body: dict[str, Any]) -> dict[str, Any]:
        answer = self._client.post("/api/v1/compact", json=body)
        assert answer.status_code == 200, answer.text
        return checked("COMPACT", answer.json())


def checked(operation: str, answer: dict[str, Any]) -> dict[str, Any]:
    check_answer(operation, answer)
    return answer


@pytest.fixture
def tour(tmp_path: Path) -> Iterator[Tour]:
    service = build(load_settings({"REGELATE_HOME": str(tmp_path)}))
    with serving(service) as server, httpx.Client(base_url=server.url, timeout=120) as client:
        yield Tour(server, service, client, tmp_path)


@pytest.mark.parametrize("door", ["emulated", "posted"])
def test_the_guides_curl_requests_do_what_the_guide_says(tour: Tour, door: str) -> None:
    send = getattr(tour, door)
    assert send(CREATE)["created"] is True
    assert send(CREATE)["created"] is False
    answers = [send(write) for write in WRITES]
    assert [answer["records_written"] for answer in answers] == [1] * 5
    assert [answer["compaction_recommended"] for answer in answers] == [False] * 4 + [True]
    assert answers[4]["small_files_count"] == 5
    before = model_rows(tour.service.access.survey().load_table("default.test_users"))

    compacted = send(COMPACT)
    stats = compacted["stats"]
    assert (compacted["compacted"], compacted["status"]) == (True, "COMPLETED")
    assert stats.keys() >= GUIDES_STATS
    assert (stats["files_before"], stats["files_after"]) == (5, 1)
    assert (stats["files_compacted"], stats["files_removed"]) == (5, 5)
    assert stats["bytes_before"] > stats["bytes_after"] > 0
    assert stats["bytes_saved"] == stats["bytes_before"] - stats["bytes_after"]
    assert (stats["snapshots_expired"], stats["small_files_remaining"]) == (0, 1)
    assert stats["compaction_time_ms"] > 0

    found = send(QUERY)
    assert sorted(found["rows"], key=lambda row: str(row["name"])) == USERS
    assert (found["row_count"], found["truncated"]) == (5, False)
    assert [column["name"] for column in found["columns"]] == ["name", "age"]
    table = tour.service.access.survey().load_table("default.test_users")
    assert model_rows(table) == before
    assert rows(table) == [(user["name"], user["age"]) for user in USERS]
    again = send(COMPACT)
    assert (again["compacted"], again["status"], again["reason"]) == (False, "NOTHING_TO_DO", "NO_CANDIDATE")


def test_the_guides_compact_request_may_spell_out_what_it_leaves_to_the_configuration(tour: Tour) -> None:
    tour.posted(CREATE)
    for write in WRITES:
        tour.posted(write)
    request = {
        "operation": "COMPACT",
        "tenant_id": "test-tenant",
        "namespace": "default",
        "table": "test_users",
        "force": False,
        "target_file_size_mb": None,
        "max_files": None,
        "partition_filter": None,
        "expire_snapshots": True,
        "snapshot_retention_hours": 168,
    }
    assert tour.asked(json.dumps(request))["stats"]["files_after"] == 1


@pytest.mark.parametrize("days", [True, False], ids=["by day", "without partitions"])
def test_the_short_form_of_the_deep_dive_is_taken_as_it_stands(tour: Tour, days: bool) -> None:
    """Selection `time-series` takes partitions of the past; without partitions by time there are none."""
    create = {
        "operation": "CREATE_TABLE",
        "tenant_id": "default",
        "table": "sales",
        "schema": {"fields": {"at": {"type": "timestamptz"}, "amount": {"type": "decimal(9,2)"}}},
        "partition_spec": [{"source": "at", "transform": "day"}] if days else [],
    }
    tour.asked(json.dumps(create))
    for number in range(4):
        records = [{"at": f"2025-01-1{day}T05:00:00Z", "amount": f"{number}.50"} for day in range(3)]
        write = {"operation": "WRITE", "tenant_id": "default", "table": "sales", "records": records}
        tour.asked(json.dumps(write))
    table = tour.service.access.survey().load_table("default.sales")
    before = model_rows(table)
    answer = tour.short(SHORT_FORM)
    assert model_rows(table) == before
    if days:
        assert (answer["status"], answer["stats"]["groups"], answer["stats"]["files_after"]) == ("COMPLETED", 3, 3)
    else:
        assert (answer["status"], answer["stats"]) == ("NOTHING_TO_DO", None)
        assert tour.short({**SHORT_FORM, "strategy": "small-files"})["stats"]["files_after"] == 1


def test_sixteen_mixed_requests_at_once_are_all_answered_and_every_append_lands(tour: Tour) -> None:
    tour.posted(CREATE)
    for write in WRITES:
        tour.posted(write)
    addressed = {"tenant_id": "test-tenant", "namespace": "default", "table": "test_users"}
    appends: list[dict[str, Any]] = [
        {"operation": "WRITE", **addressed, "records": [{"name": f"At-once-{number}", "age": number}]}
        for number in range(8)
    ]
    others: list[dict[str, Any]] = [
        {"operation": "COMPACT", **addressed, "force": True},
        {"operation": "COMPACT", **addressed, "dry_run": True},
        {"operation": "QUERY", **addressed},
        {"operation": "QUERY", **addressed, "sql": "SELECT count(*) AS n FROM t"},
        {"operation": "TABLE_HEALTH", **addressed},
        {"operation": "DESCRIBE_TABLE", **addressed},
        {"operation": "LIST_TABLES", "tenant_id": "test-tenant"},
        {"operation": "HEALTH_CHECK"},
    ]
    mixed = [request for pair in zip(appends, others, strict=True) for request in pair]
    together = threading.Barrier(len(mixed), timeout=120)

    def send(request: dict[str, Any]) -> dict[str, Any]:
        together.wait()
        with httpx.Client(base_url=tour.server.url, timeout=120) as own:
            answer = own.post("/database", json=request)
        assert answer.status_code == 200, answer.text
        return checked(request["operation"], answer.json())

    with ThreadPoolExecutor(len(mixed)) as pool:
        answers = list(pool.map(send, mixed))
    assert len({answer["request_id"] for answer in answers}) == 16
    landed = [a["snapshot_id"] for request, a in zip(mixed, answers, strict=True) if request["operation"] == "WRITE"]
    assert len(set(landed)) == 8
    expected = [*((str(user["name"]), user["age"]) for user in USERS), *((f"At-once-{n}", n) for n in range(8))]
    table = tour.service.access.survey().load_table("default.test_users")
    assert rows(table) == sorted(expected, key=lambda row: row[0])
    assert {s.snapshot_id for s in table.snapshots()} >= set(landed)
    assert tour.posted(QUERY)["row_count"] == 13


def test_the_tour_can_be_read_off_the_metrics(tour: Tour) -> None:
    for event in (CREATE, *WRITES, COMPACT, QUERY):
        tour.posted(event)
    dry_run = json.loads(json.loads(COMPACT)["body"]) | {"dry_run": True}
    tour.asked(json.dumps(dry_run))
    text = httpx.get(f"{tour.server.url}/metrics").text
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert found["regelate_writes_total",] == 5
    assert found["regelate_compaction_checks_total",] == found["regelate_compaction_recommended_total",] == 1
    assert found["regelate_compactions_succeeded_total",] == 1
    assert found["regelate_files_compacted_total",] == 5
    assert found["regelate_files_before_after_ratio_sum",] == 5
    assert found["regelate_small_files", "default.test_users"] == 1
    assert found["regelate_query_time_seconds_count",] == 1
    assert found["regelate_active_compactions",] == 0
    assert found["regelate_last_compaction_timestamp_seconds", "default.test_users"] > 1.7e9


def test_a_table_that_is_not_there_is_no_failed_compaction_and_a_dead_catalog_is(tour: Tour) -> None:
    def failed() -> dict[str, float]:
        text = httpx.get(f"{tour.server.url}/metrics").text
        families = {family.name: family for family in text_string_to_metric_families(text)}
        samples = families["regelate_compactions_failed"].samples
        return {sample.labels["code"]: sample.value for sample in samples if sample.name.endswith("_total")}

    compact = json.loads(COMPACT)["body"]
    assert httpx.post(f"{tour.server.url}/database", content=compact).status_code == 404
    assert failed() == {}
    tour.posted(CREATE)
    (tour.home / "catalog.db").write_bytes(b"not a database")
    refused = httpx.post(f"{tour.server.url}/database", content=compact, timeout=60).json()
    assert failed() == {refused["error"]["code"]: 1}
