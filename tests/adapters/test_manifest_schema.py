"""Manifests of ours beside those of Iceberg's Java writers: schemas field by field, headers, and what entries say."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import DATA_FILE_TYPE, DataFile, ManifestContent, ManifestFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import NestedField, UUIDType

from regelate.adapters.iceberg.manifests import ManifestReader
from regelate.adapters.iceberg.metadata.manifest_writer import ManifestWriter, write_manifest_list
from tests.support.java_manifests import (
    KINDS,
    OURS_TOO,
    RECORDED,
    SPECS,
    entries_of,
    entry_of,
    header_of,
    metadata_of,
    our_header,
    our_manifest,
    partition_fields,
    plain,
    spelled_out,
)

JAVA = json.loads(RECORDED.read_text())


@pytest.mark.parametrize("kind", KINDS)
def test_a_manifest_has_the_schema_and_the_header_that_java_gives_it(tmp_path: Path, kind: str) -> None:
    ours, java = our_header(tmp_path, "unpartitioned", kind), JAVA["unpartitioned"][kind]
    assert ours["avro.schema"] == java["avro.schema"]
    assert {key: value for key, value in ours.items() if key not in OURS_TOO} == java
    assert ours["schema-id"] == "3"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [name for name in JAVA["partition fields"] if name != "dropped"])
def test_a_partition_has_the_fields_that_java_gives_it(tmp_path: Path, name: str, kind: str) -> None:
    """But for the name of a fixed type that comes again: Java's, without its definition, PyIceberg cannot parse."""
    java = spelled_out(JAVA["partition fields"][name])
    assert partition_fields(our_header(tmp_path, name, kind)["avro.schema"]) == java


@pytest.mark.parametrize("kind", KINDS)
def test_a_partition_field_whose_source_was_dropped_keeps_its_type_which_java_loses(tmp_path: Path, kind: str) -> None:
    ours, java = (
        partition_fields(our_header(tmp_path, "dropped", kind)["avro.schema"]),
        JAVA["partition fields"]["dropped"],
    )
    assert [f["type"] for f in java] == ["null", "null", ["null", "string"]]
    assert [f["type"] for f in ours] == [["null", "string"], ["null", "int"], ["null", "string"]]
    assert [(f["name"], f["field-id"]) for f in ours] == [(f["name"], f["field-id"]) for f in java]


@pytest.mark.parametrize("version", [1, 2])
def test_a_manifest_list_has_the_schema_and_the_header_that_java_gives_it(tmp_path: Path, version: int) -> None:
    output = PyArrowFileIO().new_output((tmp_path / "l.avro").as_uri())
    write_manifest_list(output, (), format_version=version, snapshot_id=7, parent_id=None, sequence_number=1)
    assert header_of(tmp_path / "l.avro") == JAVA["lists"][f"v{version}"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SPECS)
def test_what_a_manifest_says_comes_back_as_it_was_written(tmp_path: Path, name: str, kind: str) -> None:
    version, content = KINDS[kind]
    entries = entries_of(metadata_of(SPECS[name]), content)
    manifest = our_manifest(tmp_path, name, kind, entries)
    found = tuple(ManifestReader().entries(PyArrowFileIO(), numbered(manifest)))
    assert [said(e.data_file) for e in found] == [said(e.data_file) for e in entries]
    if version > 1:
        assert [(e.sequence_number, e.file_sequence_number) for e in found] == [(i, i) for i in range(len(entries))]
    assert (manifest.existing_files_count, manifest.min_sequence_number) == (len(entries), 0)


@pytest.mark.parametrize(("other", "bounded"), [(2, True), (2**126, True), (2**127, False), (2**63, False)])
def test_uuids_that_java_orders_otherwise_get_no_bounds(tmp_path: Path, other: int, bounded: bool) -> None:
    """Trap T34: bounds by either order would hide files from readers that have the other."""
    io, spec, uuids = PyArrowFileIO(), PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "p")), (1, other)
    schema = Schema(NestedField(1, "u", UUIDType()))
    output = io.new_output((tmp_path / "u.avro").as_uri())
    with ManifestWriter(output, ManifestContent.DATA, spec, (schema,), 7) as writer:
        for number in uuids:
            writer.add(entry_of(number % 7, Record(uuid.UUID(int=number)), ManifestContent.DATA))
    partitions = writer.manifest_file().partitions
    bounds = None if partitions is None else [(p.lower_bound, p.upper_bound) for p in partitions]
    assert bounds == ([tuple(uuid.UUID(int=n).bytes for n in uuids)] if bounded else None)


def numbered(manifest: ManifestFile) -> ManifestFile:
    manifest.sequence_number = 0
    return manifest


def said(file: DataFile) -> str:
    """All fields of a file; uuids as the bytes that they are read as, with -0.0 unlike 0.0."""
    values = (file.partition[i] for i in range(len(file.partition)))
    partition = [plain(v) for v in values]
    names = (f.name for f in DATA_FILE_TYPE[3].fields if f.name not in {"partition", "first_row_id"})
    return repr([partition, *(plain(getattr(file, name, None)) for name in names)])
