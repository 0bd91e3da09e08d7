"""openapi.json, generated from the models, and the Swagger page around it.

`python -m regelate.entrypoints.openapi > openapi.json` writes the committed copy anew; a test holds the two
together.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal, get_args, get_type_hints

from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import models_json_schema

from regelate import __version__
from regelate.core.answers import CompactAnswer, HealthCheckAnswer, JobAnswer, ListJobsAnswer, is_left_out
from regelate.entrypoints.actions import OPERATIONS
from regelate.entrypoints.api.job_requests import ListJobs, NotifyCommit
from regelate.entrypoints.api.responses import ErrorAnswer
from regelate.entrypoints.api.short_form import ShortCompact
from regelate.operations.automatic import NotifyCommitAnswer

Schema = dict[str, Any]
_REF = "#/components/schemas/"
_SUCCESS = {"const": True, "title": "Success", "type": "boolean"}
_REQUEST_ID = {"title": "Request Id", "type": "string"}
_REFUSALS = {
    400: "The request is wrong; nothing was written.",
    403: "The caller may not do this; the same text whether the thing exists or not.",
    404: "No such table, namespace, catalog or snapshot.",
    409: "The table changed meanwhile, or exists already; nothing of this request landed.",
    413: "The request or its result is too large; the limit is in `details`.",
    422: "The values do not fit the table, or the cost limit; nothing was written.",
    424: "A file of the table is missing or corrupt; it was not touched.",
    429: "Too many operations of this tenant at once; nothing was written.",
    500: "A fault of this program: report it, and look at the table before writing again.",
    501: "The table has a feature that this service does not support.",
    503: "Storage or catalog unavailable (`retryable`), or COMMIT_STATE_UNKNOWN: look before retrying.",
    504: "The query took too long.",
    507: "This process has too little memory or disk.",
}


@cache
def openapi_document() -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of everything that is built."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "regelate",
            "version": __version__,
            "summary": "Compaction of Apache Iceberg tables, serverless and without losing a row.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": _paths(),
        "components": {"schemas": _schemas()},
    }


def openapi_text() -> str:
    """Return the document as the committed file has it."""
    return json.dumps(openapi_document(), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def swagger_page() -> str:
    """Return one self-contained HTML page (about 1.7 MB) that shows the document; it loads nothing from elsewhere."""
    from aws_lambda_powertools.event_handler.openapi.swagger_ui import generate_swagger_html

    assets = files("aws_lambda_powertools.event_handler.openapi.swagger_ui")
    return generate_swagger_html(
        spec=openapi_text().replace("</", "<\\/"),  # no text of ours can end the script element that holds it
        swagger_js=(assets / "swagger-ui-bundle.min.js").read_text(encoding="utf-8"),
        swagger_css=(assets / "swagger-ui.min.css").read_text(encoding="utf-8"),
        swagger_base_url="",
        oauth2_config=None,
    )


def _schemas() -> dict[str, Any]:
    requests: list[type[BaseModel]] = [*(row.request for row in OPERATIONS.values()), ShortCompact]
    _, asked = models_json_schema([(model, "validation") for model in requests], ref_template=_REF + "{model}")
    kinds: list[type] = [*(row.answer for row in OPERATIONS.values()), ErrorAnswer]
    mode: Literal["serialization"] = "serialization"
    _, told = TypeAdapter.json_schemas(
        [(kind, mode, TypeAdapter(kind)) for kind in kinds], ref_template=_REF + "{model}"
    )
    return {**asked["$defs"], **_closed(told["$defs"], kinds)}


def _closed(found: Mapping[str, Schema], answers: Sequence[type]) -> dict[str, Schema]:
    """Return the schemas of dataclasses as what is sent: their fields, always, and nothing beside them but the frame.

    Enumerations stand where they are used. A field that may be left out is the only one with a default.
    """
    enums = {_REF + name: schema["enum"] for name, schema in found.items() if "enum" in schema}
    made = {}
    for name, kind in _parts(answers).items():
        schema = _inlined(found[name], enums)
        frame = {"success": _SUCCESS, "request_id": _REQUEST_ID} if kind in answers and kind is not ErrorAnswer else {}
        always = [f.name for f in fields(kind) if not is_left_out(f)]
        for field, told in schema["properties"].items():
            if field in always:
                told.pop("default", None)
            if told != _inlined(found[name]["properties"][field], {}):
                told.setdefault("title", field.replace("_", " ").title())
        schema["properties"] = {**frame, **schema["properties"]}
        made[name] = {**schema, "additionalProperties": False, "required": [*frame, *always]}
    return made


def _parts(kinds: Iterable[Any]) -> dict[str, Any]:
    """Return these dataclasses and all those in their fields, by name."""
    found: dict[str, Any] = {}
    waiting = list(kinds)
    while waiting:
        kind = waiting.pop()
        if is_dataclass(kind) and isinstance(kind, type) and kind.__name__ not in found:
            found[kind.__name__] = kind
            waiting += get_type_hints(kind).values()
        waiting += get_args(kind)
    return found


def _inlined(schema: Any, enums: Mapping[str, Sequence[str]]) -> Any:
    if isinstance(schema, list):
        return [_inlined(item, enums) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("$ref") in enums:
        return {"enum": enums[schema["$ref"]], "type": "string"}
    return {key: _inlined(value, enums) for key, value in schema.items()}


def _paths() -> dict[str, Any]:
    requests = {name: _REF + row.request.__name__ for name, row in OPERATIONS.items()}
    any_request = {
        "oneOf": [{"$ref": ref} for ref in requests.values()],
        "discriminator": {"propertyName": "operation", "mapping": requests},
    }
    any_answer = {"anyOf": [_ref(answer) for answer in dict.fromkeys(row.answer for row in OPERATIONS.values())]}
    return {
        "/database": {"post": _operation("database", "One operation, named by `operation`.", any_answer, any_request)},
        "/api/v1/compact": {"post": _operation("compact", _SHORT, _ref(CompactAnswer), _ref(ShortCompact))},
        "/events/commit": {"post": _operation("events", _NOTICE, _ref(NotifyCommitAnswer), _ref(NotifyCommit))},
        **_reporting("/v1/namespaces/{namespace}/tables/{table}/metrics", "metrics"),
        **_reporting("/v1/{prefix}/namespaces/{namespace}/tables/{table}/metrics", "metrics_of_catalog"),
        "/health": {"get": _operation("health", "The same as HEALTH_CHECK.", _ref(HealthCheckAnswer))},
        "/jobs": {"get": {**_operation("jobs", _JOBS, _ref(ListJobsAnswer)), "parameters": _queried(ListJobs)}},
        "/jobs/{job_id}": {
            "get": {
                **_operation("job", "The same as JOB_STATUS; a 202 has this path in Location.", _ref(JobAnswer)),
                "parameters": [
                    {"name": "job_id", "in": "path", "required": True, "schema": {"type": "string"}},
                    {"name": "tenant_id", "in": "query", "required": False, "schema": {"type": "string"}},
                ],
            }
        },
        "/openapi.json": {"get": _operation("openapi", "This document.", {"type": "object"})},
    }


_SHORT = (
    "The short form of COMPACT. `table` is `namespace.table`, or a name in the namespace `default`. The strategies "
    "small-files, size-tiered, time-series and partition become `selection`, binpack and sort stay `strategy`; "
    "target_file_size and min_file_size become Iceberg's options; max_cost is COMPACT's."
)


_NOTICE = (
    "The same as NOTIFY_COMMIT, without `operation`; `tenant_id` may be left out where the claim says it. A CloudEvent "
    "whose `data` holds these fields, or an event of S3 about a new file of metadata, is taken as well."
)


_REPORT = (
    "The same as REPORT_METRICS, as REST catalogs of Iceberg take it: the body is a ScanReport or a CommitReport, "
    "`prefix` a catalog of config.json, left out for the default one. `tenant_id` as for a job, in the query."
)


def _reporting(path: str, name: str) -> dict[str, Any]:
    made = _operation(name, _REPORT, {}, {"type": "object"})
    made["responses"] = {"204": {"description": "Counted."}, **made["responses"]}
    del made["responses"]["200"]
    text = {"type": "string"}
    asked = [{"name": n, "in": "path", "required": True, "schema": text} for n in re.findall(r"{(\w+)}", path)]
    named = {"name": "tenant_id", "in": "query", "required": False, "schema": text}
    return {path: {"post": {**made, "parameters": [*asked, named]}}}


_JOBS = "The same as LIST_JOBS; `tenant_id` may be left out where the claim says it."


def _queried(model: type[BaseModel]) -> list[Schema]:
    """Return a request's fields as parameters of a URL's query."""
    found = model.model_json_schema()["properties"]
    names = (name for name in found if name != "operation")
    return [{"name": name, "in": "query", "required": False, "schema": found[name]} for name in names]


def _operation(name: str, summary: str, answer: Schema, request: Schema | None = None) -> Schema:
    refusals = {str(status): _content(text, _ref(ErrorAnswer)) for status, text in _REFUSALS.items()}
    made: dict[str, Any] = {
        "operationId": name,
        "summary": summary,
        "responses": {"200": _content("Done.", answer), **(refusals if name != "openapi" else {})},
    }
    if name in ("database", "compact"):
        accepted = _content("A job does it, or is doing it already; `Location` leads to the job.", _ref(CompactAnswer))
        made["responses"]["202"] = accepted
    if request is not None:
        made["requestBody"] = {"required": True, "content": {"application/json": {"schema": request}}}
    return made


def _content(text: str, schema: Schema) -> dict[str, Any]:
    return {"description": text, "content": {"application/json": {"schema": schema}}}


def _ref(model: type) -> dict[str, Any]:
    return {"$ref": _REF + model.__name__}


if __name__ == "__main__":
    sys.stdout.write(openapi_text())
