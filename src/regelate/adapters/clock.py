"""The machine's clock."""

from __future__ import annotations

import time


class SystemClock:
    """Implements Clock."""

    def now_ms(self) -> int:
        return int(time.time() * 1000)

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
