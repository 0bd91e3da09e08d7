"""What a fleet has done to one of its tables: a look, an operation, and the job that is at one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from regelate.core.access import Access
from regelate.core.fleet.observation import TableObservation
from regelate.core.fleet.operation import FleetOperation
from regelate.core.fleet.policy import TablePolicy
from regelate.core.fleet.state import FleetRun, TableState
from regelate.core.jobs.job import JobRecord, Origin
from regelate.core.requests import CompactRequest
from regelate.errors import NotFound
from regelate.operations.compacting.continuing import RunPart
from regelate.operations.fleet.applying import Busy, Effect, PlannedItem
from regelate.operations.fleet.observe import Observed, observe, refreshed
from regelate.service.fleet_doers import FleetDoers
from regelate.tenancy import DEFAULT_TENANT, Address, Scope

NO_FILE_BY_SIZE = {"min-file-size-bytes": 1, "max-file-size-bytes": 2**62}


class FleetTables:
    """Looks at tables and does what a plan says, one table and one operation at a time.

    `now_ms` is the time of the fleet's store.
    """

    def __init__(self, doers: FleetDoers, now_ms: Callable[[], int]) -> None:
        self._doers = doers
        self._now_ms = now_ms

    def look(self, scope: Scope, ident: str, before: TableObservation | None) -> TableObservation:
        """Return what a table is now; `before` is what was seen of it last. Errors: NotFound for one that is gone."""
        knobs, address = self._doers.knobs, address_of(scope, ident)
        with self._doers.tables.open(address, Access.READ) as session:
            retention, now_ms = knobs.retention(session, None), self._now_ms()
            if before is not None and before.metadata_location == session.metadata_location:
                snapshots, refs = session.reader.history()
                found = refreshed(before, snapshots, refs, retention, now_ms=now_ms)
                return replace(
                    found,
                    catalog=scope.catalog,
                    ident=ident,
                    tenant=address.tenant_id,
                    managed_by=session.managed_by,
                )
            policy = knobs.policy(session)
            seen = Observed(
                catalog=scope.catalog,
                ident=ident,
                tenant=address.tenant_id,
                managed_by=session.managed_by,
                compaction=policy,
                retention=retention,
                manifest_target_bytes=session.manifest_target_bytes,
            )
            return observe(
                session.reader.read(policy),
                session.committer.manifests(),
                seen,
                now_ms=now_ms,
                metadata_bytes=session.reader.metadata_bytes(),
            )

    def exist(self, scope: Scope, ident: str) -> bool:
        """Say whether a table is in its catalog, whatever can be seen of it."""
        try:
            with self._doers.tables.open(address_of(scope, ident), Access.READ):
                return True
        except NotFound:
            return False

    def do(self, scope: Scope, item: PlannedItem, allowed: TablePolicy) -> Effect:
        """Do one operation, or submit the job that does it. Raises Busy where it is not to be begun now."""
        address, run, upkeep = address_of(scope, item.ident), item.run, self._doers.upkeep
        if self._uuid_at(address) != item.table_uuid:
            raise Busy("another table has its name now: scan again")
        if run.operation.rewrites_data:
            there = self._doers.jobs.live(address, announce=True)
            if there is None:
                part = RunPart(base_run_id=run.run_id, part=1, request=_asked(item, allowed))
                there = self._doers.jobs.submit(address, part, Origin.FLEET, most_seconds=item.max_seconds)
            if there.run_id != run.run_id:
                raise Busy(f"{there.job_id}, which somebody else asked for, is at it")
            return Effect(job_id=there.job_id)
        match run.operation:
            case FleetOperation.EXPIRE:
                expired = upkeep.expire_snapshots(
                    address, retention_hours=None, min_snapshots_to_keep=None, grace_hours=None, dry_run=False
                )
                return Effect(did_something=expired.snapshots_expired > 0)
            case FleetOperation.REWRITE_MANIFESTS:
                return Effect(did_something=upkeep.rewrite_manifests(address, dry_run=False).manifests_replaced > 0)
            case _:
                upkeep.remove_orphan_files(address, older_than_hours=None, dry_run=False)
                return Effect(did_something=True)  # that none was there is worth knowing

    def _uuid_at(self, address: Address) -> str:
        """Return a table's UUID, and let go of the rest: the metadata of a long history takes hundreds of megabytes."""
        with self._doers.tables.open(address, Access.READ) as session:
            return session.uuid

    def job_of(self, state: TableState, run: FleetRun) -> JobRecord | None:
        """Return the job of a run, also of one whose id nobody noted."""
        if run.job_id is not None:
            return self._doers.job_stores.needed().store.get(run.job_id)
        table = state.ident.rpartition(".")[2]
        address = Address(tenant_id=state.tenant, catalog=state.catalog, ident=state.ident, table=table)
        return self._doers.jobs.of_run(address, run.run_id)


def _asked(item: PlannedItem, allowed: TablePolicy) -> CompactRequest:
    """Return the COMPACT of a run, by the options that the policy has for it. One for the deletes' sake takes the
    files that deletes apply to, whatever the size of the others."""
    options = dict(allowed.compact_options)
    if item.run.operation is FleetOperation.APPLY_DELETES:
        options = {"delete-file-threshold": 1, **options, **NO_FILE_BY_SIZE}
    return CompactRequest(
        expire_snapshots=False,
        max_cost=_most_it_may_cost(item.run),
        max_files=item.max_files,
        options=options or None,
    )


def address_of(scope: Scope, ident: str) -> Address:
    """Return the address of a table as the fleet has it, by which its jobs are found again: the tables of a catalog
    without tenants are nobody's own, or whoever scans first would be sent the bill."""
    address = scope.address(ident)
    return address if scope.multi_tenant else replace(address, tenant_id=DEFAULT_TENANT)


def _most_it_may_cost(run: FleetRun) -> float:
    """Return the `max_cost` of a run: COMPACT's own estimate knows nothing of the pace, and is double where every value
    is verified."""
    slower = run.model_seconds / run.predicted_seconds if run.predicted_seconds > 0 else 1.0
    return 2 * run.max_dollars * max(slower, 1.0)
