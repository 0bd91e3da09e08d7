"""A process for queries gone bad: says what its question tells it to say, whether those are frames or not.

One that is to read from a store does not even start.
"""

from __future__ import annotations

import os
import pickle
import socket
import sys

from regelate.adapters.duckdb.question import HEADER, Kind, Question, send


def main(arguments: list[str]) -> None:
    pipe = socket.socket(fileno=int(arguments[0]))
    if arguments[3] == "1":
        os._exit(3)
    send(pipe, Kind.READY, b"{}")
    _, length = HEADER.unpack(pipe.recv(HEADER.size, socket.MSG_WAITALL))
    question: Question = pickle.loads(pipe.recv(length, socket.MSG_WAITALL))
    pipe.sendall(bytes.fromhex(question.statement.text))
    pipe.recv(1)  # until the parent has heard enough


if __name__ == "__main__":
    main(sys.argv[1:])
