"""Results of queries that are too large for an answer: what they are called, and what the caller is told of them."""

from __future__ import annotations

from dataclasses import field
from datetime import UTC, datetime
from urllib.parse import quote

from regelate.core.values import dataclass

CONTENT_TYPE = "application/x-ndjson"
"""One JSON object per line, in UTF-8; each is a row as an answer would hold it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredResult:
    """Where a result can be fetched until `expires_ms`. Whoever has the URL has the rows: it is never logged."""

    url: str = field(repr=False)
    expires_ms: int
    size_bytes: int

    @property
    def expires_at(self) -> str:
        """The end of the URL as an ISO time in UTC."""
        moment = datetime.fromtimestamp(self.expires_ms / 1000, UTC)
        return moment.isoformat(timespec="seconds").replace("+00:00", "Z")


def result_key(tenant: str, now_ms: int, token: str) -> str:
    """Return the key of a result below the store's own prefix: the tenant first, then the day (UTC).

    `token` is random and makes the key impossible to guess. No two tenants share a folder, whatever they are called.
    """
    day = datetime.fromtimestamp(now_ms / 1000, UTC).date().isoformat()
    folder = quote(tenant, safe="").replace(".", "%2E")  # a tenant named `..` would leave the prefix
    return f"{folder}/{day}/{token}.ndjson"
