"""Which column of a Parquet file is which field of the table, where the file itself does not say.

The rules are those of Iceberg Java (ReadConf, ParquetSchemaUtil, ApplyNameMapping; 1.10): a file with any field id is
read by its ids; one without by the table's name mapping; without a mapping too, its top-level columns have the ids
1, 2, 3, ... by position, whatever they are called (trap T37: columns without ids are read by position). What Java reads
wrongly or not at all is refused by name.

DuckDB has one name mapping per table, looks at it without regard to case, and takes no column that comes after one
without an id (trap T40: reading stops at a column without id). So each layout gets a mapping of its own, which names
every column of the file.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from regelate.adapters.iceberg.files.parquet_schema import FileColumn, Physical
from regelate.core.table.schema import Column
from regelate.core.values import dataclass

UNKNOWN_ID = 1_000_000_000
"""From here on, ids that no table has: a column that nobody reads must have one too (trap T40: reading stops at a
column without id)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How the files with one schema are read: by their own ids (`mapping` None) or by these names.

    `fault` says what such a file holds that cannot be read rightly, `has_ids` whether any field id is in it.
    """

    has_ids: bool
    mapping: str | None = None
    fault: str | None = None


class _Unreadable(Exception):
    """Says what a file holds."""


def layout_of(
    root: FileColumn,
    columns: Sequence[Column],
    mapping: Sequence[Mapping[str, Any]] | None,
    constants: Collection[int] = (),
) -> Layout:
    """Return how files with this schema are read as these columns of a table with this name mapping (None: none).

    The fields `constants` are given by the partition, whatever a file says.
    """
    ids = [c.field_id is not None for c in _with_ids(root)]
    try:
        _check(root, columns)
        if all(ids):
            return Layout(has_ids=True)
        read = [column for column in columns if column.field_id not in constants]
        resolved = _Resolved(root, read, mapping, any(ids))
        return Layout(has_ids=any(ids), mapping=json.dumps(resolved.fields()))
    except _Unreadable as error:
        return Layout(has_ids=any(ids), fault=str(error))


def _with_ids(root: FileColumn) -> list[FileColumn]:
    """Return what can have a field id: all but the root and the repeated groups within lists and maps."""
    found: list[FileColumn] = []
    waiting = list(root.children)
    while waiting:
        column = waiting.pop()
        found.append(column)
        waiting += _parts(column)
    return found


def _kind(column: FileColumn) -> str:
    if column.annotation == "LIST":
        return "list"
    if column.annotation in ("MAP", "MAP_KEY_VALUE") and column.physical is None:
        return "map"
    return "struct" if column.physical is None else "primitive"


def _parts(column: FileColumn) -> tuple[FileColumn, ...]:
    """Return the fields of a struct, the element of a list, or the key and the value of a map."""
    if _kind(column) in ("struct", "primitive"):
        return column.children
    if _kind(column) == "list":
        return (_element(column),)
    entries = column.children[0] if column.children else column
    return entries.children


def _element(column: FileColumn) -> FileColumn:
    """Return the element of a list; in lists of two levels it is the repeated field itself.

    Rule: parquet-format, LogicalTypes.md, "Backward-compatibility rules".
    """
    repeated = column.children[0]
    if len(repeated.children) != 1 or repeated.name in ("array", f"{column.name}_tuple"):
        return repeated
    return repeated.children[0]


def _check_form(column: FileColumn, wanted: Column) -> None:
    """Refuse a column that is no such thing as the table has, and lists of two levels: Java fails on them, and DuckDB
    reads them as null."""
    kind = _kind(column)
    if kind != (wanted.type if wanted.children else "primitive") or column.repeated:
        raise _differs(column.name, column, wanted)
    sound = len(column.children) == 1 and column.children[0].repeated
    if kind == "list" and (not sound or _element(column) is column.children[0]):
        raise _Unreadable(f"a list {column.name!r} of two levels")
    if kind == "map" and (not sound or len(_parts(column)) != 2):
        raise _Unreadable(f"a map {column.name!r} of another form than Parquet's")


class _Resolved:
    """A file's columns with their ids by Iceberg's rules, as a name mapping that DuckDB reads rightly."""

    def __init__(
        self,
        root: FileColumn,
        columns: Sequence[Column],
        mapping: Sequence[Mapping[str, Any]] | None,
        has_ids: bool,
    ) -> None:
        self._root = root
        self._columns = columns
        self._mapping = mapping
        self._has_ids = has_ids
        self._unknown = UNKNOWN_ID

    def fields(self) -> list[dict[str, Any]]:
        """Return one entry per top-level column of the file. Errors: _Unreadable."""
        positions = None if self._has_ids or self._mapping is not None else range(1, len(self._root.children) + 1)
        found = self._struct(self._root, self._columns, self._mapping or (), positions, "")
        present = {entry["field-id"] for entry in found}
        lacking = next((c.name for c in self._columns if c.required and c.field_id not in present), None)
        if lacking is not None:
            raise _Unreadable(f"no column for the required {lacking!r}")
        return found

    def _struct(
        self,
        group: FileColumn,
        wanted: Sequence[Column],
        mapped: Sequence[Mapping[str, Any]],
        positions: Sequence[int] | None,
        where: str,
    ) -> list[dict[str, Any]]:
        by_id, taken = {c.field_id: c for c in wanted}, set[int]()
        folded = [child.name.lower() for child in group.children]
        if len(set(folded)) < len(folded):
            raise _Unreadable("columns without field ids whose names differ only in case")
        found: list[dict[str, Any]] = []
        for index, child in enumerate(group.children):
            named = _named(child.name, mapped)
            field_id = child.field_id if self._has_ids else named.get("field-id") if named else None
            if positions is not None:
                field_id = positions[index]
            if field_id is None or field_id not in by_id:
                self._unknown += 1
                found.append({"field-id": self._unknown, "names": [child.name]})
                continue
            if field_id in taken:
                raise _Unreadable(f"two columns for the field {where}{by_id[field_id].name!r}")
            taken.add(field_id)
            found.append(self._entry(child, child.name, by_id[field_id], named, f"{where}{child.name}."))
        if where and not taken:
            raise _Unreadable(f"a struct {where[:-1]!r} whose fields have no ids")
        return found

    def _entry(
        self, column: FileColumn, name: str, wanted: Column, named: Mapping[str, Any] | None, where: str
    ) -> dict[str, Any]:
        entry: dict[str, Any] = {"field-id": wanted.field_id, "names": [name]}
        mapped = (named or {}).get("fields", ())
        _check_form(column, wanted)
        if not wanted.children:
            if not _is_read_as(column, wanted.type):
                raise _differs(where[:-1], column, wanted)
        elif wanted.type == "struct":
            entry["fields"] = self._struct(column, wanted.children, mapped, None, where)
        else:
            entry["fields"] = self._parts(column, wanted, mapped, where)
        return entry

    def _parts(
        self, column: FileColumn, wanted: Column, mapped: Sequence[Mapping[str, Any]], where: str
    ) -> list[dict[str, Any]]:
        """Resolve the element of a list or the key and value of a map. Their mapping is by these words; by position
        they are found in any case."""
        group, parts = column.children[0], _parts(column)
        if wanted.type == "map" and (group.name, *(p.name for p in parts)) != ("key_value", "key", "value"):
            raise _Unreadable(f"a map {where[:-1]!r} without field ids whose groups have other names than Parquet's")
        found = []
        for part, child in zip(parts, wanted.children, strict=True):
            named = _named(child.name, mapped)
            if self._has_ids:
                known = part.field_id == child.field_id
            else:
                known = self._mapping is None or (named is not None and named.get("field-id") == child.field_id)
            if not known:
                raise _Unreadable(f"a {wanted.type} {where[:-1]!r} whose {child.name} has no field id")
            entry = self._entry(part, part.name, child, named, f"{where}{child.name}.")
            if wanted.type == "list":
                entry["names"] = [*dict.fromkeys((group.name, child.name))]  # DuckDB asks for the one or the other
            found.append(entry)
        return found


def _named(name: str, mapped: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    return next((m for m in mapped if name in m.get("names", ())), None)


def _check(root: FileColumn, columns: Sequence[Column]) -> None:
    """Refuse what has an id and is read wrongly all the same: forms, and times that are not in microseconds, as Iceberg
    has them. Java takes their numbers for microseconds, and DuckDB cuts nanoseconds off."""
    by_id = {c.field_id: c for column in columns for c in column.walk()}
    for column in _with_ids(root):
        wanted = by_id.get(column.field_id or 0)
        if wanted is None:
            continue
        _check_form(column, wanted)
        if wanted.type in ("time", "timestamp", "timestamptz") and not _is_in_micros(column):
            raise _differs(column.name, column, wanted)


def _is_in_micros(column: FileColumn) -> bool:
    return not (column.annotation or "").endswith(("_MILLIS", "_NANOS"))


def _differs(name: str, column: FileColumn, wanted: Column) -> _Unreadable:
    return _Unreadable(f"a column {name!r} of type {column.described} where the table has {wanted.type}")


_READ_AS: Mapping[str, frozenset[tuple[Physical, str | None]]] = {
    "boolean": frozenset({(Physical.BOOLEAN, None)}),
    "int": frozenset({(Physical.INT32, a) for a in (None, "INT_8", "INT_16", "INT_32")}),
    "long": frozenset(
        {(Physical.INT32, a) for a in (None, "INT_8", "INT_16", "INT_32")}
        | {(Physical.INT64, None), (Physical.INT64, "INT_64")}
    ),
    "float": frozenset({(Physical.FLOAT, None)}),
    "double": frozenset({(Physical.FLOAT, None), (Physical.DOUBLE, None)}),
    "date": frozenset({(Physical.INT32, "DATE")}),
    "time": frozenset({(Physical.INT64, "TIME_MICROS")}),
    "timestamp": frozenset({(Physical.INT64, "TIMESTAMP_MICROS"), (Physical.INT96, None)}),
    "timestamptz": frozenset({(Physical.INT64, "TIMESTAMP_MICROS"), (Physical.INT96, None)}),
    "string": frozenset({(Physical.BYTE_ARRAY, a) for a in ("UTF8", "ENUM", "JSON")}),
    "binary": frozenset({(Physical.BYTE_ARRAY, None), (Physical.BYTE_ARRAY, "BSON")}),
    "uuid": frozenset({(Physical.FIXED_LEN_BYTE_ARRAY, None), (Physical.FIXED_LEN_BYTE_ARRAY, "UUID")}),
}
"""What Iceberg Java reads as each type (SparkParquetReaders, 1.10), promotions included."""


def _is_read_as(column: FileColumn, type_text: str) -> bool:
    if type_text.startswith("decimal"):
        precision, scale = map(int, type_text.removeprefix("decimal(").removesuffix(")").split(","))
        return column.annotation == "DECIMAL" and column.scale == scale and column.precision <= precision
    if type_text.startswith("fixed"):
        return column.physical is Physical.FIXED_LEN_BYTE_ARRAY and f"fixed[{column.length}]" == type_text
    if type_text == "uuid" and column.length != 16:
        return False
    return (column.physical, column.annotation) in _READ_AS.get(type_text, ())
