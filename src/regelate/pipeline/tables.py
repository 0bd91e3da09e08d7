"""One Iceberg table as a Spark session sees it: its metadata, its manifests' entries, its procedures."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from regelate.core.measures.impact import FileMetrics
from regelate.core.policy.policy import CompactionPolicy
from regelate.core.policy.targets import stored_bytes
from regelate.core.table.table import SnapshotEntry, SnapshotRef, TableSnapshot
from regelate.core.upkeep.reachability import Place
from regelate.errors import NotFound
from regelate.pipeline.metadata import (
    COLUMNS,
    DELETE_COLUMNS,
    LIVE,
    Entry,
    Manifests,
    entry_of,
    file_metrics,
    head_of,
    history_of,
    log_of,
    refs_of,
    table_snapshot,
    watched,
)
from regelate.pipeline.names import TableName
from regelate.pipeline.spark_errors import causes, spark_faults, unsupported
from regelate.pipeline.specs import specs_of
from regelate.pipeline.sql import Argument, call

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OWN_FOLDER, QUARANTINE = "regelate", "quarantine"
"""Beside a table's metadata, where the service keeps its ledger and the lists of its expiries."""
NEWEST_FORMAT, ENCRYPTION_KEY = 3, "encryption.key-id"
"""Iceberg 1.10 reads and writes a format 4 that its specification has not closed yet."""


class SparkTable:
    """Reads at the snapshot it was opened at; `refresh` moves it to the head.

    Errors: NotFound TABLE_NOT_FOUND or CATALOG_NOT_FOUND, and what `spark_faults` makes of the rest.
    """

    def __init__(self, spark: SparkSession, name: TableName) -> None:
        self.spark = spark
        self.name = name
        self.history: tuple[SnapshotEntry, ...] = ()
        """The log, and what this object saw of it before, where the catalog shows the head alone."""
        if spark.conf.get(f"spark.sql.catalog.{name.catalog}", None) is None:
            todo = "name it with --catalog-type, or in Spark's configuration"
            raise NotFound("CATALOG_NOT_FOUND", f"Spark knows no catalog {name.catalog} ({name}): {todo}")
        with spark_faults(str(name), opening=True):
            spark._jsparkSession.sessionState().catalogManager().catalog(name.catalog)
        self.refresh()

    def refresh(self) -> None:
        """Move to the head.

        Errors: Unsupported UNSUPPORTED_TABLE for a format that is not released, and where encryption would be lost;
        DataUnavailable METADATA_CORRUPT.
        """
        jvm: Any = self.spark._jvm
        with spark_faults(str(self.name), loading=True):
            self.java: Any = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(
                self.spark._jsparkSession, self.name.sql
            )
            text_ = jvm.org.apache.iceberg.TableMetadataParser.toJson(self.java.operations().current())
        self.metadata: Mapping[str, Any] = json.loads(text_)
        if self.format_version > NEWEST_FORMAT:
            raise unsupported(str(self.name), f"format version {self.format_version}")
        if ENCRYPTION_KEY in self.properties and "Plaintext" in str(self.java.encryption().getClass().getName()):
            raise unsupported(
                str(self.name), f"{ENCRYPTION_KEY} is set, and by this catalog it would write plain files"
            )
        self.history = history_of(self.history, self.log)

    @property
    def snapshot_id(self) -> int | None:
        return head_of(self.metadata)

    @property
    def format_version(self) -> int:
        return int(self.metadata["format-version"])

    @property
    def properties(self) -> Mapping[str, str]:
        found: Mapping[str, str] = self.metadata.get("properties", {})
        return found

    @property
    def spec_id(self) -> int:
        return int(self.metadata["default-spec-id"])

    @property
    def is_partitioned(self) -> bool:
        return not specs_of(self.metadata)[self.spec_id].is_unpartitioned

    @property
    def log(self) -> tuple[SnapshotEntry, ...]:
        return log_of(self.metadata)

    def own_commits(self, known: Collection[int], operation: str | None = None) -> tuple[SnapshotEntry, ...]:
        """Return the snapshots that this Spark application added to the history, but those of `known`."""
        app = str(self.spark.sparkContext.applicationId)
        return tuple(
            entry
            for entry in self.history
            if entry.snapshot_id not in known
            and entry.summary.get("app-id") == app
            and operation in (None, entry.operation)
        )

    @property
    def head(self) -> SnapshotEntry | None:
        return next((entry for entry in self.log if entry.snapshot_id == self.snapshot_id), None)

    @property
    def stored_bytes(self) -> int:
        """Bytes of the table's files, as its head tells them; 0 where that does not."""
        return 0 if self.head is None else stored_bytes(self.head.summary)

    @property
    def refs(self) -> tuple[SnapshotRef, ...]:
        return refs_of(self.metadata)

    @property
    def versions(self) -> dict[str, str]:
        """The versions of Spark and Iceberg that do the work."""
        jvm: Any = self.spark._jvm
        return {"spark": str(self.spark.version), "iceberg": str(jvm.org.apache.iceberg.IcebergBuild.version())}

    def snapshot(
        self, policy: CompactionPolicy, *, watch: frozenset[str] = frozenset(), seen: set[str] | None = None
    ) -> TableSnapshot:
        """Return the table with the candidates of a policy; `seen` collects which paths of `watch` are live."""
        ident = ".".join((*self.name.namespace, self.name.table))
        if self.snapshot_id is None:
            return table_snapshot(ident, self.metadata, Manifests(), policy)
        manifests = Manifests(
            deletes=tuple(self._entries("data_file.content > 0", deletes=True)),
            data=watched(self._entries("data_file.content = 0", deletes=False), watch, seen),
            paths=frozenset(row.path for row in self.read("manifests").select("path").collect()),
            matching=None if policy.where is None else self.matching(policy.where),
        )
        with spark_faults(str(self.name)):
            return table_snapshot(ident, self.metadata, manifests, policy)

    def read(self, metadata_table: str) -> DataFrame:
        """Return one of the metadata tables at the snapshot that this object stands at."""
        reader = self.spark.read.option("snapshot-id", str(self.snapshot_id))
        return reader.table(self.name.metadata_table(metadata_table))

    def rows(self, metadata_table: str) -> list[dict[str, Any]]:
        """Return the rows of a metadata table at this snapshot; ask only for one that is small."""
        with spark_faults(str(self.name)):
            return [row.asDict() for row in self.read(metadata_table).collect()]

    @property
    def is_listed_by_prefix(self) -> bool:
        """Whether the table's own FileIO has to list its folder: Hadoop has no file system for s3 unless given one."""
        return not str(self.java.io().getClass().getName()).endswith(".HadoopFileIO")

    def is_own(self, path: str) -> bool:
        """Say whether a file lies in the folder beside the metadata where the service keeps its own small objects."""
        return any(Place.of(folder).holds(Place.of(path)) for folder in self._own_folders)

    def has_quarantine(self) -> bool:
        """Say whether the service has lists of files whose expiry can be undone, or that are still to be deleted."""
        return any(self._has_files(f"{folder}/{QUARANTINE}/") for folder in self._own_folders)

    def _has_files(self, folder: str) -> bool:
        with spark_faults(str(self.name)):
            files = self.java.io().listPrefix(folder).iterator
            try:
                return bool(files().hasNext())
            except Exception as fault:
                if any(name.endswith(".FileNotFoundException") for name, _ in causes(fault)):
                    return False
                raise

    @property
    def _own_folders(self) -> tuple[str, ...]:
        """At the table's location; earlier versions of the service followed `write.metadata.path`."""
        beside = f"{self.metadata['location']}/metadata"
        named = self.properties.get("write.metadata.path", beside)
        return tuple(f"{folder.rstrip('/')}/{OWN_FOLDER}" for folder in dict.fromkeys((beside, named)))

    def _entries(self, wanted: str, *, deletes: bool) -> Iterator[Entry]:
        with spark_faults(str(self.name)):
            frame = self.read("entries")
            data_file: Any = frame.schema["data_file"].dataType
            ids, values = self._partition_columns(data_file, "data_file.partition")
            columns = [*COLUMNS, *values, *(DELETE_COLUMNS if deletes else ())]
            if deletes and "referenced_data_file" in data_file.names:
                columns.append("data_file.referenced_data_file AS referenced")
            for row in frame.where(f"{LIVE} AND {wanted}").selectExpr(*columns).toLocalIterator():
                yield entry_of(row.asDict(), ids)

    def _partition_columns(self, above: Any, path: str) -> tuple[list[int], list[str]]:
        """Return the ids of all partition fields that the table ever had, and the SQL of their values as `p<id>`."""
        from pyspark.sql.types import StructType, TimestampType

        partition = above["partition"].dataType if "partition" in above.names else StructType([])
        ids = sorted({f["field-id"] for spec in self.metadata["partition-specs"] for f in spec["fields"]})
        values = []
        for number, field in zip(ids, partition.fields, strict=False):
            value = f"{path}.`{field.name.replace('`', '``')}`"
            # Python would show a timestamp in this machine's time zone, where an hour may occur twice.
            exact = f"unix_micros({value})" if isinstance(field.dataType, TimestampType) else value
            values.append(f"{exact} AS p{number}")
        return (ids if values else []), values

    def file_metrics(self) -> FileMetrics:
        """Return the data files by partition, counted by Spark."""
        if self.snapshot_id is None:
            return FileMetrics(snapshot_id=None, partitions=())
        with spark_faults(str(self.name)):
            frame = self.read("files").where("content = 0")
            ids, values = self._partition_columns(frame.schema, "partition")
            named = ["spec_id", *(f"p{number}" for number in ids)]
            sizes = ("count(*) AS files", "sum(size) AS size_bytes", "min(size) AS low", "max(size) AS high")
            rows = (
                frame.selectExpr("spec_id", "file_size_in_bytes AS size", "record_count", *values)
                .groupBy(*named)
                .agg(*(_expr(text) for text in (*sizes, "sum(record_count) AS records")))
                .collect()
            )
        return file_metrics(self.snapshot_id, [row.asDict() for row in rows], ids, self.metadata)

    def matching(self, where: str) -> frozenset[str]:
        """Return the paths of the data files that may hold rows of a Spark SQL filter, as Iceberg plans a scan of it.

        Errors: InvalidRequest INVALID_FIELD for a text that is no filter on this table.
        """
        jvm: Any = self.spark._jvm
        converter = jvm.org.apache.spark.sql.execution.datasources.SparkExpressionConverter
        found: set[str] = set()
        with spark_faults(str(self.name), where=where):
            resolved = converter.collectResolvedSparkExpression(self.spark._jsparkSession, self.name.sql, where)
            condition = converter.convertToIcebergExpression(resolved)
        with spark_faults(str(self.name)):
            scan = self.java.newScan().filter(condition).ignoreResiduals()
            tasks = scan.useSnapshot(self.snapshot_id).planFiles() if self.snapshot_id is not None else None
            if tasks is not None:
                iterator = tasks.iterator()
                while iterator.hasNext():
                    found.add(str(iterator.next().file().location()))
                tasks.close()
        return frozenset(found)

    def statement(self, procedure: str, arguments: Mapping[str, Argument | None]) -> str:
        """Return the CALL of a procedure on this table."""
        return call(self.name.catalog, procedure, {"table": self.name.within_catalog, **arguments})

    def run(self, statement: str) -> list[dict[str, Any]]:
        """Run a statement and return its rows."""
        with spark_faults(str(self.name)):
            return [row.asDict() for row in self.spark.sql(statement).collect()]


def _expr(text: str) -> Any:
    from pyspark.sql.functions import expr

    return expr(text)
