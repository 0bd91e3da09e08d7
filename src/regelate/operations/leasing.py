"""A lease that is kept while work goes on: a thread renews it, and says when it is lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from regelate.errors import Conflict, RegelateError
from regelate.ports_jobs import JobStore, Lease

RENEWALS_PER_LEASE = 3


@dataclass
class Held:
    """A lease under which somebody works."""

    lease: Lease
    lost: threading.Event = field(default_factory=threading.Event)

    def check(self) -> None:
        """Refuse to go on without it. Errors: Conflict LEASE_LOST."""
        if self.lost.is_set():
            raise Conflict("LEASE_LOST", f"another worker has taken over {self.lease.lock}; nothing more was committed")


@contextmanager
def kept(store: JobStore, lease: Lease, seconds: float) -> Iterator[Held]:
    """Renew a lease of so many seconds until the work is done, then give it back.

    A store that does not answer is no loss: the lease may well still be ours, and a commit is judged by the table
    itself. Only another holder is.
    """
    held, ended = Held(lease), threading.Event()

    def renew() -> None:
        while not ended.wait(seconds / RENEWALS_PER_LEASE):
            with suppress(RegelateError):
                if not store.renew(lease, seconds):
                    held.lost.set()
                    return

    thread = threading.Thread(target=renew, name=f"lease-{lease.lock}", daemon=True)
    thread.start()
    try:
        yield held
    finally:
        ended.set()
        thread.join()
        with suppress(RegelateError):  # it runs out by itself
            store.release(lease)
