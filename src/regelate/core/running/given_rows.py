"""Rows of an upsert whose records do not name every column, before they are completed from what the table stores."""

from __future__ import annotations

from collections.abc import Mapping

from regelate.core.values import dataclass

RECORD = "record"
"""The column of stored rows (Arrow) that says which record, from 0, has their key; the others are `name_in_view`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenRows:
    """What the records of one request say, and what they leave open.

    `rows`: Arrow in the table's schema; a cell that was not given is null, or some value where a column is required.
    `absent`: by field id, which rows (Arrow booleans) do not name a top-level column; only columns that some row lacks.
    """

    rows: object
    count: int
    absent: Mapping[int, object]
