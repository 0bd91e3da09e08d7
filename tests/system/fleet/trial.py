"""One month of a fleet under a rule: what was removed, what it cost, and what was promised."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial

from regelate.core.fleet.candidates import USUAL_WORKER, Candidate, candidates_of, measured_pace
from regelate.core.fleet.dealing import SET_ASIDE
from regelate.core.fleet.operation import FleetOperation, FleetOutcome, FleetStatus, FleetTrigger, PauseKind
from regelate.core.fleet.policy import Budgets, FleetPolicy
from regelate.core.fleet.propose import propose
from regelate.core.fleet.state import FleetState, TableState
from regelate.ports.fleet_store import FleetStore
from tests.system.fleet.world import Table, ms_of

WORTH_A_LOOK = frozenset({FleetStatus.DUE, FleetStatus.OVER_BUDGET})


@dataclass(slots=True)
class Outcome:
    """What came out of a month. `files_removed`: data files and delete files that readers no longer open; `dollars` are
    those of the rewrites that removed them, `upkeep_dollars` those of expiry and manifests."""

    files_removed: float = 0.0
    dollars: float = 0.0
    upkeep_dollars: float = 0.0
    runs: int = 0
    by_operation: Counter[str] = field(default_factory=Counter)
    propose_seconds: list[float] = field(default_factory=list)
    over_budget: list[str] = field(default_factory=list)
    unserved: list[str] = field(default_factory=list)
    served_days: int = 0
    loops: int = 0
    most_compactions_a_day: int = 0
    unsaid: int = 0
    verdicts: int = 0
    looks: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    pace_error: float | None = None
    paid: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Dollars of rewrites by tenant."""

    @property
    def files_per_dollar(self) -> float:
        return self.files_removed / self.dollars if self.dollars else 0.0


def dollars_to_cure(tables: Iterable[Table]) -> float:
    """Return what it would cost to compact every table of a fleet once, as it stands."""
    every = (candidate for table in tables for candidate in rewrites(table))
    return sum(candidate.dollars for candidate in every if candidate.operation is FleetOperation.COMPACT)


def rewrites(table: Table) -> list[Candidate]:
    return list(candidates_of(state_of(table, 0), measured_pace(())))


def state_of(table: Table, now_ms: int) -> TableState:
    return TableState(
        table_uuid=table.name,
        catalog=table.catalog,
        ident=f"db.{table.name}",
        tenant=table.tenant,
        observation=table.observed(now_ms),
    )


def policy_for(tables: list[Table], dollars_per_day: float) -> FleetPolicy:
    """Share the day between the tenants by how many tables they have, none less than a fifth of an even share."""
    owned = Counter(table.tenant for table in tables)
    even = dollars_per_day / len(owned)
    budgets = {tenant: max(dollars_per_day * n / len(tables), even / 5) for tenant, n in owned.items()}
    scale = dollars_per_day / sum(budgets.values())
    return FleetPolicy(
        budgets=Budgets(dollars_per_day=dollars_per_day),
        tenant_budgets={tenant: Budgets(dollars_per_day=budget * scale) for tenant, budget in budgets.items()},
        max_running=max(len(tables) // 2, 10),
    )


class Fleet:
    """The fleet's own rule: `propose` every so many hours, and what it proposes is carried out."""

    def __init__(self, tables: list[Table], policy: FleetPolicy, store: FleetStore | None = None) -> None:
        self.store = store
        self.tables = tables
        self.policy = policy
        self.states = [state_of(table, ms_of(0)) for table in tables]
        for number, state in enumerate(self.states):
            self._change(number, partial(_as_it_is, state))
        self.index = {table.name: number for number, table in enumerate(tables)}
        self.found = Outcome()
        self._live: dict[str, tuple[float, Callable[[float], None]]] = {}
        self._paid: dict[tuple[str, int], float] = defaultdict(float)
        self._ill: set[tuple[str, int]] = set()
        self._served: set[tuple[str, int]] = set()
        self._compactions: Counter[tuple[str, int]] = Counter()
        self._left_head: dict[str, int] = {}

    def live(self, days: int, every_hours: float) -> Outcome:
        steps = int(days * 24 / every_hours)
        for step in range(steps):
            self._step(step * every_hours)
        self._settle(days * 24.0 + 1e6)
        self._judge()
        return self.found

    def _step(self, hours: float) -> None:
        self._settle(hours)
        now_ms = ms_of(hours)
        state = FleetState(tables=tuple(self.states) if self.store is None else self.store.states())
        begun = time.process_time()
        proposals = propose(state, self.policy, now_ms)
        self.found.propose_seconds.append(time.process_time() - begun)
        self.found.pace_error = proposals.pace.error
        day = int(hours // 24)
        for verdict in proposals.verdicts:
            self.found.verdicts += 1
            self.found.unsaid += not verdict.sentence
            self.found.statuses[verdict.status.value] += 1
            if verdict.status in WORTH_A_LOOK:
                self._ill.add((verdict.tenant, day))
            if verdict.pause is not None and verdict.pause.kind is PauseKind.LOOP:
                self.found.loops += 1
            if verdict.next_look_ms <= now_ms and verdict.status not in (FleetStatus.QUEUED, FleetStatus.RUNNING):
                self._look(self.index[verdict.table_uuid], hours)
        for proposal in proposals.proposed:
            self._begin(proposal, hours, day)

    def _look(self, number: int, hours: float) -> None:
        table = self.tables[number]
        table.live_to(hours)
        seen = table.observed(ms_of(hours))
        self._change(number, lambda state: state.observed(seen))
        self.found.looks += 1

    def _begin(self, proposal: object, hours: float, day: int) -> None:
        candidate = proposal.candidate  # type: ignore[attr-defined]
        number = self.index[candidate.table_uuid]
        table, now_ms = self.tables[number], ms_of(hours)
        run = proposal.run(  # type: ignore[attr-defined]
            f"{candidate.table_uuid}-{hours:g}", asked_by="fleet", trigger=FleetTrigger.SCHEDULE, now_ms=now_ms
        )
        table.live_to(hours)
        self._change(number, lambda state: state.queued(run).started(now_ms))
        self._served.add((table.tenant, day))
        if candidate.operation.rewrites_data:
            self._compactions[table.name, day] += 1
            self.found.most_compactions_a_day = max(
                self.found.most_compactions_a_day, self._compactions[table.name, day]
            )
        if candidate.operation is FleetOperation.COMPACT and self._left_head.get(table.name) == table.head:
            self.found.loops += candidate.share == 1.0 and table.removable < 1
        whole = candidate.model_seconds * table.pace
        most = candidate.seconds * SET_ASIDE
        share, seconds = candidate.share, whole
        outcome = FleetOutcome.DONE if share == 1.0 else FleetOutcome.PARTIAL
        if whole > most:  # it is ended there: what it has done until then stays
            if not candidate.operation.rewrites_data:
                outcome, share = FleetOutcome.PARTIAL, 0.0
            else:
                outcome, share = FleetOutcome.PARTIAL, share * most / whole
            seconds = most
        before, files = table.head, int(table.files + table.deletes)
        removed = carried_out(table, candidate.operation, share)
        dollars = min(candidate.dollars * seconds / candidate.seconds, proposal.max_dollars)  # type: ignore[attr-defined]
        effect = outcome if removed >= 1 or not candidate.operation.rewrites_data else FleetOutcome.NO_EFFECT
        if candidate.operation.rewrites_data:
            self.found.files_removed += removed
            self.found.dollars += dollars
            self.found.paid[table.tenant] += dollars
        else:
            self.found.upkeep_dollars += dollars
        self.found.runs += 1
        self.found.by_operation[candidate.operation.value] += 1

        def end(ended_hours: float) -> None:
            live = self.states[number].live
            assert live is not None
            ended = replace(
                live,
                outcome=effect,
                ended_ms=ms_of(ended_hours),
                actual_seconds=seconds,
                actual_dollars=dollars,
                actual_gb_seconds=USUAL_WORKER.gb_seconds(seconds),
                actual_bytes=int(candidate.read_bytes * share),
                files_before=files,
                files_after=max(files - int(removed), 0),
                snapshot_before=before,
                snapshot_after=table.head,
            )
            self._left_head[table.name] = table.head
            self._paid[table.tenant, int(ended_hours // 24)] += dollars
            self._change(number, lambda state: state.settled(ended))
            self._look(number, max(ended_hours, table.hours))

        self._live[table.name] = (hours + seconds / 3600, end)

    def _change(self, number: int, change: Callable[[TableState], TableState]) -> None:
        """Change a table's state, in the store where there is one."""
        before = self.states[number]
        if self.store is None:
            self.states[number] = change(before)
        else:
            uuid = before.table_uuid
            self.states[number] = self.store.change(uuid, lambda stored: change(before if stored is None else stored))

    def _settle(self, hours: float) -> None:
        due = [(when, name) for name, (when, _) in self._live.items() if when <= hours]
        for when, name in sorted(due):
            self._live.pop(name)[1](when)

    def _judge(self) -> None:
        for (tenant, day), paid in sorted(self._paid.items()):
            most = self.policy.budgets_of(tenant).dollars_per_day
            if most is not None and paid > most * (1 + 1e-9):
                self.found.over_budget.append(f"{tenant} on day {day}: {paid:.6f} of {most:.6f}")
        self.found.unserved = [f"{tenant} on day {day}" for tenant, day in sorted(self._ill - self._served)]
        self.found.served_days = len(self._ill & self._served)


def _as_it_is(state: TableState, _: TableState) -> TableState:
    return state


def carried_out(table: Table, operation: FleetOperation, share: float) -> float:
    """Do it, or a share of it; returns by how many data files and delete files fewer."""
    if operation is FleetOperation.COMPACT:
        return table.merge(share)
    if operation is FleetOperation.APPLY_DELETES:
        return table.apply_deletes(share)
    if share > 0 and operation is FleetOperation.EXPIRE:
        table.expire()
    if share > 0 and operation is FleetOperation.REWRITE_MANIFESTS:
        table.merge_manifests()
    return 0.0
