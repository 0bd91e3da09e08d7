"""Sessions for tenants: what AWS STS is asked, for how long an answer serves, and which operation gets which one."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from regelate.adapters.aws.sessions import SESSIONS_KEPT, StsSessions
from regelate.core.access import Access, StorageSession, session_name, session_policy
from regelate.core.requests import CompactRequest, QueryRequest
from regelate.core.table.schema import Column, TableDefinition
from regelate.entrypoints.actions import OPERATIONS
from regelate.errors import Unavailable
from regelate.settings import SettingsError, load_settings
from regelate.settings.tenants import TenancySettings
from tests.servers.moto_aws import aws_server, client
from tests.support.built import Built
from tests.system.faults.stack import LOCAL_CATALOG, Stack, request, schema, stack_with

ROLE = "arn:aws:iam::123456789012:role/tables"
POLICY = session_policy(Access.READ, "acme", "s3://lake/w")
NOW = datetime(2025, 1, 17, 5, tzinfo=UTC)


@dataclass
class Clock:
    now: datetime = NOW

    def now_ms(self) -> int:
        return int(self.now.timestamp() * 1000)

    def passes(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


def answer(number: int, expires: datetime) -> dict[str, Any]:
    given = {"AccessKeyId": f"ASIAEXAMPLE{number:06}", "SecretAccessKey": "secret", "SessionToken": "token"}
    return {"Credentials": {**given, "Expiration": expires}}


@contextmanager
def stubbed(*, seconds: int = 1800) -> Iterator[tuple[StsSessions, Stubber, Clock]]:
    clock = Clock()
    keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "region_name": "eu-central-1"}
    sts = boto3.client("sts", **keys)  # type: ignore[call-overload]
    with Stubber(sts) as stub:
        yield StsSessions(lambda: sts, ROLE, lives_seconds=seconds, now_ms=clock.now_ms), stub, clock


def test_sts_is_asked_for_the_role_with_the_policy_the_name_and_the_length() -> None:
    with stubbed() as (sessions, stub, clock):
        asked = {"RoleArn": ROLE, "RoleSessionName": "regelate-read-acme", "Policy": POLICY, "DurationSeconds": 1800}
        stub.add_response("assume_role", answer(1, clock.now + timedelta(seconds=1800)), asked)
        found = sessions.session(POLICY, name=session_name(Access.READ, "acme"), least_seconds=900)
        stub.assert_no_pending_responses()
    assert found.access_key_id == "ASIAEXAMPLE000001"
    assert found.expires_ms == int((NOW + timedelta(seconds=1800)).timestamp() * 1000)


def test_a_session_serves_until_it_would_end_before_the_longest_run_and_is_then_renewed() -> None:
    with stubbed() as (sessions, stub, clock):

        def key() -> str:
            return sessions.session(POLICY, name="regelate", least_seconds=900).access_key_id

        stub.add_response("assume_role", answer(1, clock.now + timedelta(seconds=1800)), None)
        assert key() == "ASIAEXAMPLE000001"
        clock.passes(900)
        assert key() == "ASIAEXAMPLE000001"
        clock.passes(0.001)
        stub.add_response("assume_role", answer(2, clock.now + timedelta(seconds=1800)), None)
        assert key() == key() == "ASIAEXAMPLE000002"
        stub.assert_no_pending_responses()


def test_every_policy_has_its_own_session_and_few_are_kept() -> None:
    with stubbed() as (sessions, stub, clock):
        for number in range(SESSIONS_KEPT + 1):
            stub.add_response("assume_role", answer(number, clock.now + timedelta(seconds=1800)), None)
        policies = [session_policy(Access.READ, f"t{number}", "s3://lake/w") for number in range(SESSIONS_KEPT + 1)]
        keys = {sessions.session(policy, name="regelate", least_seconds=60).access_key_id for policy in policies}
        assert len(keys) == SESSIONS_KEPT + 1
        assert sessions.session(policies[-1], name="regelate", least_seconds=60).access_key_id in keys
        stub.add_response("assume_role", answer(999, clock.now + timedelta(seconds=1800)), None)
        assert sessions.session(policies[0], name="regelate", least_seconds=60).access_key_id == "ASIAEXAMPLE000999"


def test_threads_that_want_one_session_at_once_ask_for_it_once() -> None:
    with stubbed() as (sessions, stub, clock):
        stub.add_response("assume_role", answer(1, clock.now + timedelta(seconds=1800)), None)
        found: list[str] = []

        def ask() -> None:
            found.append(sessions.session(POLICY, name="regelate", least_seconds=60).access_key_id)

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == ["ASIAEXAMPLE000001"] * 8


@pytest.mark.parametrize(
    ("refused", "code", "status", "retryable"),
    [
        ("AccessDenied", "STORAGE_AUTH", 502, False),
        ("ExpiredToken", "STORAGE_AUTH", 502, False),
        ("PackedPolicyTooLarge", "STORAGE_AUTH", 502, False),
        ("Throttling", "STORAGE_UNAVAILABLE", 503, True),
        ("InternalFailure", "STORAGE_UNAVAILABLE", 503, True),
    ],
)
def test_a_refusal_of_sts_is_a_typed_fault_that_names_no_account_and_is_not_kept(
    refused: str, code: str, status: int, retryable: bool
) -> None:
    with stubbed() as (sessions, stub, clock):
        stub.add_client_error("assume_role", refused, f"User: {ROLE} is not authorized", 400)
        with pytest.raises(Unavailable) as caught:
            sessions.session(POLICY, name="regelate", least_seconds=60)
        fault = caught.value
        assert (fault.code, fault.status, fault.retryable) == (code, status, retryable)
        assert "123456789012" not in fault.message
        assert refused in fault.message
        stub.add_response("assume_role", answer(1, clock.now + timedelta(seconds=1800)), None)
        assert sessions.session(POLICY, name="regelate", least_seconds=60).access_key_id == "ASIAEXAMPLE000001"


# --- which operation asks for what ------------------------------------------------------------------------------------


@dataclass
class RecordingSessions:
    """Gives every session a key of its own, and remembers who asked for what."""

    asked: list[tuple[str, str]] = field(default_factory=list)
    least: set[float] = field(default_factory=set)

    def session(self, policy: str, *, name: str, least_seconds: float) -> StorageSession:
        self.asked.append((name, policy))
        self.least.add(least_seconds)
        return StorageSession(access_key_id=name, secret_access_key="s", session_token="t", expires_ms=0)


TABLE = {"table": "t"}
READ, WRITE, SURVEY = "regelate-read-acme", "regelate-write-acme", "regelate-survey-all"
NEEDS: Mapping[str, tuple[Mapping[str, Any], set[str]]] = {
    "HEALTH_CHECK": ({}, {SURVEY}),
    "CREATE_TABLE": ({"table": "new", "schema": schema({"id": "long"})}, {WRITE}),
    "ALTER_TABLE": ({**TABLE, "set_properties": {"a": "b"}}, {WRITE}),
    "DESCRIBE_TABLE": (TABLE, {READ}),
    "LIST_NAMESPACES": ({}, {SURVEY}),
    "LIST_TABLES": ({}, {READ}),
    "DROP_TABLE": ({**TABLE, "purge": True}, {WRITE, SURVEY}),
    "CREATE_TAG": ({**TABLE, "tag": "a"}, {WRITE}),
    "DROP_TAG": ({**TABLE, "tag": "made"}, {WRITE}),
    "ROLLBACK": ({**TABLE, "as_of": 4_000_000_000_000}, {WRITE}),
    "WRITE": ({**TABLE, "records": [{"id": 1}]}, {WRITE}),
    "QUERY": (TABLE, {READ}),
    "COMPACT": ({**TABLE, "force": True}, {WRITE, SURVEY}),
    "TABLE_HEALTH": (TABLE, {READ}),
    "TABLE_STATS": (TABLE, {READ}),
    "EXPIRE_SNAPSHOTS": (TABLE, {WRITE, SURVEY}),
    "REMOVE_ORPHAN_FILES": (TABLE, {WRITE, SURVEY}),
    "REWRITE_MANIFESTS": (TABLE, {WRITE}),
    "MAINTAIN": (TABLE, {WRITE, SURVEY}),
    "NOTIFY_COMMIT": (TABLE, {READ}),
    "REPORT_METRICS": ({**TABLE, "report": {"report-type": "scan-report", "metrics": {}}}, set()),
    "FLEET_SCAN": ({}, {READ, SURVEY}),
    "FLEET_PLAN": ({}, set()),
    "FLEET_APPLY": ({}, set()),
    "FLEET_STATUS": ({}, set()),
    "FLEET_HISTORY": ({}, set()),
    "SWEEP": ({}, {WRITE, SURVEY}),
    "JOB_STATUS": ({"job_id": "none"}, set()),
    "JOB_CANCEL": ({"job_id": "none"}, set()),
    "LIST_JOBS": ({}, set()),
}
"""What each operation may ask for at most: QUERY and its like can change nothing, whatever else goes wrong. Jobs
and a fleet's memory are in stores of their own; a FLEET_APPLY asks for what each of its runs does: here it has none."""


def stack_of_sessions(folder: Path) -> tuple[Stack, RecordingSessions]:
    """A lake on local disk, where credentials open nothing, with sessions for the tenant acme."""
    catalog = {**LOCAL_CATALOG, "namespace_template": "{tenant_id}__{namespace}"}
    jobs = {"store": "sqlite", "path": f"{folder}/jobs.db"}
    fleet = {"store": "sqlite", "path": f"{folder}/fleet.db"}
    stack = stack_with(
        folder, auth="none", tenants=["acme", "other"], catalogs={"shared": catalog}, jobs=jobs, fleet=fleet
    )
    sessions = RecordingSessions()
    with_role = stack.built.settings.model_copy(update={"tenancy": TenancySettings(role_arn=ROLE)})
    stack.built.again(settings=with_role, sessions=sessions)
    return stack, sessions


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_asks_for_no_more_than_it_needs_and_for_its_own_tenant_alone(
    tmp_path: Path, operation: str
) -> None:
    stack, sessions = stack_of_sessions(tmp_path / "lake")
    stack.accepted("CREATE_TABLE", request("CREATE_TABLE", "t", tenant_id="acme", schema=schema({"id": "long"})))
    for number in range(2):
        stack.accepted("WRITE", request("WRITE", "t", tenant_id="acme", records=[{"id": number}]))
    stack.accepted("CREATE_TAG", request("CREATE_TAG", "t", tenant_id="acme", tag="made"))
    sessions.asked.clear()
    fields, needed = NEEDS[operation]
    body = {"operation": operation, **fields} | ({} if operation == "HEALTH_CHECK" else {"tenant_id": "acme"})
    if not needed:
        if operation == "LIST_JOBS" or operation.startswith("FLEET_"):
            stack.accepted(operation, body)
        else:
            code = "FLEET_TABLE_NOT_FOUND" if operation == "REPORT_METRICS" else "JOB_NOT_FOUND"
            stack.refused(404, code, [], body)
        assert sessions.asked == []
        return
    stack.accepted(operation, body)
    found = {name for name, _ in sessions.asked}
    assert found <= needed
    assert found - {SURVEY} == needed - {SURVEY}
    assert operation != "DROP_TABLE" or SURVEY in found
    warehouse = stack.service.settings.catalog()[1].properties["warehouse"]
    for name, policy in sessions.asked:
        access = Access(name.split("-")[1])
        assert policy == session_policy(access, None if access is Access.SURVEY else "acme", warehouse)
    assert sessions.least == {stack.built.placement.max_in_process_seconds + 60}


def test_every_operation_says_what_it_needs() -> None:
    assert set(NEEDS) == set(OPERATIONS)


def test_tenants_and_purposes_have_catalogs_of_their_own_and_the_same_one_while_a_session_lasts(tmp_path: Path) -> None:
    stack, _ = stack_of_sessions(tmp_path / "lake")
    built = stack.built

    def opened(tenant: str, access: Access) -> Any:
        return built.service.access.of(built.service.tenancy.resolve(None, tenant, None, "a", "t"), access)

    first = opened("acme", Access.READ)
    assert opened("acme", Access.READ) is first
    others = [opened("acme", Access.WRITE), opened("other", Access.READ), built.catalog()]
    assert len({id(catalog) for catalog in (first, *others)}) == 4
    assert [c.properties["s3.access-key-id"] for c in others] == [
        "regelate-write-acme",
        "regelate-read-other",
        "regelate-survey-all",
    ]


def test_without_a_role_everybody_shares_one_catalog_and_no_session_is_asked_for(tmp_path: Path) -> None:
    sessions = RecordingSessions()
    built = Stack(tmp_path / "lake", sessions=sessions).built
    one, two = (built.service.tenancy.resolve(None, tenant, None, "a", "t") for tenant in ("acme", "other"))
    assert built.service.access.of(one, Access.READ) is built.service.access.of(two, Access.WRITE)
    assert sessions.asked == []


# --- on moto: STS, Glue and S3 ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with aws_server() as found:
        client("s3", found).create_bucket(Bucket="lake")
        yield found


@pytest.fixture
def cloud(endpoint: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Built]:
    for name, value in (("ACCESS_KEY_ID", "AKIAPROCESS"), ("SECRET_ACCESS_KEY", "s"), ("DEFAULT_REGION", "us-east-1")):
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", endpoint)
    at = {"glue.endpoint": endpoint, "glue.region": "us-east-1", "s3.endpoint": endpoint, "s3.region": "us-east-1"}
    glue = {"type": "glue", "warehouse": "s3://lake/w", "namespace_template": "{tenant_id}__{namespace}", **at}

    def made(**changes: Any) -> Built:
        path = tmp_path / "config.json"
        section = {
            "auth": "none",
            "tenants": ["acme", "other"],
            "catalogs": {"glue": glue},
            "tenancy": {"role_arn": ROLE},
            **changes,
        }
        path.write_text(json.dumps({"environments": {"development": section}}))
        return Built(load_settings({"REGELATE_CONFIG": str(path)}))

    return made


def test_a_tables_files_and_its_catalog_are_reached_with_the_tenants_session(cloud: Callable[..., Built]) -> None:
    built = cloud()
    address = built.service.tenancy.resolve(None, "acme", None, "sales", "orders", creating=True)
    definition = TableDefinition(columns=(Column(name="id", type="long"),))
    made = built.service.tables.create_table(address, definition, if_not_exists=False)
    assert made.location.startswith("s3://lake/w/acme__sales.db/orders")
    for access in (Access.READ, Access.WRITE):
        with built.open(address, access) as session:
            properties = session.table.io.properties
        assert properties["s3.access-key-id"].startswith("ASIA")
        assert properties["s3.session-token"]
        assert session.catalog.properties["glue.access-key-id"] == properties["s3.access-key-id"]
        assert properties["s3.access-key-id"] != "AKIAPROCESS"
        assert properties["s3.endpoint"] == built.service.settings.catalog()[1].properties["s3.endpoint"]
        reached = session.store_access
        assert reached is not None
        assert (reached.key_id, reached.session_token) == (
            properties["s3.access-key-id"],
            properties["s3.session-token"],
        )
    for number in range(3):
        records = [{"id": number}]
        built.service.writes.write(address, records, mode="append", key=(), idempotency_key=None)
    compacted = built.service.compactions.compact(address, CompactRequest(force=True))
    assert compacted.status == "COMPLETED"
    found = built.service.queries.query(address, QueryRequest(sql="SELECT id FROM t ORDER BY id"))
    assert list(found.rows) == [{"id": 0}, {"id": 1}, {"id": 2}]
    assert built.service.tables.drop_table(address, purge=True).dropped
    assert built.service.process.health_check().catalog_reachable is True


@pytest.mark.parametrize(
    ("changes", "key", "rule"),
    [
        ({"tenancy": {"role_arn": ROLE, "session_seconds": 899}}, "tenancy.session_seconds", "900"),
        ({"tenancy": {"role_arn": "role/tables"}}, "tenancy.role_arn", "pattern"),
        (
            {"tenancy": {"role_arn": ROLE, "session_seconds": 900}, "placement": {"max_in_process_seconds": 841}},
            "tenancy.session_seconds",
            "above placement.max_in_process_seconds (841)",
        ),
        ({"catalogs": {"c": {"type": "rest", "uri": "http://c"}}}, "catalogs.c.warehouse", "must be s3://"),
        (
            {"catalogs": {"c": {"type": "glue", "warehouse": f"s3://b/{'w' * 900}"}}},
            "catalogs.c.warehouse",
            "2048 characters",
        ),
    ],
)
def test_what_would_leave_a_tenant_without_a_session_stops_the_start(
    cloud: Callable[..., Built], changes: dict[str, Any], key: str, rule: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        cloud(**changes)
    assert f"{key}:" in caught.value.message
    assert rule in caught.value.message
