"""What Slack is told of a fleet: each trouble once, a summary a day, and nothing that fails a turn."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from regelate.adapters.records.sqlite_fleet import SqliteFleet
from regelate.core.answers.fleet import FleetBill, FleetRunAnswer, FleetStatusAnswer, TableStanding
from regelate.core.fleet.operation import FleetOperation, FleetOutcome, FleetStatus, FleetTrigger
from regelate.core.fleet.state import FleetRun
from regelate.core.table.time_ranges import DAY_MS, HOUR_MS
from regelate.operations.fleet.telling import run_told
from regelate.report.fleet.news import Told, new_troubles, summary_message, troubles_message, troubles_now
from regelate.service.fleet_news import FleetNews
from regelate.settings import SettingsError, load_settings

NOON = 20_000 * DAY_MS + 12 * HOUR_MS
FAILED, PAUSED, HEALTHY = FleetStatus.FAILED, FleetStatus.PAUSED, FleetStatus.HEALTHY


def run(outcome: FleetOutcome | None, *, ended_ms: int | None = NOON, dollars: float = 0.5, files: int = 0) -> FleetRun:
    return FleetRun(
        run_id="r",
        operation=FleetOperation.COMPACT,
        trigger=FleetTrigger.SCHEDULE,
        asked_by="the schedule",
        reason="",
        queued_ms=NOON,
        ended_ms=None if outcome is None else ended_ms,
        actual_dollars=dollars,
        files_before=files + 1,
        files_after=1,
        outcome=outcome,
    )


def table(name: str, status: FleetStatus, sentence: str = "So it is.", last: FleetRun | None = None) -> TableStanding:
    last_run: FleetRunAnswer | None = None if last is None else run_told(name, last)
    names = (
        *("next_eligible_at", "next_look_at", "observed_at", "score", "grade", "files", "candidate_files"),
        *("files_lost", "deletes_lost", "metadata_lost", "files_after", "size_bytes", "snapshots", "manifests"),
    )
    unknown: dict[str, Any] = dict.fromkeys(names)
    return TableStanding(
        table=name, tenant="acme", status=status, sentence=sentence, month_dollars=0.0, last_run=last_run, **unknown
    )


def answer(*tables: TableStanding, budget: float | None = 10.0) -> FleetStatusAnswer:
    names = [found.status.value for found in tables]
    bill = FleetBill(
        tenant=None,
        day_dollars=1.0,
        day_budget_dollars=None,
        day_gb_seconds=0.0,
        day_budget_gb_seconds=None,
        month_dollars=2.5,
        month_budget_dollars=budget,
    )
    statuses = {name: names.count(name) for name in sorted(names)}
    return FleetStatusAnswer(tables=tables, more=0, statuses=statuses, bills=(bill,))


def test_a_trouble_is_told_once_and_again_only_where_it_is_another() -> None:
    told, heard = Told(), []
    failed = run(FleetOutcome.FAILED)
    for found in (
        table("a.t", HEALTHY),
        table("a.t", FAILED, last=failed),
        table("a.t", FAILED, last=failed),
        table("a.t", FleetStatus.DUE, last=failed),
        table("a.t", FleetStatus.RUNNING, last=run(None)),
        table("a.t", FAILED, last=failed),
        table("a.t", PAUSED, last=failed),
        table("a.t", PAUSED, last=failed),
        table("a.t", FleetStatus.COOLING, last=run(FleetOutcome.DONE)),
        table("a.t", FAILED, last=failed),
    ):
        heard.append([news.status.value for news in new_troubles([found], told)])
        told = Told.of_json(replace(told, troubles=troubles_now([found], told)).as_json())
    assert heard == [[], ["FAILED"], [], [], [], [], ["PAUSED"], [], [], ["FAILED"]]


def test_the_message_has_the_sentence_of_each_table_and_no_text_becomes_markup() -> None:
    found = [table("a.t", FAILED, "Compact failed: <!channel> & more."), table("a.u", PAUSED, "Paused: too much.")]
    assert troubles_message("lake", found) == {
        "text": "lake: 1 table failed, 1 table paused\n"
        ":x: *a.t*: Compact failed: &lt;!channel&gt; &amp; more.\n"
        ":double_vertical_bar: *a.u*: Paused: too much.",
        "blocks": [
            {"type": "header", "text": {"type": "plain_text", "text": "lake: 1 table failed, 1 table paused"}},
            {
                "type": "section",
                "text": {"type": "mrkdwn", "text": ":x: *a.t*: Compact failed: &lt;!channel&gt; &amp; more."},
            },
            {
                "type": "section",
                "text": {"type": "mrkdwn", "text": ":double_vertical_bar: *a.u*: Paused: too much."},
            },
        ],
    }


def test_the_summary_counts_the_tables_and_the_runs_of_the_day_before() -> None:
    yesterday = NOON - DAY_MS
    runs = [
        run(FleetOutcome.DONE, ended_ms=yesterday, files=1_200),
        run(FleetOutcome.FAILED, ended_ms=yesterday),
        run(FleetOutcome.DONE, ended_ms=NOON, files=7),
        run(FleetOutcome.DONE, ended_ms=yesterday - DAY_MS, files=7),
    ]
    found = answer(table("a.t", HEALTHY), table("a.u", FAILED, "Compact failed."), table("a.v", HEALTHY))
    assert str(summary_message("lake", found, runs, NOON)["text"]).splitlines() == [
        "lake: 3 tables, 1 failed or paused",
        "Tables: 1 failed, 2 healthy.",
        "2024-10-03: 2 runs, 1 of them failed; 1,200 files fewer for $1.0000.",
        "All catalogs this month: $2.5000 of $10.0000.",
        ":x: *a.u*: Compact failed.",
    ]


def test_a_thousand_troubles_are_one_message_that_slack_takes() -> None:
    sent: Any = troubles_message("lake", [table(f"a.t{n}", FAILED, "x" * 5_000) for n in range(1_000)])
    assert len(sent["blocks"]) <= 50
    assert max(len(block["text"]["text"]) for block in sent["blocks"]) <= 3_000
    assert sent["text"].endswith("and 960 more")


class Hook:
    """A webhook that answers `status`, and keeps the messages that it has taken."""

    def __init__(self) -> None:
        self.status, self.taken, hook = 200, list[Any](), self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if hook.status == 200:
                    hook.taken.append(body)
                self.send_response(hook.status)
                if hook.status == 302:
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/T000/secret"

    @property
    def heads(self) -> list[str]:
        return [message["blocks"][0]["text"]["text"] for message in self.taken]


@pytest.fixture
def hook() -> Iterator[Hook]:
    found = Hook()
    thread = Thread(target=found.server.serve_forever, daemon=True)
    thread.start()
    yield found
    found.server.shutdown()
    found.server.server_close()
    thread.join()


@pytest.fixture
def store(tmp_path: Path) -> SqliteFleet:
    return SqliteFleet(tmp_path / "fleet.db")


def test_two_turns_tell_a_trouble_and_a_summary_once_for_each_catalog(hook: Hook, store: SqliteFleet) -> None:
    found = answer(table("a.t", FAILED))
    for catalog in ("lake", "lake", "pond"):
        FleetNews(hook.url, store).tell(catalog, found, lambda: False)
    assert hook.heads == [
        "lake: 1 table failed",
        "lake: 1 table, 1 failed or paused",
        "pond: 1 table failed",
        "pond: 1 table, 1 failed or paused",
    ]


@pytest.mark.parametrize(
    ("status", "code"), [(503, "WEBHOOK_FAILED"), (302, "WEBHOOK_REFUSED"), (404, "WEBHOOK_REFUSED")]
)
def test_what_the_webhook_did_not_take_is_logged_without_its_address_and_sent_by_the_next_turn(
    hook: Hook, store: SqliteFleet, caplog: pytest.LogCaptureFixture, status: int, code: str
) -> None:
    news, found = FleetNews(hook.url, store), answer(table("a.t", PAUSED))
    hook.status = status
    with caplog.at_level(logging.WARNING):
        news.tell("lake", found, lambda: False)
    assert hook.taken == []
    assert code in caplog.text
    assert "secret" not in caplog.text
    hook.status = 200
    news.tell("lake", found, lambda: False)
    assert hook.heads == ["lake: 1 table paused", "lake: 1 table, 1 failed or paused"]


def test_a_process_that_ends_tells_nothing_and_the_next_one_does(hook: Hook, store: SqliteFleet) -> None:
    found = answer(table("a.t", FAILED))
    FleetNews(hook.url, store).tell("lake", found, lambda: True)
    assert hook.taken == []
    FleetNews(hook.url, store).tell("lake", found, lambda: False)
    assert len(hook.taken) == 2


def configured(folder: Path, webhook: str, environ: dict[str, str]) -> str | None:
    catalog = {"type": "sql", "uri": "sqlite:///x.db", "warehouse": "/tmp/x"}
    section = {"auth": "none", "tenants": ["acme"], "catalogs": {"local": catalog}, "fleet": {"slack_webhook": webhook}}
    (folder / "config.json").write_text(json.dumps({"defaults": section, "environments": {"development": {}}}))
    return load_settings({"REGELATE_CONFIG": str(folder / "config.json"), **environ}).fleet.slack_webhook


def test_the_address_comes_from_the_environment_and_is_https(tmp_path: Path) -> None:
    kept = {"SLACK": "https://hooks.example.com/T000/secret"}
    assert configured(tmp_path, "${SLACK}", kept) == kept["SLACK"]
    assert configured(tmp_path, "${SLACK:-}", {}) == ""
    with pytest.raises(SettingsError, match=r"fleet\.slack_webhook") as caught:
        configured(tmp_path, "${SLACK}", {"SLACK": "http://hooks.example.com/T000/secret"})
    assert "secret" not in caught.value.message
