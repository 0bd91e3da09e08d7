"""Which knob wins for a table: the request's, the table's own property, or config.json's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from regelate.core.policy.option_retention import resolve_orphan_age, resolve_retention
from regelate.core.policy.options import AUTO_PROPERTY, AUTOMATIC, Auto, CheckPolicy, resolve_check, resolve_policy
from regelate.core.policy.policy import CompactionPolicy, RetentionPolicy, Selection
from regelate.core.policy.table_properties import Use, refuse_unusable
from regelate.core.requests import CompactRequest
from regelate.operations.compacting.command import CompactCommand
from regelate.operations.compacting.conducting import ConfiguredKnobs, TableKnobs, command_of
from regelate.operations.compacting.continuing import RunPart
from regelate.ports.clock import Clock

if TYPE_CHECKING:
    from regelate.adapters.iceberg.session import TableSession


ASKS_NOTHING = CompactRequest()


class Knobs:
    """Resolves policies of loaded tables against `config` and `check`, the layers of config.json."""

    def __init__(self, config: ConfiguredKnobs, check: CheckPolicy, clock: Clock) -> None:
        self._config = config
        self._check = check
        self._clock = clock

    def policy(self, session: TableSession, request: CompactRequest = ASKS_NOTHING) -> CompactionPolicy:
        """Return the policy of a COMPACT of this table."""
        refuse_unusable(session.properties, *_uses(request))
        return resolve_policy(
            request=request,
            table_properties=session.properties,
            config=self._config.compaction,
            now_ms=self._clock.now_ms(),
            table_bytes=session.stored_bytes,
            table_sort_order=session.sort_fields,
        )

    def command(self, session: TableSession, part: RunPart) -> CompactCommand:
        """Resolve every knob of a run. Errors: InvalidRequest, Conflict PLAN_CHANGED or TABLE_REPLACED."""
        uses = _uses(part.request)
        refuse_unusable(session.properties, *uses, *([Use.EXPIRE] if part.request.expire_snapshots else []))
        table = TableKnobs(
            uuid=session.uuid,
            properties=session.properties,
            stored_bytes=session.stored_bytes,
            sort_order=session.sort_fields,
        )
        return command_of(part, table, self._config, now_ms=self._clock.now_ms())

    def retention(
        self,
        session: TableSession,
        hours: object,
        *,
        keep: object = None,
        grace: object = None,
        hours_field: str = "retention_hours",
    ) -> RetentionPolicy:
        """Return what may be expired of this table; `hours_field` is what the request calls the hours."""
        refuse_unusable(session.properties, Use.EXPIRE)
        return resolve_retention(
            request_hours=hours,
            request_min=keep,
            request_grace=grace,
            table_properties=session.properties,
            config=self._config.retention,
            hours_field=hours_field,
        )

    def orphan_age_ms(self, older_than_hours: float | None) -> int:
        """Return the age from which a file that nothing names may go. Errors: InvalidRequest for one too young."""
        return resolve_orphan_age(older_than_hours, self._config.retention)

    def check(self, session: TableSession) -> CheckPolicy:
        """Return when a WRITE to this table looks for small files."""
        refuse_unusable(session.properties, Use.COMPACT, Use.LOOK)
        return resolve_check(table_properties=session.properties, config=self._check)

    def after_write(self, properties: Mapping[str, str]) -> Auto:
        """Return what a WRITE does that found enough small files."""
        return resolve_check(table_properties=properties, config=self._check).after_write

    def automatic(self, properties: Mapping[str, str]) -> bool:
        """Say whether a table has automatic runs, whoever writes it. Errors: InvalidRequest INVALID_TABLE_PROPERTY."""
        refuse_unusable(properties, Use.LOOK)
        found = {name: properties[name] for name in (AUTO_PROPERTY,) if name in properties}
        return resolve_check(table_properties=found, config=self._check).automatic

    def refuse_clashes(self, properties: Mapping[str, str]) -> None:
        """Refuse a table's properties now rather than in every later COMPACT. Errors: InvalidRequest."""
        resolve_check(table_properties=properties, config=self._check)
        resolve_retention(table_properties=properties, config=self._config.retention)
        for request in (ASKS_NOTHING, AUTOMATIC):
            resolve_policy(
                request=request, table_properties=properties, config=self._config.compaction, now_ms=0, table_bytes=0
            )


def _uses(request: CompactRequest) -> tuple[Use, ...]:
    return (Use.COMPACT, Use.AUTO) if request.selection == Selection.SIZE_TIERED else (Use.COMPACT,)
