"""Which actors and faults a simulation has met: how often each ran, and how often it made a difference.

An actor makes a difference when it changes the table or deletes something; a fault when its victim feels it. Whoever
counts writes `ran <name>` and `took <name>` into the events of the seed.
"""

from __future__ import annotations

from collections.abc import Mapping

ACTORS = (
    "write append",
    "write upsert",
    "write keeping upsert",
    "write overwrite_partitions",
    "optimized write",
    "foreign append",
    "branch append",
    "position delete",
    "equality delete",
    "foreign overwrite",
    "remove files",
    "schema change",
    "schema there and back",
    "spec change",
    "tag",
    "branch",
    "drop ref",
    "rollback",
    "there and back",
    "branch write",
    "branch compact",
    "branch delete",
    "branch off",
    "move branch",
    "fast forward",
    "merge",
    "statistics",
    "upgrade",
    "foreign manifest rewrite",
    "compact",
    "two compactors",
    "expire",
    "expire after compact",
    "undo",
    "manifests",
    "dangling",
    "orphans",
    "sweep",
    "sweep: second phase of an expiry",
    "job part",
)
FAULTS = (
    "lost response",
    "lost response on the last attempt",
    "late request",
    "repeated request",
    "crash",
    "409",
    "500 / 503 of the catalog",
    "no route to the catalog",
    "500 / 503 of the store",
    "slow store",
    "truncated object",
    "full disk",
    "lying engine",
    "run too old",
    "open upload",
    "any status, nothing landed",
    "any status after landing",
    "hanging worker",
    "lost lease",
    "lease in another's hands",
)
SEEDS_TO_COVER = 300
"""After so many seeds everything must have happened."""


def table(events: Mapping[str, int]) -> str:
    """Return one line per actor and fault: how often it ran, and how often it took effect."""
    lines = [f"{'ran':>10}{'took effect':>13}"]
    lines += [f"{events.get(f'ran {n}', 0):>10,}{events.get(f'took {n}', 0):>13,} {n}" for n in (*ACTORS, *FAULTS)]
    return "\n".join(lines)


def others(events: Mapping[str, int]) -> dict[str, int]:
    """Return the events that are in no line of the table."""
    return {name: n for name, n in sorted(events.items()) if n and not name.startswith(("ran ", "took "))}


def uncovered(events: Mapping[str, int]) -> tuple[str, ...]:
    """Return what never ran, or never took effect."""
    return tuple(n for n in (*ACTORS, *FAULTS) if not (events.get(f"ran {n}") and events.get(f"took {n}")))
