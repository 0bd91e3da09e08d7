"""`regelate watch`: polls the heads of a catalog's tables, for catalogs that tell nobody of commits."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from regelate.core.answers import answer_fields
from regelate.core.jobs.exit_codes import DONE, PARTIAL
from regelate.entrypoints.cli import screen
from regelate.entrypoints.cli.door import Door
from regelate.errors import NotFound, RegelateError
from regelate.operations.automatic import AutoStatus, NotifyCommitAnswer
from regelate.report.frames import plural
from regelate.service.facade import Service
from regelate.tenancy import Address, Scope

_TOLD = frozenset(AutoStatus) - {AutoStatus.NOT_DUE, AutoStatus.OFF}
"""What a person is told of; --json tells of every table that was looked at."""


class Rounds:
    """Looks at the tables of a scope again and again. `tell` hears of each look, `fail` of each that failed."""

    def __init__(
        self,
        service: Service,
        scope: Scope,
        stopping: threading.Event,
        *,
        tell: Callable[[NotifyCommitAnswer], None],
        fail: Callable[[str, RegelateError], None],
    ) -> None:
        self._service = service
        self._scope = scope
        self._stopping = stopping
        self._tell = tell
        self._fail = fail
        self._heads: dict[str, str] = {}

    def run(self) -> None:
        """Look once at each table whose head has moved since the last round, then do the jobs that are due here."""
        try:
            addresses = [self._scope.address(ident) for ident in self._service.automatic.tables(self._scope)]
        except RegelateError as fault:
            self._fail(self._scope.catalog, fault)
            return
        self._heads = {a.ident: self._heads[a.ident] for a in addresses if a.ident in self._heads}
        for address in addresses:
            if not self._stopping.is_set():
                self._look(address)
        if self._service.worker.job_threads:
            self._work()

    def _look(self, address: Address) -> None:
        try:
            seen = self._service.automatic.watched(address, self._heads.get(address.ident))
        except NotFound:  # dropped since it was listed
            return
        except RegelateError as fault:
            self._fail(address.told_ident, fault)
            return
        self._heads[address.ident] = seen.metadata_location
        if seen.answer is not None:
            self._tell(seen.answer)

    def _work(self) -> None:
        try:
            while not self._stopping.is_set() and self._service.worker.run_due_job(stopping=self._stopping):
                pass
        except RegelateError as fault:
            self._fail("jobs", fault)


def watch(args: argparse.Namespace) -> int:
    """Poll until SIGINT or SIGTERM, or `--once`. A job that runs then commits what is done, and is taken up later."""
    service, stopping, faults = Door(args).service, threading.Event(), list[RegelateError]()
    catalog = args.watched or args.catalog
    if args.tenant is None:
        scope = service.tenancy.everybody(catalog)
    else:
        scope = service.tenancy.scope(None, args.tenant, catalog, None, trusted=True)

    def fail(what: str, fault: RegelateError) -> None:
        faults.append(fault)
        screen.warn(f"{what}: {fault.code}: {fault.message}")

    tell = _tell_json if args.json else _tell_person
    rounds = Rounds(service, scope, stopping, tell=tell, fail=fail)
    with _stopped_by_signals(stopping):
        if not args.json and not args.once:
            screen.say(f"Watching the tables of catalog {scope.catalog} every {args.interval:g} s; stop with Ctrl-C.")
            sys.stdout.flush()
        rounds.run()
        while not args.once and not stopping.wait(args.interval):
            rounds.run()
    return PARTIAL if args.once and faults else DONE


def _tell_json(answer: NotifyCommitAnswer) -> None:
    screen.put_json(answer_fields(answer), indent=None)
    sys.stdout.flush()


def _tell_person(answer: NotifyCommitAnswer) -> None:
    if answer.status not in _TOLD:
        return
    found = "" if answer.small_files is None else f", {plural(answer.small_files, 'small file')}"
    more = "".join(f", {told}" for told in (answer.job_id, answer.explanation) if told is not None)
    screen.say(screen.printable_line(f"{answer.table}: {answer.status.lower().replace('_', ' ')}{found}{more}"))
    sys.stdout.flush()


@contextmanager
def _stopped_by_signals(stopping: threading.Event) -> Iterator[None]:
    """Set an event at the first SIGINT or SIGTERM; a second one acts as it did before."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def stop(number: int, frame: FrameType | None) -> None:
        stopping.set()
        restore()

    for number in before:
        signal.signal(number, stop)
    try:
        yield
    finally:
        restore()
