"""What the catalog does to a request besides the rows: out of reach, or the table gone in the middle."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.entrypoints.fakes import LambdaContext
from tests.support.answers import check_answer
from tests.support.iceberg_tables import rows
from tests.system.faults.hooks import Hooked
from tests.system.faults.stack import LOCAL_CATALOG, Stack, request, stack_with

WRITES: list[dict[str, Any]] = [{"mode": "append"}, {"mode": "upsert", "key": ["id"]}, {"mode": "overwrite_partitions"}]


def out_of_reach(kind: str, folder: Path) -> dict[str, str]:
    """Return a catalog that cannot be opened, or not be asked."""
    if kind == "rest":
        return {"type": "rest", "uri": "http://127.0.0.1:9"}
    if kind == "folder is a file":
        (folder / "file").write_text("")
        return {**LOCAL_CATALOG, "uri": f"sqlite:///{folder}/file/catalog.db"}
    (folder / "catalog.db").write_bytes(b"no database " * 100)
    return {**LOCAL_CATALOG, "uri": f"sqlite:///{folder}/catalog.db"}


@pytest.mark.parametrize("kind", ["rest", "folder is a file", "no database"])
def test_health_says_that_the_catalog_cannot_be_reached_and_is_itself_well(tmp_path: Path, kind: str) -> None:
    catalog = out_of_reach(kind, tmp_path)
    stack = stack_with(tmp_path / "lake", auth="none", tenants="*", catalogs={"local": catalog})
    for _ in range(2):
        status, answer = stack.post({"operation": "HEALTH_CHECK"})
        check_answer("HEALTH_CHECK", answer)
        assert (status, answer["catalog_reachable"]) == (200, False)
    status, answer = stack.post(request("QUERY", "t"))
    assert (status, answer["error"]["code"]) in ((503, "CATALOG_UNAVAILABLE"), (503, "STORAGE_UNAVAILABLE"))
    assert answer["error"]["retryable"]


@contextmanager
def rest_catalog(answers: Mapping[str, str]) -> Iterator[str]:
    """Serve a REST catalog that answers 200 and this text by the last part of the path, else an empty object."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = answers.get(self.path.partition("?")[0].rpartition("/")[2], "{}").encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


PAGE = "<html><body>We are down for maintenance</body></html>"


@pytest.mark.parametrize(
    ("answers", "status", "code"),
    [
        ({"config": PAGE}, 503, "CATALOG_UNAVAILABLE"),
        ({"t": PAGE}, 503, "CATALOG_UNAVAILABLE"),
        ({"t": '{"metadata": {"format-ver'}, 503, "CATALOG_UNAVAILABLE"),
        ({"t": "[]"}, 503, "CATALOG_UNAVAILABLE"),
        ({"t": '{"metadata-location": "s3://b/m", "metadata": {"format-version": 2}}'}, 424, "METADATA_CORRUPT"),
        ({"t": '{"metadata-location": "s3://b/m", "metadata": {"format-version": 9}}'}, 501, "UNSUPPORTED_TABLE"),
    ],
)
def test_a_catalog_that_answers_what_is_no_answer_is_unavailable_and_no_table_is_called_damaged(
    tmp_path: Path, answers: Mapping[str, str], status: int, code: str
) -> None:
    with rest_catalog(answers) as uri:
        catalog = {"type": "rest", "uri": uri}
        stack = stack_with(tmp_path / "lake", auth="none", tenants="*", catalogs={"rest": catalog})
        error = stack.refused(status, code, [], request("COMPACT", "t"))
    assert error["retryable"] == (status == 503)
    assert "maintenance" not in error["message"]


@pytest.mark.parametrize("context", [{"stage": "$default"}, {}], ids=["of a gateway", "made by hand"])
def test_database_takes_no_get_and_says_what_it_takes(stack: Stack, context: dict[str, str]) -> None:
    event = {
        "version": "2.0",
        "rawPath": "/database",
        "requestContext": {"http": {"method": "GET", "path": "/database"}, **context},
    }
    answer = stack._handler(event, LambdaContext())  # type: ignore[arg-type]  # what it reads of a context
    assert (answer["statusCode"], answer["headers"]["Allow"]) == (405, "POST")
    assert json.loads(answer["body"])["error"]["code"] == "METHOD_NOT_ALLOWED"


@pytest.fixture
def interrupted(tmp_path: Path) -> Stack:
    """A table of three files, and a service that a test can step into once an operation has loaded it."""
    made = Stack(tmp_path)
    made.built = Hooked(tmp_path)
    made.create("t", {"id": "long!", "v": "string"})
    for number in range(3):
        made.ok("WRITE", "t", records=[{"id": number, "v": "a"}])
    return made


def then(stack: Stack, act: Callable[[], object]) -> None:
    assert isinstance(stack.built, Hooked)
    stack.built.after_load.append(act)


@pytest.mark.parametrize("mode", WRITES, ids=lambda mode: mode["mode"])
def test_a_table_dropped_between_is_not_found_and_no_file_is_left(interrupted: Stack, mode: dict[str, Any]) -> None:
    before = interrupted.stored()
    then(interrupted, lambda: interrupted.built.catalog().drop_table("default.t"))
    body = request("WRITE", "t", records=[{"id": 1, "v": "b"}], **mode)
    interrupted.refused(404, "TABLE_NOT_FOUND", ["default.t", "check"], body)
    after = interrupted.stored()
    assert after.tables == {}
    assert after.files == before.files


@pytest.mark.parametrize("mode", WRITES, ids=lambda mode: mode["mode"])
def test_a_table_dropped_and_made_again_between_gets_none_of_the_old_ones_rows(
    interrupted: Stack, mode: dict[str, Any]
) -> None:
    def replace() -> None:
        interrupted.built.catalog().drop_table("default.t")
        interrupted.create("t", {"v": "string", "id": "long"}, properties={"location": location})
        interrupted.ok("WRITE", "t", records=[{"id": 7, "v": "new"}])

    location = f"{(interrupted.folder / 'warehouse').as_uri()}/again"
    old = interrupted.stored().files
    then(interrupted, replace)
    body = request("WRITE", "t", records=[{"id": 1, "v": "b"}], **mode)
    error = interrupted.refused(409, "TABLE_REPLACED", ["made again", "look at it first"], body)
    assert not error["retryable"]
    table = interrupted.table("default.t")
    assert rows(table) == [("new", 7)]
    assert len(table.snapshots()) == 1
    assert {path for path in interrupted.stored().files if "/again/" not in path} == set(old)


def test_a_compaction_of_a_table_dropped_between_is_not_found_and_leaves_nothing(interrupted: Stack) -> None:
    before = interrupted.stored()
    then(interrupted, lambda: interrupted.built.catalog().drop_table("default.t"))
    interrupted.refused(404, "TABLE_NOT_FOUND", ["default.t"], request("COMPACT", "t", force=True))
    assert interrupted.stored().files == before.files
