"""The policy of a fleet as its file has it at the moment, and what is told where the file is broken."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from regelate.core.fleet.policy import FleetPolicy
from regelate.core.fleet.state import TableState
from regelate.tenancy import Scope


class FleetRules:
    """Reads the policy again whenever its file has changed; without a file everything is allowed.

    Errors of all: InvalidRequest FLEET_POLICY_INVALID. One of several tenants is told the lines about itself.
    """

    def __init__(self, path: str | None) -> None:
        self._path = None if path is None else Path(path)
        self._read: tuple[int | None, FleetPolicy] | None = None

    def of(self, scopes: Sequence[Scope], states: Sequence[TableState]) -> FleetPolicy:
        """Return the policy for a request; `states`: what the fleet remembers of its scopes."""
        if self._path is None:
            return FleetPolicy()
        from regelate.settings.fleet_policy import BrokenPolicy, load_fleet_policy

        changed_ns = self._path.stat().st_mtime_ns if self._path.exists() else None
        if self._read is None or self._read[0] != changed_ns:
            try:
                self._read = (changed_ns, load_fleet_policy(self._path))
            except BrokenPolicy as fault:
                private = [scope for scope in scopes if scope.is_private]
                if not private:
                    raise
                tables = [(state.catalog, state.ident) for state in states]
                raise fault.told_to([tenant for scope in private for tenant in scope.tenants], tables) from fault
        return self._read[1]

    def refuse_unmatched(self, policy: FleetPolicy, states: Sequence[TableState]) -> None:
        """Refuse a policy with a glob for no table of any catalog, once tables are known."""
        if self._path is not None and states:
            from regelate.settings.fleet_policy import refuse_unmatched

            refuse_unmatched(policy, [(state.catalog, state.ident) for state in states])
