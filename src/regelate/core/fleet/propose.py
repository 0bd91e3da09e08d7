"""What a fleet should do now, of what it knows and what its policy allows; and why every other table waits. Pure.

each table     its candidates, or the first thing that stands in their way (standing.py)
the fleet      their scores, on one scale (candidates.py)
the tenants    take turns by the time they have used; of each the best that the budgets allow (dealing.py)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice

from regelate.core.fleet.cadence import LEAST_MS, cadence_of, next_look_ms, orphans_due
from regelate.core.fleet.candidates import (
    USUAL_WORKER,
    Candidate,
    Worker,
    candidates_of,
    files_of,
    measured_pace,
    scores,
    usual_reads,
    weight_of_gain,
)
from regelate.core.fleet.dealing import LEAST_SECONDS, SET_ASIDE, Bid, Dealer, Refusal, Until, bills
from regelate.core.fleet.operation import FleetOperation, FleetStatus
from regelate.core.fleet.overrides import allowed_for
from regelate.core.fleet.policy import FleetPolicy, TablePolicy
from regelate.core.fleet.proposals import Proposal, Proposals, Verdict
from regelate.core.fleet.sentences import at, reads, what
from regelate.core.fleet.standing import Scored, Standing, Stands
from regelate.core.fleet.state import FleetState, TableState, next_day_ms, next_month_ms


def propose(state: FleetState, policy: FleetPolicy, now_ms: int, *, worker: Worker = USUAL_WORKER) -> Proposals:
    """Return the runs to begin now, in order, and a verdict on every table.

    No budget is exceeded by what is set aside for the runs together with what was spent before. Of one table a single
    run is live at any time, and of the fleet and each catalog as many as the policy allows.
    """
    tables = state.tables
    pace, usual = measured_pace(tables), usual_reads(tables)
    fleet, tenants = bills(tables, now_ms)
    weights = _weights(state)
    judge = Standing(now_ms, weights)
    bids: list[Bid] = []
    stands: list[Stands] = []
    firsts: list[Scored | None] = []
    all_allowed = [allowed_for(policy, table) for table in tables]
    found = [
        tuple(candidates_of(table, pace, worker, usual, seek_orphans=_seeks_orphans(table, each.policy, now_ms)))
        for table, each in zip(tables, all_allowed, strict=True)
    ]
    for table, each, scored in zip(tables, all_allowed, _scored(found, weights), strict=True):
        allowed, stand = each.policy, judge.of(table, scored, each.policy)
        stands.append(stand)
        firsts.append(scored[0] if scored else None)
        spent = table.spent.on(now_ms).day_dollars if stand.may else 0.0
        bids += [Bid(candidate=one, score=score, policy=allowed, spent_today=spent) for one, score in stand.may]
    running = Counter(table.catalog for table in tables if table.live is not None)
    dealt = Dealer(policy, worker, fleet, tenants).deal(bids, running.total(), running)
    bid_of = {(bid.candidate.table_uuid, bid.candidate.operation): bid for bid in bids}
    proposed = tuple(
        _proposal(rank, one, bid_of[one.table_uuid, one.operation], worker) for rank, one in enumerate(dealt.taken, 1)
    )
    taken = {proposal.candidate.table_uuid: proposal for proposal in proposed}
    ends = [
        _dealt(table, stand, taken, dealt.refused, now_ms) if stand.may else stand
        for table, stand in zip(tables, stands, strict=True)
    ]
    verdicts = tuple(
        _verdict(table, stand, first, each.not_obeyed)
        for table, stand, first, each in zip(tables, ends, firsts, all_allowed, strict=True)
    )
    return Proposals(now_ms=now_ms, proposed=proposed, verdicts=verdicts, fleet=fleet, tenants=tenants, pace=pace)


def _seeks_orphans(table: TableState, allowed: TablePolicy, now_ms: int) -> bool:
    return allowed.operations[FleetOperation.REMOVE_ORPHANS.value].enabled and orphans_due(table, now_ms)


def _weights(state: FleetState) -> Mapping[str, float]:
    """Return w1 of the tenants that have a quota."""
    used = files_of(state.tables) if state.files_quota else {}
    return {tenant: weight_of_gain(used.get(tenant, 0), quota) for tenant, quota in state.files_quota.items()}


def _scored(found: Sequence[tuple[Candidate, ...]], weights: Mapping[str, float]) -> list[list[Scored]]:
    """Return the candidates of each table with their scores in the fleet, the best first."""
    ranked = iter(scores([candidate for each in found for candidate in each], weights))
    return [sorted(zip(each, islice(ranked, len(each)), strict=True), key=_best_first) for each in found]


def _best_first(scored: Scored) -> tuple[float, str]:
    return -scored[1], scored[0].operation.value


def _proposal(rank: int, candidate: Candidate, bid: Bid, worker: Worker) -> Proposal:
    part = "" if candidate.share == 1.0 else f" ({candidate.share:.0%} of the work, for which the budget has room)"
    return Proposal(
        rank=rank,
        candidate=candidate,
        score=bid.score,
        max_dollars=candidate.dollars * SET_ASIDE,
        max_gb_seconds=candidate.gb_seconds * SET_ASIDE,
        max_seconds=_most_seconds(candidate, bid.policy, worker),
        max_files=None if candidate.share == 1.0 else max(candidate.read_files, 2),
        reason=what(candidate) + part + reads(candidate),
    )


def _most_seconds(candidate: Candidate, policy: TablePolicy, worker: Worker) -> float:
    """Return after how many seconds a run is ended: never later than those that the policy has for one pay for."""
    most = max(candidate.seconds * SET_ASIDE, LEAST_SECONDS)
    if policy.max_cost_per_run is None:
        return most
    requests = candidate.dollars - worker.dollars(candidate.seconds, 0, 0)
    return min(most, max(policy.max_cost_per_run - requests, 0.0) / worker.dollars(1.0, 0, 0))


def _dealt(
    table: TableState,
    stand: Stands,
    taken: Mapping[str, Proposal],
    refused: Mapping[str, Refusal],
    now_ms: int,
) -> Stands:
    """Say what became of a table that something may be done for."""
    proposal = taken.get(table.table_uuid)
    if proposal is not None:
        told = f"Proposed as number {proposal.rank}: {proposal.reason}."
        return Stands(status=FleetStatus.DUE, sentence=told, eligible_ms=now_ms)
    why, best = refused[table.table_uuid], what(stand.may[0][0])
    status, again, then = FleetStatus.OVER_BUDGET, None, ""
    if why.until is Until.PLACE:
        status, again = FleetStatus.DUE, now_ms + LEAST_MS
    elif why.until is not Until.POLICY:
        again = next_day_ms(now_ms) if why.until is Until.DAY else next_month_ms(now_ms)
        then = f"; {why.until.value} begins at {at(again)}"
    begins = f"{best[:1].upper()}{best[1:]}, but"
    discreet = None if why.discreet is None else f"{begins} {why.discreet}{then}."
    return Stands(status=status, sentence=f"{begins} {why.reason}{then}.", eligible_ms=again, discreet=discreet)


def _verdict(table: TableState, stand: Stands, first: Scored | None, not_obeyed: str) -> Verdict:
    seen, also = table.observation, f" And {not_obeyed}." if not_obeyed else ""
    return Verdict(
        table_uuid=table.table_uuid,
        catalog=table.catalog,
        ident=table.ident,
        tenant=table.tenant,
        status=stand.status,
        sentence=stand.sentence + also,
        discreet=None if stand.discreet is None else stand.discreet + also,
        cadence=cadence_of(0.0 if seen is None else seen.commits_per_hour),
        eligible_ms=stand.eligible_ms,
        next_look_ms=next_look_ms(table),
        best=None if first is None else first[0],
        score=None if first is None else first[1],
        pause=stand.pause,
    )
