"""Answers held against openapi.json: what it promises, and nothing beside."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator

from regelate.entrypoints.actions import OPERATIONS
from regelate.entrypoints.openapi import openapi_document


def check_answer(operation: str, answer: Mapping[str, Any]) -> None:
    """Refuse a missing, unknown or mistyped field of what an operation answered, `success` and `request_id` too."""
    _check(OPERATIONS[operation].answer.__name__, answer)


def check_error(answer: Mapping[str, Any]) -> None:
    """Refuse what is no error answer."""
    _check("ErrorAnswer", answer)


def _check(name: str, answer: Mapping[str, Any]) -> None:
    first = next(_validator(name).iter_errors(answer), None)
    assert first is None, f"{name}{first.json_path.removeprefix('$')}: {first.message}"


@cache
def _validator(name: str) -> Draft202012Validator:
    document = openapi_document()
    return Draft202012Validator({"$ref": f"#/components/schemas/{name}", "components": document["components"]})
