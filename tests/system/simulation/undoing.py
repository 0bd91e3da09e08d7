"""How a law is undone: a patch, and what the shipped function becomes by it. The list is in `mutations.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

from pyiceberg.table import Table
from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID

from regelate.core.running.commit import Outcome
from regelate.core.table.table import MAIN_BRANCH, DeleteContent

Patch = tuple[Any, str, Callable[[Any], Any]]
"""Where, which attribute, and how the shipped one is changed."""


@dataclass(frozen=True)
class Mutation:
    """`law`: its number in docs/traps.md, or the trap's."""

    law: str
    what: str
    patches: tuple[Patch, ...]

    @contextmanager
    def applied(self) -> Iterator[None]:
        with ExitStack() as stack:
            for where, name, change in self.patches:
                stack.enter_context(mock.patch.object(where, name, change(getattr(where, name))))
            yield


def but_for_conflicts(shipped: Any) -> Any:
    return property(lambda self: shipped.fget(self) and self.outcome is not Outcome.LOST)


def only_uuid(shipped: Any) -> Any:
    return lambda self, head: (AssertTableUUID(uuid=self._metadata.table_uuid),)


def change(**fields: Any) -> Callable[[Any], Any]:
    return lambda shipped: lambda *args, **more: replace(shipped(*args, **more), **fields)


def from_latest(shipped: Any) -> Any:
    """PyIceberg's check for new deletes starts at the head's own sequence number (trap T6)."""

    def window(self: Any, base: Any, groups: Any) -> Any:
        found = shipped(self, base, groups)
        head = getattr(self.table.metadata, "last_sequence_number", 0)
        return replace(found, new_deletes=tuple(d for d in found.new_deletes if d.sequence_number >= head))

    return window


def first_window(shipped: Any) -> Any:
    def window(self: Any, base: Any, groups: Any) -> Any:
        if not hasattr(self, "first_window"):
            self.first_window = shipped(self, base, groups)
        return self.first_window

    return window


def without_returned_fields(shipped: Any) -> Any:
    return lambda self, base, groups: replace(shipped(self, base, groups), returned_fields=frozenset())


def without_positions(shipped: Any) -> Any:
    def hits(delete: Any, path: str, window: Any) -> bool:
        return delete.content is not DeleteContent.POSITION and bool(shipped(delete, path, window))

    return hits


def reachable_from_main(shipped: Any) -> Any:
    def reached(reach: Any, table: Any) -> Any:
        head = table.metadata.current_snapshot()
        cut = table.metadata.model_copy(update={"snapshots": [head] if head else []})
        return shipped(reach, Table(table.name(), cut, table.metadata_location, table.io, table.catalog))

    return reached


def without_requirements(shipped: Any) -> Any:
    """Of an expiry: only the table must be the same, whatever became of its refs (trap T8)."""

    def updates(*args: Any, **more: Any) -> Any:
        found, requirements = shipped(*args, **more)
        return found, requirements[:1]

    return updates


def for_its_snapshot(self: Any, head: Any) -> bool:
    return bool(self.head.snapshot_id == head.snapshot_id)


def without_deletes(shipped: Any) -> Any:
    """Of files read on an earlier head: that they are live, with whatever deletes."""
    return lambda read, live: shipped([replace(t, deletes=()) for t in read], [replace(t, deletes=()) for t in live])


def requiring_main(shipped: Any) -> Any:
    """Of a commit to a branch: that main is where it was."""

    def requirements(self: Any, head: Any) -> Any:
        at = self._metadata.current_snapshot_id
        main = AssertRefSnapshotId(ref=MAIN_BRANCH, snapshot_id=at)
        return tuple(main if isinstance(r, AssertRefSnapshotId) else r for r in shipped(self, head))

    return requirements


def for_main_only(shipped: Any) -> Any:
    """Of an expiry's plan: as if there were no other ref."""

    def plan(snapshots: Any, refs: Any, *more: Any) -> Any:
        return shipped(snapshots, [ref for ref in refs if ref.name == MAIN_BRANCH], *more)

    return plan


def over_on_main(shipped: Any) -> Any:
    """Of an attempt that fits once: main has moved, and that is all that is asked (trap T47)."""

    def over(self: Any, head: Any) -> bool:
        return bool(self.fits_once if head.ref == MAIN_BRANCH else shipped(self, head))

    return over


def renumbered(shipped: Any) -> Any:
    """Entries of a rewritten manifest as if they had come with it."""

    def existing(entry: Any, status: Any) -> Any:
        made = shipped(entry, status)
        made.sequence_number = (made.sequence_number or 0) + 1
        return made

    return existing


def always(value: Any) -> Callable[[Any], Any]:
    return lambda shipped: lambda *args, **more: value
