"""Telemetry as one structured log line per COMPACT that landed."""

from __future__ import annotations

import logging

from regelate.core.measures import Compacted, Occurrence

log = logging.getLogger("regelate.compaction")


class Lines:
    def tell(self, occurrence: Occurrence) -> None:
        if isinstance(occurrence, Compacted):
            log.info("compacted", extra={"table": occurrence.table, "stats": occurrence.stats.as_dict()})
