"""What goes wrong, and how often: drawn once per seed, then once per access of an actor of the service."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from enum import Enum

from regelate.operations.committing.attempt import MAX_ATTEMPTS
from tests.system.simulation.scheduler import Actor


class StorageFault(Enum):
    NONE = "none"
    ERROR = "500 / 503 of the store"
    SLOW = "slow store"
    FULL = "full disk"
    CUT = "truncated object"
    CRASH = "crash"


class CatalogFault(Enum):
    NONE = "none"
    ERROR = "500 / 503, never arrived"
    LOST_RESPONSE = "landed, the answer was lost"
    RESENT = "landed, sent again by a proxy: answered 409"
    REFUSED = "409 without a reason of ours"
    LATE = "arrives later; the answer is an error"
    STATUS = "never arrived; answered with any status from 400 to 599"
    STATUS_LANDED = "landed; answered with any status from 400 to 599"
    CRASH = "crash"
    CRASH_AFTER = "crash after the commit, before the answer"


WEIGHTS = {
    CatalogFault.ERROR: 3,
    CatalogFault.LOST_RESPONSE: 5,
    CatalogFault.RESENT: 3,
    CatalogFault.REFUSED: 4,
    CatalogFault.LATE: 3,
    CatalogFault.STATUS: 4,
    CatalogFault.STATUS_LANDED: 7,
    CatalogFault.CRASH: 2,
    CatalogFault.CRASH_AFTER: 3,
}
NAMES = {
    CatalogFault.ERROR: "500 / 503 of the catalog",
    CatalogFault.LOST_RESPONSE: "lost response",
    CatalogFault.RESENT: "lost response",
    CatalogFault.REFUSED: "409",
    CatalogFault.LATE: "late request",
    CatalogFault.STATUS: "any status, nothing landed",
    CatalogFault.STATUS_LANDED: "any status after landing",
    CatalogFault.CRASH: "crash",
    CatalogFault.CRASH_AFTER: "crash",
}
LOST = (CatalogFault.LOST_RESPONSE, CatalogFault.RESENT, CatalogFault.STATUS_LANDED)
BEFORE_LANDING = (CatalogFault.REFUSED, CatalogFault.ERROR, CatalogFault.STATUS)

IN_STORM = (*(CatalogFault.REFUSED, CatalogFault.ERROR) * 3, CatalogFault.LATE)
"""No status of its own: most end the loop. After the last attempt it gives up, and late requests are under way."""
UPLOAD = "upload"
"""Of an output, in parts. A metadata file is put whole, so nothing of it is cut silently."""
UPLOADS_FAIL = 5
"""So many times as often as other accesses: they take the longest."""
STORM_SHARE = 0.16
"""So many actors lose every attempt but the last one allowed, whose answer is lost; a third of them that one too."""


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

    def storage(self, actor: Actor, what: str) -> StorageFault:
        rng = actor.rng
        if self._spares(actor) or rng.random() >= self.share * (UPLOADS_FAIL if what == UPLOAD else 1):
            return StorageFault.NONE
        kinds = [StorageFault.ERROR, StorageFault.SLOW]
        if what in (UPLOAD, "write"):
            kinds.append(StorageFault.FULL)
        if what == UPLOAD:
            kinds.append(StorageFault.CUT)
        if self.crashes:
            kinds += [StorageFault.CRASH] * (3 if what == UPLOAD else 1)
        fault = rng.choice(kinds)
        self.events[f"ran {fault.value}"] += 1
        if fault not in (StorageFault.CUT, StorageFault.CRASH):
            self.events[f"took {fault.value}"] += 1
        return fault

    def catalog(self, actor: Actor, head: str) -> CatalogFault:
        """`head`: what the attempt is made on; five on one head are all that the attempt loop makes."""
        if self._spares(actor):
            return CatalogFault.NONE
        actor.sent_here = actor.sent_here + 1 if actor.sent_on == head else 1
        actor.sent_on = head
        fault = CatalogFault.LATE if actor.is_held_up else self._catalog(actor)
        if fault is not CatalogFault.NONE:
            self.events[f"ran {NAMES[fault]}"] += 1
            self.events["ran lost response on the last attempt"] += fault in LOST and actor.sent_here == MAX_ATTEMPTS
        return fault

    def _catalog(self, actor: Actor) -> CatalogFault:
        rng = actor.rng
        if actor.is_in_storm is None:
            actor.is_in_storm = self.share > 0 and rng.random() < STORM_SHARE
        if actor.is_in_storm:
            last = (CatalogFault.LATE, *LOST * 2, *((CatalogFault.CRASH_AFTER,) if self.crashes else ()))
            return rng.choice(last if actor.sent_here >= MAX_ATTEMPTS else IN_STORM)
        if rng.random() >= min(0.4, 15 * self.share):
            return CatalogFault.NONE
        weights = {f: w for f, w in WEIGHTS.items() if self.crashes or "crash" not in f.value}
        return rng.choices(list(weights), list(weights.values()))[0]

    def took(self, actor: Actor, fault: CatalogFault) -> None:
        """Say that the victim feels it: the commit has landed, or was refused."""
        if fault in LOST:
            self.events["took lost response on the last attempt"] += actor.sent_here == MAX_ATTEMPTS
        if fault not in (CatalogFault.NONE, CatalogFault.CRASH, CatalogFault.CRASH_AFTER):
            self.events[f"took {NAMES[fault]}"] += 1

    def lies(self, actor: Actor, *, strict: bool) -> str | None:
        """Say whether the engine of this rewrite is a liar, and which lie it tells in one of its groups.

        One row in the place of another is only promised to be noticed by `verify: strict`.
        """
        if not self.lying_engines or self._spares(actor) or actor.rng.random() >= 0.3:
            return None
        self.events["ran lying engine"] += 1
        swap = ("doubles one row for another",) * strict
        return actor.rng.choice(("loses a row", "doubles a row", "forgets the deletes", *swap))

    def hangs(self, actor: Actor) -> bool:
        """Say whether a worker's engine hangs for most of an hour; its lease is renewed meanwhile."""
        hangs = not self._spares(actor) and actor.rng.random() < 20 * self.share
        self.events["ran hanging worker"] += hangs
        return hangs

    def _spares(self, actor: Actor) -> bool:
        return not actor.is_ours or self.is_over or actor.closed
