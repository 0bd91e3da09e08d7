"""Gives a Parquet file the footer that Iceberg's own writer would have given it; pages and statistics stay.

Readers trust annotations more than they need to: Iceberg's vectorized reader takes an int column with DuckDB's
`INT_32` for an int for ever, and fails on it once the table's column is a long (trap T35: `INT_32` after a promotion).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from regelate.adapters.parquet.annotations import annotate
from regelate.adapters.parquet.footer import COLUMNS, META_DATA, ROW_GROUPS, read_footer, replace_footer
from regelate.adapters.parquet.thrift import BINARY, LIST, STRUCT, Items, Malformed, Struct
from regelate.adapters.parquet.thrift_reader import decode
from regelate.adapters.parquet.thrift_writer import encode
from regelate.core.table.schema import Column
from regelate.errors import InvariantViolated

SCHEMA, KEY_VALUES = 2, 5
"""Fields of FileMetaData; of a column chunk's metadata: PATH."""
PATH = 3
KEY, VALUE = 1, 2
ICEBERG_SCHEMA = b"iceberg.schema"
ARROW_SCHEMA = b"ARROW:schema"


def as_iceberg_writes(path: str, columns: Sequence[Column], schema_json: str) -> None:
    """Rewrite the footer of a local file that nobody reads yet, which holds these columns; its size may change.

    `schema_json`: the table's schema as its metadata has it. Errors: InvariantViolated FOOTER_DISAGREES when the file
    does not hold these columns, as they are stored.
    """
    with Path(path).open("r+b") as file:
        try:
            old = read_footer(file)
            new = _rewritten(old.data, columns, schema_json.encode())
        except Malformed as error:
            raise InvariantViolated(
                "FOOTER_DISAGREES", f"{Path(path).name}, as it was written, is not a file of this table: {error}"
            ) from error
        replace_footer(file, old, new)


def _rewritten(data: bytes, columns: Sequence[Column], schema_json: bytes) -> bytes:
    footer = decode(data, raw=frozenset({ROW_GROUPS}))
    paths = annotate(footer.structs(SCHEMA), columns)
    if paths is not None:
        elements = footer[SCHEMA]
        footer = decode(data)
        footer[SCHEMA] = elements
        _rename(footer, paths)
    kept = [pair for pair in footer.structs(KEY_VALUES) if pair.binary(KEY) not in (ICEBERG_SCHEMA, ARROW_SCHEMA)]
    own = Struct({KEY: (BINARY, ICEBERG_SCHEMA), VALUE: (BINARY, schema_json)})
    footer.put(KEY_VALUES, LIST, Items(STRUCT, [own, *kept]))
    return encode(footer)


def _rename(footer: Struct, paths: Sequence[Sequence[bytes]]) -> None:
    """Call the column chunks by these paths, which are in the order of the leaves."""
    for group in footer.structs(ROW_GROUPS):
        chunks = group.structs(COLUMNS)
        if len(chunks) != len(paths):
            raise Malformed(f"a row group has {len(chunks)} columns where the schema has {len(paths)}")
        for chunk, path in zip(chunks, paths, strict=True):
            meta = chunk.struct(META_DATA)
            if meta is None:
                raise Malformed("a column's metadata lies elsewhere")
            meta.put(PATH, LIST, Items(BINARY, list(path)))
