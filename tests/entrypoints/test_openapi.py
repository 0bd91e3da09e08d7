"""openapi.json: it is what the models say, it describes every route, and nothing that is not built."""

from __future__ import annotations

import re
import subprocess
import sys

from regelate.entrypoints.actions import OPERATIONS
from regelate.entrypoints.api.short_form import ShortCompact
from regelate.entrypoints.aws.http import ROUTES
from regelate.entrypoints.openapi import openapi_document, openapi_text
from tests.entrypoints.fakes import REPOSITORY

COMMITTED = REPOSITORY / "openapi.json"
OF_A_BRANCH = "ref"


def test_the_committed_document_is_what_the_models_say() -> None:
    assert COMMITTED.read_text() == openapi_text(), "run: python -m regelate.entrypoints.openapi > openapi.json"


def test_running_the_module_prints_the_document() -> None:
    command = [sys.executable, "-m", "regelate.entrypoints.openapi"]
    printed = subprocess.run(command, capture_output=True, check=True, text=True, cwd=REPOSITORY / "src").stdout
    assert printed == openapi_text()


def test_every_route_is_described_but_the_page_that_shows_the_document() -> None:
    paths = {path.replace("{", "<").replace("}", ">"): methods for path, methods in openapi_document()["paths"].items()}
    described = {(method.upper(), path) for path, methods in paths.items() for method in methods}
    assert described == {route for route in ROUTES if route != ("GET", "/docs")}


def test_every_operation_is_a_branch_of_the_discriminated_body() -> None:
    post = openapi_document()["paths"]["/database"]["post"]
    schema = post["requestBody"]["content"]["application/json"]["schema"]
    assert set(schema["discriminator"]["mapping"]) == set(OPERATIONS)
    assert {branch["$ref"] for branch in schema["oneOf"]} == set(schema["discriminator"]["mapping"].values())


def test_every_reference_leads_somewhere() -> None:
    schemas = openapi_document()["components"]["schemas"]
    references = re.findall(r'"#/components/schemas/([^"]+)"', openapi_text())
    assert references
    assert set(references) <= set(schemas)


def test_no_request_has_a_property_that_is_not_built() -> None:
    schemas = openapi_document()["components"]["schemas"]
    requests = [model.__name__ for model in (*(row.request for row in OPERATIONS.values()), ShortCompact)]
    found = {name for request in requests for name in schemas[request]["properties"]}
    assert {"partition_filter", "max_cost", "idempotency_key"} <= found
    assert [request for request in requests if OF_A_BRANCH in schemas[request]["properties"]] == [
        "Write",
        "Query",
        "Compact",
    ]


def test_no_schema_lets_unknown_fields_in() -> None:
    for name, schema in openapi_document()["components"]["schemas"].items():
        assert schema["additionalProperties"] is False, name
