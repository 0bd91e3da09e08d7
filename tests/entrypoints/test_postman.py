"""The Postman collection without Postman: every request is one that the API takes, in the guide's order.

`make postman` runs its test scripts too, by newman against `regelate serve`.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from regelate.entrypoints.actions import parse_request
from regelate.entrypoints.aws.http import ROUTES
from tests.entrypoints.fakes import REPOSITORY, settings_for

POSTMAN = REPOSITORY / "postman"
COLLECTION = json.loads((POSTMAN / "S3_ACID_Database.postman_collection.json").read_text())
ENVIRONMENTS = {
    path.name.removesuffix(".postman_environment.json"): path
    for path in sorted((POSTMAN / "environments").glob("*.json"))
}
OPERATIONS = [
    "HEALTH_CHECK",
    "CREATE_TABLE",
    *["WRITE"] * 5,
    "QUERY",
    "TABLE_HEALTH",
    "COMPACT",
    "COMPACT",
    "QUERY",
    "COMPACT",
    "QUERY",
    "DESCRIBE_TABLE",
    "LIST_NAMESPACES",
    "LIST_TABLES",
    "ALTER_TABLE",
    "EXPIRE_SNAPSHOTS",
    "CREATE_TAG",
    "QUERY",
    "WRITE",
    "ROLLBACK",
    "DROP_TAG",
    "WRITE",
    "QUERY",
    "LIST_JOBS",
    "NOTIFY_COMMIT",
    "FLEET_SCAN",
    "FLEET_PLAN",
    "FLEET_STATUS",
    "WRITE",
    "DROP_TABLE",
]


def values_of(path: Path) -> dict[str, str]:
    return {value["key"]: value["value"] for value in json.loads(path.read_text())["values"]}


def filled(text: str, values: dict[str, str]) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda found: values[found[1]], text)


def operation_of(item: dict[str, Any], values: dict[str, str]) -> str:
    """Parse the request as the service does, and return its operation."""
    request = item["request"]
    path = filled(request["url"]["raw"], values).removeprefix(values["baseUrl"])
    assert (request["method"], path) in ROUTES
    if request["method"] == "GET":
        return {"/health": "HEALTH_CHECK"}[path]
    return str(parse_request(json.loads(filled(request["body"]["raw"], values))).operation)


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_every_request_of_the_collection_is_taken_in_the_guides_order(environment: str) -> None:
    values = values_of(ENVIRONMENTS[environment])
    assert [operation_of(item, values) for item in COLLECTION["item"]] == OPERATIONS


def test_the_requests_are_numbered_and_compact_is_the_eleventh() -> None:
    names = [item["name"] for item in COLLECTION["item"]]
    assert [int(name.partition(".")[0]) for name in names] == list(range(1, len(names) + 1))
    assert names[0] == "1. Health Check"
    assert names[1] == "2. CREATE TABLE (users table)"
    assert names[10] == "11. COMPACT (merge small files)"


def test_every_request_has_a_test_script() -> None:
    for item in COLLECTION["item"]:
        scripts = ["\n".join(event["script"]["exec"]) for event in item["event"] if event["listen"] == "test"]
        assert any("pm.test(" in script for script in scripts), item["name"]


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_an_environment_expects_what_config_json_has_for_it(environment: str) -> None:
    values = values_of(ENVIRONMENTS[environment])
    settings = settings_for(environment.lower())
    assert values["environment"] == settings.environment
    assert int(values["opportunisticCheckInterval"]) == settings.check_policy.interval
    assert int(values["minFilesToCompact"]) == settings.compaction_defaults.min_input_files


def test_no_environment_but_development_names_a_table_that_somebody_may_own() -> None:
    """The collection ends with DROP TABLE and `purge`."""
    for name in ("Staging", "Production"):
        values = values_of(ENVIRONMENTS[name])
        assert (values["namespace"], values["table"], values["token"]) == ("smoke_test", "smoke_users", "")


def test_the_lock_file_names_hashes_and_no_address() -> None:
    packages = json.loads((POSTMAN / "package-lock.json").read_text())["packages"]
    taken = [package for name, package in packages.items() if name]
    assert taken
    assert [package for package in taken if "resolved" in package or "integrity" not in package] == []
