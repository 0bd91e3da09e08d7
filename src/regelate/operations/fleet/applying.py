"""FLEET_APPLY: begin the runs of a plan, in its order, as far as they are still what would be done."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from regelate.core.fleet.operation import FleetOutcome
from regelate.core.fleet.proposals import Proposals
from regelate.core.fleet.state import FleetRun, TableState
from regelate.core.fleet.state_json import run_json, run_of_json
from regelate.core.values import dataclass
from regelate.errors import Conflict, NotFound, RegelateError, Unavailable
from regelate.operations.fleet.settle import Tariff, failed, settle_run
from regelate.ports.clock import Clock
from regelate.ports.fleet_store import FleetStore


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedItem:
    """One run of a plan as it is kept. `max_files`: it may read no more. `max_seconds`: a rewrite ends there."""

    table_uuid: str
    ident: str
    max_files: int | None
    run: FleetRun
    max_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """What came of one item: the run as it is now, or why it was left."""

    item: PlannedItem
    run: FleetRun | None
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What one operation did, where it is done at once; for a job `job_id` alone."""

    job_id: str | None = None
    did_something: bool = False
    files_after: int | None = None


Do = Callable[[PlannedItem], Effect]


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """How many runs may be under way at once, in all and in each catalog, and how many are: `live`, by catalog."""

    most: int
    most_per_catalog: int | None
    live: Mapping[str, int]

    def full(self, live: Mapping[str, int], catalog: str) -> str | None:
        """Say which limit leaves no place for one more; None where there is one."""
        under_way, here = sum(live.values()), live.get(catalog, 0)
        if under_way >= self.most:
            return f"{under_way} runs are under way, the most at once: it is next"
        if self.most_per_catalog is not None and here >= self.most_per_catalog:
            return f"{here} runs are under way in this catalog, the most at once: it is next"
        return None


class Busy(Exception):
    """Of `Do`: the run was not begun, and why; the next plan may have it again."""


_KEPT = ("table_uuid", "ident", "max_files", "max_seconds")


def plan_json(items: Sequence[PlannedItem]) -> str:
    """Return a plan as the store keeps it."""
    kept = [{**{name: getattr(item, name) for name in _KEPT}, "run": run_json(item.run)} for item in items]
    return json.dumps(kept, separators=(",", ":"))


def plan_of_json(text: str) -> tuple[PlannedItem, ...]:
    """Read a plan back."""
    return tuple(PlannedItem(**{**kept, "run": run_of_json(kept["run"])}) for kept in json.loads(text))


def apply(
    items: Sequence[PlannedItem],
    states: Mapping[str, TableState],
    now: Proposals,
    do: Do,
    store: FleetStore,
    tariff: Tariff,
    clock: Clock,
    *,
    max_seconds: float,
    places: Places,
    private: bool,
) -> tuple[Begun, ...]:
    """Begin what of a plan would be proposed `now` as well, so that no budget is spent twice by two plans.

    A run that was begun before is told as it stands: the same plan twice does its work once. One that has room for a
    part of its work only, since then, is left to the next plan. `do` begins a run or, for what is no job, does it.
    `private`: whoever asks is one of several tenants. Errors of one run are its own.
    """
    until = clock.monotonic() + max_seconds
    fresh = {(p.candidate.table_uuid, p.operation): p for p in now.proposed}
    sentences = {verdict.table_uuid: verdict.told(private=private) for verdict in now.verdicts}
    live = Counter(places.live)
    found: list[Begun] = []
    for item in items:
        state = states.get(item.table_uuid)
        known = None if state is None else _known(state, item.run.run_id)
        proposal = fresh.get((item.table_uuid, item.run.operation))
        if known is not None:
            found.append(Begun(item=item, run=known))
        elif state is None:
            found.append(Begun(item=item, run=None, why="the table is gone"))
        elif proposal is None:
            found.append(Begun(item=item, run=None, why=sentences.get(item.table_uuid, "it is not due any more")))
        elif (proposal.max_files or sys.maxsize) < (item.max_files or sys.maxsize):
            found.append(Begun(item=item, run=None, why="the budget has room for a part of it only: plan again"))
        elif clock.monotonic() >= until:
            found.append(Begun(item=item, run=None, why="the time of this request was over: apply the plan again"))
        elif item.run.operation.rewrites_data and (full := places.full(live, state.catalog)) is not None:
            found.append(Begun(item=item, run=None, why=full))
        else:
            named = replace(item, ident=state.ident, run=_of_now(item.run, state, store))
            found.append(_begun(named, do, store, tariff, clock))
            live[state.catalog] += found[-1].run is not None and found[-1].run.is_live
    return tuple(found)


def _known(state: TableState, run_id: str) -> FleetRun | None:
    return next((run for run in (*state.runs, state.live) if run is not None and run.run_id == run_id), None)


def _of_now(run: FleetRun, state: TableState, store: FleetStore) -> FleetRun:
    seen = state.observation
    files = None if seen is None else seen.files + seen.delete_files
    before = None if seen is None else seen.snapshot_id
    return replace(run, queued_ms=store.now_ms(), files_before=files, snapshot_before=before)


def _begun(item: PlannedItem, do: Do, store: FleetStore, tariff: Tariff, clock: Clock) -> Begun:
    def queue(state: TableState | None) -> TableState:
        if state is None:
            raise NotFound("TABLE_NOT_FOUND", "the fleet has forgotten the table")
        return state.queued(item.run)

    try:
        store.change(item.table_uuid, queue)
    except (Conflict, NotFound) as fault:
        return Begun(item=item, run=None, why=fault.message)
    started, started_ms = clock.monotonic(), store.now_ms()
    run = replace(item.run, started_ms=started_ms)
    try:
        effect = do(item)
    except Busy as fault:
        store.change(item.table_uuid, lambda state: _withdrawn(state, item.run.run_id))
        return Begun(item=item, run=None, why=str(fault))
    except Unavailable as fault:
        if item.run.operation.rewrites_data:  # the job may be there all the same: who settles looks for it by its run
            return Begun(item=item, run=run)
        ended = failed(run, fault, tariff, now_ms=store.now_ms(), seconds=clock.monotonic() - started)
        settle_run(store, item.table_uuid, ended)
        return Begun(item=item, run=ended)
    except RegelateError as fault:
        ended = failed(run, fault, tariff, now_ms=store.now_ms(), seconds=clock.monotonic() - started)
        settle_run(store, item.table_uuid, ended)
        return Begun(item=item, run=ended)
    if effect.job_id is not None:
        job_id = effect.job_id
        state = store.change(item.table_uuid, lambda state: _started(state, item.run.run_id, started_ms, job_id))
        return Begun(item=item, run=_known(state, item.run.run_id))
    ended = tariff.paid(
        run,
        clock.monotonic() - started,
        ended_ms=store.now_ms(),
        outcome=FleetOutcome.DONE if effect.did_something else FleetOutcome.NO_EFFECT,
        files_after=run.files_before,
    )
    settle_run(store, item.table_uuid, ended)
    return Begun(item=item, run=ended)


def _withdrawn(state: TableState | None, run_id: str) -> TableState:
    """Forget a run that was queued and not begun."""
    if state is None:
        raise NotFound("TABLE_NOT_FOUND", "the fleet has forgotten the table")
    is_it = state.live is not None and state.live.run_id == run_id
    return replace(state, live=None) if is_it else state


def _started(state: TableState | None, run_id: str, now_ms: int, job_id: str) -> TableState:
    """Note the job; somebody may have settled the run already, where the job was quick."""
    if state is None:
        raise NotFound("TABLE_NOT_FOUND", "the fleet has forgotten the table")
    is_it = state.live is not None and state.live.run_id == run_id
    return state.started(now_ms, job_id) if is_it else state
