"""`regelate serve` shows a fleet under /fleet: the report's page, with its policy as a header, and stores nothing."""

from __future__ import annotations

import sqlite3
import urllib.request
from http.client import HTTPResponse
from pathlib import Path
from urllib.error import HTTPError

import pytest

from regelate.report.fleet.page import content_policy
from tests.entrypoints.serving import serving
from tests.system.faults.stack import Stack
from tests.system.faults.test_fleet_desk import ill, stack_of


def page_of(stack: Stack, query: str = "") -> tuple[HTTPResponse, str]:
    with serving(stack.service) as server, urllib.request.urlopen(f"{server.url}/fleet{query}", timeout=30) as answer:
        return answer, answer.read().decode()


def test_the_page_is_the_reports_with_its_policy_as_a_header_and_keeps_no_plan(tmp_path: Path) -> None:
    stack = stack_of(tmp_path)
    ill(stack, "worse", 6)
    stack.ok("FLEET_SCAN")
    answer, page = page_of(stack)
    assert "default.worse" in page
    assert "compact would leave 5 files fewer" in page
    policy = answer.headers["Content-Security-Policy"]
    assert policy == f"{content_policy()}; frame-ancestors 'none'"
    assert f'content="{content_policy()}"' in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "https://" not in page
    with sqlite3.connect(stack.folder / "fleet.db") as db:
        assert db.execute("SELECT count(*) FROM plans").fetchone() == (0,)


def test_a_catalog_of_nobody_is_refused_as_everywhere(tmp_path: Path) -> None:
    with pytest.raises(HTTPError) as refused:
        page_of(stack_of(tmp_path), "?catalog=other")
    assert refused.value.code == 404
    assert b"CATALOG_NOT_FOUND" in refused.value.read()
