"""A lease that is kept while work goes on: a thread renews it, and says when it is lost."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from regelate.core.jobs.job import Lease
from regelate.errors import Conflict
from regelate.ports.jobs import JobStore

log = logging.getLogger(__name__)
RENEWALS_PER_LEASE = 3


@dataclass
class Held:
    """A lease under which somebody works."""

    lease: Lease
    lost: threading.Event = field(default_factory=threading.Event)

    def check(self) -> None:
        """Refuse to go on without it. Errors: Conflict LEASE_LOST."""
        if self.lost.is_set():
            raise Conflict(
                "LEASE_LOST",
                f"another worker has taken over {self.lease.lock}, or may do so; this one committed nothing more",
            )


@contextmanager
def kept(
    store: JobStore,
    lease: Lease,
    seconds: float,
    *,
    longest_seconds: float = math.inf,
    monotonic: Callable[[], float] = time.monotonic,
) -> Iterator[Held]:
    """Renew a lease of so many seconds until the work is done, then give it back.

    A store that does not answer is no loss: the lease may well still be ours, and a commit is judged by the table
    itself. Only another holder is. Work that takes longer than `longest_seconds` hangs: its lease runs out, because
    this thread would keep the table for it until the process ends.
    """
    held, ended = Held(lease), threading.Event()
    renewed_until = monotonic() + longest_seconds

    def renew() -> None:
        while not ended.wait(seconds / RENEWALS_PER_LEASE):
            if monotonic() >= renewed_until:
                log.warning("%s is not renewed any more: its work takes longer than it may", lease.lock)
                break
            try:
                if not store.renew(lease, seconds):
                    break
            except Exception as error:  # noqa: BLE001  a thread that dies of it would give the table away in silence
                log.warning("the lease of %s could not be renewed: %s: %s", lease.lock, type(error).__name__, error)
        if not ended.is_set():
            held.lost.set()

    thread = threading.Thread(target=renew, name=f"lease-{lease.lock}", daemon=True)
    thread.start()
    try:
        yield held
    finally:
        ended.set()
        thread.join()
        try:
            store.release(lease)
        except Exception as error:  # noqa: BLE001  it runs out by itself, and must not hide how the work ended
            log.warning("the lease of %s could not be given back: %s: %s", lease.lock, type(error).__name__, error)
