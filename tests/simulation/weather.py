"""What goes wrong, and how often: drawn once per seed, then once per access of an actor of the service."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from enum import Enum

from tests.simulation.scheduler import Actor


class StorageFault(Enum):
    NONE = "none"
    ERROR = "503"
    SLOW = "slow"
    FULL = "full disk"
    CUT = "truncated"
    CRASH = "crash"


class CatalogFault(Enum):
    NONE = "none"
    ERROR = "500 / 503, never arrived"
    LOST_RESPONSE = "landed, the answer was lost"
    RESENT = "landed, sent again by a proxy: answered 409"
    REFUSED = "409 without a reason of ours"
    LATE = "arrives later; the answer is an error"
    CRASH = "crash"
    CRASH_AFTER = "crash after the commit, before the answer"


WEIGHTS = {
    CatalogFault.ERROR: 3,
    CatalogFault.LOST_RESPONSE: 5,
    CatalogFault.RESENT: 3,
    CatalogFault.REFUSED: 4,
    CatalogFault.LATE: 3,
    CatalogFault.CRASH: 2,
    CatalogFault.CRASH_AFTER: 3,
}


@dataclass
class Weather:
    """`share`: how many accesses to the store fail; attempts to commit fail ten times as often."""

    share: float
    crashes: bool
    lying_engines: bool
    events: Counter[str] = field(default_factory=Counter)
    is_over: bool = False

    @classmethod
    def of(cls, rng: random.Random, events: Counter[str]) -> Weather:
        share = rng.choice((0.0, 0.005, 0.015, 0.03))
        return cls(share=share, crashes=rng.random() < 0.7, lying_engines=rng.random() < 0.3, events=events)

    def count(self, event: str, happened: bool = True) -> None:
        if happened:
            self.events[event] += 1

    def storage(self, actor: Actor, what: str) -> StorageFault:
        rng = actor.rng
        if not actor.is_ours or self.is_over or actor.closed or rng.random() >= self.share:
            return StorageFault.NONE
        kinds = [StorageFault.ERROR, StorageFault.SLOW]
        if what == "write":
            kinds += [StorageFault.FULL, StorageFault.CUT]
        if self.crashes:
            kinds.append(StorageFault.CRASH)
        fault = rng.choice(kinds)
        self.count(
            f"fault {fault.value}" if fault is not StorageFault.CRASH else "crash", fault is not StorageFault.CUT
        )
        return fault

    def catalog(self, actor: Actor) -> CatalogFault:
        rng = actor.rng
        if not actor.is_ours or self.is_over or actor.closed or rng.random() >= min(0.4, 15 * self.share):
            return CatalogFault.NONE
        weights = {f: w for f, w in WEIGHTS.items() if self.crashes or "crash" not in f.value}
        fault = rng.choices(list(weights), list(weights.values()))[0]
        self.count("crash" if "crash" in fault.value else f"catalog: {fault.value}")
        return fault

    def lies(self, actor: Actor, *, strict: bool) -> str | None:
        """Say whether the engine of this rewrite is a liar, and which lie it tells in one of its groups.

        One row in the place of another is only promised to be noticed by `verify: strict`.
        """
        if not self.lying_engines or self.is_over or not actor.is_ours or actor.rng.random() >= 0.3:
            return None
        swap = ("doubles one row for another",) * strict
        return actor.rng.choice(("loses a row", "doubles a row", "forgets the deletes", *swap))
