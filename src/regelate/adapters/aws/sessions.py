"""Sessions of AWS STS: short-lived credentials that can do no more than a policy says, kept until they are too old."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from regelate.adapters.aws.aws_errors import storage_fault
from regelate.core.access import StorageSession
from regelate.core.policy.timeouts import Timeouts

SESSIONS_KEPT = 256
LOCKS = 32


def sts_client(timeouts: Timeouts) -> Any:
    """Return a client by boto3's own chain; AWS_ENDPOINT_URL_STS names another service."""
    retries, patience = {"mode": "standard", "max_attempts": 4}, timeouts.at_most(read_seconds=5)
    return boto3.client(
        "sts",
        config=Config(connect_timeout=patience.connect_seconds, read_timeout=patience.read_seconds, retries=retries),
    )


class StsSessions:
    """Takes one role on behalf of everybody, each with a policy of its own. Safe for several threads.

    Errors: Unavailable STORAGE_AUTH where the role may not be taken, STORAGE_UNAVAILABLE.
    """

    def __init__(
        self, make_client: Callable[[], Any], role_arn: str, *, lives_seconds: int, now_ms: Callable[[], int]
    ) -> None:
        self._make_client = make_client
        self._role_arn = role_arn
        self._lives_seconds = lives_seconds
        self._now_ms = now_ms
        self._client: Any = None
        self._kept: OrderedDict[str, StorageSession] = OrderedDict()
        self._lock = threading.Lock()
        self._asking = tuple(threading.Lock() for _ in range(LOCKS))

    def session(self, policy: str, *, name: str, least_seconds: float) -> StorageSession:
        """Return a session with this policy that lasts at least so long; an earlier one while it does."""
        found, asking = self._fresh(policy, least_seconds)
        if found is not None:
            return found
        with asking:  # whoever waited here finds what the first one got; nobody else's policy waits
            found, _ = self._fresh(policy, least_seconds)
            if found is None:
                found = self._assumed(policy, name)
                with self._lock:
                    self._kept[policy] = found
                    if len(self._kept) > SESSIONS_KEPT:
                        self._kept.popitem(last=False)
            return found

    def _fresh(self, policy: str, least_seconds: float) -> tuple[StorageSession | None, threading.Lock]:
        with self._lock:
            found = self._kept.get(policy)
            if found is not None and found.expires_ms - self._now_ms() < least_seconds * 1000:
                found = None
            if found is not None:
                self._kept.move_to_end(policy)
            return found, self._asking[hash(policy) % len(self._asking)]

    def _assumed(self, policy: str, name: str) -> StorageSession:
        try:
            if self._client is None:
                self._client = self._make_client()
            answer = self._client.assume_role(
                RoleArn=self._role_arn, RoleSessionName=name, Policy=policy, DurationSeconds=self._lives_seconds
            )
        except (BotoCoreError, ClientError) as error:
            raise storage_fault(error, "no session for this tenant's storage") from error
        given = answer["Credentials"]
        return StorageSession(
            access_key_id=given["AccessKeyId"],
            secret_access_key=given["SecretAccessKey"],
            session_token=given["SessionToken"],
            expires_ms=int(given["Expiration"].timestamp() * 1000),
        )
