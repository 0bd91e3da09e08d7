"""Where jobs are kept and announced, as config.json says."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from regelate.core.policy.timeouts import Timeouts
from regelate.errors import Unsupported
from regelate.operations.jobs.jobs import JobTools
from regelate.ports.telemetry import Telemetry
from regelate.service.once import once

if TYPE_CHECKING:
    from regelate.adapters.records.sqlite_jobs import SqliteJobs
    from regelate.settings.models import JobSettings


class JobStores:
    """The configured store and queue, each opened when first asked for."""

    def __init__(self, settings: JobSettings, timeouts: Timeouts, telemetry: Telemetry) -> None:
        self._settings = settings
        self._timeouts = timeouts
        self._telemetry = telemetry
        self._embedded, self._tools = once(self._open_embedded), once(self._open_tools)

    @property
    def tools(self) -> JobTools | None:
        """The store and its queue; None where config.json has none."""
        return self._tools()

    @property
    def embedded(self) -> SqliteJobs | None:
        """The store that `regelate serve` works on by itself; None where jobs are kept elsewhere or not at all."""
        return self._embedded()

    def _open_tools(self) -> JobTools | None:
        found = self._settings
        if found.store == "none":
            return None
        store: Any = self.embedded
        queue: Any = store
        if found.store == "dynamodb":
            from regelate.adapters.records.dynamo_jobs import DynamoJobs
            from regelate.adapters.records.sqs import SqsQueue

            seconds = found.retention_hours * 3600
            store = DynamoJobs(found.table or "", retention_seconds=seconds, timeouts=self._timeouts)
            queue = SqsQueue(found.queue_url or "", timeouts=self._timeouts)
        return JobTools(
            store=store,
            queue=queue,
            telemetry=self._telemetry,
            lease_seconds=found.lease_seconds,
            max_attempts=found.max_attempts,
        )

    def _open_embedded(self) -> SqliteJobs | None:
        found = self._settings
        if found.store != "sqlite":
            return None
        from regelate.adapters.records.sqlite_jobs import SqliteJobs

        return SqliteJobs(Path(found.path or ""), retention_seconds=found.retention_hours * 3600)

    def needed(self) -> JobTools:
        """Return the store and its queue. Errors: Unsupported JOBS_DISABLED."""
        if self.tools is None:
            raise Unsupported(
                "JOBS_DISABLED", "this deployment has no jobs: set jobs.store in config.json, or compact without async"
            )
        return self.tools
