"""The fleet's page in a real browser: 10,000 tables sorted, searched and paged, by keyboard too, nothing fetched."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from regelate.report.fleet.page import fleet_page
from tests.report.fleet_contents import HOSTILE, fleet
from tests.support.browser import Browser, a_browser, chromium

TABLES = 10_000
ENTER, ESCAPE, TAB = "\ue007", "\ue00c", "\ue004"
NAMES = "#tables tbody td:first-child"
SAID = "#tables [role=status]"

pytestmark = pytest.mark.skipif(chromium() is None, reason="needs Chromium and chromedriver (apt: chromium-driver)")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with a_browser(tmp_path_factory.mktemp("browser")) as window:
        yield window


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "fleet.html"
    path.write_text(fleet_page(fleet(TABLES)), encoding="utf-8")
    return path


@pytest.fixture
def window(browser: Browser, path: Path) -> Browser:
    browser.requests(path.as_uri())
    browser.complaints()
    browser.open(path)
    assert browser.run("return document.documentElement.dataset.ready") == "yes"
    return browser


def search(window: Browser, words: str) -> None:
    window.click("#tables input[type=search]")
    window.press(words)


def test_the_page_asks_for_itself_alone_and_no_script_or_policy_complains(window: Browser, path: Path) -> None:
    search(window, "orders_00042")
    assert window.requests(path.as_uri()) == [path.as_uri()]
    assert window.complaints() == []


def test_hostile_names_are_shown_and_nothing_of_them_runs(window: Browser) -> None:
    window.click("#tables th button", "Table")
    assert window.run("return document.documentElement.dataset.hacked") is None
    assert window.run("return document.querySelectorAll('img').length") == 0
    search(window, "onmouseover")
    assert window.texts(NAMES)[0].startswith(HOSTILE[2])


def test_ten_thousand_tables_are_there_and_a_page_of_them_is_shown(window: Browser) -> None:
    assert window.texts(SAID) == [f"1 to 50 of {TABLES + len(HOSTILE):,}"]
    assert len(window.texts(NAMES)) == 50
    window.click("#tables .pages button", "Next")
    assert window.texts(SAID) == [f"51 to 100 of {TABLES + len(HOSTILE):,}"]
    window.click("#tables .pages button", "Previous")
    assert window.texts(SAID) == [f"1 to 50 of {TABLES + len(HOSTILE):,}"]
    assert window.run("return document.querySelector('#tables .pages button').disabled") is True


def test_a_column_is_sorted_by_its_header_and_the_other_way_by_another_click(window: Browser) -> None:
    window.click("#tables th button", "Files to rewrite")
    assert window.texts(NAMES)[0].startswith("sales.orders_09999")
    assert window.run("return document.querySelectorAll('#tables th')[5].ariaSort") == "descending"
    window.click("#tables th button", "Files to rewrite")
    assert window.run("return document.querySelectorAll('#tables th')[5].ariaSort") == "ascending"
    first = window.texts("#tables tbody tr:first-child td:nth-child(6)")
    assert first == ["0"]


def test_the_search_finds_all_words_in_any_order_and_escape_takes_them_back(window: Browser) -> None:
    search(window, "TENANT_42 orders_00142")
    assert [name.splitlines()[0] for name in window.texts(NAMES)] == ["sales.orders_00142"]
    assert window.texts(SAID) == [f"1 to 1 of 1, of {TABLES + len(HOSTILE):,} in all"]
    window.press("nothing")
    assert window.texts("#tables tbody") == ["Nothing matches."]
    window.press(ESCAPE)
    assert window.texts(SAID) == [f"1 to 50 of {TABLES + len(HOSTILE):,}"]


def test_a_slash_leads_to_the_search_and_everything_is_within_reach_of_the_tab_key(window: Browser) -> None:
    window.press("/")
    assert window.run("return document.activeElement.matches('#tables input[type=search]')") is True
    window.press("a/b")
    assert window.run("return document.activeElement.value") == "a/b"
    window.press(ESCAPE)
    reached = []
    for _ in range(16):
        window.press(TAB)
        reached.append(window.run("return document.activeElement.innerText || document.activeElement.tagName"))
    assert any(text.startswith("FAILED") for text in reached)
    at = next(n for n, text in enumerate(reached) if text == "Table")
    assert reached[at : at + 4] == ["Table", "State", "Why", "Points lost"]


def test_a_header_is_a_button_that_the_keyboard_presses(window: Browser) -> None:
    window.run("document.querySelectorAll('#tables th button')[5].focus()")
    window.press(ENTER)
    assert window.texts(NAMES)[0].startswith("sales.orders_09999")


def test_states_and_tenants_narrow_the_list_down(window: Browser) -> None:
    window.click("#tables .chips button", "FAILED")
    assert set(window.texts("#tables tbody td:nth-child(2)")) == {"FAILED"}
    window.click("#tables .chips button", "PAUSED")
    assert set(window.texts("#tables tbody td:nth-child(2)")) <= {"FAILED", "PAUSED"}
    assert window.run("return document.querySelectorAll('#tables [aria-pressed=true]').length") == 2
    window.run(
        "const s = document.querySelector('#tables select[data-filter]'); s.value = '=tenant_09';"
        "s.dispatchEvent(new Event('change'))"
    )
    assert window.texts(SAID) == [f"1 to 50 of 200, of {TABLES + len(HOSTILE):,} in all"]


def test_the_runs_tell_what_was_predicted_paid_and_left(window: Browser) -> None:
    newest = window.texts("#runs tbody tr:nth-child(2) td")
    assert newest[0] == "1 h ago"
    assert newest[4].split("\n") == ["101 → 3", "-97 %"]
    assert newest[6:] == ["$0.0200", "$0.0220", "-9 %"]


def test_a_column_of_which_nothing_is_known_is_left_out(browser: Browser, tmp_path: Path) -> None:
    known, path = fleet(3), tmp_path / "fleet.html"
    bare = replace(
        known,
        tables=tuple(replace(table, backlog_bytes=None) for table in known.tables),
        runs=tuple(replace(run, bytes_before=None) for run in known.runs),
    )
    path.write_text(fleet_page(bare), encoding="utf-8")
    browser.open(path)
    heads = [text.strip() for text in browser.texts("#tables th")]
    assert [text for text in heads if text.startswith(("Reads", "Price"))] == [heads[-1]]
    assert not any(text.startswith("Size") for text in browser.texts("#runs th"))
    assert len(browser.texts("#tables tbody tr:first-child td")) == len(heads) == 7


def test_the_page_is_dark_for_who_prefers_it(window: Browser) -> None:
    shade = "return getComputedStyle(document.body).backgroundColor"
    window.prefer("light")
    light = window.run(shade)
    window.prefer("dark")
    assert (light, window.run(shade)) == ("rgb(246, 247, 249)", "rgb(16, 21, 28)")
