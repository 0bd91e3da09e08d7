"""A lease that is kept while work goes on: until when, and whatever the store does."""

from __future__ import annotations

import threading

import pytest

from regelate.core.jobs.job import Lease
from regelate.errors import Conflict
from regelate.operations.jobs.leasing import kept

LEASE = Lease(lock="table", holder="one", fence=1)
SECONDS = 0.03


class Store:
    """What `kept` asks of a job store. `faults`: what the next calls end with."""

    def __init__(self, *faults: Exception) -> None:
        self.faults = list(faults)
        self.renewals = 0
        self.released = threading.Event()
        self.renewed_thrice = threading.Event()

    def renew(self, lease: Lease, seconds: float) -> bool:
        self.renewals += 1
        if self.renewals == 3:
            self.renewed_thrice.set()
        if self.faults:
            raise self.faults.pop(0)
        return True

    def release(self, lease: Lease) -> None:
        self.released.set()
        if self.faults:
            raise self.faults.pop(0)


def test_a_fault_that_is_none_of_ours_does_not_end_the_renewals() -> None:
    store = Store(KeyError("HTTPHeaders"), ValueError("no date"))
    with kept(store, LEASE, SECONDS) as held:  # type: ignore[arg-type]  # as much of a store as it needs
        assert store.renewed_thrice.wait(10)
        assert not held.lost.is_set()
    assert store.released.is_set()


def test_the_table_is_not_kept_for_work_that_takes_longer_than_it_may() -> None:
    """The worker hangs; its lease runs out, and should it wake up, it finds that out before it commits."""
    store = Store()
    now = iter([0.0, 5.0, 10.0, 15.0])
    with kept(store, LEASE, SECONDS, longest_seconds=10, monotonic=lambda: next(now)) as held:  # type: ignore[arg-type]
        assert held.lost.wait(10)
        assert store.renewals == 1
        with pytest.raises(Conflict) as caught:
            held.check()
    assert caught.value.code == "LEASE_LOST"


def test_a_release_that_fails_does_not_hide_how_the_work_ended() -> None:
    store = Store()

    def work() -> None:
        with kept(store, LEASE, 60):  # type: ignore[arg-type]
            store.faults.append(KeyError("HTTPHeaders"))
            raise Conflict("PLAN_CHANGED", "as the test asked")

    with pytest.raises(Conflict):
        work()
    assert store.released.is_set()
