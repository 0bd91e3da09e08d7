"""A fleet as one thing: its tables observed, runs proposed and begun, and where each table stands."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from regelate.core.access import Access
from regelate.core.answers.fleet import (
    FleetApplyAnswer,
    FleetBill,
    FleetHistoryAnswer,
    FleetPlanAnswer,
    FleetScanAnswer,
    FleetStatusAnswer,
    LeftRun,
)
from regelate.core.engines import LAMBDA
from regelate.core.fleet.candidates import Worker
from regelate.core.fleet.observation import TableObservation
from regelate.core.fleet.operation import FleetOperation, FleetStatus, FleetTrigger
from regelate.core.fleet.policy import FleetPolicy
from regelate.core.fleet.proposals import Proposals, Verdict
from regelate.core.fleet.propose import propose
from regelate.core.fleet.state import FleetRun, FleetState, TableState
from regelate.core.jobs.job import JobRecord, Origin
from regelate.core.policy.policy import PlacementPolicy
from regelate.core.policy.timeouts import Timeouts
from regelate.core.requests import CompactRequest
from regelate.core.values import dataclass
from regelate.errors import NotFound, Unavailable, Unsupported
from regelate.operations.compacting.continuing import RunPart
from regelate.operations.fleet import telling
from regelate.operations.fleet.applying import Busy, Effect, Places, PlannedItem, apply, plan_json, plan_of_json
from regelate.operations.fleet.observe import Observed, observe, refreshed
from regelate.operations.fleet.scan import ScanBudget, scan
from regelate.operations.fleet.settle import Tariff, settle
from regelate.operations.upkeep.sweep import idents_of
from regelate.ports.clock import Clock
from regelate.ports.fleet_store import FleetStore
from regelate.service.access import CatalogAccess
from regelate.service.job_desk import JobDesk
from regelate.service.job_stores import JobStores
from regelate.service.knobs import Knobs
from regelate.service.once import once
from regelate.service.open_tables import OpenTables
from regelate.service.upkeep import Upkeep
from regelate.tenancy import DEFAULT_TENANT, Address, Scope

if TYPE_CHECKING:
    from regelate.settings.models import FleetSettings

NO_FILE_BY_SIZE = {"min-file-size-bytes": 1, "max-file-size-bytes": 2**62}
APPLY_LOCK, APPLY_LEASE_SECONDS = "fleet", 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetDoers:
    """Who does what a fleet decides."""

    access: CatalogAccess
    tables: OpenTables
    knobs: Knobs
    jobs: JobDesk
    job_stores: JobStores
    upkeep: Upkeep


@dataclass(frozen=True, slots=True, kw_only=True)
class _View:
    """The tables of a scope that the fleet remembers, and what would be done now, in view of all tables."""

    states: tuple[TableState, ...]
    proposals: Proposals


class FleetDesk:
    """Observes, proposes, begins and tells. What is asked of a scope is judged in view of all tables of all catalogs:
    budgets and the number of runs at once are everybody's.

    Errors of all: Unsupported FLEET_DISABLED, Unavailable FLEET_UNAVAILABLE.
    """

    def __init__(
        self,
        doers: FleetDoers,
        settings: FleetSettings,
        placement: PlacementPolicy,
        timeouts: Timeouts,
        catalogs: Collection[str],
        clock: Clock,
    ) -> None:
        self._doers = doers
        self._settings = settings
        self._timeouts = timeouts
        self._clock = clock
        self._worker = Worker(memory_bytes=placement.memory_bytes, threads=placement.threads)
        self._tariff = Tariff(price=LAMBDA, memory_bytes=placement.memory_bytes)
        self._catalogs = frozenset(catalogs)
        self._opened = once(self._open)
        self._read: tuple[int | None, FleetPolicy] | None = None

    def scan(
        self,
        scope: Scope,
        *,
        max_tables: int | None = None,
        time_budget_seconds: float | None = None,
        ended: Callable[[], bool] = lambda: False,
    ) -> FleetScanAnswer:
        """Settle what has ended, and look at the tables of a scope that nobody has looked at for the longest."""
        from regelate.adapters.iceberg.admin import IcebergAdmin

        store, limits = self._store(), self._settings
        settled = self._settle(store.states())
        idents, unlisted = idents_of(IcebergAdmin(self._doers.access.survey(scope.catalog), defaults={}), scope.holds)
        known = [state for state in store.states() if _holds(scope, state)]
        if unlisted:  # what could not be listed is not gone
            failed = {namespace for namespace, _ in unlisted}
            known = [state for state in known if state.ident.rpartition(".")[0] not in failed]
        budget = ScanBudget(
            max_tables=max_tables or limits.scan_tables,
            max_seconds=time_budget_seconds or limits.scan_seconds,
            ended=ended,
        )
        done = scan(idents, known, lambda ident, before: self._look(scope, ident, before), store, self._clock, budget)
        view = self._view(scope)
        return FleetScanAnswer(
            observed=len(done.observed),
            unchanged=done.unchanged,
            backlog=len(done.backlog),
            gone=done.gone,
            errors=tuple(telling.unseen(ident, error) for ident, error in (*unlisted, *done.failed)),
            settled=settled,
            statuses=telling.statuses(self._of_scope(view)),
        )

    def plan(self, scope: Scope, *, asked_by: str, trigger: FleetTrigger = FleetTrigger.DEMAND) -> FleetPlanAnswer:
        """Say what would begin now, and keep it for `apply`."""
        store = self._store()
        self._settle(store.states())
        view = self._view(scope)
        if scope.sees_all and trigger is FleetTrigger.DEMAND:
            self._refuse_unmatched()  # a schedule, and a tenant, go on where a table that a line names was dropped
        uuids = {state.table_uuid for state in view.states}
        mine = [p for p in view.proposals.proposed if p.candidate.table_uuid in uuids]
        items = [
            PlannedItem(
                table_uuid=p.candidate.table_uuid,
                ident=p.candidate.ident,
                max_files=p.max_files,
                run=p.run(
                    f"fleet-{uuid.uuid4().hex}", asked_by=asked_by, trigger=trigger, now_ms=view.proposals.now_ms
                ),
            )
            for p in mine
        ]
        plan_id = f"fleet-plan-{uuid.uuid4().hex}" if items else None
        if plan_id is not None:
            store.remember(_key(scope, plan_id), plan_json(items))
        return FleetPlanAnswer(
            plan_id=plan_id,
            runs=tuple(telling.planned(p) for p in mine),
            dollars=round(sum(p.candidate.dollars for p in mine), 6),
            bills=self._bills(scope, view),
            pace_error=view.proposals.pace.error,
            statuses=telling.statuses(self._of_scope(view)),
        )

    def apply(
        self,
        scope: Scope,
        *,
        plan_id: str | None,
        asked_by: str,
        time_budget_seconds: float | None = None,
        trigger: FleetTrigger = FleetTrigger.DEMAND,
    ) -> FleetApplyAnswer:
        """Begin the runs of a plan, or of one that is made now. One request of a catalog at a time.

        Errors: Unsupported JOBS_DISABLED; NotFound FLEET_PLAN_NOT_FOUND; Unavailable FLEET_BUSY.
        """
        tools = self._doers.job_stores.needed()
        plan_id = plan_id or self.plan(scope, asked_by=asked_by, trigger=trigger).plan_id
        if plan_id is None:
            return FleetApplyAnswer(plan_id=None, runs=(), left=(), predicted_dollars=0.0)
        store = self._store()
        kept = store.recall(_key(scope, plan_id))
        if kept is None:
            raise NotFound("FLEET_PLAN_NOT_FOUND", "there is no such plan, or it is older than a week: plan again")
        lease = tools.store.acquire(APPLY_LOCK, uuid.uuid4().hex, APPLY_LEASE_SECONDS)
        if lease is None:
            raise Unavailable("FLEET_BUSY", "another request begins runs; try again when it has ended")

        def do(item: PlannedItem) -> Effect:
            if not tools.store.renew(lease, APPLY_LEASE_SECONDS):
                raise Busy("another request begins runs now")
            return self._do(scope, item)

        try:
            self._settle(store.states())
            view = self._view(scope)
            begun = apply(
                plan_of_json(kept),
                {state.table_uuid: state for state in view.states},
                view.proposals,
                do,
                store,
                self._tariff,
                self._clock,
                max_seconds=time_budget_seconds or self._settings.apply_seconds,
                places=self._places(),
            )
        finally:
            tools.store.release(lease)
        runs = tuple(telling.run_told(b.item.ident, b.run) for b in begun if b.run is not None)
        left = tuple(
            LeftRun(
                table=b.item.ident,
                operation=b.item.run.operation,
                why=telling.told_to(b.why, private=_is_private(scope)),
            )
            for b in begun
            if b.run is None
        )
        return FleetApplyAnswer(
            plan_id=plan_id, runs=runs, left=left, predicted_dollars=round(sum(r.predicted_dollars for r in runs), 6)
        )

    def status(
        self, scope: Scope, ident: str | None = None, *, status: FleetStatus | None = None, limit: int
    ) -> FleetStatusAnswer:
        """Say where tables stand: those that lost most points first. Errors: NotFound FLEET_TABLE_NOT_FOUND."""
        self._settle(self._store().states())
        view = self._view(scope)
        verdicts = {verdict.table_uuid: verdict for verdict in view.proposals.verdicts}
        now_ms = view.proposals.now_ms
        told = [
            telling.standing(state, verdicts[state.table_uuid], now_ms=now_ms, private=_is_private(scope))
            for state in view.states
            if ident in (None, state.ident) and status in (None, verdicts[state.table_uuid].status)
        ]
        if ident is not None and not told:
            raise NotFound("FLEET_TABLE_NOT_FOUND", "the fleet does not know this table: FLEET_SCAN looks for new ones")
        told.sort(key=lambda table: (-1.0 if table.score is None else table.score, table.table))
        return FleetStatusAnswer(
            tables=tuple(told[:limit]),
            more=max(len(told) - limit, 0),
            statuses=telling.statuses(self._of_scope(view)),
            bills=self._bills(scope, view),
        )

    def history(self, scope: Scope, ident: str | None = None, *, limit: int) -> FleetHistoryAnswer:
        """List the runs that ended. Errors: NotFound FLEET_TABLE_NOT_FOUND."""
        store = self._store()
        states = store.states()
        self._settle(states)
        mine = {state.table_uuid: state.ident for state in states if _holds(scope, state)}
        wanted = None
        if ident is not None:
            wanted = next((key for key, name in mine.items() if name == ident), None)
            if wanted is None:
                told = "the fleet does not know this table: FLEET_SCAN looks for new ones"
                raise NotFound("FLEET_TABLE_NOT_FOUND", told)
        asked = limit
        while True:  # others' runs of the catalog take up places
            found = store.history(scope.catalog, wanted, asked)
            runs = [(mine[key], run) for key, run in found if key in mine]
            if len(runs) >= limit or len(found) < asked:
                return FleetHistoryAnswer(runs=tuple(telling.run_told(name, run) for name, run in runs[:limit]))
            asked *= 4

    def turn(self, scope: Scope, *, ended: Callable[[], bool]) -> None:
        """Scan, and begin what is due: what a schedule does. Nothing is begun once it is `ended` from outside."""
        self.scan(scope, ended=ended)
        if not ended() and self._doers.jobs.enabled:
            self.apply(scope, plan_id=None, asked_by="the schedule", trigger=FleetTrigger.SCHEDULE)

    def _look(self, scope: Scope, ident: str, before: TableObservation | None) -> TableObservation:
        knobs, address = self._doers.knobs, scope.address(ident)
        with self._doers.tables.open(address, Access.READ) as session:
            retention, now_ms = knobs.retention(session, None), self._store().now_ms()
            # A catalog without tenants has no tables of one tenant's: whoever scans first would be sent the bill.
            tenant = address.tenant_id if scope.multi_tenant else DEFAULT_TENANT
            if before is not None and before.metadata_location == session.metadata_location:
                snapshots, refs = session.reader.history()
                names = {"catalog": scope.catalog, "ident": ident, "tenant": tenant}
                found = refreshed(before, snapshots, refs, retention, now_ms=now_ms)
                return replace(found, **names)  # type: ignore[arg-type]
            policy = knobs.policy(session)
            seen = Observed(
                catalog=scope.catalog,
                ident=ident,
                tenant=tenant,
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

    def _do(self, scope: Scope, item: PlannedItem) -> Effect:
        """Do one operation, or submit the job that does it."""
        address, run, upkeep = scope.address(item.ident), item.run, self._doers.upkeep
        with self._doers.tables.open(address, Access.READ) as session:
            if session.uuid != item.table_uuid:
                raise Busy("another table has its name now: scan again")
        if run.operation.rewrites_data:
            there = self._doers.jobs.live(address, announce=True)
            if there is None:
                part = RunPart(base_run_id=run.run_id, part=1, request=self._asked(item, scope))
                there = self._doers.jobs.submit(address, part, Origin.FLEET)
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
                removed = upkeep.remove_orphan_files(address, older_than_hours=None, dry_run=False)
                return Effect(did_something=removed.orphan_files > 0)

    def _asked(self, item: PlannedItem, scope: Scope) -> CompactRequest:
        """Return the COMPACT of a run, by the options that the policy has for it. One for the deletes' sake takes the
        files that deletes apply to, whatever the size of the others."""
        options = dict(self._policy().for_table(scope.catalog, item.ident).compact_options)
        if item.run.operation is FleetOperation.APPLY_DELETES:
            options = {"delete-file-threshold": 1, **options, **NO_FILE_BY_SIZE}
        return CompactRequest(
            expire_snapshots=False,
            max_cost=_most_it_may_cost(item.run),
            max_files=item.max_files,
            options=options or None,
        )

    def _view(self, scope: Scope) -> _View:
        store = self._store()
        states = tuple(state for state in store.states() if state.catalog in self._catalogs)
        # The whole order, also of what has to wait for a place: how many are under way at once is said at the start.
        policy = replace(self._policy(), max_running=max(len(states), 1), max_running_per_catalog=None)
        proposals = propose(FleetState(tables=states), policy, store.now_ms(), worker=self._worker)
        mine = tuple(state for state in states if _holds(scope, state))
        return _View(states=mine, proposals=proposals)

    def _settle(self, states: Sequence[TableState]) -> int:
        tools = self._doers.job_stores.tools
        if tools is None:
            return 0
        return settle(states, self._job_of, self._store(), self._tariff)

    def _job_of(self, state: TableState, run: FleetRun) -> JobRecord | None:
        if run.job_id is not None:
            return self._doers.job_stores.needed().store.get(run.job_id)
        table = state.ident.rpartition(".")[2]
        address = Address(tenant_id=state.tenant, catalog=state.catalog, ident=state.ident, table=table)
        return self._doers.jobs.of_run(address, run.run_id)

    def _places(self) -> Places:
        policy = self._policy()
        live = Counter(state.catalog for state in self._store().states() if state.live is not None)
        return Places(most=policy.max_running, most_per_catalog=policy.max_running_per_catalog, live=live)

    def _refuse_unmatched(self) -> None:
        """Refuse a policy with a glob for no table of any catalog, once tables are known."""
        if self._settings.policy and (states := self._store().states()):
            from regelate.settings.fleet_policy import refuse_unmatched

            refuse_unmatched(self._policy(), [(state.catalog, state.ident) for state in states])

    def _of_scope(self, view: _View) -> list[Verdict]:
        uuids = {state.table_uuid for state in view.states}
        return [verdict for verdict in view.proposals.verdicts if verdict.table_uuid in uuids]

    def _bills(self, scope: Scope, view: _View) -> tuple[FleetBill, ...]:
        """Return the bills of a scope's tenants; the fleet's own is told to who may see all of them."""
        found = telling.bills(view.proposals, self._policy(), (state.tenant for state in view.states))
        return found[1:] if _is_private(scope) else found

    def _store(self) -> FleetStore:
        found = self._opened()
        if found is None:
            raise Unsupported("FLEET_DISABLED", "this deployment remembers no fleet: set fleet.store in config.json")
        return found

    def _open(self) -> FleetStore | None:
        found = self._settings
        if found.store == "dynamodb":
            from regelate.adapters.fleetstore.dynamodb import DynamoFleet

            return DynamoFleet(found.table or "", timeouts=self._timeouts)
        if found.store == "sqlite":
            from regelate.adapters.fleetstore.sqlite import SqliteFleet

            return SqliteFleet(Path(found.path or ""))
        return None

    def _policy(self) -> FleetPolicy:
        """Read the policy again whenever its file has changed. Errors: InvalidRequest FLEET_POLICY_INVALID."""
        if not self._settings.policy:
            return FleetPolicy()
        from regelate.settings.fleet_policy import load_fleet_policy

        path = Path(self._settings.policy)
        changed_ns = path.stat().st_mtime_ns if path.exists() else None
        if self._read is None or self._read[0] != changed_ns:
            self._read = (changed_ns, load_fleet_policy(path))
        return self._read[1]


def _most_it_may_cost(run: FleetRun) -> float:
    """Return the `max_cost` of a run: COMPACT's own estimate knows nothing of the pace, and is double where every value
    is verified."""
    slower = run.model_seconds / run.predicted_seconds if run.predicted_seconds > 0 else 1.0
    return 2 * run.max_dollars * max(slower, 1.0)


def _is_private(scope: Scope) -> bool:
    """Say whether a scope is one of several tenants', who are told nothing of the others."""
    return scope.multi_tenant and not scope.sees_all


def _holds(scope: Scope, state: TableState) -> bool:
    return state.catalog == scope.catalog and scope.holds(state.ident.rpartition(".")[0])


def _key(scope: Scope, plan_id: str) -> str:
    """Name a plan with whom it was made for: nobody else's scope applies it."""
    return f"{scope.catalog}/{scope.tenants}/{plan_id}"
