"""Whether rows are too wide for this machine, from the footers of the inputs and before a value is read.

Measured at 128 MB: a row group of 3 million rows of 48 bytes is no trouble, for DuckDB reads it bit by bit; 160 rows of
2 MB, 800 of 400 KB and 8,000 of 40 KB end in OUT_OF_MEMORY, because the smallest row group to write holds them all.
"""

from __future__ import annotations

from collections.abc import Sequence

import duckdb

from regelate.adapters.duckdb.inputs import Connect
from regelate.adapters.duckdb.sql import MIN_ROW_GROUP_ROWS, file_name
from regelate.core.table.table import FileScanTask
from regelate.errors import ResourceExhausted

MOST_COMPRESSION = 256
"""A file that would fit though it were compressed to a 256th is not opened for this."""


def too_large(cursor: Connect, tasks: Sequence[FileScanTask], memory_bytes: int) -> ResourceExhausted | None:
    """Return the fault of the file whose rows are so wide that a row group of them exceeds one worker's memory, if any.

    Footers count bytes before dictionaries and run lengths are resolved, so what passes may still run out of memory.
    """
    paths = [t.data_file.path for t in tasks if t.data_file.size_bytes * MOST_COMPRESSION > memory_bytes]
    if not paths:
        return None
    listed = ", ".join(file_name(path) for path in paths)
    query = (
        "SELECT file_name, max(row_group_bytes // row_group_num_rows) AS width "
        f"FROM parquet_metadata([{listed}]) WHERE column_id = 0 AND row_group_num_rows > 0 "
        "GROUP BY file_name ORDER BY width DESC, file_name LIMIT 1"
    )
    try:
        found = cursor().execute(query).fetchone()
    except duckdb.Error:  # whoever reads it next says why
        return None
    path, width = found or ("", 0)
    rows = min(sum(t.data_file.record_count for t in tasks), MIN_ROW_GROUP_ROWS)
    if width * rows <= memory_bytes:
        return None
    named = next((p for p in paths if p.endswith(path)), path)
    return ResourceExhausted(
        "ROW_GROUP_TOO_LARGE",
        f"{named} has rows of {width} bytes: a row group of {rows} takes {width * rows} bytes where one worker has "
        f"{memory_bytes}; give more memory, or use Spark for this partition",
        status=422,
        path=named,
        row_bytes=width,
        row_group_bytes=width * rows,
        memory_bytes=memory_bytes,
    )
