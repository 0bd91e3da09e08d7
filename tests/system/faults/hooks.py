"""A service into whose operations a test can step.

After the table is loaded, between the rewrite and the commit of a COMPACT, and before and after each commit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog

from regelate.adapters.clock import SystemClock
from regelate.settings import load_settings
from tests.support.built import Built, OneCatalog

Hook = Callable[[], object]


class HookedCatalog(SqlCatalog):
    """A real catalog that lets the test act when a commit is on its way, when it has landed, and at each load.

    Each hook of a list serves one commit or load; one that raises after a commit is a reply that was lost. What a hook
    of `on_load` returns is what the catalog answers, unless it is None; those of `after_load` act once it is known.
    """

    before_commit: list[Hook]
    after_commit: list[Hook]
    on_load: list[Hook]
    after_load: list[Hook]
    commits = 0

    def load_table(self, identifier: Any) -> Any:
        found = self.on_load.pop(0)() if self.on_load else None
        answer = super().load_table(identifier) if found is None else found
        if self.after_load:
            self.after_load.pop(0)()
        return answer

    def commit_table(self, *arguments: Any, **options: Any) -> Any:
        self.commits += 1
        if self.before_commit:
            self.before_commit.pop(0)()
        response = super().commit_table(*arguments, **options)
        if self.after_commit:
            self.after_commit.pop(0)()
        return response


class PatientClock(SystemClock):
    """Waits no time between attempts: ten seconds of its own pass with each pause. Remembers how many there were."""

    def __init__(self) -> None:
        self.sleeps = 0

    def monotonic(self) -> float:
        return super().monotonic() + 10 * self.sleeps

    def sleep(self, seconds: float) -> None:
        self.sleeps += 1


class Hooked(Built):
    """The service as built, over a hooked catalog of the same name and place. Each hook of `between` serves one rewrite
    whose outputs are written and not committed; each of `after_load` one table that was loaded."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.between: list[Hook] = []
        self.after_load: list[Hook] = []
        super().__init__(
            load_settings({"REGELATE_HOME": str(folder), "REGELATE_SPARK": "none"}),
            change=lambda tools: replace(tools, engine=_HookedEngine(tools.engine, self.between)),
            catalogs=OneCatalog(self._opened),
            clock=PatientClock(),
        )

    @property
    def hooked(self) -> HookedCatalog:
        found: HookedCatalog = self.catalog()
        return found

    def _opened(self) -> HookedCatalog:
        warehouse = self.folder / "warehouse"
        warehouse.mkdir(parents=True, exist_ok=True)
        uri = f"sqlite:///{self.folder}/catalog.db?timeout=30"
        made = HookedCatalog("local", uri=uri, warehouse=warehouse.as_uri())
        made.before_commit, made.after_commit, made.on_load = [], [], []
        made.after_load = self.after_load
        return made


class _HookedEngine:
    """A rewrite engine that lets the test act when all outputs are written and nothing is committed."""

    def __init__(self, engine: Any, between: list[Hook]) -> None:
        self._engine = engine
        self._between = between

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def rewrite(self, *arguments: Any, **options: Any) -> Any:
        found = self._engine.rewrite(*arguments, **options)
        if self._between:
            self._between.pop(0)()
        return found
