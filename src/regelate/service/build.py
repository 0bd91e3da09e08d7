"""The one file that knows every class: settings in, a service out.

Adapters are imported when an operation first needs them, so that health, help and refusals start fast.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING

from regelate.adapters.clock import SystemClock
from regelate.adapters.telemetry import ProcessTelemetry
from regelate.core.policy.policy import PlacementPolicy
from regelate.operations.compacting.conducting import ConfiguredKnobs
from regelate.ports.access import OpenCatalogs, StorageSessions
from regelate.ports.clock import Clock
from regelate.service.access import CatalogAccess
from regelate.service.automatic import Automatic
from regelate.service.compaction_runs import CompactionPorts, CompactionRuns
from regelate.service.compactions import Compactions
from regelate.service.engines import Engines
from regelate.service.facade import Service
from regelate.service.fleet import Fleet
from regelate.service.fleet_doers import FleetDoers
from regelate.service.fleet_memory import FleetMemory
from regelate.service.fleet_reads import FleetReads
from regelate.service.health import Health
from regelate.service.job_desk import JobDesk
from regelate.service.job_stores import JobStores
from regelate.service.knobs import Knobs
from regelate.service.once import once
from regelate.service.open_tables import OpenTables
from regelate.service.process import Process
from regelate.service.queries import Queries
from regelate.service.refs import Refs
from regelate.service.results import ResultStores
from regelate.service.spark_home import SparkHome
from regelate.service.spark_runs import SparkRuns
from regelate.service.table_sweeps import TableSweeps
from regelate.service.tables import Tables
from regelate.service.upkeep import Upkeep
from regelate.service.worker import Worker
from regelate.service.writes import Writes
from regelate.settings import SESSION_MARGIN_SECONDS, Settings, load_settings
from regelate.tenancy import Tenancy

if TYPE_CHECKING:
    from regelate.adapters.duckdb.query_pool import QueryPool
    from regelate.adapters.iceberg.manifests import ManifestReader
    from regelate.ports.jobs import SparkJobs
    from regelate.service.fleet_desk import FleetDesk

_ONE_AT_A_TIME = Lock()
"""`cache` lets two threads that ask at once make two."""


def build(
    settings: Settings,
    *,
    clock: Clock | None = None,
    telemetry: ProcessTelemetry | None = None,
    placement: PlacementPolicy | None = None,
    catalogs: OpenCatalogs | None = None,
    sessions: StorageSessions | None = None,
    manifests: ManifestReader | None = None,
    job_stores: JobStores | None = None,
    spark: SparkJobs | None = None,
    engines: Engines | None = None,
    ports: CompactionPorts | None = None,
) -> Service:
    """Join one service for this process. What is given stands in for what the settings and the environment name."""
    clock = clock or SystemClock()
    telemetry = telemetry or ProcessTelemetry(os.environ, settings.environment)
    placement = placement or settings.placement_policy(os.environ)
    timeouts, longest = settings.network.timeouts, settings.sweep.longest_run_seconds
    opened, lent = once(lambda: catalogs or _catalogs(settings)), once(lambda: sessions or _sessions(settings, clock))
    least_seconds = placement.max_in_process_seconds + SESSION_MARGIN_SECONDS
    access = CatalogAccess(settings, opened, lent, least_seconds=least_seconds)
    configured = ConfiguredKnobs(
        compaction=settings.compaction_defaults, retention=settings.retention_defaults, verify=settings.verify
    )
    tenancy, knobs = Tenancy(settings), Knobs(configured, settings.check_policy, clock)
    tables = OpenTables(access, once(lambda: manifests or _manifests()), longest_run_seconds=longest)
    engines = engines or Engines(placement, settings.storage, lambda: query_pool(settings, placement))
    ports = ports or CompactionPorts(engines, placement, clock, telemetry)
    stores = job_stores or JobStores(settings.jobs, timeouts, telemetry)
    jobs, home = JobDesk(stores, settings.catalogs), SparkHome(settings, stores, spark)
    runs = CompactionRuns(tables, knobs, ports, telemetry)
    spark_runs = SparkRuns(home, stores, tables, knobs, settings, clock, telemetry)
    compactions = Compactions(runs, jobs, home.available, settings, placement, clock)
    sweeps = TableSweeps(longest_run_seconds=longest)
    upkeep = Upkeep(tables, knobs, sweeps, compactions, clock)
    doers = FleetDoers(access=access, tables=tables, knobs=knobs, jobs=jobs, job_stores=stores, upkeep=upkeep)
    memory = FleetMemory(settings.fleet, timeouts)
    automatic = Automatic(access, tables, knobs, jobs, compactions, clock)
    reads = FleetReads(memory.store, automatic, clock)
    queries = Queries(tables, engines, ResultStores(settings.results, timeouts), reads, settings, clock, telemetry)
    return Service(
        settings=settings,
        tenancy=tenancy,
        process=Process(access, telemetry, settings.environment, home.available, jobs.tell_pending),
        access=access,
        tables=Tables(access, tenancy, knobs, settings.table_defaults),
        refs=Refs(tables, clock),
        health=Health(tables, knobs, clock, telemetry),
        queries=queries,
        writes=Writes(tables, engines, knobs, compactions, jobs, clock, telemetry),
        compactions=compactions,
        automatic=automatic,
        upkeep=upkeep,
        fleet=Fleet(access, tables, knobs, sweeps, jobs, settings.sweep, clock, telemetry),
        fleet_desk=once(lambda: _fleet_desk(doers, memory, settings, placement, clock)),
        fleet_reads=reads,
        jobs=jobs,
        worker=Worker(stores, runs, spark_runs, settings, placement, clock),
    )


def build_service(environ: Mapping[str, str] | None = None) -> Service:
    """Load the settings and build their service. Errors: SettingsError INVALID_CONFIG."""
    return build(load_settings(environ))


def query_pool(settings: Settings, placement: PlacementPolicy) -> QueryPool:
    """Return this process's pool of processes for queries; services of equal settings share one."""
    limits = settings.limits
    size = limits.query_process_count(os.environ, placement.threads)
    memory_bytes = limits.query_memory_bytes(placement.memory_bytes, size)
    remote = any(not catalog.local_folders() for catalog in settings.catalogs.values())
    with _ONE_AT_A_TIME:
        return _pool(size, memory_bytes, remote)


@cache
def _pool(size: int, memory_bytes: int, remote: bool) -> QueryPool:
    from regelate.adapters.duckdb.query_pool import QueryPool

    return QueryPool(size=size, memory_bytes=memory_bytes, remote=remote)


def _fleet_desk(
    doers: FleetDoers, memory: FleetMemory, settings: Settings, placement: PlacementPolicy, clock: Clock
) -> FleetDesk:
    from regelate.service.fleet_desk import FleetDesk

    return FleetDesk(doers, memory, settings.fleet, placement, settings.catalogs, clock)


def _catalogs(settings: Settings) -> OpenCatalogs:
    from regelate.adapters.iceberg.catalogs import Catalogs

    return Catalogs(settings.storage.properties, settings.network.timeouts)


def _sessions(settings: Settings, clock: Clock) -> StorageSessions:
    from regelate.adapters.aws.sessions import StsSessions, sts_client

    tenancy, timeouts = settings.tenancy, settings.network.timeouts
    return StsSessions(
        lambda: sts_client(timeouts),
        tenancy.role_arn or "",
        lives_seconds=tenancy.session_seconds,
        now_ms=clock.now_ms,
    )


def _manifests() -> ManifestReader:
    from regelate.adapters.iceberg.manifests import ManifestReader

    return ManifestReader()
