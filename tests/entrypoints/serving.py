"""A running server in this process, for one test."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from regelate.entrypoints.serve import Server


@contextmanager
def serving(service: Any, *, before: Callable[[Server], None] = lambda _: None, **more: Any) -> Iterator[Server]:
    """Serve a service, real or fake, on a free port; at the end whoever is under way is answered.

    `before`: who connects while the system alone holds connections, and nothing is read from any of them.
    """
    server = Server("127.0.0.1", 0, service, **more)
    before(server)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join()


def until(seen: Callable[[], bool]) -> None:
    """Look until it is so; a minute is an end, not a measure."""
    deadline = time.monotonic() + 60
    while not seen():
        assert time.monotonic() < deadline
        time.sleep(0.01)
