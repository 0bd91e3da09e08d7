"""What ALTER_TABLE changes in the columns and the partition spec of a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields

from regelate.core.table.schema import Column, PartitionField
from regelate.core.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnChange:
    """What a column becomes; None leaves it as it is. `type` only widens, `required` can only be given up."""

    type: str | None = None
    required: bool | None = None
    doc: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evolution:
    """Columns by their path (`address.zip`), partition fields by their name, all as they are before the change.

    A column that is added has its path as a key, and its own name in the value. New names are names, never paths.
    """

    add_columns: Mapping[str, Column] = field(default_factory=dict)
    drop_columns: tuple[str, ...] = ()
    rename_columns: Mapping[str, str] = field(default_factory=dict)
    alter_columns: Mapping[str, ColumnChange] = field(default_factory=dict)
    add_partition_fields: tuple[PartitionField, ...] = ()
    drop_partition_fields: tuple[str, ...] = ()
    rename_partition_fields: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_nothing(self) -> bool:
        return not any(getattr(self, one.name) for one in fields(self))


NO_EVOLUTION = Evolution()
