"""The steps of maintenance in the safe order, and how one is run: what fails is told, and the others go on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from enum import StrEnum

from regelate.core.policy.option_retention import RetentionDefaults
from regelate.core.values import dataclass
from regelate.errors import InvalidRequest, RegelateError
from regelate.pipeline.result import Status, Step
from regelate.pipeline.tables import SparkTable
from regelate.pipeline.terminal import Terminal


class StepName(StrEnum):
    """Iceberg's names. In the safe order: what a step leaves over, a later one clears away."""

    REWRITE = "rewrite_data_files"
    POSITION_DELETES = "rewrite_position_delete_files"
    DANGLING = "remove_dangling_deletes"
    MANIFESTS = "rewrite_manifests"
    EXPIRE = "expire_snapshots"
    ORPHANS = "remove_orphan_files"
    STATISTICS = "compute_statistics"


ALL = "all"
MERGING = (StepName.POSITION_DELETES, StepName.DANGLING, StepName.MANIFESTS)
CLEARING = (StepName.EXPIRE, StepName.ORPHANS, StepName.STATISTICS)
"""The steps after the rewrite, before and after a validation: the last ones may delete what to go back to."""


def step_names(text: str) -> tuple[StepName, ...]:
    """Read `a,b` or `all`; the order is always the safe one. Errors: ValueError."""
    asked = {part.strip() for part in text.split(",")}
    unknown = sorted(asked - {ALL, *StepName})
    if unknown:
        raise ValueError(f"{unknown[0]!r} is no step; there are {', '.join(StepName)}, and {ALL}")
    return tuple(name for name in StepName if name in asked or ALL in asked)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepKnobs:
    """What the steps after the rewrite were asked for; None is left to the table's properties, then to the defaults."""

    retention_hours: float | None = None
    min_snapshots_to_keep: int | None = None
    orphan_age_hours: float | None = None
    delete_orphans: bool = False
    statistics_columns: tuple[str, ...] = ()
    defaults: RetentionDefaults = field(default_factory=RetentionDefaults)


@dataclass(frozen=True, slots=True, kw_only=True)
class Todo:
    """One step as decided: nothing for no statements. `found`: what the metadata said before anything ran."""

    statements: tuple[str, ...] = ()
    reason: str = ""
    found: Mapping[str, object] = field(default_factory=dict)
    run: Callable[[], Mapping[str, object]] | None = None
    """What runs in place of the statements, where no procedure does it or one does not do enough."""


Decide = Callable[[SparkTable], Todo]


def run_step(name: StepName, table: SparkTable, decide: Decide, terminal: Terminal, *, dry_run: bool) -> Step:
    """Decide, and unless it is a dry run do; afterwards the table stands at its new head.

    A wrong option is raised: the same command cannot work. Any other fault becomes a step that says FAILED.
    """
    started = time.monotonic()

    def ended(status: Status, reason: str, **more: object) -> Step:
        step = Step(step=name, status=status, reason=reason, seconds=round(time.monotonic() - started, 3))
        return replace(step, **more)  # type: ignore[arg-type]

    try:
        todo = decide(table)
        if not (todo.statements or todo.run):
            terminal.say(f"{name}: nothing to do ({todo.reason})")
            return ended(Status.NOTHING_TO_DO, todo.reason, found=todo.found)
        if dry_run:
            terminal.say(f"{name}: {_listed(todo.found)}")
            for statement in todo.statements:
                terminal.say(f"would run: {statement}")
            return ended(Status.PLANNED, todo.reason, found=todo.found, statements=todo.statements)
        found = todo.run() if todo.run else _run_all(table, todo.statements)
        table.refresh()
    except InvalidRequest:
        raise
    except RegelateError as fault:
        terminal.say(f"{name}: FAILED, {fault}")
        return ended(Status.FAILED, fault.code, error=fault.as_error())
    terminal.say(f"{name}: {_listed(found)}")
    return ended(Status.COMPLETED, todo.reason, found={**todo.found, **found}, statements=todo.statements)


def _run_all(table: SparkTable, statements: Sequence[str]) -> dict[str, object]:
    """Run the statements and add up the numbers that they answer."""
    rows: list[Mapping[str, object]] = []
    for statement in statements:
        rows += table.run(statement)
        table.refresh()
    return summed(rows)


def summed(rows: Iterable[Mapping[str, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for row in rows:
        for name, value in row.items():
            before = found.get(name, 0)
            found[name] = before + value if isinstance(value, int) and isinstance(before, int) else value
    return found


def _listed(found: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in found.items() if not isinstance(value, list | tuple))
