"""How this program speaks to DynamoDB and SQS: with which patience, and what their faults are called."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from regelate.adapters.records.faults import Fault
from regelate.core.policy.timeouts import Timeouts

READ_SECONDS = 10.0
"""Both services answer at once, or not at all."""


def client_of(service: str, timeouts: Timeouts, fault: Fault) -> Any:
    """Make a client. Region, endpoint and credentials are boto3's own, by environment; without a region there is none.

    Errors: `fault`.
    """
    with faults(fault, f"{service} cannot be reached"):
        patience = timeouts.at_most(read_seconds=READ_SECONDS)
        return boto3.client(
            service,
            config=Config(
                connect_timeout=patience.connect_seconds,
                read_timeout=patience.read_seconds,
                retries={"mode": "standard", "max_attempts": 4},
            ),
        )


@contextmanager
def faults(fault: Fault, told: str, *, but: str | None = None, **details: Any) -> Iterator[None]:
    """Turn what AWS's client raises into a `fault`: what was `told`, and the service's own code. What has the code
    `but` is the caller's to understand."""
    try:
        yield
    except (ClientError, BotoCoreError) as error:
        code = error.response["Error"]["Code"] if isinstance(error, ClientError) else type(error).__name__
        if code == but:
            raise
        raise fault(f"{told}: {code}", **details) from error
