"""Data files of one table as several programs write them, with row groups of a given size."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from regelate.adapters.duckdb import sql
from regelate.adapters.iceberg.tables.schema import columns_of
from tests.support.iceberg_tables import add_data_files, arrow_rows, local_path

Writer = Callable[[Path, pa.Table, Schema, int, str], None]
"""Takes where to, the rows, the table's schema, the rows of a row group, and the codec by Iceberg's name."""


def by_pyarrow(path: Path, rows: pa.Table, schema: Schema, group: int, codec: str, **options: Any) -> None:
    """With `store_decimal_as_integer`, for else a decimal is stored as no table of ours stores it."""
    named = "none" if codec == "uncompressed" else codec
    given = {"store_decimal_as_integer": True, **options}
    pq.write_table(rows.cast(schema_to_pyarrow(schema)), path, row_group_size=group, compression=named, **given)


def v2_pages(path: Path, rows: pa.Table, schema: Schema, group: int, codec: str) -> None:
    by_pyarrow(
        path,
        rows,
        schema,
        group,
        codec,
        data_page_version="2.0",
        write_page_index=True,
        write_page_checksum=True,
        data_page_size=512,
    )


def plain_pages(path: Path, rows: pa.Table, schema: Schema, group: int, codec: str) -> None:
    by_pyarrow(path, rows, schema, group, codec, use_dictionary=False, data_page_size=512)


def by_duckdb(path: Path, rows: pa.Table, schema: Schema, group: int, codec: str) -> None:
    with duckdb.connect() as connection:
        connection.register("given", rows.cast(schema_to_pyarrow(schema, include_field_ids=False)))
        connection.execute("SET threads = 1")
        connection.execute("CREATE TABLE whole AS SELECT * FROM given")  # an Arrow table has one row group of its own
        text = sql.copy("SELECT * FROM whole", str(path), columns_of(schema), codec=codec, row_group_size=group)
        connection.execute(text)


WRITERS: Mapping[str, Writer] = {
    "pyarrow": by_pyarrow, "v2 pages with checksums": v2_pages, "plain pages": plain_pages, "duckdb": by_duckdb
}  # fmt: skip


EVERY = Schema(
    *(
        NestedField(number, name, kind, required=False)
        for number, (name, kind) in enumerate(
            {
                "n": LongType(),
                "b": BooleanType(),
                "i": IntegerType(),
                "f": FloatType(),
                "d": DoubleType(),
                "day": DateType(),
                "at": TimestampType(),
                "at_utc": TimestamptzType(),
                "text": StringType(),
                "raw": BinaryType(),
                "d9": DecimalType(9, 2),
                "d18": DecimalType(18, 2),
                "d38": DecimalType(38, 10),
                "id": UUIDType(),
                "clock": TimeType(),
            }.items(),
            start=1,
        )
    ),
    NestedField(
        50,
        "st",
        StructType(NestedField(51, "a", IntegerType()), NestedField(52, "b.c", StringType())),
    ),
    NestedField(60, "li", ListType(61, LongType(), element_required=False)),
    NestedField(70, "ma", MapType(71, StringType(), 72, DoubleType(), value_required=False)),
)
"""A column of every type that DuckDB writes too, and all ways of nesting; `n` is never null."""


def every(low: int, high: int) -> pa.Table:
    """Rows of `EVERY`, told apart by `n`; every seventh has nothing else."""
    return pa.Table.from_pylist(
        [_every(n) for n in range(low, high)], schema=schema_to_pyarrow(EVERY, include_field_ids=False)
    )


def _every(n: int) -> dict[str, object]:
    if n % 7 == 0:
        return {"n": n}
    at = datetime(2020, 1, 1) + timedelta(seconds=n)  # noqa: DTZ001  a local one
    return {
        "n": n, "b": n % 2 == 0, "i": n, "f": n / 4, "d": n / 3, "day": at.date(), "at": at,
        "at_utc": at.replace(tzinfo=UTC), "text": f"s{n % 20}", "raw": bytes([n % 250]), "d9": Decimal(n) / 4,
        "d18": Decimal(n) / 4, "d38": Decimal(n) / 4, "id": UUID(int=n).bytes, "clock": at.time(),
        "st": {"a": n, "b.c": str(n)} if n % 5 else None, "li": [n, None] if n % 3 else [], "ma": {"k": n / 7},
    }  # fmt: skip


def data_file(table: Table, path: str, *, metrics: bool = True) -> DataFile:
    """Describe a data file that was written to `path`, as its writer would have."""
    found = pq.read_metadata(local_path(path))
    names = parquet_path_to_id_mapping(table.schema())
    plan = compute_statistics_plan(table.schema(), table.properties)
    described = data_file_statistics_from_parquet_metadata(found, plan, names).to_serialized_dict() if metrics else {}
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        file_size_in_bytes=local_path(path).stat().st_size,
        **{"record_count": found.num_rows, **described},
    )
    file.spec_id = table.metadata.default_spec_id
    return file


def add_written(
    table: Table,
    writer: Writer,
    rows: pa.Table | Sequence[tuple[object, ...]],
    *,
    group: int,
    codec: str = "zstd",
    metrics: bool = True,
) -> str:
    """Append one data file that a writer made of these rows, and return its path."""
    table.refresh()
    path = f"{table.location()}/data/{uuid4().hex}.parquet"
    local_path(path).parent.mkdir(parents=True, exist_ok=True)
    writer(local_path(path), arrow_rows(table, rows), table.schema(), group, codec)
    add_data_files(table, [data_file(table, path, metrics=metrics)])
    return path
