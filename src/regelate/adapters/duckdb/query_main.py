"""The program of a process that answers queries.

Started by `query_process.QueryProcess` with a socket, a pipe that is never written to, its memory in bytes, and 1 if
its first question is likely about files in a store.
"""

from __future__ import annotations

import socket
import sys


def main(arguments: list[str]) -> None:
    pipe, lifeline, memory_bytes, remote = map(int, arguments)
    sys.modules.setdefault("numpy", None)  # type: ignore[arg-type]  # Arrow does without, and is there in half the time
    from regelate.adapters.duckdb.query_child import serve

    serve(socket.socket(fileno=pipe), lifeline, memory_bytes, remote=bool(remote))


if __name__ == "__main__":
    main(sys.argv[1:])
