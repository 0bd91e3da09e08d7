"""`POST /api/v1/compact`: what the short form means in COMPACT's own fields."""

from __future__ import annotations

from typing import Any

import pytest

from regelate.core.policy.policy import GB, MB
from regelate.entrypoints.api.requests import Compact
from regelate.entrypoints.api.short_form import parse_short_form
from regelate.errors import InvalidRequest


def meant(**payload: Any) -> Compact:
    return parse_short_form({"table": "sales", **payload}, lambda short: short.tenant_id or "only")


def refused(**payload: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        meant(**payload)
    return caught.value


def test_the_published_example_means_a_compact_with_a_target_a_selection_and_a_cost_limit() -> None:
    request = meant(strategy="time-series", options={"target_file_size": "1GB", "max_cost": 10.0})
    assert (request.tenant_id, request.namespace, request.table) == ("only", "default", "sales")
    assert (request.selection, request.strategy, request.max_cost) == ("time-series", None, 10.0)
    assert request.options == {"target-file-size-bytes": str(GB)}


@pytest.mark.parametrize("strategy", ["small-files", "time-series", "partition"])
def test_the_three_ways_to_select_set_the_selection(strategy: str) -> None:
    assert (meant(strategy=strategy).selection, meant(strategy=strategy).strategy) == (strategy, None)


@pytest.mark.parametrize("strategy", ["binpack", "sort"])
def test_the_two_ways_to_write_set_the_strategy(strategy: str) -> None:
    assert (meant(strategy=strategy).selection, meant(strategy=strategy).strategy) == (None, strategy)


@pytest.mark.parametrize(
    ("table", "namespace", "name"),
    [("sales", "default", "sales"), ("shop.sales", "shop", "sales"), ("a.b.sales", "a.b", "sales")],
)
def test_the_last_part_of_the_name_is_the_table(table: str, namespace: str, name: str) -> None:
    assert (meant(table=table).namespace, meant(table=table).table) == (namespace, name)


def test_sizes_and_icebergs_own_names_become_icebergs_options() -> None:
    request = meant(options={"target_file_size": 1048576, "min_file_size": "0.5 MB", "min-input-files": 2})
    assert request.options == {
        "target-file-size-bytes": str(MB),
        "min-file-size-bytes": str(MB // 2),
        "min-input-files": 2,
    }


@pytest.mark.parametrize(
    ("payload", "code", "named"),
    [
        ({"options": {"colour": "red"}}, "INVALID_OPTION", "options.colour"),
        ({"options": {"target_file_size": "big"}}, "INVALID_OPTION", "options.target_file_size"),
        ({"options": {"target_file_size": "0"}}, "INVALID_OPTION", "options.target-file-size-bytes"),
        ({"options": {"target_file_size": "1GB", "target-file-size-bytes": "1"}}, "INVALID_OPTION", "target_file_size"),
        ({"options": {"max_cost": -1}}, "INVALID_FIELD", "max_cost"),
        ({"options": {"max_cost": "10"}}, "INVALID_FIELD", "max_cost"),
        ({"options": 3}, "INVALID_OPTION", "options"),
        ({"strategy": "zorder"}, "INVALID_FIELD", "strategy"),
        ({"max_cost": 10}, "UNKNOWN_FIELD", "max_cost"),
        ({"operation": "COMPACT"}, "UNKNOWN_FIELD", "operation"),
        ({"table": 3}, "INVALID_FIELD", "table"),
    ],
)
def test_what_the_short_form_does_not_know_is_refused_by_name(payload: dict[str, Any], code: str, named: str) -> None:
    fault = refused(**payload)
    assert (fault.code, fault.status) == (code, 400)
    assert named in fault.message
