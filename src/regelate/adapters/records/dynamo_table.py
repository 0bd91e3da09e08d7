"""A table of DynamoDB with the one key `pk`, as jobs and fleets are kept in it.

DynamoDB compares nothing with a clock of its own, and the clocks of workers differ. So its time is taken from the
`Date` of its answers, to the second.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from email.utils import parsedate_to_datetime
from typing import Any

from regelate.adapters.records.aws import client_of, faults
from regelate.adapters.records.faults import Fault
from regelate.core.policy.timeouts import Timeouts

INDEX = "newest"
Item = Mapping[str, Any]


class DynamoTable:
    """`client` is for tests; `called` is what the table is to whoever reads of its `fault`."""

    def __init__(self, name: str, called: str, fault: Fault, *, client: Any, timeouts: Timeouts | None) -> None:
        self.name = name
        self._called = called
        self._fault = fault
        self.client = client_of("dynamodb", timeouts or Timeouts(), fault) if client is None else client

    def now_ms(self) -> int:
        return self.read("clock")[1]

    def read(self, key: str) -> tuple[Item, int]:
        """Return an item, empty where there is none, and the store's time in milliseconds."""
        with self.faults():
            found = self.client.get_item(TableName=self.name, Key=key_of(key), ConsistentRead=True)
        date = found["ResponseMetadata"]["HTTPHeaders"]["date"]
        return found.get("Item", {}), int(parsedate_to_datetime(date).timestamp() * 1000)

    def faults(self, *, but: str | None = None) -> AbstractContextManager[None]:
        """Turn what the client raises into the table's fault, `but` the code that the caller understands."""
        return faults(self._fault, f"{self._called} failed", but=but)


def key_of(key: str) -> dict[str, Any]:
    return {"pk": {"S": key}}
