"""A service that a test builds with parts of its own, and builds anew with others: a later clock, a smaller machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from regelate.adapters.clock import SystemClock
from regelate.adapters.iceberg.catalogs import Catalogs
from regelate.adapters.iceberg.manifests import ManifestReader
from regelate.adapters.iceberg.session import TableSession
from regelate.adapters.telemetry import ProcessTelemetry
from regelate.core.access import Access
from regelate.core.policy.policy import PlacementPolicy
from regelate.operations.compacting.compact import CompactionTools
from regelate.service.build import build, query_pool
from regelate.service.compaction_runs import CompactionPorts
from regelate.service.engines import Engines
from regelate.service.facade import Service
from regelate.service.job_stores import JobStores
from regelate.service.open_tables import OpenTables
from regelate.settings import Settings
from regelate.tenancy import Address

ChangeTools = Callable[[CompactionTools], CompactionTools]


class OneCatalog:
    """Implements OpenCatalogs over one catalog, which is opened when first asked for."""

    def __init__(self, opened: Callable[[], Any]) -> None:
        self._open = opened
        self.found: Any = None

    def open(self, name: str, properties: Mapping[str, str], folders: tuple[Path, ...] = (), **_: Any) -> Any:
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
        self.found = self.found or self._open()
        return self.found


class CountedCatalogs:
    """Implements OpenCatalogs as shipped, and counts how often one was asked for."""

    def __init__(self, settings: Settings) -> None:
        self._catalogs = Catalogs(settings.storage.properties, settings.network.timeouts)
        self.asked = 0

    def open(self, *arguments: Any, **options: Any) -> Any:
        self.asked += 1
        return self._catalogs.open(*arguments, **options)


class ChangedPorts:
    """Implements CompactionPorts: those of another, changed."""

    def __init__(self, ports: CompactionPorts, change: ChangeTools) -> None:
        self._ports = ports
        self._change = change

    @contextmanager
    def of(self, session: TableSession) -> Iterator[CompactionTools]:
        with self._ports.of(session) as tools:
            yield self._change(tools)


class Built:
    """`service`, and what it was built with. `change` sees the tools of every COMPACT, `prepare` every connection.

    What a process keeps, its open catalogs, its manifests, its jobs and its metrics, stays when it is built `again`.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        change: ChangeTools = lambda tools: tools,
        prepare: Callable[[Any], object] = lambda connection: None,
        **given: Any,
    ) -> None:
        telemetry = given.get("telemetry") or ProcessTelemetry(os.environ, settings.environment)
        self.settings = settings
        self._change, self._prepare = change, prepare
        self._given: dict[str, Any] = {
            "catalogs": CountedCatalogs(settings),
            "clock": SystemClock(),
            "job_stores": JobStores(settings.jobs, settings.network.timeouts, telemetry),
            "manifests": ManifestReader(),
            "placement": settings.placement_policy(os.environ),
            "telemetry": telemetry,
            **given,
        }
        self.again()

    def again(self, *, settings: Settings | None = None, **given: Any) -> None:
        """Build the service anew, with something else for what is named."""
        self.settings = settings or self.settings
        self._given |= given
        queries = partial(query_pool, self.settings, self.placement)
        engines = Engines(self.placement, self.settings.storage, queries, prepare=self._prepare)
        ports = CompactionPorts(engines, self.placement, self.clock, self._given["telemetry"])
        given = {"engines": engines, "ports": ChangedPorts(ports, self._change), **self._given}
        self.service: Service = build(self.settings, **given)

    @property
    def clock(self) -> Any:
        return self._given["clock"]

    @property
    def placement(self) -> PlacementPolicy:
        return self._given["placement"]

    @property
    def catalogs(self) -> Any:
        return self._given["catalogs"]

    @property
    def manifests(self) -> ManifestReader:
        return self._given["manifests"]

    @property
    def job_stores(self) -> JobStores:
        return self._given["job_stores"]

    def catalog(self) -> Any:
        return self.service.access.survey()

    def open(self, address: Address, access: Access = Access.WRITE) -> AbstractContextManager[TableSession]:
        """Load a table as an operation does."""
        longest = self.settings.sweep.longest_run_seconds
        tables = OpenTables(self.service.access, lambda: self.manifests, longest_run_seconds=longest)
        return tables.open(address, access)
