"""The scene of the attack: a lake of two tenants, a server, a Lambda handler, and baits that nobody may touch."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import re
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.system.attack.attack import ATTACKER, BODY_SECONDS, HEADER_SECONDS, QUERY_SECONDS, VICTIM

ROOT = Path(__file__).parents[3]
QUERY_MEMORY_MB = 384
QUERY_PROCESSES = 3
START_SECONDS = 60
PATIENCE_SECONDS = 30
"""How long an answer is waited for, whatever its limit: how late it is, is a figure too."""
SECRET = "CANARY-7f3a9c-of-the-victim"
BAIT = "CANARY-51d0be-in-a-file"
ENVIRONMENT_BAIT = "CANARY-c2e884-in-the-environment"
CANARIES = (SECRET, BAIT, ENVIRONMENT_BAIT, "root:x:0")
VICTIM_ROWS = 50
JsonObject = dict[str, Any]


def config(home: Path) -> JsonObject:
    """Return a config.json: `development` for the server, `staging`, with claims, for the handler."""
    lake = {
        "tenants": [ATTACKER, VICTIM],
        "default_catalog": "local",
        "catalogs": {
            "local": {
                "type": "sql",
                "uri": f"sqlite:///{home}/catalog.db?timeout=30",
                "warehouse": str(home / "warehouse"),
                "namespace_template": "{tenant_id}__{namespace}",
            }
        },
        "jobs": {"store": "sqlite", "path": f"{home}/jobs.db"},
    }
    limits = {
        "query_seconds": QUERY_SECONDS,
        "query_memory_mb": QUERY_MEMORY_MB,
        "query_processes": QUERY_PROCESSES,
    }
    return {
        "defaults": {
            "limits": limits,
            "placement": {"memory_mb": 1024, "threads": 2},
            "serve": {"header_seconds": HEADER_SECONDS, "body_seconds": BODY_SECONDS},
            "engines": ["duckdb"],
        },
        "environments": {"development": {**lake, "auth": "none"}, "staging": {**lake, "auth": "claims"}},
    }


@dataclass(kw_only=True)
class Scene:
    """Where everything is. `called` counts connections to a port that nothing may connect to."""

    home: Path
    bait: Path
    bait_port: int
    server: subprocess.Popen[bytes]
    port: int
    handler: Handler
    snapshot_ids: tuple[int, ...] = ()
    called: list[str] = field(default_factory=list)

    @property
    def warehouse(self) -> Path:
        return self.home / "warehouse"

    @property
    def victim_file(self) -> Path:
        return next((self.warehouse / f"{VICTIM}__default").rglob("*.parquet"))

    @property
    def own_file(self) -> Path:
        return next((self.warehouse / f"{ATTACKER}__default").rglob("*.parquet"))

    def ask(self, body: JsonObject) -> JsonObject:
        status, found = request(self.port, json.dumps(body).encode())
        if status != 200:
            raise RuntimeError(f"{body['operation']} answers {status}: {found}")
        return dict(json.loads(found))

    def digest(self) -> str:
        """Return one digest of everything that the attacker must not change."""
        found = hashlib.sha256()
        for folder in (self.warehouse / f"{VICTIM}__default", self.bait):
            for path in sorted(p for p in folder.rglob("*") if p.is_file()):
                found.update(str(path).encode() + b"\0" + path.read_bytes() + b"\0")
        found.update((self.home / "config.json").read_bytes())
        return found.hexdigest()


def request(
    port: int, body: bytes, method: str = "POST", path: str = "/database", headers: Mapping[str, str] | None = None
) -> tuple[int, bytes]:
    """Send one HTTP request on a connection of its own; return status and body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS)
    try:
        connection.request(method, path, body, dict(headers or {}))
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


class Handler:
    """The Lambda handler in a process of its own: an event a line goes in, an answer a line comes out."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._lock = threading.Lock()
        self.crashes = 0
        self._start()

    def _start(self) -> None:
        command = [sys.executable, "-m", "tests.system.attack.invoked"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=dict(self._environment), cwd=ROOT
        )

    def invoke(self, event: Any) -> tuple[JsonObject, float]:
        """Return `{"answer": ...}` or `{"raised": text}`, or `{"crashed": exit code}`, and its seconds.

        After a crash the next process is started. Events are handled one at a time, as Lambda does.
        """
        line = json.dumps(event) + "\n"
        with self._lock:
            begun = time.monotonic()
            return self._answered(line), time.monotonic() - begun

    def _answered(self, event: str) -> JsonObject:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(event)
            self.process.stdin.flush()
            ready = select.select([self.process.stdout], [], [], PATIENCE_SECONDS)[0]
            line = self.process.stdout.readline() if ready else ""
        except OSError:
            line = ""
        if line:
            return dict(json.loads(line))
        self.process.kill()
        self.crashes += 1
        code = self.process.wait()
        self._start()
        return {"crashed": code}

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


def _environment(home: Path, **more: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
    return {
        **kept,
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
        "HOME": str(home),
        "REGELATE_HOME": str(home),
        "REGELATE_CONFIG": str(home / "config.json"),
        "CANARY": ENVIRONMENT_BAIT,
        **more,
    }


@contextmanager
def _listening() -> Iterator[tuple[int, list[str]]]:
    """A port of this machine that takes note of who connects."""
    called: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def take() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    connection.settimeout(1)
                    with connection, suppress(OSError):
                        called.append(connection.recv(200).decode(errors="replace"))

        threading.Thread(target=take, daemon=True).start()
        yield listener.getsockname()[1], called


@contextmanager
def scene(folder: Path) -> Iterator[Scene]:
    """Start everything in this folder, fill the tables of both tenants, and end it all."""
    home, bait = folder / "home", folder / "bait"
    bait.mkdir()
    home.mkdir()
    (bait / "secret.csv").write_text(f"name\n{BAIT}\n")
    (bait / "secret.json").write_text(json.dumps([{"name": BAIT}]))
    (home / "config.json").write_text(json.dumps(config(home)))
    log = folder / "server.log"
    development = _environment(home, REGELATE_ENVIRONMENT="development")
    program = "import sys; from regelate.entrypoints.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", program, "serve", "--port", "0"]
    with (
        log.open("w") as written,
        subprocess.Popen(command, stdout=written, stderr=written, env=development, cwd=folder) as server,
        _listening() as (bait_port, called),
    ):
        handler = Handler(
            _environment(
                home,
                REGELATE_ENVIRONMENT="staging",
                AWS_LAMBDA_FUNCTION_NAME="regelate",
                AWS_LAMBDA_FUNCTION_MEMORY_SIZE="1769",
                AWS_DEFAULT_REGION="eu-central-1",
            )
        )
        try:
            made = Scene(
                home=home,
                bait=bait,
                bait_port=bait_port,
                server=server,
                port=_port_of(server, log),
                handler=handler,
                called=called,
            )
            _fill(made)
            yield made
        finally:
            handler.close()
            server.terminate()
            with suppress(subprocess.TimeoutExpired):
                server.wait(15)
            server.kill()


def _port_of(server: subprocess.Popen[bytes], log: Path) -> int:
    until = time.monotonic() + START_SECONDS
    while server.poll() is None and time.monotonic() < until:
        found = re.search(r"http://127\.0\.0\.1:(\d+)", log.read_text())
        if found:
            return int(found[1])
        time.sleep(0.1)
    raise RuntimeError(f"regelate serve does not start: {log.read_text()[-2000:]}")


def _fill(made: Scene) -> None:
    base = {"tenant_id": VICTIM, "table": "orders"}
    made.ask({**base, "operation": "CREATE_TABLE", "schema": {"fields": {"id": {"type": "long"}, "note": {"type": "string"}}}})  # fmt: skip
    made.ask({**base, "operation": "WRITE", "records": [{"id": n, "note": SECRET} for n in range(VICTIM_ROWS)]})
    for table in ("events", "spare", "altered"):
        own = {"tenant_id": ATTACKER, "table": table}
        made.ask({**own, "operation": "CREATE_TABLE", "schema": {"fields": COLUMNS}, "partition_spec": [{"source": "p", "transform": "identity"}]})  # fmt: skip
        for part in range(4):
            records = [record(n) for n in range(part * 50, part * 50 + 50)]
            wrote = made.ask({**own, "operation": "WRITE", "records": records})
            made.snapshot_ids += (wrote["snapshot_id"],) if table == "events" else ()


COLUMNS: Mapping[str, JsonObject] = {
    "id": {"type": "long"},
    "p": {"type": "int"},
    "name": {"type": "string"},
    "day": {"type": "date"},
    "amount": {"type": "decimal(12,2)"},
    "ratio": {"type": "double"},
    "at": {"type": "timestamptz"},
    "raw": {"type": "binary"},
    "tags": {"type": "list", "element": {"type": "string"}},
    "who": {"type": "struct", "fields": {"name": {"type": "string"}, "age": {"type": "int"}}},
    "marks": {"type": "map", "key": {"type": "string"}, "value": {"type": "string"}},
}


def record(number: int) -> JsonObject:
    return {
        "id": number,
        "p": number % 3,
        "name": f"name {number}",
        "day": "2025-01-17",
        "amount": "12.50",
        "ratio": number / 7,
        "at": "2025-01-17T05:00:00Z",
        "raw": "AAEC",
        "tags": ["a", "b"],
        "who": {"name": "x", "age": number % 90},
        "marks": {"a": "b"},
    }
