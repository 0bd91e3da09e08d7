"""The dashboards of Grafana and CloudWatch ask for series that the code tells, by labels that they have."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from regelate.adapters.telemetry.emf import NAMESPACE, SERVICE
from regelate.adapters.telemetry.prometheus import Prometheus, prometheus_name
from regelate.core.measures.measures import METRICS, Kind
from tests.deploy.cloudformation import ROOT, names_in, template

GRAFANA: dict[str, Any] = json.loads((ROOT / "integrations" / "grafana" / "regelate.json").read_text())
RESOURCES: dict[str, Any] = template()["Resources"]
BODY: str = RESOURCES["Dashboard"]["Properties"]["DashboardBody"]["Fn::Sub"]
WIDGETS: list[dict[str, Any]] = json.loads(BODY)["widgets"]
METRIC_OF = {metric.name: metric for metric in METRICS}
PROMQL = {"by", "histogram_quantile", "increase", "max", "or", "rate", "sum", "time", "topk", "vector"}
SCRAPED = {"job"}
"""Labels that Prometheus adds to what it scrapes."""
SUFFIXES = {"counter": ("",), "gauge": ("",), "histogram": ("_bucket", "_count", "_sum")}


def series() -> dict[str, set[str]]:
    """Every series of `/metrics`, and its labels."""
    labels = {prometheus_name(metric): {metric.label} - {None} for metric in METRICS}
    found: dict[str, set[str]] = {}
    for name, kind in re.findall(r"^# TYPE (\w+) (\w+)$", Prometheus().text(), re.MULTILINE):
        own = labels.get(name.removesuffix("_total"), set())
        for suffix in SUFFIXES[kind]:
            found[name + suffix] = (
                SCRAPED | {label for label in own if label} | ({"le"} if suffix == "_bucket" else set())
            )
    return found


SERIES = series()


def queries() -> list[Any]:
    return [
        pytest.param(target["expr"], target["legendFormat"], id=f"{panel['title']}-{target['refId']}")
        for panel in GRAFANA["panels"]
        for target in panel["targets"]
    ]


def words(expression: str) -> set[str]:
    """The names in a query, without what is quoted, a range or a number."""
    return set(re.findall(r"[A-Za-z_]\w*", re.sub(r'"[^"]*"|\[[^]]*\]', "", expression)))


@pytest.mark.parametrize(("expression", "legend"), queries())
def test_every_panel_of_grafana_asks_for_series_that_metrics_has_by_labels_that_they_have(
    expression: str, legend: str
) -> None:
    asked = words(expression) & set(SERIES)
    assert asked
    labels = set.intersection(*(SERIES[name] for name in asked))
    assert words(expression) - asked - PROMQL - labels == set()
    assert set(re.findall(r"{{(\w+)}}", legend)) <= labels & words(expression)


def test_grafana_has_a_panel_for_every_metric() -> None:
    shown = {name for parameter in queries() for name in words(str(parameter.values[0]))}
    counters = {metric.name: "_total" for metric in METRICS if metric.kind is Kind.COUNTER}
    histograms = {metric.name: "_bucket" for metric in METRICS if metric.kind is Kind.HISTOGRAM}
    suffixes = {**counters, **histograms}
    assert {prometheus_name(metric) + suffixes.get(metric.name, "") for metric in METRICS} <= shown


def test_grafana_can_import_it_with_any_source_and_any_job() -> None:
    assert [variable["name"] for variable in GRAFANA["templating"]["list"]] == ["datasource", "job"]
    asked = re.findall(r"label_values\((\w+), (\w+)\)", json.dumps(GRAFANA["templating"]))
    assert asked
    assert all(label in SERIES[name] for name, label in asked)
    assert {panel["datasource"]["uid"] for panel in GRAFANA["panels"]} == {"${datasource}"}
    assert len({panel["id"] for panel in GRAFANA["panels"]}) == len(GRAFANA["panels"])


def places() -> list[list[tuple[int, int, int, int]]]:
    grids = [panel["gridPos"] for panel in GRAFANA["panels"]]
    return [
        [(at["x"], at["y"], at["w"], at["h"]) for at in grids],
        [(widget["x"], widget["y"], widget["width"], widget["height"]) for widget in WIDGETS],
    ]


@pytest.mark.parametrize("panels", places(), ids=["grafana", "cloudwatch"])
def test_no_panel_covers_another(panels: list[tuple[int, int, int, int]]) -> None:
    cells = [(x + i, y + j) for x, y, width, height in panels for i in range(width) for j in range(height)]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24


def rows() -> Iterator[list[Any]]:
    for widget in WIDGETS:
        yield from widget["properties"].get("metrics", [])


def test_every_metric_of_ours_in_cloudwatch_exists_with_its_dimensions() -> None:
    ours = [row for row in rows() if row[0] == NAMESPACE]
    assert ours
    for _, name, *dimensions, _ in ours:
        metric = METRIC_OF[name]
        assert metric.label is None or metric.kind is Kind.COUNTER, f"{name} exists with its label only"
        assert dimensions == ["service", SERVICE, "environment", "${Environment}"]


def test_every_search_of_cloudwatch_is_for_a_metric_by_its_label() -> None:
    searches = [row[0]["expression"] for row in rows() if isinstance(row[0], dict)]
    assert searches
    for search in searches:
        found = re.fullmatch(
            r"""SEARCH\('\{(.+?)\} MetricName="(\w+)" environment="\$\{Environment\}"', '\w+', 300\)""", search
        )
        assert found
        assert found[1].split(",") == [NAMESPACE, "service", "environment", METRIC_OF[found[2]].label]


def test_what_cloudwatch_shows_of_amazon_is_what_is_alarmed_on_or_lambdas_time() -> None:
    alarms = [r["Properties"] for r in RESOURCES.values() if r["Type"] == "AWS::CloudWatch::Alarm"]
    alarmed = {
        (alarm["Namespace"], alarm["MetricName"], alarm["Dimensions"][0]["Name"], name)
        for alarm in alarms
        if alarm["Namespace"] != NAMESPACE
        for name in names_in(alarm["Dimensions"])
    }
    theirs = {
        (row[0], row[1], row[2], next(names_in({"Fn::Sub": row[3]})))
        for row in rows()
        if isinstance(row[0], str) and row[0] != NAMESPACE
    }
    assert {row for row in theirs if row[1] != "Duration"} == alarmed


def test_cloudwatch_shows_every_alarm() -> None:
    (shown,) = [widget["properties"]["alarms"] for widget in WIDGETS if widget["type"] == "alarm"]
    alarms = {name for name, resource in RESOURCES.items() if resource["Type"] == "AWS::CloudWatch::Alarm"}
    assert set(shown) == {f"${{{name}.Arn}}" for name in alarms}
