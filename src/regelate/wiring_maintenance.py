"""The maintenance half of the application: what keeps a table small beside compaction."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from regelate.core.option_retention import resolve_retention
from regelate.core.policy import RetentionPolicy
from regelate.operations import answers
from regelate.ports import Clock
from regelate.settings import Settings
from regelate.tenancy import Address

if TYPE_CHECKING:
    from regelate.adapters.iceberg.session import TableSession

Fields = Mapping[str, object]


class Maintenance:
    """Mixed into `wiring.Application`, which provides settings, clock and sessions."""

    settings: Settings
    clock: Clock

    if TYPE_CHECKING:

        def _session(self, address: Address) -> AbstractContextManager[TableSession]: ...

    def expire_snapshots(
        self,
        address: Address,
        *,
        retention_hours: float | None,
        min_snapshots_to_keep: int | None,
        grace_hours: float | None,
        dry_run: bool,
    ) -> Fields:
        from regelate.operations.expire import expire_snapshots

        with self._session(address) as session:
            policy = self._retention(session, retention_hours, keep=min_snapshots_to_keep, grace=grace_hours)
            found = expire_snapshots(session.committer, session.reclaimer, self.clock, policy, dry_run=dry_run)
            return answers.expired(found)

    def undo_expiry(self, address: Address, undo_id: str) -> Fields:
        from regelate.operations.expire import undo_expiry

        with self._session(address) as session:
            return answers.undone(undo_expiry(session.committer, session.reclaimer, self.clock, undo_id))

    def _retention(
        self,
        session: TableSession,
        hours: object,
        *,
        keep: object = None,
        grace: object = None,
        hours_field: str = "retention_hours",
    ) -> RetentionPolicy:
        return resolve_retention(
            request_hours=hours,
            request_min=keep,
            request_grace=grace,
            table_properties=session.properties,
            config=self.settings.retention_defaults,
            hours_field=hours_field,
        )
