"""Whom the desk of a fleet asks. The desk loads late, and they are joined before."""

from __future__ import annotations

from regelate.core.values import dataclass
from regelate.service.access import CatalogAccess
from regelate.service.job_desk import JobDesk
from regelate.service.job_stores import JobStores
from regelate.service.knobs import Knobs
from regelate.service.open_tables import OpenTables
from regelate.service.upkeep import Upkeep


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetDoers:
    """Who does what a fleet decides."""

    access: CatalogAccess
    tables: OpenTables
    knobs: Knobs
    jobs: JobDesk
    job_stores: JobStores
    upkeep: Upkeep
