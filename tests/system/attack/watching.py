"""Somebody else who uses the server all the while, and what its processes take."""

from __future__ import annotations

import http.client
import json
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.system.attack.attack import VICTIM
from tests.system.attack.scene import SECRET, VICTIM_ROWS, Scene, request

PAUSE_SECONDS = 0.5
LOOK_SECONDS = 0.1
OK = 200
PROC = Path("/proc")
HEALTH = {"operation": "HEALTH_CHECK"}
SMALL = {
    "operation": "QUERY",
    "tenant_id": VICTIM,
    "table": "orders",
    "sql": "SELECT count(*) AS n, min(note) AS note FROM t",
}
EXPECTED = [{"n": VICTIM_ROWS, "note": SECRET}]
CHILD = b"regelate.adapters.duckdb.query_main"


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One answer that somebody else got. `fault`: what was wrong with it, or nothing."""

    name: str
    begun: float
    """By `time.monotonic`, which is the system's."""
    seconds: float
    fault: str


@dataclass(kw_only=True)
class Watch:
    asked: list[Asked] = field(default_factory=list)
    server_mb: list[float] = field(default_factory=list)
    child_peaks_mb: dict[int, float] = field(default_factory=dict)
    """The most that each child has ever had resident, by its process id."""
    loads: list[float] = field(default_factory=list)

    def of(self, name: str) -> list[Asked]:
        return [asked for asked in self.asked if asked.name == name]


@contextmanager
def watching(scene: Scene) -> Iterator[Watch]:
    """Ask and look until the block is left: by a process of its own, so that nothing of the attack's slows it down."""
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    pids = (scene.server.pid, scene.handler.process.pid)
    process = spawn.Process(target=_watch, args=(theirs, scene.port, pids), daemon=True)
    process.start()
    ours.recv()
    watch = Watch()
    try:
        yield watch
    finally:
        ours.send("enough")
        found: Watch = ours.recv()
        watch.__dict__.update(found.__dict__)
        process.join()


def _watch(pipe: Any, port: int, pids: tuple[int, int]) -> None:
    found, stop = Watch(), threading.Event()
    looks: tuple[Callable[[], None], ...] = (
        lambda: _ask_on(found, stop, port, HEALTH, lambda answer: answer["catalog_reachable"] is True),
        lambda: _ask_on(found, stop, port, SMALL, lambda answer: answer["rows"] == EXPECTED),
        lambda: _look_on(found, stop, pids),
    )
    threads = [threading.Thread(target=look) for look in looks]
    for thread in threads:
        thread.start()
    pipe.send("begun")
    pipe.recv()
    stop.set()
    for thread in threads:
        thread.join()
    pipe.send(found)


def _ask_on(
    found: Watch, stop: threading.Event, port: int, body: dict[str, Any], is_right: Callable[[Any], bool]
) -> None:
    while not stop.wait(PAUSE_SECONDS):
        begun = time.monotonic()
        try:
            status, answer = request(port, json.dumps(body).encode())
            fault = "" if status == OK and is_right(json.loads(answer)) else f"{status} {answer[:300]!r}"
        except (OSError, http.client.HTTPException) as error:
            fault = repr(error)
        seconds = time.monotonic() - begun
        found.asked.append(Asked(name=str(body["operation"]), begun=begun, seconds=seconds, fault=fault))


def _look_on(found: Watch, stop: threading.Event, pids: tuple[int, int]) -> None:
    server, _ = pids
    while not stop.wait(LOOK_SECONDS):
        found.loads.append(os.getloadavg()[0])
        if mb := memory_mb(server, b"VmRSS:"):
            found.server_mb.append(mb)
        for pid in children(set(pids)):
            found.child_peaks_mb[pid] = max(memory_mb(pid, b"VmHWM:"), found.child_peaks_mb.get(pid, 0.0))


def memory_mb(pid: int, name: bytes) -> float:
    """Return a figure of /proc/PID/status; 0 for a process that is gone."""
    try:
        lines = (PROC / str(pid) / "status").read_bytes().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(name)), 0.0)


def children(parents: set[int]) -> list[int]:
    """Return the processes for queries that these processes have."""
    found = []
    for parent in parents:
        for task in _listed(PROC / str(parent) / "task"):
            try:
                pids = [int(pid) for pid in (task / "children").read_text().split()]
            except OSError:
                continue
            found += [pid for pid in pids if CHILD in _command(pid)]
    return found


def _listed(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _command(pid: int) -> bytes:
    try:
        return (PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return b""
