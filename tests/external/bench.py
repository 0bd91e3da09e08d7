"""Two engines on one lake: Spark, which writes and judges, and the service behind its handler, which compacts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.external.digest import quoted
from tests.system.faults.stack import Stack

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMESPACE = "corpus"


@dataclass(frozen=True, kw_only=True)
class Bench:
    """`catalog`: Spark's name of the catalog that `stack` has as its default one."""

    spark: SparkSession
    stack: Stack
    catalog: str

    def __post_init__(self) -> None:
        self.sql(f"CREATE NAMESPACE IF NOT EXISTS {self.catalog}.{NAMESPACE}")

    def sql(self, text: str) -> Any:
        return self.spark.sql(text)

    def name(self, table: str) -> str:
        return f"{self.catalog}.{NAMESPACE}.{quoted(table)}"

    def ask(self, operation: str, table: str, **fields: object) -> tuple[int, dict[str, Any]]:
        """Send one request to the service; return its HTTP status and its answer."""
        body = {"operation": operation, "tenant_id": "default", "namespace": NAMESPACE, "table": table, **fields}
        return self.stack.post(body)

    def head(self, table: str) -> int | None:
        row = self.sql(f"SELECT snapshot_id FROM {self.name(table)}.refs WHERE name = 'main'").collect()
        return int(row[0][0]) if row else None

    def roll_back(self, table: str, snapshot_id: int) -> None:
        self.sql(f"CALL {self.catalog}.system.rollback_to_snapshot('{NAMESPACE}.{table}', {snapshot_id})")
        self.sql(f"REFRESH TABLE {self.name(table)}")

    def folder(self, name: str) -> str:
        """Return a new folder for files that come into a table by `add_files`."""
        path = self.stack.folder / "elsewhere" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.as_uri()
