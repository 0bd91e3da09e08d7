"""A fleet's news to a webhook: what failed or was paused, once per change, and a summary a day."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from regelate.core.answers.fleet import FleetStatusAnswer
from regelate.core.fleet.state import day_of
from regelate.errors import RegelateError
from regelate.ports.fleet_store import FleetStore
from regelate.report.fleet.news import Told, new_troubles, summary_message, troubles_message, troubles_now
from regelate.report.webhook import post

log = logging.getLogger(__name__)
TIMEOUT_SECONDS = 5.0
"""Of one message: `regelate serve` that is to end waits for its turn, and has ten seconds."""
MOST_RUNS = 10_000


class FleetNews:
    """Remembers in the fleet's own store what it has told, after it was told: what could not be sent is sent by a later
    turn, and two processes that take a turn at once may both tell it."""

    def __init__(self, url: str, store: FleetStore) -> None:
        self._url = url
        self._store = store

    def tell(self, catalog: str, found: FleetStatusAnswer, ended: Callable[[], bool]) -> None:
        """Send what is new of a catalog; `found` has all of its tables. A fault is logged, without the address."""
        try:
            self._tell(catalog, found, ended)
        except RegelateError as fault:
            log.warning("the news of the fleet were not sent: %s: %s", fault.code, fault.message)

    def _tell(self, catalog: str, found: FleetStatusAnswer, ended: Callable[[], bool]) -> None:
        key, now_ms = f"fleet-told/{catalog}", self._store.now_ms()
        kept = self._store.recall(key)
        told = Told() if kept is None else Told.of_json(kept)
        news = new_troubles(found.tables, told)
        if news and not ended():
            self._post(troubles_message(catalog, news))
        if not ended():
            told = replace(told, troubles=troubles_now(found.tables, told))
            self._store.remember(key, told.as_json())  # each turn, for it is forgotten after a week
        if told.day != day_of(now_ms) and not ended():
            runs = [run for _, run in self._store.history(catalog, None, MOST_RUNS)]
            self._post(summary_message(catalog, found, runs, now_ms))
            self._store.remember(key, replace(told, day=day_of(now_ms)).as_json())

    def _post(self, message: dict[str, object]) -> None:
        post(self._url, message, timeout_seconds=TIMEOUT_SECONDS)
