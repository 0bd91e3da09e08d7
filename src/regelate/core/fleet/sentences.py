"""What is said of a table's status: one sentence each, with the numbers that decided."""

from __future__ import annotations

import math
from datetime import UTC, datetime

from regelate.core.fleet.candidates import Candidate
from regelate.core.fleet.operation import FleetOperation
from regelate.core.fleet.state import FleetRun

LEAST_SHOWN = 1e-9
_WHAT = {
    FleetOperation.COMPACT: "compact would leave {0} fewer",
    FleetOperation.EXPIRE: "expire-snapshots would let {0} go",
    FleetOperation.REWRITE_MANIFESTS: "rewrite-manifests would leave {0} fewer",
    FleetOperation.REMOVE_ORPHANS: "remove-orphan-files would free {0}",
    FleetOperation.APPLY_DELETES: "apply-deletes would do away with {0}",
}
_NOUN = {
    FleetOperation.COMPACT: "file",
    FleetOperation.EXPIRE: "snapshot",
    FleetOperation.REWRITE_MANIFESTS: "manifest",
    FleetOperation.REMOVE_ORPHANS: "orphan file",
    FleetOperation.APPLY_DELETES: "delete file",
}


SEEK_ORPHANS = "remove-orphan-files would look, as it does every week, for files that no metadata names"


def what(candidate: Candidate) -> str:
    """Say what a candidate would do, for how much."""
    if candidate.operation is FleetOperation.REMOVE_ORPHANS and not candidate.removed:
        return f"{SEEK_ORPHANS} for {dollars(candidate.dollars)} in {duration(candidate.seconds)}"
    gain = _WHAT[candidate.operation].format(count(candidate.removed, _NOUN[candidate.operation]))
    return f"{gain} for {dollars(candidate.dollars)} in {duration(candidate.seconds)}"


def reads(candidate: Candidate) -> str:
    """Say how often the table of a rewrite is read, and what its readers would save; that nobody knows, too."""
    if not candidate.operation.rewrites_data:
        return ""
    if candidate.reads_per_day is None or candidate.benefit_per_day is None:
        return "; how often it is read nobody reports"
    saved = f"which would save readers {dollars(candidate.benefit_per_day)} a day"
    return f"; it is read {candidate.reads_per_day:,.1f} times a day, {saved}"


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def dollars(amount: float) -> str:
    """Show an amount to the hundredth of a cent, and a smaller one to its second digit."""
    if amount >= 100:
        return f"${amount:,.0f}"
    if amount < LEAST_SHOWN:
        return "$0"
    digits = 4 if amount >= 0.0095 else 1 - math.floor(math.log10(amount))
    return f"${amount:.{digits}f}"


def duration(seconds: float) -> str:
    if seconds >= 5400:
        return f"{seconds / 3600:,.1f} h"
    if seconds >= 90:
        return f"{seconds / 60:,.0f} min"
    return f"{seconds:,.0f} s" if seconds >= 1 else "less than a second"


def at(when_ms: int) -> str:
    """Show a time to the minute, UTC; one beyond the calendar as that."""
    try:
        return datetime.fromtimestamp(when_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (OverflowError, ValueError, OSError):
        return "a time beyond the calendar"


def live(run: FleetRun) -> str:
    """Say of a live run what it does, since when, and what it is to take."""
    since = run.queued_ms if run.started_ms is None else run.started_ms
    verb = "is queued" if run.started_ms is None else "runs"
    takes = f"it is to take {duration(run.predicted_seconds)} and {dollars(run.predicted_dollars)}"
    return f"{run.operation.value} {verb} since {at(since)}, asked by {run.asked_by}: {takes}."
