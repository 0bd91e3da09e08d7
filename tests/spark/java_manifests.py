"""Manifests and manifest lists by Iceberg's Java writers, for the tables of `tests.support.java_manifests`."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.partitioning import PartitionSpec

from regelate.adapters.iceberg.manifests import ManifestReader
from regelate.adapters.iceberg.metadata.manifest_writer import write_manifest_list
from tests.spark.iceberg import each
from tests.support.java_manifests import RECORDED, SCHEMA, SPECS, header_of, metadata_json, partition_fields

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Headers = dict[str, dict[str, dict[str, Any]]]


def java_headers(spark: SparkSession, folder: Path) -> Headers:
    """Write one empty manifest of each kind for each table, and one manifest list per format version; read headers."""
    found: Headers = {name: _manifests(spark, folder, metadata_json(spec)) for name, spec in SPECS.items()}
    return {**found, "lists": {f"v{version}": _list(spark, folder, version) for version in (1, 2)}}


def _manifests(spark: SparkSession, folder: Path, metadata: str) -> dict[str, dict[str, Any]]:
    jvm: Any = spark._jvm
    iceberg = jvm.org.apache.iceberg
    spec = iceberg.TableMetadataParser.fromJson(metadata).spec(0)
    found = {}
    for kind, version, write in (
        ("v1 data", 1, iceberg.ManifestFiles.write),
        ("v2 data", 2, iceberg.ManifestFiles.write),
        ("v2 deletes", 2, iceberg.ManifestFiles.writeDeleteManifest),
    ):
        path = Path(tempfile.mkdtemp(dir=folder)) / "m.avro"
        write(version, spec, iceberg.Files.localOutput(str(path)), 7).close()
        found[kind] = header_of(path)
    return found


def _list(spark: SparkSession, folder: Path, version: int) -> dict[str, Any]:
    jvm: Any = spark._jvm
    iceberg = jvm.org.apache.iceberg
    properties = jvm.java.util.HashMap()
    properties.put("format-version", str(version))
    tables = iceberg.hadoop.HadoopTables(spark.sparkContext._jsc.hadoopConfiguration())
    schema = iceberg.SchemaParser.fromJson(SCHEMA.model_dump_json())
    spec = iceberg.PartitionSpec.builderFor(schema).identity("s").build()
    table = tables.create(schema, spec, properties, str(Path(tempfile.mkdtemp(dir=folder)) / "t"))
    file = iceberg.DataFiles.builder(spec).withPath("/a.parquet").withFileSizeInBytes(1).withRecordCount(1)
    table.newFastAppend().appendFile(file.withPartitionPath("s=a").build()).commit()
    header = header_of(Path(table.currentSnapshot().manifestListLocation().removeprefix("file:")))
    return {**header, "snapshot-id": "7"}


Said = tuple[bool, bool, bytes | None, bytes | None]
"""What Java says of a partition field: contains null, contains NaN, lower and upper bound."""


def written_again(
    spark: SparkSession, folder: Path, spec: PartitionSpec, manifest: ManifestFile
) -> tuple[list[Said], tuple[ManifestEntry, ...]]:
    """Let Java read a manifest of ours through a manifest list of ours, and write its entries into one of its own.

    Returns what Java's says of its partition fields, and its entries.
    """
    jvm: Any = spark._jvm
    iceberg = jvm.org.apache.iceberg
    table = iceberg.TableMetadataParser.fromJson(_metadata_with(spec, manifest, folder / "list.avro"))
    io = iceberg.hadoop.HadoopFileIO(spark.sparkContext._jsc.hadoopConfiguration())
    files, snapshot = iceberg.ManifestFiles, table.currentSnapshot()
    if manifest.content == ManifestContent.DELETES:
        (found,), read, write = each(snapshot.deleteManifests(io)), files.readDeleteManifest, files.writeDeleteManifest
    else:
        (found,), read, write = each(snapshot.dataManifests(io)), files.read, files.write
    path = folder / "java.avro"
    writer = write(2, table.spec(0), iceberg.Files.localOutput(str(path)), 7)
    for file in each(read(found, io, table.specsById())):
        writer.existing(file, 7, file.dataSequenceNumber(), file.fileSequenceNumber())
    writer.close()
    made = ManifestFile.from_args(
        manifest_path=path.as_uri(), manifest_length=0, content=manifest.content, sequence_number=100
    )
    said = [_said(summary) for summary in each(writer.toManifestFile().partitions())]
    return said, tuple(ManifestReader().entries(PyArrowFileIO(), made))


def _metadata_with(spec: PartitionSpec, manifest: ManifestFile, listed: Path) -> str:
    output = PyArrowFileIO().new_output(listed.as_uri())
    write_manifest_list(output, [manifest], format_version=2, snapshot_id=7, parent_id=None, sequence_number=100)
    snapshot = {"snapshot-id": 7, "sequence-number": 100, "timestamp-ms": 1, "manifest-list": listed.as_uri()}
    snapshots = {"snapshots": [{**snapshot, "summary": {"operation": "append"}}], "current-snapshot-id": 7}
    return json.dumps({**json.loads(metadata_json(spec)), **snapshots, "last-sequence-number": 100})


def _said(summary: Any) -> Said:
    low, high = (None if b is None else bytes(b.array()) for b in (summary.lowerBound(), summary.upperBound()))
    return summary.containsNull(), summary.containsNaN(), low, high


def recorded(headers: Headers) -> dict[str, Any]:
    """Return what of the headers is kept in the repository."""
    whole = {name: headers[name] for name in ("unpartitioned", "lists")}
    partitions = {}
    for name in (name for name in headers if name not in whole):
        first, *others = (partition_fields(header["avro.schema"]) for header in headers[name].values())
        assert all(fields == first for fields in others)
        partitions[name] = first
    return {**whole, "partition fields": partitions}


if __name__ == "__main__":
    from regelate.pipeline.session import embedded_lake, open_session
    from tests.pipeline.conftest import LAUNCH
    from tests.support.lake import Lake

    with tempfile.TemporaryDirectory() as name:
        Lake(Path(name))
        session = open_session(embedded_lake(Path(name)), LAUNCH, app_name="manifests")
        RECORDED.write_text(json.dumps(recorded(java_headers(session, Path(name))), sort_keys=True) + "\n")
        session.stop()
