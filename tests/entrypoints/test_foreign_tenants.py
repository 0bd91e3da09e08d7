"""Row 6 at every door: who is not a tenant of ours, or not this one, gets 403 for every operation, and reaches nothing.

An operation without a row in OWN fails here: nobody adds one without saying whose it is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from regelate.entrypoints.actions import OPERATIONS
from regelate.entrypoints.aws.http import DOCS_PATH, ROUTES
from regelate.entrypoints.cli import main
from regelate.entrypoints.cli.running import COMMANDS
from regelate.entrypoints.server.door import INVOCATIONS_PATH, METRICS_PATH
from regelate.handler import make_handler
from regelate.settings import Settings, load_settings
from tests.entrypoints.fakes import FakeService, LambdaContext
from tests.entrypoints.serving import serving

Body = dict[str, Any]
TABLE = {"namespace": "sales", "table": "orders"}
OWN: Mapping[str, Mapping[str, object] | None] = {
    "HEALTH_CHECK": None,
    "CREATE_TABLE": {**TABLE, "schema": {"fields": {"id": {"type": "long"}}}},
    "ALTER_TABLE": {**TABLE, "set_properties": {"a": "b"}},
    "DESCRIBE_TABLE": TABLE,
    "LIST_NAMESPACES": {},
    "LIST_TABLES": {"namespace": "sales"},
    "DROP_TABLE": {**TABLE, "purge": True},
    "CREATE_TAG": {**TABLE, "tag": "a"},
    "DROP_TAG": {**TABLE, "tag": "a"},
    "ROLLBACK": {**TABLE, "snapshot_id": 1},
    "WRITE": {**TABLE, "records": [{"id": 1}]},
    "QUERY": TABLE,
    "COMPACT": {**TABLE, "force": True},
    "TABLE_HEALTH": TABLE,
    "TABLE_STATS": TABLE,
    "EXPIRE_SNAPSHOTS": TABLE,
    "REMOVE_ORPHAN_FILES": TABLE,
    "REWRITE_MANIFESTS": TABLE,
    "MAINTAIN": TABLE,
    "NOTIFY_COMMIT": TABLE,
    "REPORT_METRICS": {**TABLE, "report": {"report-type": "scan-report", "metrics": {}}},
    "FLEET_SCAN": {},
    "FLEET_PLAN": {},
    "FLEET_APPLY": {},
    "FLEET_STATUS": TABLE,
    "FLEET_HISTORY": TABLE,
    "SWEEP": {},
    "JOB_STATUS": {"job_id": "job-1"},
    "JOB_CANCEL": {"job_id": "job-1"},
    "LIST_JOBS": {},
}
"""What each operation needs beside its tenant; None: it is about no tenant."""
TENANTS = [operation for operation in OPERATIONS if OWN.get(operation, {}) is not None]
COMMAND_LINES: Mapping[str, tuple[str, ...] | None] = {
    "create": ("sales.orders", "--schema", "id:long"),
    "describe": ("sales.orders",),
    "list": ("sales",),
    "drop": ("sales.orders", "--yes"),
    "write": ("sales.orders", "rows.jsonl"),
    "query": ("sales.orders",),
    "health": ("sales.orders",),
    "plan": ("sales.orders",),
    "compact": ("sales.orders",),
    "jobs": ("status", "job-1"),
    "expire": ("sales.orders",),
    "orphans": ("sales.orders",),
    "manifests": ("sales.orders",),
    "maintain": ("sales.orders",),
    "sweep": (),
    "fleet": ("status", "sales.orders"),
    "watch": ("--once",),
    "invoke": ("event.json",),
    "mcp": (),
    "serve": None,
    "demo": None,
    "demo-spark": None,
    "pipeline": None,
    "report": None,
}
"""Arguments of each command; None: it has no tenant, or works on Spark without this program's tenants."""
CONFIGURATION: Mapping[str, object] = {
    "tenants": ["acme", "other"],
    "catalogs": {
        "shared": {
            "type": "sql",
            "uri": "sqlite:///${REGELATE_HOME}/catalog.db",
            "warehouse": "${REGELATE_HOME}/warehouse",
            "namespace_template": "{tenant_id}__{namespace}",
        }
    },
}


def settings(folder: Path, auth: str) -> Settings:
    environment = "development" if auth == "none" else "production"
    path = folder / "config.json"
    path.write_text(json.dumps({"environments": {environment: {**CONFIGURATION, "auth": auth}}}))
    environ = {"REGELATE_CONFIG": str(path), "REGELATE_ENVIRONMENT": environment, "REGELATE_HOME": str(folder / "lake")}
    return load_settings(environ)


def v1(body: Body, claims: Mapping[str, str] | None, arn: str | None) -> Body:
    context: Body = {"requestId": "gateway", "identity": {"userArn": arn}}
    context |= {} if claims is None else {"authorizer": {"claims": claims}}
    return {"httpMethod": "POST", "path": "/database", "requestContext": context, "body": json.dumps(body)}


def v2(body: Body, claims: Mapping[str, str] | None, arn: str | None) -> Body:
    authorizer: Body = {} if claims is None else {"jwt": {"claims": claims}}
    authorizer |= {} if arn is None else {"iam": {"userArn": arn}}
    context = {"requestId": "gateway", "http": {"method": "POST", "path": "/database"}, "authorizer": authorizer}
    return {"version": "2.0", "rawPath": "/database", "requestContext": context, "body": json.dumps(body)}


def direct(body: Body, claims: Mapping[str, str] | None, arn: str | None) -> Body:
    return body


ACME, ARN = {"custom:tenant_id": "acme"}, "arn:aws:iam::123456789012:user/etl"
INTRUDERS: Mapping[str, tuple[Callable[..., Body], str, Mapping[str, str] | None, str | None, str | None]] = {
    "REST API, a foreign tenant": (v1, "claims", ACME, None, "other"),
    "REST API, an unknown tenant": (v1, "claims", {"custom:tenant_id": "nobody"}, None, "nobody"),
    "REST API, no claim": (v1, "claims", None, None, "acme"),
    "REST API, a signature where claims are asked for": (v1, "claims", None, ARN, "acme"),
    "REST API, signed for an unknown tenant": (v1, "iam", None, ARN, "nobody"),
    "REST API, no signature": (v1, "iam", None, None, "acme"),
    "HTTP API, a foreign tenant": (v2, "claims", ACME, None, "other"),
    "HTTP API, an unknown tenant": (v2, "claims", {"custom:tenant_id": "nobody"}, None, "nobody"),
    "HTTP API, no claim": (v2, "claims", None, None, "acme"),
    "HTTP API, a signature where claims are asked for": (v2, "claims", None, ARN, "acme"),
    "HTTP API, signed for an unknown tenant": (v2, "iam", None, ARN, "nobody"),
    "HTTP API, no signature": (v2, "iam", None, None, "acme"),
    "direct invoke or schedule, an unknown tenant": (direct, "claims", None, None, "nobody"),
    "direct invoke or schedule, an unknown tenant where auth is iam": (direct, "iam", None, None, "nobody"),
}
"""Door, `auth`, claims, signature, and the tenant that the body names."""


def request(operation: str, tenant: str) -> Body:
    return {"operation": operation, "tenant_id": tenant, **(OWN[operation] or {})}


def sent(service: FakeService, event: Body) -> tuple[int | None, Body]:
    """Return status, where the door has one, and the answer."""
    answered = make_handler(lambda: service)(event, LambdaContext())  # type: ignore[arg-type]  # what it reads of a context
    return (answered["statusCode"], json.loads(answered["body"])) if "statusCode" in answered else (None, answered)


def test_every_operation_has_its_row_and_every_command_too() -> None:
    assert set(OWN) == set(OPERATIONS)
    assert set(COMMAND_LINES) == set(COMMANDS)


@pytest.mark.parametrize("intruder", INTRUDERS)
@pytest.mark.parametrize("operation", TENANTS)
def test_a_foreign_tenant_gets_403_and_nothing_behind_the_door_is_called(
    tmp_path: Path, operation: str, intruder: str
) -> None:
    make, auth, claims, arn, tenant = INTRUDERS[intruder]
    service = FakeService(settings(tmp_path, auth), preset=["acme__sales.orders", "other__sales.orders"])
    status, answer = sent(service, make(request(operation, str(tenant)), claims, arn))
    assert status in (403, None)
    assert (answer["success"], answer["error"]["code"], answer["error"]["details"]) == (False, "FORBIDDEN", {})
    assert service.calls == []
    assert not any(name in answer["error"]["message"] for name in ("acme", "other", "nobody", "sales", "orders"))


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize(
    ("make", "auth", "claims", "arn"),
    [
        (v1, "claims", ACME, None),
        (v2, "claims", ACME, None),
        (v1, "iam", None, ARN),
        (v2, "iam", None, ARN),
        (direct, "claims", None, None),
    ],
)
def test_the_tenant_itself_passes_every_one_of_these_doors(
    tmp_path: Path, operation: str, make: Any, auth: str, claims: Any, arn: str | None
) -> None:
    """Without this, a door that refuses everybody would look safe."""
    service = FakeService(settings(tmp_path, auth), preset=["acme__sales.orders"])
    body = request(operation, "acme") if OWN[operation] is not None else {"operation": operation}
    status, answer = sent(service, make(body, claims, arn))
    assert status in (200, None) or answer["error"]["code"] == "TABLE_EXISTS", answer
    ((called, address, arguments),) = service.calls
    assert called == operation
    if OWN[operation] is not None:
        scope = arguments.get("scope")
        named = scope.tenants if scope is not None else (arguments.get("tenant_id") or address.tenant_id,)  # type: ignore[union-attr]
        assert named == ("acme",)


@pytest.mark.parametrize("intruder", [name for name, (make, *_) in INTRUDERS.items() if make is not direct])
def test_no_caller_by_http_sweeps_the_tables_of_all_tenants(tmp_path: Path, intruder: str) -> None:
    make, auth, claims, arn, _ = INTRUDERS[intruder]
    service = FakeService(settings(tmp_path, auth))
    status, answer = sent(service, make({"operation": "SWEEP"}, claims, arn))
    assert (status, answer["error"]["code"], service.calls) == (400, "MISSING_FIELD", [])


def test_who_may_invoke_the_function_sweeps_the_tables_of_all_tenants(tmp_path: Path) -> None:
    service = FakeService(settings(tmp_path, "claims"))
    assert sent(service, {"operation": "SWEEP"})[1]["success"] is True
    assert sent(service, {"operation": "SWEEP", "namespace": "sales"})[1]["error"]["code"] == "MISSING_FIELD"
    ((_, _, arguments),) = service.calls
    assert arguments["scope"].tenants == ("acme", "other")


@pytest.mark.parametrize("intruder", [name for name, (make, *_) in INTRUDERS.items() if make is not direct])
@pytest.mark.parametrize("path", ["/jobs/j-1", "/jobs"])
def test_jobs_are_not_shown_by_their_paths_to_a_foreign_tenant_either(tmp_path: Path, intruder: str, path: str) -> None:
    make, auth, claims, arn, tenant = INTRUDERS[intruder]
    service = FakeService(settings(tmp_path, auth), preset=[])
    event = make({}, claims, arn)
    asked = {"queryStringParameters": {"tenant_id": tenant}, "rawQueryString": f"tenant_id={tenant}", "body": None}
    event |= {**asked, "path": path, "httpMethod": "GET"} if make is v1 else {**asked, "rawPath": path}
    if make is v2:
        event["requestContext"]["http"] = {"method": "GET", "path": path}
    status, answer = sent(service, event)
    assert (status, answer["error"]["code"], answer["error"]["details"]) == (403, "FORBIDDEN", {})
    assert service.calls == []


@pytest.mark.parametrize("intruder", [name for name, (make, *_) in INTRUDERS.items() if make is not direct])
@pytest.mark.parametrize(
    "notice", [TABLE, {"metadata_location": "s3://lake/other__sales/orders/metadata/1.metadata.json"}]
)
def test_a_notice_of_a_foreign_tenants_commit_gets_403(tmp_path: Path, intruder: str, notice: Body) -> None:
    make, auth, claims, arn, tenant = INTRUDERS[intruder]
    service = FakeService(settings(tmp_path, auth), preset=[])
    event = make({**notice, "tenant_id": tenant}, claims, arn)
    event |= {"path": "/events/commit"} if make is v1 else {"rawPath": "/events/commit"}
    if make is v2:
        event["requestContext"]["http"] = {"method": "POST", "path": "/events/commit"}
    status, answer = sent(service, event)
    assert (status, answer["error"]["code"], answer["error"]["details"]) == (403, "FORBIDDEN", {})
    assert service.calls == []


@pytest.mark.parametrize("intruder", [name for name, (make, *_) in INTRUDERS.items() if make is not direct])
@pytest.mark.parametrize("prefix", ["", "/lake"])
def test_a_report_of_a_foreign_tenants_table_reaches_nobody(tmp_path: Path, intruder: str, prefix: str) -> None:
    make, auth, claims, arn, tenant = INTRUDERS[intruder]
    service = FakeService(settings(tmp_path, auth), preset=[])
    event = make({"report-type": "scan-report", "metrics": {}}, claims, arn)
    asked = {"queryStringParameters": {"tenant_id": tenant}, "rawQueryString": f"tenant_id={tenant}"}
    path = f"/v1{prefix}/namespaces/sales/tables/orders/metrics"
    event |= {**asked, "path": path} if make is v1 else {**asked, "rawPath": path}
    if make is v2:
        event["requestContext"]["http"] = {"method": "POST", "path": path}
    status, answer = sent(service, event)
    assert (status, answer["error"]["code"], answer["error"]["details"]) == (403, "FORBIDDEN", {})
    assert service.calls == []


def test_every_route_that_is_not_public_is_tried_as_a_foreign_tenant() -> None:
    public = {("GET", "/health"), ("GET", "/openapi.json"), ("GET", DOCS_PATH)}
    tried = {("POST", "/database"), ("POST", "/api/v1/compact"), ("GET", "/jobs"), ("GET", "/jobs/<job_id>")}
    tried |= {("POST", "/events/commit"), *(route for route in ROUTES if route[1].endswith("/metrics"))}
    assert set(ROUTES) == public | tried


@pytest.mark.parametrize("auth", ["claims", "iam"])
def test_the_server_has_no_authorizer_so_it_lets_nobody_in_unless_auth_is_none(tmp_path: Path, auth: str) -> None:
    """Whatever the caller writes into headers or body: only a gateway can say who asks."""
    service = FakeService(settings(tmp_path, auth), preset=["acme__sales.orders"])
    forged = {"x-tenant-id": "acme", "authorization": "Bearer forged", "x-amzn-oidc-identity": "acme"}
    with serving(service) as server, httpx.Client(base_url=server.url, headers=forged) as client:
        for operation in TENANTS:
            for tenant in ("acme", "other", "nobody"):
                refused = client.post("/database", json=request(operation, tenant))
                assert (refused.status_code, refused.json()["error"]["code"]) == (403, "FORBIDDEN")
        short = client.post("/api/v1/compact", json={"tenant_id": "acme", "table": "sales.orders"})
        assert (short.status_code, short.json()["error"]["code"]) == (403, "FORBIDDEN")
        for path in (INVOCATIONS_PATH, METRICS_PATH):
            assert client.post(path, json=request("DROP_TABLE", "acme")).status_code == 404
            assert client.get(path).status_code == 404
    assert service.calls == []


@pytest.mark.parametrize("operation", TENANTS)
def test_the_development_server_and_its_emulator_path_refuse_an_unknown_tenant(tmp_path: Path, operation: str) -> None:
    service = FakeService(settings(tmp_path, "none"), preset=["acme__sales.orders"])
    with serving(service) as server, httpx.Client(base_url=server.url) as client:
        answers = [client.post(path, json=request(operation, "nobody")) for path in ("/database", INVOCATIONS_PATH)]
    assert [answer.json()["error"]["code"] for answer in answers] == ["FORBIDDEN", "FORBIDDEN"]
    assert service.calls == []


@pytest.mark.parametrize("command", [name for name, argv in COMMAND_LINES.items() if argv is not None])
def test_the_command_line_refuses_an_unknown_tenant_and_leaves_no_lake_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    loaded = settings(tmp_path, "none")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REGELATE_CONFIG", str(loaded.source))
    monkeypatch.setenv("REGELATE_ENVIRONMENT", "development")
    monkeypatch.setenv("REGELATE_HOME", str(tmp_path / "lake"))
    (tmp_path / "rows.jsonl").write_text('{"id": 1}\n')
    (tmp_path / "event.json").write_text(json.dumps(request("DROP_TABLE", "nobody")))
    before = sorted(tmp_path.rglob("*"))
    assert main(["--tenant", "nobody", command, *(COMMAND_LINES[command] or ())]) == 1
    out, err = capsys.readouterr()
    assert "FORBIDDEN" in out + err
    assert sorted(tmp_path.rglob("*")) == before
