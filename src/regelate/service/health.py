"""What a table holds and how healthy it is: TABLE_STATS, TABLE_HEALTH and, on demand, a reason for every data file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

from regelate.core.access import Access
from regelate.core.answers import TableHealthAnswer
from regelate.core.measures.measures import Assessed
from regelate.operations import answers
from regelate.operations.table_stats import TableStatsAnswer, table_stats
from regelate.ports.clock import Clock
from regelate.ports.telemetry import Telemetry
from regelate.service.knobs import Knobs
from regelate.service.open_tables import OpenTables
from regelate.tenancy import Address

EXPLAINED_FILES = 10_000
"""Files listed by an explained health answer; the command line streams all of them."""


class Health:
    """Looks at tables, and changes nothing."""

    def __init__(self, tables: OpenTables, knobs: Knobs, clock: Clock, telemetry: Telemetry) -> None:
        self._tables = tables
        self._knobs = knobs
        self._clock = clock
        self._telemetry = telemetry

    def table_health(self, address: Address, *, explain: bool) -> TableHealthAnswer:
        from regelate.operations import health

        with self._tables.open(address, Access.READ) as session:
            policy = self._knobs.policy(session)
            report = health.table_health(session.reader, self._clock, policy)
            self._telemetry.tell(Assessed(table=address.ident, small_files=report.health.small_files))
            listed = None
            if explain:
                found = islice(health.explain(session.reader, report.snapshot, policy), EXPLAINED_FILES)
                listed = [answers.explained(data_file, reason) for data_file, reason in found]
            return answers.assessed(report.health, listed)

    def table_stats(self, address: Address) -> TableStatsAnswer:
        with self._tables.open(address, Access.READ) as session:
            return table_stats(session.reader, self._knobs.policy(session))

    def explain_files(self, address: Address) -> Iterator[Mapping[str, object]]:
        """Stream one reason per data file, without a limit."""
        from regelate.operations import health

        with self._tables.open(address, Access.READ) as session:
            policy = self._knobs.policy(session)
            for data_file, reason in health.explain(session.reader, session.reader.read(policy), policy):
                yield answers.explained(data_file, reason)
