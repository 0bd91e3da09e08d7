"""Where each tenant's large results go."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from regelate.core.policy.timeouts import Timeouts
from regelate.core.values import dataclass
from regelate.service.once import once

if TYPE_CHECKING:
    from regelate.core.query.results import StoredResult
    from regelate.ports.query import ResultStore
    from regelate.settings import ResultSettings


class ResultStores:
    """The configured place of large results. The client of the bucket is made when a result first needs it."""

    def __init__(self, settings: ResultSettings, timeouts: Timeouts) -> None:
        self._settings = settings
        self._timeouts = timeouts
        self.client = once(self._open_client)

    def _open_client(self) -> Any:
        from regelate.adapters.aws.results import s3_client

        return s3_client(self._timeouts)

    def of(self, tenant: str) -> ResultStore | None:
        """Return a tenant's store; None where the configuration names no place."""
        place, seconds = self._settings.location, self._settings.url_seconds
        if not place:
            return None
        if self._settings.is_bucket:
            return _InBucket(stores=self, location=place, tenant=tenant, url_seconds=seconds)
        from regelate.adapters.local_results import FolderResults

        return FolderResults(Path(place), tenant, lives_seconds=seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class _InBucket:
    """A tenant's part of the bucket. AWS's client takes a third of a second to import: only a large result pays."""

    stores: ResultStores
    location: str
    tenant: str
    url_seconds: int

    def keep(self, path: str, *, now_ms: int) -> StoredResult:
        from regelate.adapters.aws.results import BucketResults

        bucket = BucketResults(self.stores.client(), self.location, self.tenant, url_seconds=self.url_seconds)
        return bucket.keep(path, now_ms=now_ms)
