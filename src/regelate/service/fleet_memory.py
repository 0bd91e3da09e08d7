"""What a fleet is remembered in: opened when it is first needed, once for all who need it in this process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from regelate.core.policy.timeouts import Timeouts
from regelate.errors import NotFound, Unsupported
from regelate.service.once import once

if TYPE_CHECKING:
    from regelate.ports.fleet_store import FleetStore
    from regelate.settings.models import FleetSettings


class FleetMemory:
    """Errors of all: Unavailable FLEET_UNAVAILABLE."""

    def __init__(self, settings: FleetSettings, timeouts: Timeouts) -> None:
        self._settings = settings
        self._timeouts = timeouts
        self._opened = once(self._open)

    def store(self) -> FleetStore | None:
        """Return the store; None where there is none."""
        return self._opened()

    def needed(self) -> FleetStore:
        """Return the store. Errors: Unsupported FLEET_DISABLED where there is none."""
        found = self._opened()
        if found is None:
            raise no_fleet()
        return found

    def _open(self) -> FleetStore | None:
        found = self._settings
        if found.store == "dynamodb":
            from regelate.adapters.records.dynamo_fleet import DynamoFleet

            return DynamoFleet(found.table or "", timeouts=self._timeouts)
        if found.store == "sqlite":
            from regelate.adapters.records.sqlite_fleet import SqliteFleet

            return SqliteFleet(Path(found.path or ""))
        return None


def no_fleet() -> Unsupported:
    return Unsupported("FLEET_DISABLED", "this deployment remembers no fleet: set fleet.store in config.json")


def unknown_table() -> NotFound:
    return NotFound("FLEET_TABLE_NOT_FOUND", "the fleet does not know this table: FLEET_SCAN looks for new ones")
