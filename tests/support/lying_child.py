"""A process for queries gone bad: says what its question tells it to say, whether those are frames or not."""

from __future__ import annotations

import os
import pickle
import socket
import sys

from regelate.adapters.duckdb.question import HEADER, Kind, Question, send


def main(arguments: list[str]) -> None:
    pipe = socket.socket(fileno=int(arguments[0]))
    _, length = HEADER.unpack(pipe.recv(HEADER.size, socket.MSG_WAITALL))
    question: Question = pickle.loads(pipe.recv(length, socket.MSG_WAITALL))
    if question.statement.text == "start":
        os._exit(3)
    send(pipe, Kind.READY, b"{}")
    pipe.sendall(bytes.fromhex(question.statement.text))
    pipe.recv(1)  # until the parent has heard enough


if __name__ == "__main__":
    main(sys.argv[1:])
