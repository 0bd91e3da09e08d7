"""A fleet and the optimizers of Glue: moto has none, so its answers are those that AWS documents."""

from __future__ import annotations

import json
import logging
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any

import pytest

from tests.aws.lake import CATALOG, S3Lake
from tests.servers.moto_aws import client

CALL = "before-call.glue.BatchGetTableOptimizer"


class Optimizers:
    """Answers in Glue's place: `enabled` by kind, kinds that are not in it were never made; or a refusal."""

    def __init__(self, lake: S3Lake) -> None:
        self.enabled: dict[str, bool] = {}
        self.refusal: str | None = None
        self.asked: list[Any] = []
        lake.stack.service.access.survey().glue.meta.events.register(CALL, self._answer)  # type: ignore[attr-defined]

    def _answer(self, params: dict[str, Any], **_: object) -> tuple[SimpleNamespace, dict[str, Any]]:
        self.asked.append(params["body"])
        if self.refusal:
            refused = {"Error": {"Code": self.refusal, "Message": "no"}, "ResponseMetadata": {}}
            return SimpleNamespace(status_code=HTTPStatus.BAD_REQUEST), refused
        of_table = {"catalogId": "123456789012", "databaseName": "default", "tableName": "users"}
        made = [
            {**of_table, "tableOptimizer": {"type": kind, "configuration": {"enabled": on}}}
            for kind, on in self.enabled.items()
        ]
        missing = {"ErrorCode": "EntityNotFoundException", "ErrorMessage": "no optimizer"}
        kinds = {"compaction", "retention", "orphan_file_deletion"} - set(self.enabled)
        failures = [{**of_table, "type": kind, "error": missing} for kind in sorted(kinds)]
        return SimpleNamespace(status_code=HTTPStatus.OK), {"TableOptimizers": made, "Failures": failures}


@pytest.fixture
def optimizers(lake: S3Lake) -> Optimizers:
    lake.users(writes=6)
    return Optimizers(lake)


def standing(lake: S3Lake) -> dict[str, Any]:
    assert lake.stack.ok("FLEET_SCAN", catalog=CATALOG)["observed"] == 1
    found: dict[str, Any] = lake.stack.ok("FLEET_STATUS", "users")["tables"][0]
    return found


def test_a_table_that_glue_compacts_is_left_alone_until_its_optimizer_is_switched_off(
    lake: S3Lake, optimizers: Optimizers
) -> None:
    optimizers.enabled = {"compaction": True, "retention": False, "orphan_file_deletion": True}
    found = standing(lake)
    assert found["status"] == "DISABLED"
    assert "AWS Glue (compaction, orphan_file_deletion)" in found["sentence"]
    optimizers.enabled = {"compaction": False}  # the head has not moved since
    assert standing(lake)["status"] == "DUE"


def test_what_nobody_optimizes_is_due_without_a_warning(
    lake: S3Lake, optimizers: Optimizers, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert standing(lake)["status"] == "DUE"
    assert "optimizers" not in caplog.text


def test_optimizers_that_may_not_be_seen_are_told_to_the_log_and_stop_nothing(
    lake: S3Lake, optimizers: Optimizers, caplog: pytest.LogCaptureFixture
) -> None:
    optimizers.refusal = "AccessDeniedException"
    with caplog.at_level(logging.WARNING):
        assert standing(lake)["status"] == "DUE"
    assert "optimizers look after default.users cannot be seen: AccessDeniedException" in caplog.text


def test_all_three_kinds_are_asked_for_by_the_account_that_owns_the_table(lake: S3Lake, optimizers: Optimizers) -> None:
    standing(lake)
    (asked,) = [json.loads(body)["Entries"] for body in optimizers.asked]
    assert [entry["type"] for entry in asked] == ["compaction", "retention", "orphan_file_deletion"]
    owner = client("glue", lake.endpoint).get_table(DatabaseName="default", Name="users")["Table"]["CatalogId"]
    assert {(entry["catalogId"], entry["databaseName"], entry["tableName"]) for entry in asked} == {
        (owner, "default", "users")
    }
