"""What a session may touch, by a judge of policies that reads them as IAM does."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regelate.core.access import (
    MAX_POLICY_CHARACTERS,
    Access,
    StorageSession,
    session_name,
    session_policy,
)
from regelate.core.table import names
from regelate.errors import InvalidRequest


def is_name(text: str) -> bool:
    try:
        names.check_tenant(text, strict=True)
    except InvalidRequest:
        return False
    return True


WAREHOUSE = "s3://lake/warehouse"
TENANTS = st.from_regex(r"[ab0](_?[ab0-]){0,4}_?", fullmatch=True)
PAIRS = TENANTS.flatmap(  # names that begin alike are the ones that a wildcard confuses
    lambda t: st.tuples(
        st.just(t), st.sampled_from([f"{t}_", f"{t}-", f"{t}0", f"{t}_a", t[:-1]]).filter(is_name) | TENANTS
    )
)
NAMESPACES = st.from_regex(r"[ab0](_?[ab0-]){0,3}_?", fullmatch=True)
READS = ("s3:GetObject",)
WRITES = ("s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload")


@lru_cache(maxsize=4_096)
def compiled(pattern: str) -> re.Pattern[str]:
    """IAM's wildcards; `${*}` and its like are the characters themselves."""
    parts = re.findall(r"\$\{(.)\}|(\*)|(\?)|(.)", pattern, re.DOTALL)
    regex = "".join(re.escape(o or c) if o or c else ".*" if star else "." for o, star, _, c in parts)
    return re.compile(regex, re.DOTALL)


def matches(pattern: str, text: str) -> bool:
    return compiled(pattern).fullmatch(text) is not None


def listed(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


def allows(policy: str, action: str, resource: str, context: Mapping[str, str] | None = None) -> bool:
    """Say whether a policy allows a call: some statement allows it and none denies it."""
    verdicts = set()
    for statement in json.loads(policy)["Statement"]:
        of_action = any(matches(pattern, action) for pattern in listed(statement["Action"]))
        of_resource = any(matches(pattern, resource) for pattern in listed(statement["Resource"]))
        conditions = statement.get("Condition", {}).items()
        if of_action and of_resource and all(holds(op, given, context or {}) for op, given in conditions):
            verdicts.add(statement["Effect"])
    return verdicts == {"Allow"}


def holds(operator: str, given: Mapping[str, Any], context: Mapping[str, str]) -> bool:
    ((key, patterns),) = given.items()
    found = context.get(key)
    if operator == "StringLikeIfExists":
        return found is None or any(matches(p, found) for p in listed(patterns))
    assert operator == "StringNotLike"
    return found is None or not any(matches(p, found) for p in listed(patterns))


def objects(tenant: str, namespace: str, table: str = "t", root: str = "lake/warehouse") -> list[str]:
    """Where SQL catalogs and Glue put a table's files."""
    return [
        f"arn:aws:s3:::{root}/{tenant}__{namespace}{suffix}/{table}/{rest}"
        for suffix in ("", ".db")
        for rest in ("data/x.parquet", "metadata/00001-a.metadata.json", "metadata/regelate/ledger/x.json")
    ]


def glue(tenant: str, namespace: str, table: str = "t") -> list[str]:
    at = "arn:aws:glue:eu-central-1:123456789012:"
    return [f"{at}database/{tenant}__{namespace}", f"{at}table/{tenant}__{namespace}/{table}"]


@given(PAIRS, NAMESPACES, NAMESPACES, st.sampled_from([Access.READ, Access.WRITE]))
def test_a_session_reaches_all_of_its_tenants_tables_and_none_of_anothers(
    tenants: tuple[str, str], namespace: str, theirs: str, access: Access
) -> None:
    tenant, other = tenants
    assert all(map(is_name, (tenant, namespace, other, theirs)))
    policy = session_policy(access, tenant, WAREHOUSE)
    writes = access is Access.WRITE
    for resource in objects(tenant, namespace):
        assert all(allows(policy, action, resource) for action in READS)
        assert all(allows(policy, action, resource) == writes for action in WRITES)
    for resource in glue(tenant, namespace):
        assert allows(policy, "glue:GetTable", resource)
        assert allows(policy, "glue:UpdateTable", resource) == writes
        assert allows(policy, "glue:DeleteTable", resource) == writes
    if other != tenant:
        for resource in (*objects(other, theirs), *glue(other, theirs)):
            assert not any(allows(policy, a, resource) for a in (*READS, *WRITES, "glue:GetTable", "glue:UpdateTable"))
        prefix = {"s3:prefix": f"warehouse/{other}__{theirs}/"}
        assert not allows(policy, "s3:ListBucket", "arn:aws:s3:::lake", prefix)
    assert allows(
        policy, "s3:ListBucket", "arn:aws:s3:::lake", {"s3:prefix": f"warehouse/{tenant}__{namespace}/t/data"}
    )


@pytest.mark.parametrize("other", ["acme_", "acm", "acme-", "acmee", "acme_a", "acme0"])
def test_a_name_that_begins_like_the_tenants_is_another_tenant(other: str) -> None:
    for one, two in (("acme", other), (other, "acme")):
        policy = session_policy(Access.WRITE, one, WAREHOUSE)
        assert not any(allows(policy, "s3:GetObject", place) for place in objects(two, "sales"))
        assert all(allows(policy, "s3:GetObject", place) for place in objects(one, "sales"))


@pytest.mark.parametrize(
    "place", ["lake/other/acme__x/a", "lake2/warehouse/acme__x/a", "lake/warehouse2/acme__x/a", "lake/acme__x/a"]
)
def test_nothing_outside_of_the_warehouse_is_reached(place: str) -> None:
    for access in Access:
        for tenant in ("acme", None):
            assert not allows(session_policy(access, tenant, WAREHOUSE), "s3:GetObject", f"arn:aws:s3:::{place}")


def test_a_survey_sees_the_metadata_of_every_table_and_not_one_row_and_changes_nothing() -> None:
    policy = session_policy(Access.SURVEY, "acme", WAREHOUSE)
    assert policy == session_policy(Access.SURVEY, None, WAREHOUSE)
    for tenant in ("acme", "other"):
        for place in objects(tenant, "sales"):
            assert allows(policy, "s3:GetObject", place) == place.endswith(".metadata.json")
            assert not any(allows(policy, action, place) for action in WRITES)
        for name in glue(tenant, "sales"):
            assert allows(policy, "glue:GetTable", name)
            assert not allows(policy, "glue:UpdateTable", name)


def test_where_the_catalog_has_no_tenants_all_of_the_warehouse_is_the_one_tenants() -> None:
    for access in (Access.READ, Access.WRITE):
        policy = session_policy(access, None, WAREHOUSE)
        for place in ("lake/warehouse/sales/t/data/x.parquet", "lake/warehouse/b.db/t/metadata/v1.metadata.json"):
            assert allows(policy, "s3:GetObject", f"arn:aws:s3:::{place}")
            assert allows(policy, "s3:PutObject", f"arn:aws:s3:::{place}") == (access is Access.WRITE)


@pytest.mark.parametrize("warehouse", ["s3://lake", "s3://lake/", "s3://lake/a/b/", "s3://lake/wild*card?/$x"])
def test_whatever_the_warehouse_is_called_it_is_meant_literally(warehouse: str) -> None:
    root = warehouse.removeprefix("s3://").rstrip("/")
    policy = session_policy(Access.WRITE, "acme", warehouse)
    assert all(allows(policy, "s3:PutObject", place) for place in objects("acme", "sales", root=root))
    assert not any(allows(policy, "s3:PutObject", place) for place in objects("other", "sales", root=root))
    assert not allows(policy, "s3:PutObject", "arn:aws:s3:::lake/wildXcardY/$x/acme__sales/t/data/x.parquet")


def test_the_policy_of_the_longest_name_in_a_long_warehouse_fits_into_what_sts_takes() -> None:
    policies = [
        session_policy(access, "x" * 64, f"s3://{'b' * 63}/{'p' * 60}", partition="aws-us-gov") for access in Access
    ]
    assert max(map(len, policies)) <= MAX_POLICY_CHARACTERS
    assert all(json.loads(policy)["Version"] == "2012-10-17" for policy in policies)


@given(st.text(max_size=200), st.sampled_from(Access))
def test_the_name_of_a_session_is_one_that_aws_takes(tenant: str, access: Access) -> None:
    assert re.fullmatch(r"[\w+=,.@-]{2,64}", session_name(access, tenant), re.ASCII)


def test_a_session_shows_no_secret_and_speaks_as_a_catalogs_properties() -> None:
    session = StorageSession(access_key_id="ASIA", secret_access_key="s3cret", session_token="t0ken", expires_ms=1)
    assert "s3cret" not in repr(session)
    assert "t0ken" not in repr(session)
    assert session.properties == {
        f"{of}.{name}": value
        for of in ("s3", "glue")
        for name, value in (("access-key-id", "ASIA"), ("secret-access-key", "s3cret"), ("session-token", "t0ken"))
    }
