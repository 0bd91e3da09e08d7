"""Attacks sent, and what came back: status, code, how long it took, and whether it holds what nobody may see."""

from __future__ import annotations

import http.client
import json
import re
import select
import socket
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

from tests.system.attack.attack import CLOSED, Attack, Bytes, Door, Post
from tests.system.attack.scene import CANARIES, PATIENCE_SECONDS, Scene, request

CONNECTIONS_AT_ONCE = 200
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
UNANSWERED = "no answer"
NOT_CONNECTED = "not connected"
INSIDES = re.compile(r"Traceback|\.py\"?, line \d|0x[0-9a-f]{8,}|\.cpp|::\w+\(|MANGLED|CREATE VIEW", re.ASCII)
"""What no answer may show: stacks, addresses, and SQL of ours."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """`answers`: each `status CODE` that came, and how often. `leaks`: what an answer showed that it must not."""

    attack: Attack
    answers: dict[str, int]
    begun: float
    """By `time.monotonic`."""
    seconds: float
    leaks: tuple[str, ...]

    @property
    def is_allowed(self) -> bool:
        return set(self.answers) <= self.attack.allowed

    @property
    def is_in_time(self) -> bool:
        return self.seconds <= self.attack.limit + 1

    @property
    def told(self) -> str:
        if list(self.answers.values()) == [1]:
            return next(iter(self.answers))
        return ", ".join(f"{number} x {answer}" for answer, number in sorted(self.answers.items()))


Sent = tuple[str, str, float]
"""The answer as `status CODE`, its text, and its seconds."""


def sent(scene: Scene, attack: Attack) -> Outcome:
    """Send an attack by its door, all copies at once, and wait for every answer."""
    begun = time.monotonic()
    if isinstance(attack.request, Bytes):
        found = _on_the_wire(scene.port, attack)
    elif attack.copies == 1:
        found = [_sent_once(scene, attack)]
    else:
        with ThreadPoolExecutor(attack.copies) as threads:
            found = list(threads.map(lambda _: _sent_once(scene, attack), range(attack.copies)))
    answers: dict[str, int] = {}
    for answer, _, _ in found:
        answers[answer] = answers.get(answer, 0) + 1
    texts = "\n".join({text for _, text, _ in found})
    return Outcome(
        attack=attack,
        answers=answers,
        begun=begun,
        seconds=max(seconds for _, _, seconds in found),
        leaks=_leaks(attack, texts),
    )


def _leaks(attack: Attack, text: str) -> tuple[str, ...]:
    asked = attack.shown + (attack.request.body.decode(errors="replace") if isinstance(attack.request, Post) else "")
    insides = [found.group() for found in INSIDES.finditer(text) if found.group() not in asked]
    return tuple(dict.fromkeys([canary for canary in CANARIES if canary in text] + insides[:3]))


def _sent_once(scene: Scene, attack: Attack) -> Sent:
    begun = time.monotonic()
    if attack.door is Door.HANDLER:
        answered, seconds = scene.handler.invoke(attack.request)
        return *_of_handler(answered), seconds
    wanted: Post = attack.request
    try:
        status, body = request(scene.port, wanted.body, wanted.method, wanted.path, wanted.headers)
    except TimeoutError:
        return UNANSWERED, "", time.monotonic() - begun
    except ConnectionRefusedError:
        return NOT_CONNECTED, "", time.monotonic() - begun
    except (OSError, http.client.HTTPException):
        return CLOSED, "", time.monotonic() - begun
    return _told(status, body), body.decode(errors="replace"), time.monotonic() - begun


def _told(status: int, body: bytes) -> str:
    try:
        found = json.loads(body)
        return f"{status} {found['error']['code']}"
    except (ValueError, KeyError, TypeError):
        return str(status)


def _of_handler(found: dict[str, Any]) -> tuple[str, str]:
    text = json.dumps(found)
    if "crashed" in found:
        return f"crashed ({found['crashed']})", text
    if "raised" in found:
        raised = re.match(r"\w+: ([A-Z_]+)\b", found["raised"])
        return f"raised {raised[1] if raised else found['raised'][:60]}", text
    answer = found["answer"]
    if "statusCode" in answer:
        return _told(answer["statusCode"], answer["body"].encode()), text
    if "batchItemFailures" in answer:
        return f"{len(answer['batchItemFailures'])} of a batch failed", text
    error = answer.get("error")
    return (f"direct {error['code']}" if error else "direct success"), text


# --- bytes on sockets ---------------------------------------------------------------------------------------------


def _on_the_wire(port: int, attack: Attack) -> list[Sent]:
    """Open all connections, send on each, and wait until each is answered or closed."""
    with ExitStack() as held:
        begun = time.monotonic()
        open_ones: list[socket.socket] = []
        found: list[Sent] = []
        for _ in range(attack.copies):
            try:
                connection = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS)
            except OSError:
                found.append((NOT_CONNECTED, "", time.monotonic() - begun))
                continue
            open_ones.append(held.enter_context(connection))
        return found + _conversations(open_ones, attack.request, begun)


def _conversations(connections: list[socket.socket], wanted: Bytes, begun: float) -> list[Sent]:
    received = dict.fromkeys(connections, b"")
    ended: dict[socket.socket, float] = {}

    def listen(seconds: float) -> None:
        until = time.monotonic() + seconds
        while waiting := [c for c in connections if c not in ended]:
            for connection in select.select(waiting, [], [], max(until - time.monotonic(), 0))[0]:
                try:
                    piece = connection.recv(65_536)
                except OSError:
                    piece = b""
                received[connection] += piece
                if not piece or _is_whole(received[connection]):
                    ended[connection] = time.monotonic() - begun
            if time.monotonic() >= until:
                return

    for piece in wanted.pieces:
        for connection in [c for c in connections if c not in ended]:
            with suppress(OSError):  # what has been answered is read below
                connection.sendall(piece)
        listen(wanted.pause)
    if wanted.half_close:
        for connection in [c for c in connections if c not in ended]:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_WR)
    listen(PATIENCE_SECONDS)
    return [(*_of_wire(received[c], c in ended), ended.get(c, time.monotonic() - begun)) for c in connections]


def _is_whole(data: bytes) -> bool:
    data = data.removeprefix(CONTINUE)
    head, separator, body = data.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
    return bool(separator) and length is not None and len(body) >= int(length[1])


def _of_wire(data: bytes, is_ended: bool) -> tuple[str, str]:
    if not data:
        return (CLOSED if is_ended else UNANSWERED), ""
    head, _, body = data.removeprefix(CONTINUE).partition(b"\r\n\r\n")
    status = head.split()[1:2]
    if not head.startswith(b"HTTP/1.1 ") or not status:
        return "no HTTP", data.decode(errors="replace")
    return _told(int(status[0]), body), data.decode(errors="replace")


def all_sent(scene: Scene, attacks: Iterable[Attack], clients: int) -> Iterator[Outcome]:
    """Send the attacks, so many at a time, and yield what came of each in their order."""
    with ThreadPoolExecutor(clients) as threads:
        yield from threads.map(lambda attack: sent(scene, attack), attacks)
