"""`regelate serve`: the same dispatch behind a plain HTTP server, and the end of both.

Every route of http.py, and three of its own. The Lambda emulator's path takes an event and answers as Lambda would, and
so hands anybody the trust of a direct invoke; `/metrics` and `/fleet` name every tenant's tables. They exist only where
`auth` is none, and that is served to this machine alone.
"""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from os import _exit as end_now
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn

from regelate.core.jobs.exit_codes import FAILED
from regelate.entrypoints.fleet_turns import FleetTurns
from regelate.entrypoints.job_workers import DueJobs, JobWorkers
from regelate.entrypoints.log import adopt_libraries, logger
from regelate.entrypoints.server.connection import Connection
from regelate.entrypoints.server.door import Door
from regelate.entrypoints.server.hosts import host_names, is_loopback
from regelate.entrypoints.server.memory import keep_little_memory
from regelate.entrypoints.server.room import Room
from regelate.service.facade import Service
from regelate.settings import SettingsError

STOP_SECONDS = 8.0
"""What is under way when the end is asked for has so long; then the process ends without it."""
LAST_SECONDS = 9.5
"""Then it ends even where no line of ours runs any more."""
_BACKLOG = 4096
"""Connections that the system holds until they are taken; the client of one more tries again after a second."""
_TAKEN_AT_ONCE = 64
"""Connections that are taken before others are read from again."""
_LOOK_SECONDS = 0.02
_SWITCH_SECONDS = 0.001
"""So long a thread computes before another gets its turn, a fifth of Python's own: a small request asks for one a dozen
times, beside bodies of megabytes."""
_OPEN_FILES = 4096
"""For tables, spill files and the pipes of processes."""


class _Http(uvicorn.Server):
    """Leaves signals to `serve`, and waits for nobody for longer than it is told."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for bound in sockets or []:
            bound.listen(_BACKLOG)  # to asyncio one figure is both: how many are held, and how many are taken at once

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no more connections, end the idle ones, wait for the busy ones, abort those that are left."""
        for server in self.servers:
            server.close()
        state, deadline = self.server_state, time.monotonic() + STOP_SECONDS
        for connection in list(state.connections):
            connection.shutdown()
        while (state.connections or state.tasks) and time.monotonic() < deadline:
            await asyncio.sleep(_LOOK_SECONDS)
        for connection in list(state.connections):
            connection.transport.abort()
        await asyncio.sleep(0)  # each hears that it is lost


class Server:
    """One service on one socket. `allowed`: names it answers to beside this machine's own and `serve.hosts`.

    Errors: SettingsError INVALID_CONFIG where `auth` is none and others could reach it; OSError when the port is taken.
    """

    def __init__(self, host: str, port: int, service: Service, *, allowed: Sequence[str] = ()) -> None:
        settings = service.settings
        self._socket = _bound(host, port, only_here=settings.auth == "none")
        if settings.auth == "none":
            service.process.metrics_text()  # from now on they are kept
        self._door = Door(service, host_names(host, (*settings.serve.hosts, *allowed)))
        made: Any = partial(Connection, limits=settings.serve, room=Room(settings.serve.max_connections))
        self._http = _Http(
            uvicorn.Config(
                self._door,
                http=made,
                ws="none",
                lifespan="off",
                interface="asgi3",
                log_config=None,
                log_level=logging.CRITICAL,  # each request has its own line, and each fault
                access_log=False,
                proxy_headers=False,
                server_header=False,
                headers=[("Server", "regelate")],
                backlog=_TAKEN_AT_ONCE,
                timeout_keep_alive=settings.serve.idle_seconds,
                h11_max_incomplete_event_size=settings.serve.max_header_bytes,
            )
        )

    @property
    def port(self) -> int:
        return int(self._socket.getsockname()[1])

    @property
    def url(self) -> str:
        """Return where clients find it; with port 0 the port that the system chose."""
        host, port = self._socket.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    @property
    def connections(self) -> int:
        """Return how many clients are connected."""
        return len(self._http.server_state.connections)

    def run(self) -> int:
        """Serve until `stop`, answer what is under way, and return how many operations were not done even then."""
        with self._socket:
            asyncio.run(self._http.serve([self._socket]))
        self._door.close()
        return self._door.busy

    def stop(self) -> None:
        """Let `run` come to its end; from any thread, or a signal handler."""
        self._http.should_exit = True


def _bound(host: str, port: int, *, only_here: bool) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    address = socket.getaddrinfo(host or "0.0.0.0", port, family, socket.SOCK_STREAM)[0][4]
    if only_here and not is_loopback(str(address[0])):
        message = (
            f"with auth none every caller is every tenant, so it is served to this machine only, not on {host}: leave "
            "--host at 127.0.0.1 and let others in through a gateway or a tunnel that knows them, or set auth"
        )
        raise SettingsError("INVALID_CONFIG", message)
    return socket.create_server(address[:2], family=family, backlog=_BACKLOG)


def allow_open_files(connections: int) -> None:
    """Let this process hold so many connections beside its files, as far as the system lets it: shells allow 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + _OPEN_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def serve(
    host: str,
    port: int,
    service: Service,
    *,
    allowed: Sequence[str] = (),
    on_ready: Callable[[str], None] | None = None,
    jobs: DueJobs | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM, then finish what has arrived. Call it in the main thread. Errors: as `Server`.

    `on_ready` gets the URL; `jobs` are worked on beside, and the fleet is looked after. What is still under way after
    STOP_SECONDS ends with the process, as in a crash: exit code 1. A second signal ends it at once.
    """
    keep_little_memory()
    sys.setswitchinterval(_SWITCH_SECONDS)
    allow_open_files(2 * service.settings.serve.max_connections)  # for a moment there are twice as many
    server = Server(host, port, service, allowed=allowed)
    adopt_libraries()
    beside: list[JobWorkers | FleetTurns] = [] if jobs is None else [JobWorkers(jobs), FleetTurns(service)]
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    nowhere = Path(os.devnull).open("w")  # noqa: SIM115  a thread of faulthandler's writes to it at the very end

    deadline = float("inf")

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal deadline
        deadline = time.monotonic() + STOP_SECONDS
        for known in before:
            signal.signal(known, lambda again, _: end_now(128 + again))
        faulthandler.dump_traceback_later(LAST_SECONDS, exit=True, file=nowhere)
        server.stop()
        for workers in beside:
            workers.stop()

    for number in before:
        signal.signal(number, stop)
    if on_ready is not None:
        on_ready(server.url)
    left = server.run()
    left += sum(workers.wait(deadline - time.monotonic()) for workers in beside)
    if left:
        logger.warning("stopped amid operations; what they had not committed is not in the tables", operations=left)
        end_now(FAILED)
    faulthandler.cancel_dump_traceback_later()
    nowhere.close()
    for number, handler in before.items():
        signal.signal(number, handler)
