"""Reports of jobs: what is said, in which words, and that no text of a result becomes markup."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from regelate.entrypoints.cli import main
from regelate.errors import InvalidRequest, Unavailable
from regelate.report.documents import markdown, message, page
from regelate.report.jobs import report_of
from regelate.report.webhook import post

SIDE = {
    "snapshot_id": 1, "partitions": 2, "files": 12, "size_bytes": 12_000, "average_bytes": 1_000, "min_bytes": 900,
    "max_bytes": 1_100, "rows": 120,
    "by_partition": [
        {"partition": "kind=a|b", "files": 8, "size_bytes": 8_000, "average_bytes": 1_000, "rows": 80},
        {"partition": "kind=<c>", "files": 4, "size_bytes": 4_000, "average_bytes": 1_000, "rows": 40},
    ],
}  # fmt: skip
AFTER = SIDE | {
    "files": 2, "size_bytes": 9_000, "average_bytes": 4_500,
    "by_partition": [p | {"files": 1} for p in SIDE["by_partition"]],  # type: ignore[operator, union-attr, attr-defined]
}  # fmt: skip
STATS = {
    "files_before": 12, "files_after": 2, "bytes_before": 12_000, "bytes_after": 9_000, "manifests_before": 4,
    "manifests_after": 1, "files_compacted": 12, "files_added": 2,
}  # fmt: skip
RESULT: dict[str, Any] = {
    "success": True, "job": "maintain", "table": "local.sales.orders", "status": "COMPLETED", "reason": "RECOMMENDED",
    "started_at_ms": 1_737_090_000_000, "stats": STATS, "steps": [], "warnings": [],
    "impact": {
        "files": {"before": SIDE, "after": AFTER, "target_file_size_bytes": 1},
        "query": {"sql": "SELECT 1", "runs": 5, "before_seconds": 2.0, "after_seconds": 0.5, "noise_seconds": 0.1},
        "checks": [{"name": "rows", "verdict": "PASSED", "detail": "120 rows"}],
    },
}  # fmt: skip
FAILURE = {
    "success": False, "job": "maintain", "table": "local.sales.<b>", "started_at_ms": 1,
    "error": {"code": "COMMIT_CONFLICT", "message": "<script>*x*</script>", "retryable": True, "details": {}},
}  # fmt: skip
INGEST = {"mode": "batches", "commits": 50, "rows": 10_000, "files": 500, "size_bytes": 5_000_000}


def ingested(table: str, files: int, *, optimized: bool) -> dict[str, Any]:
    found = INGEST | {"files": files, "optimized_write": optimized}
    return {"success": True, "job": "ingest", "table": table, "status": "COMPLETED", "ingest": found}


def test_one_job_is_told_by_its_numbers() -> None:
    text = markdown(report_of([RESULT]))
    assert "local.sales.orders: COMPLETED, 12 -\\> 2 files, 83% fewer, query 4.0 times as fast" in text
    assert "| data files | 12 | 2 | -83.3% |" in text
    assert "| rows | passed | 120 rows |" in text
    assert "| kind=a\\|b | 8 | 1 |" in text


def test_a_difference_within_the_noise_is_not_called_faster() -> None:
    result = copy.deepcopy(RESULT)
    result["impact"]["query"] |= {"after_seconds": 1.95}
    assert "as fast as before, within the noise" in markdown(report_of([result]))


def test_two_writers_stand_side_by_side() -> None:
    text = markdown(report_of([ingested("a.b.c", 500, optimized=False), ingested("a.b.d", 50, optimized=True)]))
    rows = [line for line in text.split("**Files written, side by side**")[1].splitlines() if line.startswith("| a.b")]
    assert "as each task has it | 50 | 10,000 | 500 |" in rows[0]
    assert "optimized write | 50 | 10,000 | 50 |" in rows[1]


def test_an_answer_of_compact_and_one_without_work_are_told_too() -> None:
    text = markdown(
        report_of([{"table": "orders", "status": "NOTHING_TO_DO", "reason": "NO_CANDIDATE", "stats": None}])
    )
    assert "orders: NOTHING\\_TO\\_DO (NO\\_CANDIDATE)" in text


def test_no_text_of_a_result_becomes_markup() -> None:
    report = report_of([FAILURE, RESULT])
    assert "<script>" not in page(report)
    assert "&lt;script&gt;" in page(report)
    assert "\\<script\\>\\*x\\*" in markdown(report)
    assert "<script>" not in json.dumps(message(report))
    assert report.failures == 1


def test_a_message_never_exceeds_what_slack_takes() -> None:
    long = copy.deepcopy(RESULT) | {"warnings": ["x" * 5_000]}
    sent: Any = message(report_of([long] * 100, "t" * 500))
    assert len(sent["blocks"]) <= 50
    assert max(len(block["text"]["text"]) for block in sent["blocks"]) <= 3_000
    assert "and 60 more" in sent["text"]


@pytest.fixture
def hook() -> Iterator[HTTPServer]:
    """A webhook that keeps what it was sent; /503 and /moved say no."""
    sent: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status = {"/503": 503, "/gone": 410, "/moved": 302}.get(self.path, 200)
            if status == 200:
                sent.append((self.headers["Content-Type"], json.loads(body)))
            self.send_response(status)
            if status == 302:
                self.send_header("Location", "/")
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    server.sent = sent  # type: ignore[attr-defined]
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def address(hook: HTTPServer, path: str = "/secret") -> str:
    return f"http://127.0.0.1:{hook.server_port}{path}"


def test_a_webhook_gets_the_message_as_json(hook: HTTPServer, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "a.json").write_text(json.dumps(RESULT))
    (tmp_path / "b.json").write_text(json.dumps(FAILURE))
    files = [str(tmp_path / "a.json"), str(tmp_path / "b.json")]
    assert main(["report", *files, "--webhook", address(hook), "--output", str(tmp_path / "out" / "r.html")]) == 1
    ((kind, sent),) = hook.sent  # type: ignore[attr-defined]
    assert kind.startswith("application/json")
    assert sent["blocks"][0]["text"]["text"] == "Table maintenance: 2 jobs, 1 need a look"
    html = (tmp_path / "out" / "r.html").read_text()
    assert html.count("data:image/png;base64,") == 1
    assert "secret" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("path", "code", "retryable"),
    [("/503", "WEBHOOK_FAILED", True), ("/gone", "WEBHOOK_REFUSED", False), ("/moved", "WEBHOOK_REFUSED", False)],
)
def test_a_webhook_that_says_no_is_told_without_its_address(
    hook: HTTPServer, path: str, code: str, retryable: bool
) -> None:
    with pytest.raises(Unavailable) as caught:
        post(address(hook, path), {"text": "x"})
    assert (caught.value.code, caught.value.retryable) == (code, retryable)
    assert path not in caught.value.message.removesuffix(path[1:])


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://x/y", "x", "http://"])
def test_only_http_addresses_are_posted_to(url: str) -> None:
    with pytest.raises(InvalidRequest, match="webhook is not an http"):
        post(url, {})


def test_markdown_has_its_picture_beside_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.json").write_text(json.dumps(RESULT))
    assert main(["report", str(tmp_path / "a.json"), "--output", str(tmp_path / "r.md")]) == 0
    assert "(r-1.png)" in (tmp_path / "r.md").read_text()
    assert (tmp_path / "r-1.png").read_bytes().startswith(b"\x89PNG")
    capsys.readouterr()
    assert main(["report", str(tmp_path / "a.json")]) == 0
    assert capsys.readouterr().out.startswith("# Table maintenance\n")


@pytest.mark.parametrize("text", ["[]", "{", '{"impact": {"files": 1}}'])
def test_a_file_that_is_no_result_is_a_wrong_argument(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.json").write_text(text)
    assert main(["report", str(tmp_path / "a.json")]) == 2
    assert capsys.readouterr().err.startswith("error: RESULT.json")
