"""Runs of `operations.compact` in this process: the one place that hands a loaded table to it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

from regelate.core.policy.policy import PlacementPolicy
from regelate.operations.compacting.command import CompactionTools
from regelate.operations.compacting.conducting import How
from regelate.operations.compacting.continuing import RanPart, RunPart, ran
from regelate.ports.clock import Clock
from regelate.ports.telemetry import Telemetry
from regelate.service.engines import Engines
from regelate.service.knobs import Knobs
from regelate.service.open_tables import OpenTables
from regelate.tenancy import Address

if TYPE_CHECKING:
    from regelate.adapters.iceberg.session import TableSession

Progress = Callable[[int, int], None]


class CompactionPorts:
    """What a run works with: the ports of a loaded table, an engine, a clock."""

    def __init__(self, engines: Engines, placement: PlacementPolicy, clock: Clock, telemetry: Telemetry) -> None:
        self._engines = engines
        self._placement = placement
        self._clock = clock
        self._telemetry = telemetry

    @contextmanager
    def of(self, session: TableSession) -> Iterator[CompactionTools]:
        with self._engines.rewriting(session) as engine:
            yield CompactionTools(
                reader=session.reader,
                engine=engine,
                outputs=session.outputs,
                committer=session.committer,
                reclaimer=session.reclaimer,
                telemetry=self._telemetry,
                clock=self._clock,
                placement=self._placement,
            )


class CompactionRuns:
    """Does one part of a COMPACT here, for whoever asked: a request, or a job."""

    def __init__(self, tables: OpenTables, knobs: Knobs, ports: CompactionPorts, telemetry: Telemetry) -> None:
        self._tables = tables
        self._knobs = knobs
        self._ports = ports
        self._telemetry = telemetry

    def check(self, address: Address, part: RunPart) -> None:
        """Load the table and resolve every knob, and do nothing. Errors: as the run itself would raise them."""
        with self._tables.open(address, ref=part.request.ref) as session:
            self._knobs.command(session, part)

    def run(self, address: Address, part: RunPart, how: How, progress: Progress | None = None) -> RanPart:
        """Run a part and say what comes next. Errors: those of `operations.compact`."""
        from regelate.operations.compacting.compact import compact
        from regelate.operations.observing import observed_compaction

        dry_run = part.request.dry_run
        observed = nullcontext() if dry_run else observed_compaction(self._telemetry, table=address.ident)
        with observed, self._tables.open(address, ref=part.request.ref) as session:
            command = replace(
                self._knobs.command(session, part),
                partial_progress=how.partial_progress,
                request=how.request,
                capabilities=how.capabilities,
            )
            here = replace(how.placement, disk_bytes=shutil.disk_usage(session.folder).free)
            with self._ports.of(session) as tools:
                outcome = compact(replace(tools, placement=here), command, progress=progress)
            return ran(part, outcome, now_ms=command.policy.now_ms, head=session.committer.head)
