"""The Lambda handler, invoked by lines of standard input: `python -m tests.system.attack.invoked`."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from typing import Any

INVOCATION_MS = 29_000


@dataclass(frozen=True)
class Context:
    function_name: str = "regelate"
    memory_limit_in_mb: int = 1769
    invoked_function_arn: str = "arn:aws:lambda:eu-central-1:123456789012:function:regelate"
    aws_request_id: str = "52fdfc07-2182-454f-963f-5f0f9a621d72"

    def get_remaining_time_in_millis(self) -> int:
        return INVOCATION_MS


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the log goes there
    from regelate.handler import lambda_handler

    for line in sys.stdin:
        answers.write(json.dumps(invoked(lambda_handler, json.loads(line))) + "\n")
        answers.flush()


def invoked(handler: Any, event: Any) -> dict[str, Any]:
    try:
        return {"answer": handler(event, Context())}
    except Exception as fault:  # noqa: BLE001  Lambda catches everything as well
        return {"raised": f"{type(fault).__name__}: {fault}"[:2000]}


if __name__ == "__main__":
    main()
