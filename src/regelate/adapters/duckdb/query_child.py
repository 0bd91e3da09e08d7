"""What a process that answers queries does: it has no power of its own, and one question at a time.

It imports DuckDB and Arrow and nothing that could change a table.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import math
import os
import pickle
import resource
import select
import shutil
import signal
import socket
import sys
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from regelate.adapters.duckdb.collect import collect
from regelate.adapters.duckdb.duckdb_errors import located
from regelate.adapters.duckdb.guard import guard
from regelate.adapters.duckdb.question import (
    HEADER,
    MB,
    OUT_OF_MEMORY,
    Kind,
    Question,
    as_words,
    out_of_memory,
    send,
)
from regelate.adapters.duckdb.sandbox import Deadline, lock, plain_message, query_fault
from regelate.adapters.duckdb.session import EXTENSIONS, LOCAL_EXTENSIONS, connect, settle
from regelate.adapters.duckdb.sql import identifier
from regelate.errors import InvalidRequest, InvariantViolated, RegelateError

LEAST_ENGINE_BYTES = 64 * MB
ENGINE_SHARE = 0.8
"""Of the memory that is left when everything is loaded, what the engine's own limit may name: it does not count all."""
SPILL_SHARE = 0.25
"""Of the disk that is free when a query begins."""
CPU_SECONDS_BESIDE = 5
MAX_FILES = 8_192
PR_SET_NO_NEW_PRIVS = 38
OOM_SCORE = Path("/proc/self/oom_score_adj")
STATM = Path("/proc/self/statm")


def serve(pipe: socket.socket, lifeline: int, memory_bytes: int, *, remote: bool) -> None:
    """Answer the questions that come by the pipe, until the parent is gone."""
    end_with(lifeline)
    try:
        Child(pipe, memory_bytes, remote=remote).answer_all()
    except MemoryError:
        os._exit(OUT_OF_MEMORY)
    except (BrokenPipeError, ConnectionResetError, EOFError):
        os._exit(0)  # the parent has gone


def end_with(lifeline: int) -> None:
    """Have the system end this process, whatever it is doing, when its parent closes the other end or dies.

    Linux only: elsewhere a process that waits ends by itself, and one that works does after its query.
    """
    if not hasattr(os, "O_ASYNC") or not sys.platform.startswith("linux"):
        return
    signal.signal(signal.SIGIO, signal.SIG_DFL)  # whose default is to end
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(lifeline, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    if select.select([lifeline], [], [], 0)[0]:  # it was faster
        os._exit(0)


def confine(memory_bytes: int) -> int:
    """Give up what a query needs not, and return the bytes that the engine's own limit may name.

    What counts against memory is what is written (RLIMIT_DATA): DuckDB and threads reserve addresses by the gigabyte,
    so a limit on those would either bind nothing or kill sound queries. The pages of programs and libraries come on
    top of it and are taken off beforehand.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = MAX_FILES if most == resource.RLIM_INFINITY else min(MAX_FILES, most)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    with suppress(OSError):  # of two processes without memory, the system is to end this one
        OOM_SCORE.write_text("1000", encoding="ascii")
    if sys.platform.startswith("linux"):
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    resident, shared = _pages()
    data = max(memory_bytes - shared, LEAST_ENGINE_BYTES)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (data, data))
    return max(int((memory_bytes - resident) * ENGINE_SHARE), LEAST_ENGINE_BYTES)


def _pages() -> tuple[int, int]:
    """Return what is resident now, and how much of it are pages of files; (0, 0) where the system does not tell."""
    try:
        _, resident, shared, *_ = map(int, STATM.read_text(encoding="ascii").split())
    except (OSError, ValueError):
        return 0, 0
    return resident * resource.getpagesize(), shared * resource.getpagesize()


class Child:
    """Answers questions of one parent, each in a session of its own, the next of which is opened in advance."""

    def __init__(self, pipe: socket.socket, memory_bytes: int, *, remote: bool) -> None:
        self._pipe = pipe
        self._extensions = EXTENSIONS if remote else LOCAL_EXTENSIONS
        self._next = connect(self._extensions)
        self._engine_bytes = confine(memory_bytes)

    def answer_all(self) -> None:
        """Answer until the parent closes the pipe."""
        self._say(Kind.READY, b"{}")
        while True:
            _, length = HEADER.unpack(self._read(HEADER.size))
            question: Question = pickle.loads(self._read(length))
            os.chdir(question.folder)
            try:
                done = self._answer(question)
            except RegelateError as fault:
                self._say(Kind.FAULT, as_words(fault))
            else:
                self._say(Kind.DONE, done)
            os.chdir("/")
            self._next = connect(self._extensions)

    def _read(self, length: int) -> bytes:
        data = bytearray()
        while len(data) < length:
            received = self._pipe.recv(length - len(data))
            if not received:
                raise EOFError
            data += received
        return bytes(data)

    def _say(self, kind: Kind, data: bytes) -> None:
        send(self._pipe, kind, data)

    def _answer(self, question: Question) -> bytes:
        limit_processor(question)
        sql = question.statement.text if question.names else ""
        try:
            if question.names:
                guard(sql, question.names, question.qualified)
            return json.dumps(self._run(question, sql)).encode()
        except RegelateError:
            raise
        except RecursionError:
            raise InvalidRequest("QUERY_NOT_ALLOWED", "the statement or a value is nested too deeply") from None
        except MemoryError:
            raise out_of_memory() from None
        except Exception as error:
            told = f"the query failed in the engine: {type(error).__name__}: {plain_message(str(error), sql)}"
            raise InvariantViolated("ENGINE_FAULT", told) from error

    def _run(self, question: Question, sql: str) -> dict[str, Any]:
        limits, connection = question.limits, self._session(question)
        with closing(connection), Deadline(connection, limits.seconds) as deadline:
            try:
                lock(connection, question.files)
                views = [identifier(name) for name in question.names]
                if question.qualified is not None:
                    schema, name = map(identifier, question.qualified)
                    connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
                    views.append(f"{schema}.{name}")
                for view in views:
                    connection.execute(f"CREATE VIEW IF NOT EXISTS {view} AS {question.source}")
                result = connection.execute(question.statement.text, question.statement.parameters)
                return collect(result, deadline, limits, question.labels, self._say)
            except (duckdb.Error, OSError, pa.ArrowException) as error:
                fault = query_fault(
                    error, question.scanned, limits.seconds, sql, reread=lambda: fault_of_reading(connection, question)
                )
                raise located(fault, lambda: connection, question.scanned) from error

    def _session(self, question: Question) -> duckdb.DuckDBPyConnection:
        if question.remote and self._extensions != EXTENSIONS:
            self._extensions = EXTENSIONS
            self._next.close()
            self._next = connect(EXTENSIONS)
        folder = Path(question.folder)
        settle(
            self._next,
            memory_bytes=self._engine_bytes,
            threads=question.threads,
            folder=folder,
            store=question.store,
        )
        spill_bytes = int(shutil.disk_usage(folder).free * SPILL_SHARE)
        self._next.execute(f"SET max_temp_directory_size = '{spill_bytes}B'")
        return self._next


def fault_of_reading(connection: duckdb.DuckDBPyConnection, question: Question) -> Exception | None:
    """Return what fails when the table is read whole, without anything that a caller wrote."""
    try:
        connection.execute(f"SELECT max(hash(COLUMNS(*))) FROM ({question.source})").fetchall()
    except (duckdb.Error, OSError) as error:
        return error
    return None


def limit_processor(question: Question) -> None:
    """Let the system end this process when it has worked for longer than all threads of a query may."""
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    used = resource.getrusage(resource.RUSAGE_SELF)
    spent = used.ru_utime + used.ru_stime
    seconds = math.ceil(spent + question.limits.seconds * (question.threads + 1)) + CPU_SECONDS_BESIDE
    resource.setrlimit(resource.RLIMIT_CPU, (seconds if most == resource.RLIM_INFINITY else min(seconds, most), most))
