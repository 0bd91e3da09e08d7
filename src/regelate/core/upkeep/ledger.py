"""What the ledger of a table says about runs that never ended (law 9: names before files), and what a sweep may do
about it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from enum import StrEnum
from hashlib import sha256

from regelate.core.values import dataclass


class EntryVerdict(StrEnum):
    """What a sweep thinks of one ledger entry."""

    RUN_MAY_BE_ALIVE = "RUN_MAY_BE_ALIVE"
    """Younger than the longest run: left alone."""
    DEAD_RUN = "DEAD_RUN"
    """Files of it are in no snapshot: they are deleted, then the entry."""
    LANDED = "LANDED"
    """Whatever is left of it belongs to the table: only the entry goes."""
    NOTHING_LEFT = "NOTHING_LEFT"
    """None of its files is there, or the entry was cut off while it was written, before any file could be."""
    OTHER_TABLE = "OTHER_TABLE"
    """Written for a table that stood in this place before and may live on under another name: left alone."""
    OUTSIDE_TABLE = "OUTSIDE_TABLE"
    """It names a file outside of the table's own folders: left alone."""
    NEWER_FORMAT = "NEWER_FORMAT"
    """Written by a later version of this program: left alone."""
    GC_DISABLED = "GC_DISABLED"
    """`gc.enabled=false`: what is in no snapshot here may be in another branch of the catalog. Left alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """Paths that one run was about to create. `age_seconds` is by the store's clock.

    `lives_seconds`: how old the run may get, by its own word. `table_uuid` is None where the entry was cut off.
    """

    location: str
    run: str
    table_uuid: str | None
    paths: tuple[str, ...]
    age_seconds: float
    lives_seconds: float
    newer_format: bool = False

    def is_dead(self, longest_run_seconds: float) -> bool:
        """Say whether no process can be at work on this run any more: it is older than any run may get."""
        return self.age_seconds > max(self.lives_seconds, longest_run_seconds)


def as_young_as_its_run(entries: Collection[LedgerEntry]) -> tuple[LedgerEntry, ...]:
    """Give every entry the age of the youngest one of its run: a run that writes on is alive in all of its entries."""
    youngest: dict[str, float] = {}
    for entry in entries:
        youngest[entry.run] = min(entry.age_seconds, youngest.get(entry.run, entry.age_seconds))
    return tuple(replace(entry, age_seconds=youngest[entry.run]) for entry in entries)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFacts:
    """What judging entries needs to know of the table; `folders` are those that belong to it alone."""

    table_uuid: str
    folders: tuple[str, ...]
    gc_enabled: bool

    def owns(self, path: str) -> bool:
        """Compare as texts: a path that could be read in another way is nobody's."""
        return "/../" not in path and any(path.startswith(folder.rstrip("/") + "/") for folder in self.folders)


def judge_entry(entry: LedgerEntry, table: TableFacts, longest_run_seconds: float) -> EntryVerdict | None:
    """Return why an entry is left alone; None where its files are to be looked for. A cut-off entry has none."""
    if not entry.is_dead(longest_run_seconds):
        return EntryVerdict.RUN_MAY_BE_ALIVE
    if entry.newer_format:
        return EntryVerdict.NEWER_FORMAT
    if entry.table_uuid is None:
        return EntryVerdict.NOTHING_LEFT
    if entry.table_uuid != table.table_uuid:
        return EntryVerdict.OTHER_TABLE
    if not table.gc_enabled:
        return EntryVerdict.GC_DISABLED
    if not all(table.owns(path) for path in entry.paths):
        return EntryVerdict.OUTSIDE_TABLE
    return None


def judge_files(
    entry: LedgerEntry, existing: Collection[str], referenced: Collection[str]
) -> tuple[EntryVerdict, tuple[str, ...]]:
    """Return the verdict on a dead run and the files to delete: those that exist and that nothing references."""
    there = [path for path in entry.paths if path in existing]
    loose = tuple(path for path in there if path not in referenced)
    if loose:
        return EntryVerdict.DEAD_RUN, loose
    return (EntryVerdict.LANDED if there else EntryVerdict.NOTHING_LEFT), ()


REMOVED = frozenset({EntryVerdict.DEAD_RUN, EntryVerdict.LANDED, EntryVerdict.NOTHING_LEFT})
"""Verdicts after which the entry itself is removed."""


def sweep_order(idents: Collection[str], hour: int) -> tuple[str, ...]:
    """Return tables in an order that is another one every hour, so that a budget does not always end before the same.

    No state is kept for it; whoever is left over in one hour comes early in another.
    """
    return tuple(sorted(idents, key=lambda ident: sha256(f"{hour}:{ident}".encode()).digest()))
