"""The application of `regelate serve` by itself: what it does with the bodies of many clients."""

from __future__ import annotations

import asyncio
from typing import Any

from regelate.entrypoints.aws.body import LARGE_BODY_BYTES
from regelate.entrypoints.server.door import Door
from tests.entrypoints.fakes import FakeService

CLIENTS, PIECES = 4, 8
SCOPE = {
    "method": "POST",
    "raw_path": b"/database",
    "query_string": b"",
    "http_version": "1.1",
    "headers": [(b"host", b"localhost"), (b"transfer-encoding", b"chunked")],
    "client": None,
}


def test_of_all_large_bodies_one_piece_is_read_between_two_looks_at_others(service: FakeService) -> None:
    taken: list[int] = []
    """Clients, by the pieces of theirs that were read when their body was large."""
    statuses: list[int] = []

    async def ask(client: int) -> None:
        left = PIECES

        async def receive() -> dict[str, Any]:
            nonlocal left
            left -= 1
            if left < PIECES - 2:
                taken.append(client)
            return {"type": "http.request", "body": b" " * LARGE_BODY_BYTES, "more_body": left > 0}

        async def send(message: dict[str, Any]) -> None:
            statuses.append(message.get("status", 0))

        await door(SCOPE, receive, send)

    async def look() -> list[int]:
        asking = [asyncio.create_task(ask(client)) for client in range(CLIENTS)]
        seen, read = [], 0
        while not all(task.done() for task in asking):
            await asyncio.sleep(0)
            seen.append(len(taken) - read)
            read = len(taken)
        return seen

    door = Door(service, frozenset({"localhost"}))  # type: ignore[arg-type]  # a fake
    try:
        seen = asyncio.run(look())
    finally:
        door.close()
    assert (max(seen), len(taken)) == (1, CLIENTS * (PIECES - 2))
    assert {*taken[:CLIENTS]} == set(range(CLIENTS))
    assert statuses.count(400) == CLIENTS
