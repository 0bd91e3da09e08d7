"""One process that answers queries, as its parent sees it: started, asked, and ended when it takes too much.

The parent's word is final: whatever SQL has made of the child, it ends by SIGKILL once its time is over.
"""

from __future__ import annotations

import json
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import regelate
from regelate.adapters.duckdb.question import (
    HEADER,
    MAX_WORDS_BYTES,
    OUT_OF_MEMORY,
    Kind,
    Limits,
    Question,
    fault_of,
    out_of_memory,
    timed_out,
)
from regelate.errors import DataUnavailable, InvalidRequest, RegelateError, Unavailable, Unsupported

GRACE_SECONDS = 0.4
"""A child interrupts itself when the time of a query is over; so much later it is killed."""
LOOK_SECONDS = 0.05
"""Between two looks at a child that says nothing."""
REAP_SECONDS = 0.1
"""How long an answer waits for a killed child; the system may take longer to free its memory."""
FULL = 0.85
"""A child that ends by itself above this share of its memory is taken to have run out of it."""
SOUND = (InvalidRequest, DataUnavailable, Unavailable, Unsupported)
"""Errors after which a child is as good as before. One that ran out of memory may hang in its next query: what was
locked when an allocation failed stays so."""
MODULE = "regelate.adapters.duckdb.query_main"
INHERITED = (
    "CURL_CA_BUNDLE",
    "DYLD_LIBRARY_PATH",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "LD_LIBRARY_PATH",
    "NO_PROXY",
    "PYTHONDONTWRITEBYTECODE",
    "PYTHONPYCACHEPREFIX",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "TMPDIR",
    "http_proxy",
    "https_proxy",
    "no_proxy",
)
"""All that a child gets of this process's environment: how to load its libraries and how to reach a store."""
READY_BYTES = HEADER.size + 2
RECEIVED_BYTES = 256 * 1024
PROC = Path("/proc")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class ChildEndedError(Exception):
    """The child is gone, or speaks no frames any more."""


class QueryProcess:
    """A child and the pipe to it; it is asked one question at a time, by one thread.

    `memory_bytes`: what the child may take in all; `remote`: its first question is likely about a store. It starts at
    once and in the background: nobody waits for it but the first question.
    """

    def __init__(self, memory_bytes: int, *, remote: bool = False) -> None:
        if not sys.executable:
            raise Unavailable("ENGINE_UNAVAILABLE", "this Python does not know its own program", retryable=False)
        self._memory_bytes = memory_bytes
        self._peak_bytes = 0
        self.answered = 0
        ours, theirs = socket.socketpair()
        lifeline, held = os.pipe()
        self._held = os.fdopen(held, "wb", buffering=0)  # closed with this object, at the latest
        self._pipe = ours
        command = [
            sys.executable,
            "-S",
            "-P",
            "-m",
            MODULE,
            *map(str, (theirs.fileno(), lifeline, memory_bytes, int(remote))),
        ]
        try:
            self._process = subprocess.Popen(
                command,
                cwd="/",
                env=_environment(os.environ),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), lifeline),
                start_new_session=True,  # what the terminal sends, such as SIGINT, is not for it
            )
        except OSError as error:
            ours.close()
            self._held.close()
            raise Unavailable("ENGINE_UNAVAILABLE", f"no process for queries could be started: {error}") from error
        finally:
            theirs.close()
            os.close(lifeline)
        self._buffer = bytearray()
        self._received = dict.fromkeys(Kind, 0)
        self._ready = False

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def lives(self) -> bool:
        return not self._held.closed and self._process.poll() is None

    @property
    def ready(self) -> bool:
        """Whether it has started, so that a question need not wait."""
        if not self._ready and self.lives:
            looking = select.poll()
            looking.register(self._pipe, select.POLLIN)
            return bool(looking.poll(0))
        return self._ready

    @property
    def resident_bytes(self) -> int:
        """Return what the child takes now; 0 where the system does not tell."""
        try:
            return int((PROC / str(self.pid) / "statm").read_text(encoding="ascii").split()[1]) * PAGE_BYTES
        except (OSError, ValueError, IndexError):
            return 0

    def ask(self, question: Question, ends: float, take: Callable[[Kind, Any], None]) -> Any:
        """Hand every frame of an answer to `take`, rows as JSON values and lines as bytes; return the last one's words.

        `ends`: the moment, by `time.monotonic`, when the query's time is over. The child lives on only if it has
        answered to the end, and nothing failed in it but the query.
        """
        last = ends + GRACE_SECONDS
        sound = False
        self._received = dict.fromkeys(Kind, 0)
        try:
            sound = not self._ready  # it is not the query's fault if a start takes long
            self._await_start(ends, question)
            sound = False
            self._say(question, last)
            while True:
                kind, words = self._hear(question, last)
                if kind is Kind.FAULT:
                    sound = isinstance(words, SOUND)
                    raise words
                if kind is Kind.DONE:
                    sound = True
                    return words
                take(kind, words)
        finally:
            self.answered += 1
            if not sound:
                self.kill()

    def _await_start(self, ends: float, question: Question) -> None:
        try:
            while not self._ready and len(self._buffer) < READY_BYTES:
                self._buffer += self._receive(ends)
            if not self._ready:
                self._ready = self._frame(ends, question.limits)[0] is Kind.READY
        except TimeoutError:
            told = "the process for queries had not started when the time of the query was over; repeat"
            raise Unavailable("ENGINE_UNAVAILABLE", told) from None
        except (ChildEndedError, OSError, ValueError) as error:
            raise self._ended(question) from error

    def _say(self, question: Question, last: float) -> None:
        data = pickle.dumps(question)
        self._pipe.settimeout(max(last - time.monotonic(), 0.001))
        try:
            self._pipe.sendall(HEADER.pack(0, len(data)) + data)
        except TimeoutError:
            raise timed_out(question.limits.seconds) from None
        except OSError as error:
            raise self._ended(question) from error

    def _hear(self, question: Question, last: float) -> tuple[Kind, Any]:
        try:
            kind, data = self._frame(last, question.limits)
            words: Any = data if kind is Kind.LINES else json.loads(data, parse_constant=_no_number)
            return kind, fault_of(words) if kind is Kind.FAULT else judged(kind, words)
        except TimeoutError:
            raise timed_out(question.limits.seconds) from None
        except (ChildEndedError, OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise self._ended(question) from error

    def _frame(self, last: float, limits: Limits) -> tuple[Kind, bytes]:
        """Return the next frame; the child judges its answer by the same limits, and is not believed."""
        number, length = HEADER.unpack(self._take(HEADER.size, last))
        kind = Kind(number)
        self._received[kind] += length
        most = {Kind.ROWS: limits.max_bytes, Kind.LINES: limits.max_stored_bytes or 0}.get(kind, MAX_WORDS_BYTES)
        if self._received[kind] > most:
            raise ChildEndedError(f"{self._received[kind]} bytes of {kind.name}")
        return kind, self._take(length, last)

    def _take(self, length: int, last: float) -> bytes:
        while len(self._buffer) < length:
            self._buffer += self._receive(last)
        taken = bytes(memoryview(self._buffer)[:length])
        del self._buffer[:length]
        return taken

    def _receive(self, last: float) -> bytes:
        """Wait for the next bytes, looking at the child's memory all the while."""
        while True:
            left = last - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self._pipe.settimeout(min(left, LOOK_SECONDS))
            try:
                received = self._pipe.recv(RECEIVED_BYTES)
            except TimeoutError:
                self._look()
                continue
            if not received:
                raise ChildEndedError("the pipe is closed")
            return received

    def _look(self) -> None:
        self._peak_bytes = max(self._peak_bytes, self.resident_bytes)
        if self._peak_bytes > self._memory_bytes:
            raise ChildEndedError("above its memory")

    def _ended(self, question: Question) -> RegelateError:
        """Name what a child's end means to the caller, and make sure of it."""
        full = self._peak_bytes > FULL * self._memory_bytes
        with suppress(subprocess.TimeoutExpired):  # one that is about to end shows how
            self._process.wait(REAP_SECONDS)
        code = self._process.returncode
        self.kill()
        if full or code == OUT_OF_MEMORY:
            return out_of_memory()
        if code == -signal.SIGXCPU:
            return timed_out(question.limits.seconds)
        if not self._ready:
            how = "it gave no sign of life" if code is None else f"its exit code is {code}"
            return Unavailable("ENGINE_UNAVAILABLE", f"the process for queries did not start: {how}")
        if code in (-signal.SIGKILL, -signal.SIGTERM):
            return Unavailable("QUERY_INTERRUPTED", "the process that answered this query was ended from outside")
        return crashed(code)

    def kill(self) -> None:
        """End the child for good, whatever it is doing, and leave no zombie."""
        if self._held.closed:
            return
        self._pipe.close()
        self._held.close()
        self._process.kill()
        with suppress(subprocess.TimeoutExpired):  # subprocess itself reaps it later
            self._process.wait(REAP_SECONDS)


def crashed(code: int | None) -> InvalidRequest:
    """Name the end of a child that nobody wished for."""
    try:
        how = f"exit code {code}" if code is None or code >= 0 else signal.Signals(-code).name
    except ValueError:
        how = f"signal {-(code or 0)}"
    told = f"the engine ended while it answered this query ({how}), and so it would again; write the query differently"
    return InvalidRequest("QUERY_CRASHED", told, status=422)


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    kept = {name: environ[name] for name in INHERITED if name in environ}
    ours = str(Path(regelate.__file__).parents[1])
    return {
        **kept,
        "PYTHONPATH": os.pathsep.join(str(Path(entry).absolute()) for entry in (ours, *sys.path)),
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "ARROW_DEFAULT_MEMORY_POOL": "system",  # the others reserve more than a child may have
    }


def judged(kind: Kind, words: Any) -> Any:
    """Return the words of a frame if they have its form. Errors: KeyError, TypeError, ValueError."""
    if kind is Kind.COLUMNS and all(isinstance(column[part], str) for column in words for part in ("name", "type")):
        return words
    if kind is Kind.ROWS and isinstance(words, list) and all(isinstance(row, dict) for row in words):
        return words
    if kind is Kind.DONE and isinstance(words["row_count"], int) and isinstance(words["truncated"], bool):
        return words
    if kind is Kind.LINES:
        return words
    raise ValueError(f"no form of {kind.name}")


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is no JSON")
