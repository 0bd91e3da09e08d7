"""The tables that a catalog lists and nobody has looked at yet: they too stand somewhere."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from regelate.core.fleet.state import TableState
from regelate.ports.fleet_store import FleetStore
from regelate.service.fleet_tables import address_of
from regelate.tenancy import Scope


class UnseenTables:
    """Remembers by name what each scan has not come to, to the next scan and for a week at most: without a look nobody
    knows a table's UUID, by which all others are remembered."""

    def __init__(self, store: Callable[[], FleetStore]) -> None:
        self._store = store

    def note(self, scope: Scope, idents: Sequence[str]) -> None:
        """Keep the names in a scope in the place of those that were there before."""
        before = self._names(scope)
        names = sorted({*(ident for ident in before if not scope.has(ident)), *idents})
        if names != before:
            self._store().remember(_key(scope), json.dumps(names, separators=(",", ":")))

    def of(self, scope: Scope, known: Sequence[TableState]) -> list[TableState]:
        """Return the tables of a scope that are not among the known ones, as states without an observation."""
        names = {state.ident for state in known if state.catalog == scope.catalog}
        return [unseen_state(scope, ident) for ident in self._names(scope) if ident not in names and scope.has(ident)]

    def _names(self, scope: Scope) -> list[str]:
        kept = self._store().recall(_key(scope))
        found: list[str] = [] if kept is None else json.loads(kept)
        return found


def unseen_state(scope: Scope, ident: str) -> TableState:
    """Return what is known of a table by its name alone."""
    name = f"unseen {scope.catalog}/{ident}"
    tenant = address_of(scope, ident).tenant_id
    return TableState(table_uuid=name, catalog=scope.catalog, ident=ident, tenant=tenant)


def _key(scope: Scope) -> str:
    return f"unseen/{scope.catalog}"
