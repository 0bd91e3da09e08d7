"""Telemetry as one structured log line per compaction."""

from __future__ import annotations

import json
import logging

from regelate.core.stats import CompactionStats

log = logging.getLogger("regelate.compaction")


class LogTelemetry:
    """Implements Telemetry."""

    def compaction(self, stats: CompactionStats, *, table: str) -> None:
        log.info("compacted %s: %s", table, json.dumps(stats.as_dict(), default=str))
