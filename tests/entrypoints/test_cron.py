"""integrations/cron as cron runs it: a process of its own, against the real server over a real lake."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import httpx
import pytest

from regelate.core.requests import CompactRequest
from regelate.errors import Unavailable
from regelate.service.build import build
from regelate.settings import load_settings
from tests.entrypoints.fakes import REPOSITORY, FakeService
from tests.entrypoints.serving import serving

CRON = REPOSITORY / "integrations" / "cron"
SCRIPT = CRON / "trigger-compaction.sh"


def run(url: str, tables: Path, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "REGELATE_URL": url, "REGELATE_WAIT": "0", **more}
    return subprocess.run([SCRIPT, tables], env=environment, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    path = tmp_path / "tables"
    path.write_text("# nightly\n\ndefault.users\ndefault.nowhere\ndefault.sales acme")  # without a last line end
    return path


def test_every_table_is_compacted_and_one_that_fails_holds_up_no_other(tmp_path: Path, tables: Path) -> None:
    with serving(build(load_settings({"REGELATE_HOME": str(tmp_path / "lake")}))) as server:
        for table in ("users", "sales"):
            address = {"tenant_id": "acme", "table": table}
            schema = {"fields": {"a": {"type": "long"}}}
            create = {"operation": "CREATE_TABLE", **address, "schema": schema}
            httpx.post(f"{server.url}/database", json=create, timeout=60)
            for number in range(4):
                write = {"operation": "WRITE", **address, "records": [{"a": number}]}
                assert httpx.post(f"{server.url}/database", json=write, timeout=60).status_code == 200
        first, again = run(server.url, tables), run(server.url, tables)
    assert first.stdout.splitlines() == [
        "default.users: COMPLETED, 4 -> 1 files",
        "default.sales: COMPLETED, 4 -> 1 files",
    ]
    assert (first.returncode, first.stderr) == (1, "default.nowhere: FAILED, TABLE_NOT_FOUND\n")
    assert re.findall(r"ALREADY_DONE", again.stdout) == ["ALREADY_DONE"] * 2


def test_what_may_succeed_later_is_tried_again_and_what_cannot_is_not(tables: Path) -> None:
    service, asked = FakeService(preset=["default.users", "default.sales"]), []

    def failing(address: object, request: CompactRequest, **_: object) -> dict[str, object]:
        asked.append(request.idempotency_key or "")
        raise Unavailable("CATALOG_UNAVAILABLE", "not now", retryable="users" in str(address))

    service.compact = failing  # type: ignore[assignment]
    with serving(service) as server:
        done = run(server.url, tables, REGELATE_TRIES="3")
    assert done.returncode == 1
    assert [key.rpartition("-")[2] for key in asked] == ["default.users"] * 3 + ["default.nowhere", "default.sales"]
    assert done.stderr.splitlines()[0] == "default.users: FAILED, CATALOG_UNAVAILABLE"


def test_a_server_that_is_not_there_is_tried_again_and_then_told(tables: Path) -> None:
    with serving(FakeService()) as server:
        gone = server.url
    done = run(gone, tables, REGELATE_TRIES="2")
    assert (done.returncode, done.stderr.splitlines()[0]) == (1, "default.users: FAILED, NO_ANSWER")


def test_a_token_is_sent_and_stands_in_no_process_list(tables: Path, tmp_path: Path) -> None:
    spy = tmp_path / "curl"
    spy.write_text('#!/usr/bin/env bash\nprintf "%s\\n" "$@" >> "$SEEN"\nexec "$REAL" "$@"\n')
    spy.chmod(0o755)
    real = subprocess.run(["which", "curl"], capture_output=True, text=True, check=True).stdout.strip()
    seen, service = tmp_path / "seen", FakeService(preset=["default.users", "default.sales"])
    with serving(service) as server:
        path = f"{tmp_path}:{os.environ['PATH']}"
        run(server.url, tables, PATH=path, REAL=real, SEEN=str(seen), REGELATE_TOKEN="eyJ.secret")
    assert "secret" not in seen.read_text()
    assert len(service.calls) == 3


def test_the_crontab_line_names_the_script_where_it_is_installed() -> None:
    readme = (CRON / "README.md").read_text()
    line = re.search(r"^0 2 \* \* \* (?:\w+=\S+ )*(\S+) (\S+)$", readme, re.MULTILINE)
    assert line
    assert line[1] == f"/usr/local/bin/{SCRIPT.name}"
    assert f"sudo install {SCRIPT.name} /usr/local/bin/" in readme
    assert line[2] in readme.replace(line[0], "")


def test_a_list_that_cannot_be_read_is_an_error_of_its_own(tmp_path: Path) -> None:
    done = run("http://127.0.0.1:9", tmp_path / "none")
    assert (done.returncode, done.stdout) == (2, "")
