"""What dead runs and finished expiries left of one loaded table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from regelate.operations.allowance import Allowance
from regelate.tenancy import Address

if TYPE_CHECKING:
    from regelate.adapters.iceberg.session import TableSession
    from regelate.operations.upkeep.sweep import SweptTable


class TableSweeps:
    """Sweeps loaded tables, for SWEEP and for MAINTAIN. No run lives longer than `longest_run_seconds`."""

    def __init__(self, *, longest_run_seconds: float) -> None:
        self._longest_run_seconds = longest_run_seconds

    def sweep(self, session: TableSession, allowance: Allowance, address: Address, *, dry_run: bool) -> SweptTable:
        """Sweep one loaded table for as long as the allowance lasts; what went wrong is in the result."""
        from regelate.operations.upkeep.sweep import sweep_table

        return sweep_table(
            address.ident,
            session.ledgers.within(allowance.spend),
            session.reclaimer.within(allowance.spend),
            longest_run_seconds=self._longest_run_seconds,
            dry_run=dry_run,
            look=lambda: allowance.spend(0),
        )
