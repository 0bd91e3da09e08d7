"""Who is served next and with how much: budgets as accounts, and tenants taking turns by the time they have used."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from typing import NamedTuple

from regelate.core.fleet.candidates import BEGIN_SECONDS, EPSILON, Candidate, Worker
from regelate.core.fleet.policy import Budgets, FleetPolicy, TablePolicy
from regelate.core.fleet.proposals import Bill
from regelate.core.fleet.sentences import dollars
from regelate.core.fleet.state import TableState
from regelate.core.table.time_ranges import HOUR_MS
from regelate.core.values import dataclass

SET_ASIDE = 1.25
"""Times the prediction that are set aside for a run. A rewrite ends there, between two groups of files; one that is too
short to be judged by that, and what rewrites no data, may take more, and then there is less for the next."""
LEAST_SECONDS = 30.0
"""No rewrite is ended before: the machine may have been busy. That is a tenth of a cent where 2 GB do the work."""
FIRST_SHARE = 0.1
"""Of an even share of the fleet's day, kept for each tenant that was not served yet today."""
LEAST_PART = 10.0
"""Files' worth of gain below which no part of a run is begun."""
HOURS_OF_DAY = 24


class Until(Enum):
    """When what is missing is there again."""

    PLACE = "a place is free"
    DAY = "a new day"
    MONTH = "a new month"
    POLICY = "another policy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a candidate is not done now: what is missing, and until when that stays so.

    `discreet`: the same for one of several tenants, where the amounts tell what others have spent.
    """

    reason: str
    until: Until
    discreet: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Dealt:
    """The candidates to run, in order; of each table that got none, what stood in the way of its best one."""

    taken: tuple[Candidate, ...]
    refused: Mapping[str, Refusal]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bid:
    """A candidate with its score and what its table's policy says."""

    candidate: Candidate
    score: float
    policy: TablePolicy
    spent_today: float


def bills(tables: Iterable[TableState], now_ms: int) -> tuple[Bill, Mapping[str, Bill]]:
    """Add up what all tables, and those of each tenant, have spent and set aside."""
    sums: dict[str, list[float]] = {}
    for table in tables:
        mine = sums.setdefault(table.tenant, [0.0, 0.0, 0.0, 0.0])
        spent, run = table.spent.on(now_ms), table.live
        mine[0] += spent.day_dollars
        mine[1] += spent.day_gb_seconds
        mine[2] += spent.month_dollars
        if run is not None:
            mine[0] += run.dollars
            mine[1] += run.gb_seconds
            mine[2] += run.dollars
            mine[3] += run.predicted_seconds
        for past in reversed(table.runs):
            if past.ended_ms is None or past.ended_ms <= now_ms - HOUR_MS:
                break
            mine[3] += past.actual_seconds or 0.0
    found = {tenant: _bill(mine) for tenant, mine in sums.items()}
    return _bill([sum(mine[n] for mine in sums.values()) for n in range(4)]), found


def _bill(sums: Sequence[float]) -> Bill:
    return Bill(day_dollars=sums[0], day_gb_seconds=sums[1], month_dollars=sums[2], hour_seconds=sums[3])


class _Account:
    """What is left of one set of budgets."""

    __slots__ = ("budgets", "day", "gb_seconds", "month", "whose")

    def __init__(self, whose: str, budgets: Budgets, bill: Bill) -> None:
        self.whose = whose
        self.budgets = budgets
        self.day = _left(budgets.dollars_per_day, bill.day_dollars)
        self.gb_seconds = _left(budgets.gb_seconds_per_day, bill.day_gb_seconds)
        self.month = _left(budgets.dollars_per_month, bill.month_dollars)

    def take(self, candidate: Candidate) -> None:
        self.day -= candidate.dollars * SET_ASIDE
        self.month -= candidate.dollars * SET_ASIDE
        self.gb_seconds -= candidate.gb_seconds * SET_ASIDE


_NO_LIMIT = float("inf")


class _Room(NamedTuple):
    """What is left for a candidate by one limit; `everybodys`: of an account that all tenants spend from."""

    whose: str
    dollars: float
    until: Until
    everybodys: bool = False


def _left(limit: float | None, used: float) -> float:
    return _NO_LIMIT if limit is None else max(limit - used, 0.0)


class Dealer:
    """Deals one round: greedy within each tenant, in turns between them."""

    def __init__(self, policy: FleetPolicy, worker: Worker, fleet: Bill, tenants: Mapping[str, Bill]) -> None:
        self._policy = policy
        self._fleet = _Account("the fleet", policy.budgets, fleet)
        self._tenants = {
            name: _Account(f"tenant {name}", policy.budgets_of(name), bill) for name, bill in tenants.items()
        }
        self._used = {name: bill.hour_seconds for name, bill in tenants.items()}
        self._allotted = {name: self._seconds_per_hour(name, worker) for name in tenants}
        self._unserved = {name for name, bill in tenants.items() if bill.day_dollars <= 0}
        of_day = policy.budgets.dollars_per_day
        self._first = 0.0 if of_day is None else FIRST_SHARE * of_day / max(len(tenants), 1)

    def deal(self, bids: Iterable[Bid], running: int, running_by_catalog: Mapping[str, int]) -> Dealt:
        """Take bids until no place or nothing affordable is left; at most one of each table."""
        hands = self._hands(bids)
        places, by_catalog = max(self._policy.max_running - running, 0), dict(running_by_catalog)
        turns = [self._turn(tenant, hand[0]) for tenant, hand in hands.items()]
        heapq.heapify(turns)
        taken: dict[str, Candidate] = {}
        refused: dict[str, Refusal] = {}
        begun = dict.fromkeys(hands, 0)
        while turns and places:
            tenant = heapq.heappop(turns)[2]
            hand = hands[tenant]
            for number in range(begun[tenant], len(hand)):
                bid = hand[number]
                begun[tenant] = number + 1
                if bid.candidate.table_uuid in taken:
                    continue
                found = self._fitting(bid, by_catalog)
                if isinstance(found, Refusal):
                    refused.setdefault(bid.candidate.table_uuid, found)
                    continue
                taken[found.table_uuid] = found
                places -= 1
                self._pay(found, by_catalog)
                if begun[tenant] < len(hand):
                    heapq.heappush(turns, self._turn(tenant, hand[begun[tenant]]))
                break
        full = Refusal(reason=_taken(self._policy.max_running, ""), until=Until.PLACE)
        for tenant, hand in hands.items():
            for bid in hand[begun[tenant] :]:
                refused.setdefault(bid.candidate.table_uuid, full)
        left = {uuid: why for uuid, why in refused.items() if uuid not in taken}
        return Dealt(taken=tuple(taken.values()), refused=left)

    def _hands(self, bids: Iterable[Bid]) -> dict[str, list[Bid]]:
        hands: dict[str, list[Bid]] = {}
        for bid in bids:
            hands.setdefault(bid.candidate.tenant, []).append(bid)
        for hand in hands.values():
            hand.sort(key=lambda b: (-b.score, b.candidate.table_uuid, b.candidate.operation))
        return hands

    def _turn(self, tenant: str, bid: Bid) -> tuple[float, float, str]:
        """The least occupied tenant first; of equal ones, whoever has most to gain."""
        return (self._used[tenant] / max(self._allotted[tenant], EPSILON), -bid.score, tenant)

    def _seconds_per_hour(self, tenant: str, worker: Worker) -> float:
        """Return the time of workers that a tenant has in an hour: what its budgets pay for, else an even share."""
        budgets, per_second = self._policy.budgets_of(tenant), worker.gb_seconds(1.0)
        if budgets.dollars_per_day:
            return budgets.dollars_per_day / HOURS_OF_DAY / (per_second * worker.price.dollars_per_gb_second)
        if budgets.gb_seconds_per_day:
            return budgets.gb_seconds_per_day / HOURS_OF_DAY / per_second
        return 3600.0 * self._policy.max_running / max(len(self._tenants), 1)

    def _fitting(self, bid: Bid, by_catalog: Mapping[str, int]) -> Candidate | Refusal:
        """Return the candidate, whole or as much of it as is affordable, or what is missing."""
        candidate, most = bid.candidate, self._policy.max_running_per_catalog
        if most is not None and by_catalog.get(candidate.catalog, 0) >= most:
            return Refusal(reason=_taken(most, f" of catalog {candidate.catalog}"), until=Until.PLACE)
        wanted, room = candidate.dollars * SET_ASIDE, self._rooms(bid)
        least = min(room, key=lambda one: one.dollars)
        if wanted <= least.dollars:
            return candidate
        part = _part(candidate, least.dollars / SET_ASIDE)
        if part is not None:
            return part
        whose, left, until, everybodys = least
        missing = f"{dollars(wanted - left)} is missing: {dollars(wanted)} would be set aside"
        discreet = f"{dollars(wanted)} would be set aside, and not enough is left of {whose}" if everybodys else None
        return Refusal(reason=f"{missing}, and {dollars(left)} is left of {whose}", until=until, discreet=discreet)

    def _rooms(self, bid: Bid) -> list[_Room]:
        """Return the dollars left for a candidate by every limit; GB-seconds as the dollars that pay for them."""
        candidate, mine, fleet = bid.candidate, self._tenants[bid.candidate.tenant], self._fleet
        rate = candidate.dollars / candidate.gb_seconds if candidate.gb_seconds else 0.0
        others = len(self._unserved) - (candidate.tenant in self._unserved)
        rooms = [
            _Room("the day of the fleet", max(fleet.day - others * self._first, 0.0), Until.DAY, everybodys=True),
            _Room("the month of the fleet", fleet.month, Until.MONTH, everybodys=True),
            _Room(f"the day of {mine.whose}", mine.day, Until.DAY),
            _Room(f"the month of {mine.whose}", mine.month, Until.MONTH),
        ]
        for account in (fleet, mine):
            if account.gb_seconds != _NO_LIMIT:
                whose, left = f"the GB-seconds of {account.whose}'s day", account.gb_seconds * rate
                rooms.append(_Room(whose, left, Until.DAY, everybodys=account is fleet))
        if bid.policy.max_cost_per_day is not None:
            left = max(bid.policy.max_cost_per_day - bid.spent_today, 0.0)
            rooms.append(_Room("the day of the table", left, Until.DAY))
        if bid.policy.max_cost_per_run is not None:
            rooms.append(_Room("what a run may cost", bid.policy.max_cost_per_run, Until.POLICY))
        return rooms

    def _pay(self, candidate: Candidate, by_catalog: dict[str, int]) -> None:
        self._fleet.take(candidate)
        self._tenants[candidate.tenant].take(candidate)
        self._unserved.discard(candidate.tenant)
        self._used[candidate.tenant] += candidate.seconds
        by_catalog[candidate.catalog] = by_catalog.get(candidate.catalog, 0) + 1


def _taken(places: int, whose: str) -> str:
    return f"the only place{whose} is taken" if places == 1 else f"all {places} places{whose} are taken"


def _part(candidate: Candidate, affordable: float) -> Candidate | None:
    """Return as much of a rewrite as so many dollars pay for; None where that is too little to begin with.

    Beginning and committing are paid for in any case; what they take is reckoned by their seconds.
    """
    if not candidate.operation.rewrites_data or candidate.seconds <= BEGIN_SECONDS:
        return None
    beginning = candidate.dollars * BEGIN_SECONDS / candidate.seconds
    if affordable <= beginning or candidate.dollars <= beginning:
        return None
    share = (affordable - beginning) / (candidate.dollars - beginning)
    if share * candidate.opens < LEAST_PART or share >= 1.0:
        return None
    cut = affordable / candidate.dollars
    return replace(
        candidate,
        share=share,
        opens=candidate.opens * share,
        removed=int(candidate.removed * share),
        row_groups_removed=None,
        read_files=int(candidate.read_files * share),
        read_bytes=int(candidate.read_bytes * share),
        model_seconds=candidate.model_seconds * cut,
        seconds=candidate.seconds * cut,
        dollars=affordable,
        gb_seconds=candidate.gb_seconds * cut,
        benefit_per_day=None if candidate.benefit_per_day is None else candidate.benefit_per_day * share,
    )
