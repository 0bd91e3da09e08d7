"""The program over a Glue catalog, with its tables in one bucket."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyiceberg.table import Table

from tests.faults.stack import Stack, stack_with
from tests.servers.moto_aws import KEYS, REGION, client

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
