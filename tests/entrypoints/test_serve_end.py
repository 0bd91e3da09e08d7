"""The end of `regelate serve`: a process of its own, a signal, and clients that do nothing to help."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from urllib.parse import urlsplit

import httpx
import pytest

from tests.entrypoints.fakes import REPOSITORY
from tests.entrypoints.test_serve_wire import BODY, GET, LENGTH, post

PROMISED_SECONDS = 10
"""Within these the process ends, whatever clients do."""
PROGRAM = """
import threading
from regelate.entrypoints.serve import serve
from tests.entrypoints.fakes import FakeService

class Jobs:
    job_threads, job_bell = 1, threading.Event()

    def run_due_job(self, *, stopping):
        print("job", flush=True)
        threading.Event().wait()

def never(spec):
    print("inside", flush=True)
    threading.Event().wait()

service = FakeService(preset=["default.users", "default.large"])
service.known["default.large"].rows = [{"text": "x" * 1_000_000} for _ in range(30)]
service.before_query = lambda spec: never(spec) if spec.limit == 1 else None
serve("127.0.0.1", 0, service, on_ready=lambda url: print(url, flush=True), jobs=JOBS)
print("stopped", flush=True)
"""
Clients = Callable[[ExitStack, tuple[str, int]], None]


@contextmanager
def running(*, jobs: bool = False) -> Iterator[tuple[subprocess.Popen[str], tuple[str, int]]]:
    environment = {**os.environ, "PYTHONPATH": f"{REPOSITORY / 'src'}{os.pathsep}{REPOSITORY}"}
    program = [sys.executable, "-c", PROGRAM.replace("JOBS)", "Jobs())" if jobs else "None)")]
    with subprocess.Popen(
        program, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(1 + jobs)]
            assert ("job\n" in lines) is jobs
            url = urlsplit(next(line for line in lines if line.startswith("http")).strip())
            yield process, ("127.0.0.1", url.port or 0)
        finally:
            process.kill()


def sent(held: ExitStack, address: tuple[str, int], data: bytes) -> socket.socket:
    connection = held.enter_context(socket.create_connection(address, timeout=30))
    connection.sendall(data)
    return connection


def half_sent(held: ExitStack, address: tuple[str, int]) -> None:
    for _ in range(400):
        sent(held, address, GET)


def trickling(held: ExitStack, address: tuple[str, int]) -> None:
    for number in range(100):
        sent(held, address, post(LENGTH, BODY[: number % len(BODY)]))
        sent(held, address, post(b"Transfer-Encoding: chunked\r\n", b"1\r\n{\r\n"))


def never_reading(held: ExitStack, address: tuple[str, int]) -> None:
    body = BODY.replace(b"users", b"large")
    for _ in range(4):
        asking = sent(held, address, post(b"Content-Length: %d\r\n" % len(body), body))
        assert asking.recv(10) == b"HTTP/1.1 2"


def silent(held: ExitStack, address: tuple[str, int]) -> None:
    for _ in range(50):
        sent(held, address, b"")


def all_of_them(held: ExitStack, address: tuple[str, int]) -> None:
    for clients in (half_sent, trickling, never_reading, silent):
        clients(held, address)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("clients", [half_sent, trickling, never_reading, silent, all_of_them])
def test_a_signal_ends_the_process_in_time_whatever_clients_do(clients: Clients, number: signal.Signals) -> None:
    with running() as (process, address), ExitStack() as held:
        clients(held, address)
        assert httpx.get(f"http://127.0.0.1:{address[1]}/health", timeout=30).status_code == 200
        process.send_signal(number)
        assert process.wait(PROMISED_SECONDS) == 0
        assert process.stdout is not None
        assert process.stdout.read() == "stopped\n"


@pytest.mark.slow
def test_an_operation_that_does_not_end_ends_with_the_process() -> None:
    body = BODY[:-1] + b', "limit": 1}'
    with running() as (process, address), ExitStack() as held:
        asking = sent(held, address, post(b"Content-Length: %d\r\n" % len(body), body))
        all_of_them(held, address)
        assert process.stdout is not None
        assert process.stdout.readline() == "inside\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(PROMISED_SECONDS) == 1
        assert asking.recv(1) == b""


@pytest.mark.slow
def test_a_job_that_does_not_end_ends_with_the_process() -> None:
    with running(jobs=True) as (process, _):
        process.send_signal(signal.SIGTERM)
        assert process.wait(PROMISED_SECONDS) == 1


def test_a_process_that_may_open_few_files_asks_for_as_many_as_its_connections_take() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        with running() as (process, _):
            found = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert found[0] == min(2 * 512 + 4096, hard)


def test_a_second_signal_ends_the_process_at_once() -> None:
    body = BODY[:-1] + b', "limit": 1}'
    with running() as (process, address), ExitStack() as held:
        sent(held, address, post(b"Content-Length: %d\r\n" % len(body), body))
        idle = sent(held, address, b"")
        assert process.stdout is not None
        assert process.stdout.readline() == "inside\n"
        process.send_signal(signal.SIGTERM)
        assert idle.recv(1) == b""  # it has begun to stop
        process.send_signal(signal.SIGTERM)
        assert process.wait(PROMISED_SECONDS) == 128 + signal.SIGTERM
