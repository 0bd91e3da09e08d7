"""What a WRITE is asked, what it works with, and its rows once they are encoded."""

from __future__ import annotations

from collections.abc import Callable

from regelate.core.policy.policy import CompactionPolicy
from regelate.core.policy.write_options import OptimizedWrite
from regelate.core.requests import MissingColumns, WriteMode
from regelate.core.running.given_rows import GivenRows
from regelate.core.running.rewrite import NewDataFile
from regelate.core.values import dataclass
from regelate.ports.clock import Clock
from regelate.ports.commit import Committer
from regelate.ports.engine import KeyRewriter
from regelate.ports.files import RowWriter
from regelate.ports.table import TableReader


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteCommand:
    """Rows are JSON records, or an Arrow table. `key` identifies a row for upsert, and `missing` says what becomes of
    columns that they do not name. `run_id` makes a repeat land once. `repeatable`: it is the caller's, and stands for
    these rows only. `max_partitions`: of the table that they may belong to; None: however many."""

    rows: object
    run_id: str
    repeatable: bool = False
    mode: WriteMode = WriteMode.APPEND
    key: tuple[str, ...] = ()
    missing: MissingColumns = MissingColumns.NULL
    max_partitions: int | None = None

    @property
    def keeps(self) -> bool:
        """Whether it keeps what the table stores in columns that the rows do not name."""
        return self.mode is WriteMode.UPSERT and self.missing is MissingColumns.KEEP


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallFileCheck:
    """When a write looks for small files, and by which policy. `interval` 0 never looks."""

    interval: int
    policy: CompactionPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteTools:
    table_uuid: str
    """Of the table whose schema the rows are encoded against: what they must be committed to."""
    rows: RowWriter
    committer: Committer
    clock: Clock
    check: Callable[[], SmallFileCheck]
    """Resolved only after the commit: a malformed table property must not fail a write."""
    fresh_reader: Callable[[], TableReader]
    """A reader of the table as it is after the commit; only called when a check is due."""
    keys: Callable[[], KeyRewriter]
    """Made only where files are rewritten: it opens an engine."""
    optimized: Callable[[], OptimizedWrite | None] = lambda: None
    """How far a write takes small neighbours along; None: not at all. What it raises leaves them alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """The rows of the request. `added`: their files, which are right on every head; none where the rows are `partial`:
    what they lack differs from head to head."""

    rows: object
    count: int
    added: tuple[NewDataFile, ...] = ()
    partial: GivenRows | None = None
