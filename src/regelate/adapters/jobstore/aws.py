"""How this program speaks to DynamoDB and SQS: with which patience, and what their faults are called."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from regelate.core.policy.timeouts import Timeouts
from regelate.errors import Unavailable

READ_SECONDS = 10.0
"""Both services answer at once, or not at all."""


def client_of(service: str, timeouts: Timeouts) -> Any:
    """Make a client. Region, endpoint and credentials are boto3's own, by environment; without a region there is none.

    Errors: Unavailable JOBS_UNAVAILABLE.
    """
    with faults(f"{service} cannot be reached"):
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
def faults(told: str, **details: Any) -> Iterator[None]:
    """Turn what AWS's client raises into Unavailable JOBS_UNAVAILABLE: what was `told`, and the service's own code."""
    try:
        yield
    except (ClientError, BotoCoreError) as error:
        code = error.response["Error"]["Code"] if isinstance(error, ClientError) else type(error).__name__
        raise Unavailable("JOBS_UNAVAILABLE", f"{told}: {code}", **details) from error
