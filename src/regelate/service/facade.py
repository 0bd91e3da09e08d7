"""What a door holds: the composed objects by name, and nothing of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from regelate.core.values import dataclass

if TYPE_CHECKING:
    from regelate.service.access import CatalogAccess
    from regelate.service.automatic import Automatic
    from regelate.service.compactions import Compactions
    from regelate.service.fleet import Fleet
    from regelate.service.fleet_desk import FleetDesk
    from regelate.service.fleet_reads import FleetReads
    from regelate.service.health import Health
    from regelate.service.job_desk import JobDesk
    from regelate.service.process import Process
    from regelate.service.queries import Queries
    from regelate.service.refs import Refs
    from regelate.service.tables import Tables
    from regelate.service.upkeep import Upkeep
    from regelate.service.worker import Worker
    from regelate.service.writes import Writes
    from regelate.settings import Settings
    from regelate.tenancy import Tenancy


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """Everything behind the doors, for one process. Safe for several threads; an operation owns its own sessions.

    Every operation returns its answer (core.answers), or raises a RegelateError. `fleet_desk` gives the one that looks
    after a fleet, which is loaded when it is first asked for: no other request needs it.
    """

    settings: Settings
    tenancy: Tenancy
    process: Process
    access: CatalogAccess
    tables: Tables
    refs: Refs
    health: Health
    queries: Queries
    writes: Writes
    compactions: Compactions
    automatic: Automatic
    upkeep: Upkeep
    fleet: Fleet
    fleet_desk: Callable[[], FleetDesk]
    fleet_reads: FleetReads
    jobs: JobDesk
    worker: Worker


Provider = Callable[[], Service]
"""Makes the service when a request first needs it: what it costs to open is not paid by a cold start."""
