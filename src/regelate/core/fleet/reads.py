"""How often a table is read, and how many files a read opens, of what readers report."""

from __future__ import annotations

import math
from dataclasses import replace

from regelate.core.table.time_ranges import DAY_MS
from regelate.core.values import dataclass

MEMORY_DAYS = 7.0
"""A read counts for 1/e after so many days: what was read in another month says little of tomorrow."""
LEAST_DAYS = 1.0
"""The first reads are taken for those of a day, however quickly they came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reads:
    """What was reported up to `at_ms`, the first of it at `since_ms`: `count` reads and the data `files` that they
    opened, both the less the longer ago."""

    count: float = 0.0
    files: float = 0.0
    since_ms: int
    at_ms: int

    def plus(self, count: int, files: int, now_ms: int) -> Reads:
        """Add reads; a clock that is behind the last one's takes nothing back."""
        now_ms = max(now_ms, self.at_ms)
        left = self._left(now_ms)
        return replace(self, count=self.count * left + count, files=self.files * left + files, at_ms=now_ms)

    def per_day(self, now_ms: int) -> float:
        """Return the rate at a time: what a steady reader of that rate would have left in the memory by then."""
        days = max((max(now_ms, self.at_ms) - self.since_ms) / DAY_MS, 0.0)
        remembered = MEMORY_DAYS * -math.expm1(-days / MEMORY_DAYS)
        return round(self.count * self._left(now_ms) / max(remembered, LEAST_DAYS), 3)

    @property
    def files_per_read(self) -> float | None:
        return round(self.files / self.count, 3) if self.count > 0 else None

    def _left(self, now_ms: int) -> float:
        return math.exp(-max(now_ms - self.at_ms, 0) / DAY_MS / MEMORY_DAYS)
