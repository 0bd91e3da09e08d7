"""Makes SQL text for reading views and writing Parquet; runs nothing. Every name is quoted, every literal escaped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from regelate.core.policy.policy import SortField
from regelate.core.running.group_view import GroupView, KeyDeletes, name_in_view
from regelate.core.running.slices import Slice
from regelate.core.table.schema import Column
from regelate.errors import InvalidRequest

MIN_ROW_GROUP_ROWS = 16_384
MAX_ROW_GROUP_ROWS = 1_048_576
ROW_GROUP_BYTES = 64 * 1024 * 1024
"""Compressed size aimed at per row group: larger groups compress better, smaller ones cost less memory to write."""
BATCHES_HELD = 6
"""Row groups that DuckDB holds decoded per thread while it writes in order. Measured: 7 columns of 93 bytes a row, two
threads: row groups of 1 M, 524 k and 262 k rows peaked at 918, 743 and 488 MB."""
ASSUMED_ELEMENTS = 4
_WIDTHS = {"boolean": 1, "int": 4, "float": 4, "date": 4, "decimal": 16, "uuid": 16, "string": 32, "binary": 32}
"""Bytes of a decoded value; 8 for what is not listed. Text and lists are a guess: 32 bytes, four elements."""


NEGATIVE_ZERO = "regelate: negative zero"
"""What a guarded SELECT fails with."""


def identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def file_name(path: str) -> str:
    """Render a path for `read_parquet` and `parquet_schema`, which take brackets, stars and question marks for
    patterns."""
    return literal("".join(f"[{c}]" if c in "[*?" else c for c in path))


def renamed(wanted: Sequence[Column]) -> str:
    """Turn the names that columns have in a view, and in tables made from one, into their own."""
    return ", ".join(f"{identifier(name_in_view(c.field_id))} AS {identifier(c.name)}" for c in wanted)


def scan(metadata_path: str) -> str:
    return f"iceberg_scan({literal(metadata_path)})"


def scans(view: GroupView) -> str:
    """Return all rows of a view, position deletes applied, as something to select from."""
    if len(view.metadata_paths) == 1:
        return scan(view.metadata_paths[0])
    every = (f"SELECT *, filename, file_row_number FROM {scan(path)}" for path in view.metadata_paths)
    return f"({' UNION ALL '.join(every)})"


def select(view: GroupView, conditions: Sequence[str] = (), *, own_names: bool = True) -> str:
    """Select the live rows of a view; conditions may use `s.filename` and `s.file_row_number`."""
    names = (identifier(c.name if own_names else name_in_view(c.field_id)) for c in view.columns)
    wanted = ", ".join(f"{view_column(c, view)} AS {name}" for c, name in zip(view.columns, names, strict=True))
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return f"SELECT {wanted} FROM {source(view)}{where}"


def view_column(column: Column, view: GroupView) -> str:
    """Return a top-level column of the scanned view `s`.

    A comparison with a plain column goes down into the scan, where its constant is cast to the type that a file has:
    0.1 to a FLOAT for a file from before a promotion to double (trap T38: constants are cast to the file's type). An
    expression is compared above the scan; this one keeps every bit of a float.
    """
    name = f"s.{identifier(name_in_view(column.field_id))}"
    return f"CASE WHEN {name} IS NOT NULL THEN {name} END" if column.field_id in view.promoted else name


def source(view: GroupView) -> str:
    """Return the FROM clause of a view's live rows, as `s`.

    The scan applies position deletes; equality deletes are anti-joins here, because DuckDB's own drop every row with a
    null in a key column (trap T22: nulls under equality deletes). Null equals null, and a delete reaches only data
    files with a lower sequence number.
    """
    text = f"{scans(view)} AS s"
    oldest = min((n for d in view.key_deletes for n in d.sequence_numbers.values()), default=None)
    numbered = oldest is not None and oldest <= max(view.sequence_numbers.values(), default=0)
    if numbered:
        text += f" JOIN {_numbers(view.sequence_numbers)} AS f(path, sequence_number) ON s.filename = f.path"
    for index, deletes in enumerate(view.key_deletes):
        alias = f"e{index}"
        terms = [
            f"{key_value(view_column(c, view), c)} IS NOT DISTINCT FROM {alias}.k{i}" for i, c in enumerate(deletes.key)
        ]
        if numbered:
            terms.append(f"f.sequence_number < {alias}.sequence_number")
        text += f" ANTI JOIN ({_keys(deletes, view)}) AS {alias} ON {' AND '.join(terms)}"
    return text


def key_value(expression: str, column: Column) -> str:
    """Make a key comparable as Iceberg compares it: -0.0 is not 0.0, and NaN is NaN."""
    return f"CAST({expression} AS VARCHAR)" if column.type in ("float", "double") else expression


def _keys(deletes: KeyDeletes, view: GroupView) -> str:
    """Select the distinct keys of the delete files, each with the highest sequence number that it was deleted at."""
    keys = ", ".join(f"{key_value(view_column(c, view), c)} AS k{i}" for i, c in enumerate(deletes.key))
    return (
        f"SELECT {keys}, max(n.sequence_number) AS sequence_number FROM {scan(deletes.metadata_path)} AS s "
        f"JOIN {_numbers(deletes.sequence_numbers)} AS n(path, sequence_number) ON s.filename = n.path GROUP BY ALL"
    )


def _numbers(sequence_numbers: Mapping[str, int]) -> str:
    return f"(VALUES {', '.join(f'({literal(path)}, {number})' for path, number in sequence_numbers.items())})"


def select_slice(view: GroupView, piece: Slice, also: Sequence[str] = (), *, own_names: bool = True) -> str:
    """Select one slice of a group, and of it what meets other conditions `also`; the first and the last file are cut by
    physical row."""
    conditions = [*also]
    first, last = piece.tasks[0].data_file.path, piece.tasks[-1].data_file.path
    if piece.first_row:
        conditions.append(f"(s.filename <> {literal(first)} OR s.file_row_number >= {piece.first_row})")
    if piece.end_row is not None:
        conditions.append(f"(s.filename <> {literal(last)} OR s.file_row_number < {piece.end_row})")
    return select(view, conditions, own_names=own_names)


def order_by(fields: Sequence[SortField], columns: Sequence[Column]) -> str:
    """Order rows under their names in a view; a field is a column or a field of a struct (`a.b`).

    Errors: InvalidRequest INVALID_OPTION for a field that the table does not have, or that has no order.
    """
    return ", ".join(_term(f, expression) for f in fields for expression in _sort_keys(f.column, columns))


def _term(field: SortField, expression: str) -> str:
    direction, nulls = "DESC" if field.descending else "ASC", "FIRST" if field.nulls_first else "LAST"
    return f"{expression} {direction} NULLS {nulls}"


def _sort_keys(name: str, columns: Sequence[Column]) -> tuple[str, ...]:
    """Return what to sort by for one field.

    DuckDB makes 0.0 of a -0.0 in the very columns that it sorts by (trap T24: the sign of zero), so floats are sorted
    by expressions over them: the value, then -0.0 before 0.0 as Iceberg orders them.
    """
    for column in columns:
        found = _path(name, column, identifier(name_in_view(column.field_id)))
        if found is None:
            continue
        expression, kind = found
        if kind in ("float", "double"):
            zero = f"{expression} = 0"
            return (
                f"CASE WHEN {zero} THEN 0 ELSE {expression} END",
                f"CASE WHEN {zero} AND signbit({expression}) THEN 0 ELSE 1 END",
            )
        return (expression,)
    raise InvalidRequest(
        "INVALID_OPTION",
        f"sort_order: {name!r} is not a column that the table can be sorted by",
        option="sort_order",
        value=name,
    )


def _path(name: str, column: Column, expression: str) -> tuple[str, str] | None:
    """Return the expression and the type of a field by its dotted name."""
    if name == column.name:
        return (expression, column.type) if not column.children else None
    inner = name.removeprefix(column.name + ".")
    if column.type != "struct" or inner == name:
        return None
    found = (_path(inner, child, f"{expression}.{identifier(child.name)}") for child in column.children)
    return next((path for path in found if path is not None), None)


def field_ids(wanted: Sequence[Column]) -> str:
    """Render COPY's FIELD_IDS for columns of any depth: readers match columns by id, not by name."""
    return "{" + ", ".join(f"{identifier(c.name)}: {_field_id(c)}" for c in wanted) + "}"


def _field_id(column: Column) -> str:
    if not column.children:
        return str(column.field_id)
    inner = ", ".join(
        f"{identifier(c.name) if column.type == 'struct' else c.name}: {_field_id(c)}" for c in column.children
    )
    return f"{{__duckdb_field_id: {column.field_id}, {inner}}}"


def row_group_rows(part_rows: int, part_bytes: int, columns: Sequence[Column], thread_bytes: int) -> int:
    """Choose the rows per row group: about 64 MB compressed, as far as one thread's share of the memory allows.

    A multiple of DuckDB's vector of 2,048 rows, from 16,384 to 1,048,576.
    """
    compressed = max(part_bytes / part_rows, 0.1) if part_rows else 1.0
    decoded = sum(_width(c) for c in columns) or 1
    wanted = min(ROW_GROUP_BYTES / compressed, thread_bytes / (BATCHES_HELD * decoded))
    bounded = max(MIN_ROW_GROUP_ROWS, min(MAX_ROW_GROUP_ROWS, int(wanted)))
    return bounded // 2048 * 2048


def even_row_groups(rows: int, most: int) -> int:
    """Return the rows of each row group where `rows` make several of at most about `most` each, none much smaller.

    Where they make one alone it may have `most`: with 2,048, several threads make a row group of each file.
    """
    count = -(-rows // most)
    return most if count < 2 else -(-rows // count // 2048) * 2048


def _width(column: Column) -> int:
    if column.children:
        inside = sum(_width(c) for c in column.children)
        return inside if column.type == "struct" else inside * ASSUMED_ELEMENTS
    if column.type.startswith("fixed"):
        return int(column.type[6:-1])
    return _WIDTHS.get(column.type.partition("(")[0], 8)


def without_negative_zeros(select: str, wanted: Sequence[Column]) -> str:
    """Make a SELECT of the same rows that fails with NEGATIVE_ZERO when any float in it, at any depth, is -0.0."""
    tests = [test for c in wanted if (test := _negative_zero(identifier(c.name), c)) is not None]
    if not tests:
        return select
    return (
        f"SELECT * FROM ({select}) WHERE CASE WHEN {' OR '.join(f'coalesce({t}, false)' for t in tests)} "
        f"THEN error({literal(NEGATIVE_ZERO)}) ELSE true END"
    )


def _negative_zero(expression: str, column: Column, depth: int = 0) -> str | None:
    """Return a condition, null or false where there is none, that a value is or holds -0.0; None for other types."""
    if column.type in ("float", "double"):
        return f"({expression} = 0 AND signbit({expression}))"
    if column.type == "struct":
        inner = [_negative_zero(f"{expression}.{identifier(c.name)}", c, depth) for c in column.children]
        tests = [f"coalesce({test}, false)" for test in inner if test is not None]
        return f"({' OR '.join(tests)})" if tests else None
    if column.type == "list":
        return _any(expression, column.children[0], depth)
    if column.type == "map":
        sides = (
            _any(f"map_{side}s({expression})", c, depth)
            for side, c in zip(("key", "value"), column.children, strict=True)
        )
        tests = [f"coalesce({test}, false)" for test in sides if test is not None]
        return f"({' OR '.join(tests)})" if tests else None
    return None


def _any(items: str, element: Column, depth: int) -> str | None:
    name = f"x{depth}"
    test = _negative_zero(name, element, depth + 1)
    return None if test is None else f"list_bool_or(list_transform({items}, lambda {name}: coalesce({test}, false)))"


def copy(select: str, path: str, wanted: Sequence[Column], *, codec: str, row_group_size: int) -> str:
    return (
        f"COPY ({select}) TO {literal(path)} (FORMAT parquet, COMPRESSION {literal(codec)}, "
        f"ROW_GROUP_SIZE {row_group_size}, FIELD_IDS {field_ids(wanted)}, USE_TMP_FILE false)"
    )
