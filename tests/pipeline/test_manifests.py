"""Whatever we commit, Spark reads: the table, its metadata tables, every snapshot. Java judges our manifests."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.manifest import DATA_FILE_TYPE, ManifestEntry
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, UUIDType

from regelate.pipeline.names import TableName
from tests.adapters.test_expiry import NextMonth
from tests.spark.iceberg import delete_by_key
from tests.support.deletes_writer import add_equality_deletes
from tests.support.iceberg_tables import live_delete_files
from tests.support.java_manifests import (
    DROPPED_ID,
    KINDS,
    OURS_TOO,
    RECORDED,
    SPECS,
    entries_of,
    metadata_of,
    our_header,
    our_manifest,
    partition_fields,
    plain,
    spelled_out,
)
from tests.support.lake import Lake, address
from tests.support.table_model import model_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
METADATA_TABLES = (
    "files", "delete_files", "manifests", "all_manifests", "entries", "all_entries", "partitions", "snapshots",
    "history", "refs", "all_data_files", "all_delete_files", "position_deletes",
)  # fmt: skip


def test_our_manifests_have_the_schemas_and_headers_that_java_gives_them_today(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    from tests.spark.java_manifests import java_headers, recorded  # pyspark is not in the development environment

    java = java_headers(spark, tmp_path)
    assert recorded(java) == json.loads(RECORDED.read_text()), "Java's manifests have changed: record them anew"
    for name in (name for name in SPECS if name != "dropped"):
        for kind in KINDS:
            ours = our_header(tmp_path, name, kind)
            fields = partition_fields(java[name][kind]["avro.schema"])
            fields[:] = spelled_out(fields)
            assert {key: value for key, value in ours.items() if key not in OURS_TOO} == java[name][kind]


@pytest.mark.parametrize("kind", ["v2 data", "v2 deletes"])
@pytest.mark.parametrize("name", SPECS)
def test_java_reads_our_manifests_and_says_the_same_of_their_partitions(
    spark: SparkSession, lake: Lake, tmp_path: Path, name: str, kind: str
) -> None:
    from tests.spark.java_manifests import written_again

    _, content = KINDS[kind]
    entries = entries_of(metadata_of(SPECS[name]), content, fixed=False)
    ours = our_manifest(tmp_path, name, kind, entries)
    summaries, theirs = written_again(spark, tmp_path, SPECS[name], ours)
    kept = [i for i, field in enumerate(SPECS[name].fields) if field.source_id != DROPPED_ID]
    assert ours.partitions is not None
    assert [summaries[i] for i in kept] == [tuple(ours.partitions[i][n] for n in range(4)) for i in kept]
    assert said_of(theirs, kept) == said_of(entries, kept)


def said_of(entries: Iterable[ManifestEntry], fields: list[int]) -> list[str]:
    """What entries say, with these partition fields: Java knows no value of a source column that was dropped."""
    rest = [i for i, f in enumerate(DATA_FILE_TYPE[3].fields) if f.name != "partition"]
    return [
        repr([*(plain(e.data_file.partition[i]) for i in fields), *(plain(e.data_file[i]) for i in rest)])
        + repr((e.status, e.snapshot_id, e.sequence_number, e.file_sequence_number))
        for e in entries
    ]


def test_spark_finds_every_uuid_by_the_bounds_of_our_manifests(spark: SparkSession, lake: Lake) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "u", UUIDType()))
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "u_value"))
    table = lake.table(schema, spec=spec, ident="by_service.uuids")
    ids = [str(uuid.UUID(int=number)) for number in (1, 2**126, 2**127, 2**128 - 1, 2**63, 2**126 + 2**63)]
    lake.write(table, [{"id": i, "u": text} for i, text in enumerate(ids)])
    assert [spark.sql(f"SELECT id FROM local.by_service.uuids WHERE u = '{text}'").collect()[0][0] for text in ids] == [
        *range(6)
    ]
    assert len(spark.sql("SELECT path FROM local.by_service.uuids.manifests").collect()) == 1


class Watch:
    """What Spark has read of a table at each of its snapshots."""

    def __init__(self, spark: SparkSession, lake: Lake, name: TableName) -> None:
        self._spark = spark
        self._name = name
        self.table: Table = lake.other_client().load_table((*name.namespace, name.table))
        self._seen: dict[int, list[str]] = {}

    def rows(self) -> list[str]:
        return sorted(repr(tuple(row)) for row in self._spark.sql(f"SELECT * FROM {self._name.sql}").collect())

    def metadata(self, *tables: str) -> None:
        """Read every column of these metadata tables, in one query: most of the time goes into planning."""
        each = (f"SELECT '{table}', to_json(struct(*)) FROM {self._name.sql}.{table}" for table in tables)
        assert self._spark.sql(" UNION ALL ".join(each)).collect()

    def look(self) -> None:
        """Read all that Spark offers; rows are those of our own model, and of each snapshot those that it had."""
        found = self.rows()
        assert found == model_rows(self.table)
        head = self.table.metadata.current_snapshot_id
        assert head is not None
        self._seen[head] = found
        self.metadata(*METADATA_TABLES)
        kept = [s.snapshot_id for s in self.table.metadata.snapshots if s.snapshot_id in self._seen]
        each = (f"SELECT {snapshot}, * FROM {self._name.sql} VERSION AS OF {snapshot}" for snapshot in kept)
        travelled = sorted(
            repr((row[0], tuple(row)[1:])) for row in self._spark.sql(" UNION ALL ".join(each)).collect()
        )
        assert travelled == sorted(f"({snapshot}, {row})" for snapshot in kept for row in self._seen[snapshot])

    @contextmanager
    def commit(self, operation: str) -> Iterator[None]:
        """Look after one commit of ours, whose snapshot says what it was; "" leaves the head alone."""
        before = self.table.refresh().metadata
        yield
        after = self.table.refresh().metadata
        head = after.current_snapshot()
        assert head is not None
        assert head.summary is not None
        assert (after.current_snapshot_id != before.current_snapshot_id) == bool(operation)
        assert not operation or head.summary.operation.value == operation
        self.look()


def rows_of(ids: Any) -> list[dict[str, object]]:
    return [{"id": i, "word": f"w{i}", "kind": "ab"[i % 2]} for i in ids]


EXPECTED = [
    *rows_of(i for i in [*range(30), 50] if i not in {2, 3, 5, 6, 8, 10}),
    {"id": 5, "word": "new", "kind": "b"},
]


@pytest.mark.parametrize("by", ["", "PARTITIONED BY (kind)"])
def test_spark_reads_the_table_and_its_history_after_every_kind_of_commit_of_ours(
    spark: SparkSession, lake: Lake, name: TableName, by: str
) -> None:
    merge_on_read = "'write.delete.mode'='merge-on-read', 'commit.manifest-merge.enabled'='false'"
    columns = "id int, word string, kind string"
    spark.sql(f"CREATE TABLE {name.sql} ({columns}) USING iceberg {by} TBLPROPERTIES ({merge_on_read})")
    ident = ".".join((*name.namespace, name.table))
    watch, home = Watch(spark, lake, name), ("a",) if by else ()
    with watch.commit("append"):
        lake.write(ident, rows_of(range(40)))
    with watch.commit("overwrite"):
        lake.write(ident, rows_of(range(30)), mode="overwrite_partitions")
    spark.sql(f"DELETE FROM {name.sql} WHERE id IN (2, 3)")
    for number in (4, 6):
        delete_by_key(spark, str(name), [number], *home)
    with watch.commit("append"):
        lake.write(ident, rows_of([4, 50]))
    with watch.commit("overwrite"):
        lake.write(ident, [{"id": 5, "word": "new", "kind": "b"}], mode="upsert", key=("id",))
    with watch.commit("replace"):
        assert lake.service.upkeep.rewrite_manifests(address(ident), dry_run=False).manifests_replaced > 0
    delete_by_key(spark, str(name), [8], *home)
    assert len(live_delete_files(watch.table.refresh())) >= 3
    with watch.commit("replace"):
        where = {"partition_filter": {"kind": "b"}} if by else {}  # what is left of the deletes stays in part
        every = {"rewrite-all": "true"}  # the upsert has left one file in b
        assert lake.compact(ident, options=every, expire_snapshots=False, **where)["status"] == "COMPLETED"
    delete_by_key(spark, str(name), [10], *home)
    rewrite_all = "options => map('rewrite-all', 'true')"
    spark.sql(f"CALL local.system.rewrite_data_files(table => '{ident}', {rewrite_all})")
    with watch.commit("replace"):
        dropped = lake.service.upkeep.remove_dangling_deletes(address(ident), dry_run=False)
        assert dropped.delete_files_removed > 0
    assert watch.rows() == sorted(repr((r["id"], r["word"], r["kind"])) for r in EXPECTED)
    lake.built.again(clock=NextMonth())
    with watch.commit(""):
        expired = lake.expire(ident, hours=1, keep=2, grace=24)
    with watch.commit("replace"):
        lake.undo(ident, expired["undo_id"])
    with watch.commit(""):
        lake.expire(ident, hours=1, keep=2, grace=0)


def test_spark_reads_a_table_again_once_its_delete_manifests_are_cured(
    spark: SparkSession, lake: Lake, name: TableName
) -> None:
    spark.sql(f"CREATE TABLE {name.sql} (id int, word string) USING iceberg")
    spark.sql(f"INSERT INTO {name.sql} VALUES (1, 'a'), (2, 'b')")
    ident = ".".join((*name.namespace, name.table))
    watch = Watch(spark, lake, name)
    add_equality_deletes(watch.table, ["id"], [(2,)], long_ids=True)
    spark.sql(f"REFRESH TABLE {name.sql}")
    with pytest.raises(Exception, match="Long cannot be cast to class"):
        watch.rows()
    assert lake.service.upkeep.rewrite_manifests(address(ident), dry_run=False).manifests_replaced == 1
    assert watch.rows() == ["(1, 'a')"]
    watch.metadata("files", "delete_files", "entries", "partitions", "position_deletes")
