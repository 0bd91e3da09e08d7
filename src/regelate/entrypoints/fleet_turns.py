"""The thread of `regelate serve` that looks after a fleet by itself."""

from __future__ import annotations

import threading
import time

from regelate.entrypoints.log import forget_subject, logger, stack_of
from regelate.errors import RegelateError
from regelate.service.facade import Service


class FleetTurns:
    """Scans and applies in every catalog, at once and then every so many minutes; no thread where config.json has none.

    After `stop` no further table is looked at, and nothing is begun.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._stopping = threading.Event()
        self._seconds = (service.settings.fleet.every_minutes or 0.0) * 60
        self._thread = threading.Thread(target=self._work, name="fleet") if self._seconds else None
        if self._thread is not None:
            self._thread.start()

    def stop(self) -> None:
        """Let the thread end; from a signal handler too."""
        self._stopping.set()

    def wait(self, seconds: float) -> int:
        """Wait for the thread to end, and return how many have not."""
        deadline = time.monotonic() + seconds
        if self._thread is None:
            return 0
        self._thread.join(max(deadline - time.monotonic(), 0))
        return int(self._thread.is_alive())

    def _work(self) -> None:
        while not self._stopping.is_set():
            for catalog in self._service.settings.catalogs:
                forget_subject()
                self._turn(catalog)
            self._stopping.wait(self._seconds)

    def _turn(self, catalog: str) -> None:
        try:
            everybody = self._service.tenancy.everybody(catalog)
            self._service.fleet_desk().turn(everybody, ended=self._stopping.is_set)
        except RegelateError as fault:
            logger.error("fleet turn failed", code=fault.code, error=fault.message, catalog=catalog)
        except Exception as fault:  # noqa: BLE001  the thread must live: the next turn may pass, the log gets the stack
            logger.error("fleet turn failed", stack=stack_of(fault), catalog=catalog)
