"""The program over a Glue catalog, with its tables in one bucket."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.typedef import Record

from tests.servers.moto_aws import KEYS, REGION, client
from tests.support.iceberg_tables import add_data_files
from tests.system.faults.stack import Stack, stack_with

BUCKET = "lake"
SECRET = KEYS["aws_secret_access_key"]
CATALOG = "glue"
PATIENCE = {"retry_seconds": 60.0, "request_seconds": 20.0, "connections": 32}


class S3Lake:
    """`endpoint` is moto's; `store` is where the program looks for S3, moto itself unless something stands between."""

    def __init__(
        self,
        folder: Path,
        endpoint: str,
        *,
        store: str | None = None,
        properties: Mapping[str, str] | None = None,
        storage: Mapping[str, object] | None = None,
        jobs: Mapping[str, object] | None = None,
        spark: Mapping[str, object] | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.s3 = client("s3", endpoint)
        catalog = {
            "type": "glue",
            "warehouse": f"s3://{BUCKET}/warehouse",
            "glue.endpoint": endpoint,
            "glue.region": REGION,
            "glue.access-key-id": KEYS["aws_access_key_id"],
            "glue.secret-access-key": SECRET,
            "s3.endpoint": store or endpoint,
            "s3.region": REGION,
            "s3.access-key-id": KEYS["aws_access_key_id"],
            "s3.secret-access-key": SECRET,
            **(properties or {}),
        }
        self.stack: Stack = stack_with(
            folder,
            auth="none",
            tenants="*",
            catalogs={CATALOG: {name: text for name, text in catalog.items() if text}},
            storage={**PATIENCE, **(storage or {})},
            jobs=jobs or {},
            spark=spark or {},
            fleet={"store": "sqlite", "path": str(folder / "fleet.db")},
        )

    def users(self, writes: int = 5, table: str = "users") -> None:
        """Make a table and write to it so many times; ten rows each, with the ids 0, 1, 2, ..."""
        self.stack.create(table, {"id": "long!", "name": "string"})
        for number in range(writes):
            rows = [{"id": number * 10 + i, "name": f"user {number * 10 + i}"} for i in range(10)]
            self.stack.ok("WRITE", table, records=rows)

    def table(self, ident: str = "default.users") -> Table:
        """Load a table by plain PyIceberg."""
        return self.stack.table(ident)

    def count(self, table: str = "users") -> dict[str, Any]:
        rows = self.stack.ok("QUERY", table, aggregates=[{"function": "count"}, {"function": "sum", "column": "id"}])[
            "rows"
        ]
        found: dict[str, Any] = rows[0]
        return found

    def objects(self, prefix: str = "") -> dict[str, int]:
        """Return every object of the bucket and its size."""
        pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
        return {item["Key"]: item["Size"] for page in pages for item in page.get("Contents", ())}

    def data_keys(self) -> set[str]:
        return {key for key in self.objects() if "/data/" in key}

    def ledger_keys(self) -> set[str]:
        return {key for key in self.objects() if "/regelate/ledger/" in key}

    def uploads(self) -> list[str]:
        """Return the keys of uploads that nobody has completed."""
        return [upload["Key"] for upload in self.s3.list_multipart_uploads(Bucket=BUCKET).get("Uploads", ())]


def add_files(table: Table, s3: Any, number: int, rows: int) -> None:
    """Append so many small files of so many rows, with ids from 0 on, in one commit; the table has `id` and `name`."""
    schema = schema_to_pyarrow(table.schema())
    files = []
    for i in range(number):
        ids = range(i * rows, (i + 1) * rows)
        content = io.BytesIO()
        pq.write_table(pa.table({"id": ids, "name": [f"user {n}" for n in ids]}, schema=schema), content)
        key = f"warehouse/default.db/users/data/small-{i:05}.parquet"
        s3.put_object(Bucket=BUCKET, Key=key, Body=content.getvalue())
        file = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=f"s3://{BUCKET}/{key}",
            file_format=FileFormat.PARQUET,
            partition=Record(),
            file_size_in_bytes=len(content.getvalue()),
            record_count=rows,
        )
        file.spec_id = 0
        files.append(file)
    add_data_files(table, files)
