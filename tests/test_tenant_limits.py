"""What one tenant may ask for and do at once: everybody's limits, and those of its own."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from regelate.errors import RegelateError
from regelate.settings import SettingsError, load_settings
from regelate.tenancy import Tenancy
from tests.entrypoints.fakes import FakeService
from tests.entrypoints.test_foreign_tenants import direct, sent, v2
from tests.system.faults.stack import LOCAL_CATALOG, Stack, request, schema, stack_with
from tests.test_tenancy import settings

ACME, OTHER = ({"custom:tenant_id": name} for name in ("acme", "other"))


def stack_with_limits(folder: Path, **limits: object) -> Stack:
    catalog = {**LOCAL_CATALOG, "namespace_template": "{tenant_id}__{namespace}"}
    stack = stack_with(
        folder,
        environment="production",
        auth="claims",
        tenants=["acme", "other"],
        catalogs={"shared": catalog},
        limits=limits,
    )
    for name, claims in (("acme", ACME), ("other", OTHER)):
        made = request("CREATE_TABLE", "t", tenant_id=name, schema=schema({"id": "long"}))
        stack.accepted("CREATE_TABLE", made, claims=claims)
    return stack


def records(count: int, tenant: str) -> dict[str, Any]:
    return request("WRITE", "t", tenant_id=tenant, records=[{"id": n} for n in range(count)])


def query(tenant: str, **fields: object) -> dict[str, Any]:
    return request("QUERY", "t", tenant_id=tenant, **fields)


def test_a_tenant_with_limits_of_its_own_is_held_to_them_and_the_others_to_everybodys(tmp_path: Path) -> None:
    own = {"max_records": 3, "max_result_rows": 2, "max_result_bytes": 100}
    stack = stack_with_limits(tmp_path / "lake", max_records=5, max_result_rows=100, tenants={"acme": own})
    for name, claims, most in (("acme", ACME, 3), ("other", OTHER, 5)):
        stack.accepted("WRITE", records(most, name), claims=claims)
        with stack.untouched():
            error = stack.refused(
                413, "PAYLOAD_TOO_LARGE", [f"more than {most}"], records(most + 1, name), claims=claims
            )
        assert error["details"] == {"field": "records", "max_records": most}
    assert stack.accepted("QUERY", query("acme", sql="FROM t"), claims=ACME)["row_count"] == 2
    assert stack.accepted("QUERY", query("other", sql="FROM t"), claims=OTHER)["row_count"] == 5
    stack.refused(400, "INVALID_FIELD", ["limit", "0 to 2"], query("acme", limit=3), claims=ACME)
    long = {"sql": "SELECT repeat('x', 200) AS x"}
    assert stack.refused(413, "RESULT_TOO_LARGE", ["100 bytes"], query("acme", **long), claims=ACME)
    assert stack.accepted("QUERY", query("other", **long), claims=OTHER)["row_count"] == 1


def test_a_write_into_more_partitions_than_a_tenant_may_touch_is_refused_before_any_file(tmp_path: Path) -> None:
    own = {"max_partitions_per_write": 2}
    stack = stack_with_limits(tmp_path / "lake", max_partitions_per_write=4, tenants={"acme": own})
    for name, claims, most in (("acme", ACME, 2), ("other", OTHER, 4)):
        spec = [{"source": "p", "transform": "identity"}]
        made = request("CREATE_TABLE", "cut", tenant_id=name, schema=schema({"p": "int"}), partition_spec=spec)
        stack.accepted("CREATE_TABLE", made, claims=claims)
        for fields in ({}, {"mode": "overwrite_partitions"}):
            rows = [{"p": n % most} for n in range(20)]
            stack.accepted("WRITE", request("WRITE", "cut", tenant_id=name, records=rows, **fields), claims=claims)
            with stack.untouched():
                rows = [{"p": n} for n in range(most + 1)]
                words = [f"{most + 1} partitions", f"one WRITE may touch {most}", "fewer partitions"]
                body = request("WRITE", "cut", tenant_id=name, records=rows, **fields)
                error = stack.refused(422, "TOO_MANY_PARTITIONS", words, body, claims=claims)
            assert (error["details"]["partitions"], error["details"]["max_partitions_per_write"]) == (most + 1, most)


def test_an_upsert_that_keeps_columns_is_held_to_the_same_number_of_partitions(tmp_path: Path) -> None:
    stack = stack_with_limits(tmp_path / "lake", max_partitions_per_write=2)
    columns, spec = schema({"p": "int", "word": "string"}), [{"source": "p", "transform": "identity"}]
    made = request("CREATE_TABLE", "cut", tenant_id="acme", schema=columns, partition_spec=spec)
    stack.accepted("CREATE_TABLE", made, claims=ACME)
    rows = [{"p": n} for n in range(3)]
    body = request("WRITE", "cut", tenant_id="acme", records=rows, mode="upsert", key=["p"], missing_columns="keep")
    with stack.untouched():
        stack.refused(422, "TOO_MANY_PARTITIONS", ["3 partitions"], body, claims=ACME)


def test_a_query_of_a_tenant_ends_after_the_tenants_own_seconds(tmp_path: Path) -> None:
    stack = stack_with_limits(tmp_path / "lake", query_seconds=600, tenants={"acme": {"query_seconds": 0.3}})
    endless = "SELECT sum(a.range * b.range) FROM range(100000000) a, range(100000000) b"
    stack.refused(504, "QUERY_TIMEOUT", ["stopped after 0."], query("acme", sql=endless), claims=ACME)


def test_as_many_operations_of_a_tenant_run_at_once_as_its_limit_says_and_no_more() -> None:
    tenancy = Tenancy(settings(limits={"max_concurrent_operations": 2, "tenants": {}}))
    with tenancy.admitted("acme", "acme"), tenancy.admitted("acme", None):
        with pytest.raises(RegelateError) as caught, tenancy.admitted("acme", "acme"):
            raise AssertionError("a third one was let in")
        fault = caught.value
        assert (fault.code, fault.status, fault.retryable) == ("TOO_MANY_OPERATIONS", 429, True)
        assert fault.details == {"max_concurrent_operations": 2}
        with tenancy.admitted("globex", "globex"):
            pass
    with tenancy.admitted("acme", "acme"), tenancy.admitted("acme", "acme"):
        pass


def test_an_operation_that_fails_gives_its_place_back_and_a_refused_caller_takes_none() -> None:
    tenancy = Tenancy(settings(limits={"max_concurrent_operations": 1}))
    for _ in range(3):
        with pytest.raises(ZeroDivisionError), tenancy.admitted("acme", "acme"):
            raise ZeroDivisionError
    with tenancy.admitted("globex", "globex"):
        for claim in ("acme", None):
            with pytest.raises(RegelateError) as caught, tenancy.admitted(claim, "globex"):
                pass
            assert caught.value.code == "FORBIDDEN"  # never 429: that would tell what a foreign tenant does
    assert tenancy._running == {}


def test_requests_of_one_tenant_beyond_its_limit_are_refused_while_another_tenants_pass(tmp_path: Path) -> None:
    """Two requests hang in the service; a third of the same tenant is refused at once, one of another is answered."""
    limits = {"max_concurrent_operations": 50, "tenants": {"acme": {"max_concurrent_operations": 2}}}
    service = FakeService(settings(limits=limits), preset=["acme__sales.orders", "globex__sales.orders"])
    inside, leave = threading.Semaphore(0), threading.Event()

    def wait(spec: object) -> None:
        if threading.current_thread() is not threading.main_thread():
            inside.release()
            leave.wait(30)

    service.before_query = wait

    def ask(tenant: str) -> tuple[int | None, dict[str, Any]]:
        body = {"operation": "QUERY", "tenant_id": tenant, "namespace": "sales", "table": "orders"}
        return sent(service, v2(body, {"custom:tenant_id": tenant}, None))

    with ThreadPoolExecutor(2) as pool:
        hanging = [pool.submit(ask, "acme") for _ in range(2)]
        for _ in hanging:
            assert inside.acquire(timeout=30)
        status, refused = ask("acme")
        assert (status, refused["error"]["code"], refused["error"]["retryable"]) == (429, "TOO_MANY_OPERATIONS", True)
        assert ask("globex")[0] == 200
        assert sent(service, direct({"operation": "HEALTH_CHECK"}, None, None))[1]["success"] is True
        leave.set()
        assert [one.result()[0] for one in hanging] == [200, 200]
    assert ask("acme")[0] == 200


@pytest.mark.parametrize(
    ("limits", "key"),
    [
        ({"tenants": {"nobody": {"max_records": 1}}}, "limits.tenants.nobody"),
        ({"tenants": {"acme": {"max_rows": 1}}}, "limits.tenants.acme.max_rows"),
        ({"tenants": {"acme": {"max_request_bytes": 1}}}, "limits.tenants.acme.max_request_bytes"),
        ({"tenants": {"acme": {"max_records": 0}}}, "limits.tenants.acme.max_records"),
        ({"tenants": {"acme": {"query_seconds": 901}}}, "limits.tenants.acme.query_seconds"),
        ({"max_concurrent_operations": 0}, "limits.max_concurrent_operations"),
    ],
)
def test_a_limit_of_nobody_or_out_of_range_stops_the_start(tmp_path: Path, limits: Any, key: str) -> None:
    path = tmp_path / "config.json"
    catalogs = {"c": {"type": "glue", "warehouse": "s3://b/w", "namespace_template": "{tenant_id}__{namespace}"}}
    section = {"auth": "claims", "tenants": ["acme"], "catalogs": catalogs, "limits": limits}
    path.write_text(json.dumps({"environments": {"production": section}}))
    with pytest.raises(SettingsError) as caught:
        load_settings({"REGELATE_CONFIG": str(path), "REGELATE_ENVIRONMENT": "production"})
    assert f"environments.production.{key}:" in caught.value.message
    if key.endswith("max_rows"):
        assert "did you mean max_records?" in caught.value.message or "max_result_rows" in caught.value.message
