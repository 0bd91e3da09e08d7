"""A fleet on one page: what it says, that nothing foreign becomes part of it, and that it asks nobody for anything."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regelate.core.fleet.operation import FleetOperation, FleetOutcome, FleetStatus
from regelate.core.planning.health import PointsLost
from regelate.report.fleet.charts import WIDTH, backlog_chart, budget_bar, health_bar, median_error, prediction_chart
from regelate.report.fleet.contents import BacklogPoint, FleetContents, SpendLine
from regelate.report.fleet.page import MOST_RUNS, MOST_TENANTS, fleet_page
from regelate.report.fleet.texts import MOST_CHARACTERS, dollars_text, plain
from tests.report.fleet_contents import HOSTILE, HOUR_MS, NOW_MS, fleet, run, table

SVG = "http://www.w3.org/2000/svg"


class Seen(HTMLParser):
    """The elements of a page with their attributes, and the text of each script and style."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.blocks: list[tuple[str, str]] = []
        self.text = ""
        self._inside = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._inside = tag if tag in ("script", "style") else self._inside
        if tag in ("script", "style"):
            self.blocks.append((tag, ""))

    def handle_endtag(self, tag: str) -> None:
        self._inside = "" if tag == self._inside else self._inside

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.blocks[-1] = (self._inside, self.blocks[-1][1] + data)
        else:
            self.text += data


@pytest.fixture(scope="module")
def page() -> str:
    return fleet_page(fleet(30))


def data_of(page: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(next(text for _, text in Seen(page).blocks if text.startswith("{")))
    return found


def test_a_page_has_three_blocks_of_its_own_whatever_tables_are_called(page: str) -> None:
    assert [(tag, text[:2]) for tag, text in Seen(page).blocks] == [("style", ":r"), ("script", '{"'), ("script", '"u')]


def test_hostile_names_are_text_in_the_page_and_in_its_data(page: str) -> None:
    seen, data = Seen(page), data_of(page)
    for at, name in enumerate(HOSTILE):
        assert plain(name) in seen.text
        assert [*data["tables"][at][:3], data["tables"][at][4]] == [plain(name)] * 4
    assert not [attrs for _, attrs in seen.elements if any(key.startswith("on") for key in attrs)]
    assert "img" not in {tag for tag, _ in seen.elements}
    assert plain("a\u202eb\x00\ud800") == "a\\u202eb\\x00\\ud800"
    page.encode("utf-8")


def test_the_data_holds_no_sign_that_a_reader_of_html_knows(page: str) -> None:
    (block,) = re.findall(r'id="data">(.*?)</script>', page)
    assert not set(block) & set("<>&\u2028\u2029")
    assert block.isascii()


@given(st.text(max_size=40))
def test_no_name_adds_an_element_or_an_attribute(name: str) -> None:
    def shape(said: str) -> list[tuple[str, list[str]]]:
        tables = (table(1, table=said, tenant=said, sentence=said, catalog=said),)
        contents = FleetContents(
            made_ms=NOW_MS,
            title=said,
            tables=tables,
            spend=(SpendLine(name=said, day_dollars=1.0),),
            runs=(run(1, table=said, asked_by=said, reason=said),),
        )
        made = fleet_page(contents)
        assert data_of(made)["tables"][0][1] == plain(said)
        return [(tag, sorted(attrs)) for tag, attrs in Seen(made).elements]

    assert shape(name) == shape("plain")


def test_the_page_asks_nobody_for_anything(page: str) -> None:
    seen = Seen(page)
    links = {value for _, attrs in seen.elements for key, value in attrs.items() if key in ("src", "href", "action")}
    assert links == {"#tables"}
    code = "".join(text for tag, text in seen.blocks if not text.startswith("{"))
    assert re.findall(r"https?://[^\"']*", code) == [SVG]
    assert re.findall(r"@import|url\(|fetch|XMLHttp|WebSocket|innerHTML|eval|document\.write", code) == ["innerHTML"]
    assert "there is no innerHTML here" in code


def test_the_pages_policy_lets_run_what_it_was_made_with_and_nothing_else(page: str) -> None:
    seen = Seen(page)
    policy = next(a["content"] for _, a in seen.elements if a.get("http-equiv") == "Content-Security-Policy")
    style, _, script = (text for _, text in seen.blocks)
    style_hash, script_hash = (base64.b64encode(hashlib.sha256(t.encode()).digest()).decode() for t in (style, script))
    assert policy is not None
    assert [part.strip() for part in policy.split(";")] == [
        "default-src 'none'",
        f"style-src 'sha256-{style_hash}'",
        f"script-src 'sha256-{script_hash}'",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    assert not [attrs for _, attrs in seen.elements if "style" in attrs], "the policy would not let it be"


def test_every_table_and_run_is_in_the_data_as_it_was_given() -> None:
    contents = fleet(30)
    data = data_of(fleet_page(contents))
    assert data["made"] == NOW_MS
    assert len(data["tables"]) == 30 + len(HOSTILE)
    one, line = data["tables"][10], contents.tables[10]
    assert one[:5] == ["glue", line.table, line.tenant, line.status.value, line.sentence]
    assert line.lost is not None
    assert one[5] == pytest.approx([line.lost.files, line.lost.deletes, line.lost.metadata], abs=1e-4)
    assert one[6:] == [line.next_ms, line.backlog_files, line.backlog_bytes, line.cost_dollars]
    found, ran = data["runs"][5], contents.runs[5]
    assert found[:5] == [ran.started_ms, "glue", ran.table, ran.operation.value, "DONE"]
    assert found[7:] == [ran.predicted_dollars, ran.actual_dollars, None, None, 105, 3, 10 * 1024**2, 9 * 1024**2]


def test_every_state_and_outcome_has_its_place_in_the_order() -> None:
    order = data_of(fleet_page(FleetContents(made_ms=NOW_MS)))["order"]
    assert sorted(order) == sorted([*FleetStatus, *FleetOutcome])


def test_an_empty_fleet_is_a_page_that_says_so() -> None:
    page = fleet_page(FleetContents(made_ms=NOW_MS))
    text = Seen(page).text
    for said in ("0 tables, as of 2026-11-23 05:00 UTC", "No run yet", "Nothing is spent", "No table"):
        assert said in text


def test_a_backlog_that_nobody_kept_is_not_drawn_and_one_look_is_no_line() -> None:
    assert "Backlog over time" not in fleet_page(FleetContents(made_ms=NOW_MS))
    one = BacklogPoint(at_ms=NOW_MS, files=1, size_bytes=1, tables=1)
    assert "Not two looks" in fleet_page(FleetContents(made_ms=NOW_MS, backlog=(one,)))


def test_tables_that_are_left_out_are_counted() -> None:
    assert "; 3 healthier tables left out</p>" in fleet_page(FleetContents(made_ms=NOW_MS, left_out=3))
    assert "left out" not in fleet_page(FleetContents(made_ms=NOW_MS))


def test_the_illest_tables_come_first_and_those_that_nobody_looked_at_are_not_among_them() -> None:
    ill, iller = PointsLost(files=30), PointsLost(files=30, metadata=0.5)
    tables = (table(1, lost=ill), table(2, lost=iller), table(3, lost=None), table(4, lost=PointsLost()))
    text = Seen(fleet_page(FleetContents(made_ms=NOW_MS, tables=tables))).text
    shown = text[text.index("Most points lost") : text.index("Predicted against paid")]
    assert re.findall(r"orders_0000\d", shown) == ["orders_00002", "orders_00001"]


def test_the_tiles_count_what_needs_a_look_what_is_due_and_what_waits_for_money() -> None:
    states = [FleetStatus.FAILED, FleetStatus.PAUSED, FleetStatus.DUE, FleetStatus.QUEUED, FleetStatus.RUNNING]
    states += [FleetStatus.OVER_BUDGET] * 4
    tables = tuple(table(1000, status=status, lost=PointsLost(files=20.0 - n)) for n, status in enumerate(states))
    page = fleet_page(FleetContents(made_ms=NOW_MS, tables=tables))
    found = re.findall(r'tile"><b>(.*?)</b><span>(.*?)</span>', page)
    assert [number for number, _ in found] == ["2", "3", "4", "1", "9k"]


def test_who_used_most_of_a_budget_comes_first_and_all_others_can_be_unfolded() -> None:
    lines = [SpendLine(name=f"t{n:02}", day_dollars=n / 100, day_budget=1.0) for n in range(MOST_TENANTS)]
    lines += [
        SpendLine(name="by month", day_dollars=0.0, day_budget=1.0, month_dollars=9.0, month_budget=9.5),
        SpendLine(name="no limit", day_dollars=99.0),
        SpendLine(name="nothing allowed", day_dollars=0.0, day_budget=0.0),
    ]
    page = fleet_page(FleetContents(made_ms=NOW_MS, spend=tuple(lines)))
    shown, folded = page.split("<details>")
    names = re.findall(r"<h3>(.*?)</h3>", shown)
    assert names[:3] == ["nothing allowed", "by month", "t11"]
    assert len(names) == MOST_TENANTS
    assert "3 more tenants" in folded
    assert "$99.00 <span" in folded
    assert "no limit</span>" in folded


def test_of_many_runs_the_latest_are_shown_and_the_page_says_how_many_there_are() -> None:
    runs = tuple(map(run, range(MOST_RUNS + 5)))
    page = fleet_page(FleetContents(made_ms=NOW_MS, runs=runs))
    assert f"The latest {MOST_RUNS:,} of {MOST_RUNS + 5:,} runs" in page
    assert {row[0] for row in data_of(page)["runs"]} == {one.started_ms for one in runs[:MOST_RUNS]}


def test_a_number_that_is_none_is_refused_and_not_written() -> None:
    with pytest.raises(ValueError, match="JSON"):
        fleet_page(FleetContents(made_ms=NOW_MS, tables=(table(1, cost_dollars=float("nan")),)))


def test_the_backlog_is_drawn_in_the_order_of_time_up_to_its_axis() -> None:
    points = [
        BacklogPoint(at_ms=NOW_MS - n * HOUR_MS, files=files, size_bytes=1, tables=1) for n, files in ((0, 0), (4, 40))
    ]
    drawn = backlog_chart(points)
    (line,) = re.findall(r'class="line" points="(.*?)"', drawn)
    assert line.split() == ["68.0,14.0", f"{WIDTH - 16:.1f},188.0"]
    assert "Files to rewrite: 40 at first, 0 now" in drawn
    assert [html.unescape(text) for text in re.findall(r'end">(\S+?)</text>', drawn)][:5] == [
        "0",
        "10",
        "20",
        "30",
        "40",
    ]
    assert "01:00" in drawn


@given(st.lists(st.integers(0, 10**12), min_size=2, max_size=30))
def test_no_point_of_the_backlog_lies_outside_its_picture(files: list[int]) -> None:
    points = [BacklogPoint(at_ms=n * HOUR_MS, files=f, size_bytes=f, tables=1) for n, f in enumerate(files)]
    (line,) = re.findall(r'class="line" points="(.*?)"', backlog_chart(points))
    assert all(14 <= float(pair.split(",")[1]) <= 188 for pair in line.split())


def test_a_prediction_is_off_by_a_share_of_what_was_paid_and_half_of_them_by_less_than_the_median() -> None:
    runs = [run(n, predicted_dollars=price, actual_dollars=1.0) for n, price in enumerate((0.5, 0.9, 1.0, 1.2, 3.0))]
    assert median_error(runs) == pytest.approx(0.2)
    assert median_error([replace(one, actual_dollars=None) for one in runs]) is None
    assert median_error([replace(one, predicted_dollars=0.0) for one in runs]) is None
    page = fleet_page(FleetContents(made_ms=NOW_MS, runs=tuple(runs)))
    assert "Half of the predictions are within 20% of what was paid" in page


@given(st.lists(st.tuples(st.floats(1e-9, 1e6), st.floats(1e-9, 1e6)), min_size=1, max_size=20))
def test_every_priced_run_is_a_dot_within_the_picture(prices: list[tuple[float, float]]) -> None:
    runs = [run(n, predicted_dollars=p, actual_dollars=a) for n, (p, a) in enumerate(prices)]
    drawn = prediction_chart(runs)
    dots = re.findall(r'class="run kind\d" cx="(.*?)" cy="(.*?)"', drawn)
    assert len(dots) == len(runs)
    assert all(68 <= float(x) <= WIDTH - 16 and 14 <= float(y) <= 188 for x, y in dots)


def test_each_operation_has_a_colour_and_is_named_where_it_ran() -> None:
    page = fleet_page(FleetContents(made_ms=NOW_MS, runs=tuple(map(run, range(5)))))
    for at, operation in enumerate(FleetOperation):
        assert f'<i class="kind{at}"></i>{operation.value}' in page
        assert f".kind{at} {{ fill:" in page


def test_a_bar_of_health_is_as_wide_as_the_points() -> None:
    widths = re.findall(
        r'class="([\w-]+)"(?: x="([\d.]+)")? width="([\d.]+)"', health_bar(PointsLost(files=30, metadata=10))
    )
    assert widths == [("kept", "", "60.0"), ("lost-files", "60.0", "30.0"), ("lost-metadata", "90.0", "10.0")]
    assert "rect" not in health_bar(None)


@pytest.mark.parametrize(
    ("spent", "budget", "drawn"),
    [
        (0.5, 1.0, ("within", "50.0")),
        (0.9, 1.0, ("near", "90.0")),
        (1.5, 1.0, ("full", "100.0")),
        (0, 0.0, ("full", "100.0")),
    ],
)
def test_a_budget_that_is_nearly_used_up_looks_so(spent: float, budget: float, drawn: tuple[str, str]) -> None:
    assert re.findall(r'spent (\w+)" width="([\d.]+)"', budget_bar(spent, budget)) == [drawn]
    assert "rect" not in budget_bar(spent, None)


@pytest.mark.parametrize(
    ("dollars", "text"),
    [(0, "$0.00"), (0.00001, "<$0.0001"), (0.0042, "$0.0042"), (0.1, "$0.10"), (3.2, "$3.20"), (1204.4, "$1,204")],
)
def test_dollars_keep_two_digits_that_say_something(dollars: float, text: str) -> None:
    assert dollars_text(dollars) == text


def test_a_sentence_without_end_is_cut() -> None:
    assert len(plain("x" * 10_000)) == MOST_CHARACTERS
