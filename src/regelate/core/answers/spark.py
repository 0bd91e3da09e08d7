"""What a run of the pipeline's job `compact` leaves as JSON, read back as COMPACT's answer or its error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regelate.core.answers.compaction import CompactAnswer, Status
from regelate.core.running.stats import CompactionStats
from regelate.core.values import dataclass
from regelate.errors import RegelateError


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkAnswer:
    """A COMPACT that Spark did. `snapshot_ids`: what its rewrite committed, oldest first."""

    compact: CompactAnswer
    snapshot_ids: tuple[int, ...]


def spark_answer(found: Mapping[str, Any]) -> SparkAnswer | RegelateError:
    """Return what the pipeline's `Result.as_dict` or `failure` wrote. Raises ValueError where it cannot be read."""
    try:
        if found.get("success") is not True:
            return RegelateError.of_error(found["error"])
        return _answer(found)
    except (KeyError, TypeError, ValueError) as fault:
        raise ValueError(f"{type(fault).__name__} {fault}") from None


def _answer(found: Mapping[str, Any]) -> SparkAnswer:
    changed = bool(found["compacted"])
    snapshot_ids = tuple(found["snapshot_ids"]) or (found["snapshot_after"],)
    compact = CompactAnswer(
        compacted=changed,
        status=Status(found["status"]),
        reason=found["reason"],
        snapshot_id=snapshot_ids[-1] if changed else None,
        stats=None if found["stats"] is None else CompactionStats.of_dict(found["stats"]),
        warnings=tuple(str(warning) for warning in found["warnings"]),
    )
    return SparkAnswer(compact=compact, snapshot_ids=snapshot_ids)
