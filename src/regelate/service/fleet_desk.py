"""A fleet as one thing: its tables observed, runs proposed and begun, and where each table stands."""

from __future__ import annotations

import sys
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from regelate.core.answers.fleet import (
    FleetApplyAnswer,
    FleetBacklog,
    FleetBill,
    FleetHistoryAnswer,
    FleetPlanAnswer,
    FleetScanAnswer,
    FleetStatusAnswer,
)
from regelate.core.engines import LAMBDA
from regelate.core.fleet.backlog import backlog_at
from regelate.core.fleet.candidates import Worker
from regelate.core.fleet.observation import TableObservation
from regelate.core.fleet.operation import THE_SCHEDULE, FleetStatus, FleetTrigger
from regelate.core.fleet.overrides import allowed_for
from regelate.core.fleet.policy import FleetPolicy
from regelate.core.fleet.proposals import Proposal, Proposals, Verdict
from regelate.core.fleet.propose import propose
from regelate.core.fleet.state import FleetState, TableState
from regelate.core.policy.policy import PlacementPolicy
from regelate.core.table.time_ranges import DAY_MS
from regelate.core.values import dataclass
from regelate.errors import NotFound, RegelateError, Unavailable
from regelate.operations.fleet import telling
from regelate.operations.fleet.applying import Busy, Effect, Places, PlannedItem, apply, plan_json, plan_of_json
from regelate.operations.fleet.scan import NOTHING_SCANNED, ScanBudget, Scanned, scan
from regelate.operations.fleet.settle import Tariff, settle
from regelate.operations.upkeep.sweep import idents_of
from regelate.ports.clock import Clock
from regelate.service.fleet_doers import FleetDoers
from regelate.service.fleet_memory import FleetMemory, unknown_table
from regelate.service.fleet_rules import FleetRules
from regelate.service.fleet_tables import FleetTables
from regelate.service.fleet_unseen import UnseenTables, unseen_state
from regelate.tenancy import Scope

if TYPE_CHECKING:
    from regelate.settings.models import FleetSettings

APPLY_LOCK, APPLY_LEASE_SECONDS = "fleet", 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _View:
    """The fleet at one moment: `every` table that it remembers, those of a scope, and what would be done now, in view
    of all tables, by the policy of the moment."""

    every: tuple[TableState, ...]
    states: tuple[TableState, ...]
    policy: FleetPolicy
    proposals: Proposals

    @property
    def proposed(self) -> list[Proposal]:
        uuids = {state.table_uuid for state in self.states}
        return [proposal for proposal in self.proposals.proposed if proposal.candidate.table_uuid in uuids]

    @property
    def verdicts(self) -> list[Verdict]:
        uuids = {state.table_uuid for state in self.states}
        return [verdict for verdict in self.proposals.verdicts if verdict.table_uuid in uuids]

    @property
    def places(self) -> Places:
        live = Counter(state.catalog for state in self.every if state.live is not None)
        return Places(most=self.policy.max_running, most_per_catalog=self.policy.max_running_per_catalog, live=live)


class FleetDesk:
    """Observes, proposes, begins and tells. What is asked of a scope is judged in view of all tables of all catalogs:
    budgets and the number of runs at once are everybody's.

    Errors of all: Unsupported FLEET_DISABLED, Unavailable FLEET_UNAVAILABLE.
    """

    def __init__(
        self,
        doers: FleetDoers,
        memory: FleetMemory,
        settings: FleetSettings,
        placement: PlacementPolicy,
        catalogs: Collection[str],
        clock: Clock,
    ) -> None:
        self._doers = doers
        self._settings = settings
        self._clock = clock
        self._worker = Worker(memory_bytes=placement.memory_bytes, threads=placement.threads)
        self._tariff = Tariff(price=LAMBDA, memory_bytes=placement.memory_bytes)
        self._catalogs = frozenset(catalogs)
        self._store = memory.needed
        self._rules = FleetRules(settings.policy)
        self._unseen = UnseenTables(self._store)
        self._tables = FleetTables(doers, lambda: self._store().now_ms())

    def scan(
        self,
        *scopes: Scope,
        max_tables: int | None = None,
        time_budget_seconds: float | None = None,
        ended: Callable[[], bool] = lambda: False,
    ) -> FleetScanAnswer:
        """Settle what has ended, and look at the tables that nobody has looked at for the longest: one catalog after
        the other, each within its share of what is left of the time and the number. What keeps one of several from
        being listed is among the `errors`."""
        states, settled = self._settled()
        tables_left = max_tables or self._settings.scan_tables
        until = self._clock.monotonic() + (time_budget_seconds or self._settings.scan_seconds)
        found: list[Scanned] = []
        for number, scope in enumerate(scopes):
            waiting = len(scopes) - number
            budget = ScanBudget(
                max_tables=-(-tables_left // waiting),
                max_seconds=max(until - self._clock.monotonic(), 0.0) / waiting,
                ended=ended,
            )
            try:
                done = self._scanned(scope, states, budget)
            except RegelateError as error:
                if len(scopes) == 1:
                    raise
                done = NOTHING_SCANNED.failing("*", error)
            tables_left -= len(done.observed)
            found.append(done if len(scopes) == 1 else done.named(partial(_told, scope)))
        view = self._view(scopes, self._store().states())
        self._store().note_backlog(backlog_at(view.proposals.verdicts, view.proposals.now_ms))
        return FleetScanAnswer(
            observed=sum(len(done.observed) for done in found),
            unchanged=sum(done.unchanged for done in found),
            backlog=sum(len(done.backlog) for done in found),
            gone=tuple(ident for done in found for ident in done.gone),
            errors=tuple(telling.unseen(ident, error) for done in found for ident, error in done.failed),
            settled=settled,
            statuses=telling.statuses(view.verdicts),
        )

    def _scanned(self, scope: Scope, states: Sequence[TableState], budget: ScanBudget) -> Scanned:
        from regelate.adapters.iceberg.admin import IcebergAdmin

        admin = IcebergAdmin(self._doers.access.survey(scope.catalog), defaults={})
        idents, unlisted = idents_of(admin, scope.holds)
        known = [state for state in states if _holds(scope, state)]
        if unlisted:  # what could not be listed is not gone
            failed = {namespace for namespace, _ in unlisted}
            known = [state for state in known if state.ident.rpartition(".")[0] not in failed]

        def look(ident: str, before: TableObservation | None) -> TableObservation:
            return self._tables.look(scope, ident, before)

        done = scan(idents, known, look, self._store(), self._clock, budget)
        self._unseen.note(scope, done.unseen)
        return replace(done, failed=(*unlisted, *done.failed))

    def plan(
        self, scope: Scope, *, asked_by: str, trigger: FleetTrigger = FleetTrigger.DEMAND, keep: bool = True
    ) -> FleetPlanAnswer:
        """Say what would begin now, and `keep` it for `apply`."""
        view = self._view((scope,), self._settled()[0])
        plan_id = self._kept_plan((scope,), view, asked_by, trigger)[0] if keep else None
        mine = view.proposed
        return FleetPlanAnswer(
            plan_id=plan_id,
            runs=tuple(telling.planned(p) for p in mine),
            dollars=round(sum(p.candidate.dollars for p in mine), 6),
            elsewhere=telling.elsewhere(view.policy, [p.candidate for p in mine]),
            bills=_bills(scope, view),
            pace_error=view.proposals.pace.error,
            statuses=telling.statuses(view.verdicts),
        )

    def apply(
        self,
        *scopes: Scope,
        plan_id: str | None,
        asked_by: str,
        time_budget_seconds: float | None = None,
        trigger: FleetTrigger = FleetTrigger.DEMAND,
    ) -> FleetApplyAnswer:
        """Begin the runs of a plan, or of one that is made now. One request at a time.

        Errors: Unsupported JOBS_DISABLED; NotFound FLEET_PLAN_NOT_FOUND; Unavailable FLEET_BUSY.
        """
        tools, store = self._doers.job_stores.needed(), self._store()
        kept = None if plan_id is None else store.recall(_key(scopes, plan_id))
        if plan_id is not None and kept is None:
            raise NotFound("FLEET_PLAN_NOT_FOUND", "there is no such plan, or it is older than a week: plan again")
        lease = tools.store.acquire(APPLY_LOCK, uuid.uuid4().hex, APPLY_LEASE_SECONDS)
        if lease is None:
            raise Unavailable("FLEET_BUSY", "another request begins runs; try again when it has ended")

        try:
            view = self._view(scopes, self._settled()[0])
            items: Sequence[PlannedItem]
            if kept is None:
                plan_id, items = self._kept_plan(scopes, view, asked_by, trigger)
            else:
                items = plan_of_json(kept)

            by_catalog = {scope.catalog: scope for scope in scopes}
            scope_of = {state.table_uuid: by_catalog[state.catalog] for state in view.states}
            states = {state.table_uuid: state for state in view.states}

            def do(item: PlannedItem) -> Effect:
                if not tools.store.renew(lease, APPLY_LEASE_SECONDS):
                    raise Busy("another request begins runs now")
                allowed = allowed_for(view.policy, states[item.table_uuid]).policy
                return self._tables.do(scope_of[item.table_uuid], item, allowed)

            begun = apply(
                items,
                states,
                view.proposals,
                do,
                store,
                self._tariff,
                self._clock,
                max_seconds=time_budget_seconds or self._settings.apply_seconds,
                places=view.places,
                private=_is_private(scopes),
            )
        finally:
            tools.store.release(lease)
        names = {b.item.table_uuid: b.item.ident for b in begun}
        if len(scopes) > 1:
            names |= {uuid: _told(scope_of[uuid], ident) for uuid, ident in names.items() if uuid in scope_of}
        return telling.begun(plan_id, begun, names)

    def status(
        self, scope: Scope, ident: str | None = None, *, status: FleetStatus | None = None, limit: int
    ) -> FleetStatusAnswer:
        """Say where tables stand: those that lost most points first. Errors: NotFound FLEET_TABLE_NOT_FOUND."""
        view = self._view((scope,), self._settled()[0])
        verdicts = {verdict.table_uuid: verdict for verdict in view.verdicts}
        now_ms = view.proposals.now_ms
        told = [
            telling.standing(state, verdicts[state.table_uuid], now_ms=now_ms, private=scope.is_private)
            for state in view.states
            if ident in (None, state.ident) and status in (None, verdicts[state.table_uuid].status)
        ]
        if ident is not None and status is None and not told and self._tables.exist(scope, ident):
            state = unseen_state(scope, ident)
            verdict = propose(FleetState(tables=(state,)), view.policy, now_ms).verdicts[0]
            told.append(telling.standing(state, verdict, now_ms=now_ms, private=scope.is_private))
        if ident is not None and not told:
            raise unknown_table()
        told.sort(key=lambda table: (-1.0 if table.score is None else table.score, table.table))
        return FleetStatusAnswer(
            tables=tuple(told[:limit]),
            more=max(len(told) - limit, 0),
            statuses=telling.statuses(view.verdicts),
            bills=_bills(scope, view),
        )

    def history(
        self, scope: Scope, ident: str | None = None, *, limit: int, backlog_days: int | None = None
    ) -> FleetHistoryAnswer:
        """List the runs that ended. Errors: NotFound FLEET_TABLE_NOT_FOUND."""
        store, states = self._store(), self._settled()[0]
        mine = {state.table_uuid: state.ident for state in states if _holds(scope, state)}
        wanted = None
        if ident is not None:
            wanted = next((key for key, name in mine.items() if name == ident), None)
            if wanted is None:
                raise unknown_table()
        asked = limit
        while True:  # others' runs of the catalog take up places
            found = store.history(scope.catalog, wanted, asked)
            runs = [(mine[key], run) for key, run in found if key in mine]
            if len(runs) >= limit or len(found) < asked:
                ended = tuple(telling.run_told(name, run) for name, run in runs[:limit])
                return FleetHistoryAnswer(runs=ended, backlog=self._backlog(scope, backlog_days or 0))
            asked *= 4

    def _backlog(self, scope: Scope, days: int) -> tuple[FleetBacklog, ...]:
        if not days:
            return ()
        store = self._store()
        whose = scope.tenants if scope.is_private else None
        return tuple(telling.backlog(found, whose) for found in store.backlogs(store.now_ms() - days * DAY_MS))

    def turn(self, scope: Scope, *, ended: Callable[[], bool]) -> None:
        """Scan, begin what is due, and tell the webhook what is new: what a schedule does. Nothing is begun or told
        once it is `ended` from outside."""
        self.scan(scope, ended=ended)
        if not ended() and self._doers.jobs.enabled:
            self.apply(scope, plan_id=None, asked_by=THE_SCHEDULE, trigger=FleetTrigger.SCHEDULE)
        self.tell(scope, ended=ended)

    def tell(self, *scopes: Scope, ended: Callable[[], bool] = lambda: False) -> None:
        """Tell the webhook, where there is one, what is new in these catalogs."""
        if not self._settings.slack_webhook:
            return
        from regelate.service.fleet_news import FleetNews

        news = FleetNews(self._settings.slack_webhook, self._store())
        for scope in scopes:
            if not ended():
                news.tell(scope.catalog, self.status(scope, limit=sys.maxsize), ended)

    def _kept_plan(
        self, scopes: Sequence[Scope], view: _View, asked_by: str, trigger: FleetTrigger
    ) -> tuple[str | None, list[PlannedItem]]:
        """Return the runs to begin now, and the id that they are kept by; None where there are none."""
        if all(scope.sees_all for scope in scopes) and trigger is FleetTrigger.DEMAND:
            # A schedule, and a tenant, go on where a table that a line names was dropped.
            self._rules.refuse_unmatched(view.policy, view.every)
        now_ms = view.proposals.now_ms
        items = [
            PlannedItem(
                table_uuid=p.candidate.table_uuid,
                ident=p.candidate.ident,
                max_files=p.max_files,
                max_seconds=p.max_seconds,
                run=p.run(f"fleet-{uuid.uuid4().hex}", asked_by=asked_by, trigger=trigger, now_ms=now_ms),
            )
            for p in view.proposed
        ]
        if not items:
            return None, items
        plan_id = f"fleet-plan-{uuid.uuid4().hex}"
        self._store().remember(_key(scopes, plan_id), plan_json(items))
        return plan_id, items

    def _settled(self) -> tuple[tuple[TableState, ...], int]:
        """Settle the runs that have ended; return the fleet as it is then, and how many there were."""
        store, tools = self._store(), self._doers.job_stores.tools
        states = store.states()
        ended = 0 if tools is None else settle(states, self._tables.job_of, store, self._tariff)
        return (store.states() if ended else states), ended

    def _view(self, scopes: Sequence[Scope], every: tuple[TableState, ...]) -> _View:
        states = tuple(state for state in every if state.catalog in self._catalogs)
        states += tuple(state for scope in scopes for state in self._unseen.of(scope, states))
        mine = tuple(state for state in states if any(_holds(scope, state) for scope in scopes))
        policy = self._rules.of(scopes, mine)
        # The whole order, also of what has to wait for a place: how many are under way at once is said at the start.
        in_order = replace(policy, max_running=max(len(states), 1), max_running_per_catalog=None)
        proposals = propose(FleetState(tables=states), in_order, self._store().now_ms(), worker=self._worker)
        return _View(every=every, states=mine, policy=policy, proposals=proposals)


def _bills(scope: Scope, view: _View) -> tuple[FleetBill, ...]:
    """Return the bills of a scope's tenants; the fleet's own is told to who may see all of them."""
    found = telling.bills(view.proposals, view.policy, (state.tenant for state in view.states))
    return found[1:] if scope.is_private else found


def _holds(scope: Scope, state: TableState) -> bool:
    return state.catalog == scope.catalog and scope.has(state.ident)


def _is_private(scopes: Sequence[Scope]) -> bool:
    return any(scope.is_private for scope in scopes)


def _told(scope: Scope, ident: str) -> str:
    """Name a table of one of several catalogs, as a policy's globs do."""
    return f"{scope.catalog}/{ident}"


def _key(scopes: Sequence[Scope], plan_id: str) -> str:
    """Name a plan with whom it was made for: nobody else's scope applies it."""
    return f"{'+'.join(f'{scope.catalog}/{scope.tenants}' for scope in scopes)}/{plan_id}"
