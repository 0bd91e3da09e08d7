"""Tables whose manifests are held against those of Iceberg's Java writers, and how headers of both are compared."""

from __future__ import annotations

import json
import math
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

from pyiceberg.avro.decoder import StreamingBinaryDecoder
from pyiceberg.avro.file import META_SCHEMA, AvroFileHeader
from pyiceberg.avro.resolver import construct_reader
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.transforms import parse_transform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from regelate.adapters.iceberg.commit.manifest_writing import known_schemas
from regelate.adapters.iceberg.metadata.manifest_schema import partition_type
from regelate.adapters.iceberg.metadata.manifest_writer import ManifestWriter
from tests.support.iceberg_tables import local_path

RECORDED = Path(__file__).parents[1] / "adapters" / "java_manifests.json"
"""What Iceberg 1.10.1 wrote, without documentation: whole headers of an unpartitioned table's manifests and of manifest
lists, and the partition fields of other tables' manifests, which are the same in all kinds of manifests.
`python -m tests.spark.java_manifests` writes it anew."""
DROPPED_ID = 90
TYPES: dict[str, IcebergType] = {
    "flag": BooleanType(),
    "i": IntegerType(),
    "l": LongType(),
    "f": FloatType(),
    "d": DoubleType(),
    "dec": DecimalType(9, 2),
    "wide": DecimalType(38, 10),
    "day": DateType(),
    "t": TimeType(),
    "ts": TimestampType(),
    "tz": TimestamptzType(),
    "s": StringType(),
    "u": UUIDType(),
    "fx": FixedType(5),
    "bin": BinaryType(),
    "u2": UUIDType(),
    "fx2": FixedType(5),
    "dec2": DecimalType(9, 2),
}
SCHEMA = Schema(
    *(NestedField(i, name, kind, required=i % 2 == 0) for i, (name, kind) in enumerate(TYPES.items(), start=1)),
    schema_id=3,
)
BEFORE = Schema(*SCHEMA.fields, NestedField(DROPPED_ID, "gone", StringType()), schema_id=2)
_ODD_NAMES = ("a.b", "1st", "größe", "a b", "€", "\N{GRINNING FACE}", "a-b", "日付", "_x2E", "x²", "٣x", "ª", "x٣")
_TRANSFORMS = {
    "bucket[16]": ("i", "l", "dec", "wide", "day", "t", "ts", "tz", "s", "u", "fx", "bin"),
    "truncate[10]": ("i", "l", "dec", "s", "bin"),
    "year": ("day", "ts", "tz"),
    "month": ("day", "ts", "tz"),
    "day": ("day", "ts", "tz"),
    "hour": ("ts", "tz"),
    "void": ("i", "u", "dec", "flag"),
}


def _spec(*fields: tuple[str, str, int]) -> PartitionSpec:
    """Return a spec of (name, transform, source id)."""
    numbered = enumerate(fields, start=1000)
    made = (PartitionField(source, number, parse_transform(how), name) for number, (name, how, source) in numbered)
    return PartitionSpec(*made, spec_id=0)


def _source(name: str) -> int:
    return SCHEMA.find_field(name).field_id


SPECS = {
    "unpartitioned": _spec(),
    "identities": _spec(*((f"{name}_value", "identity", _source(name)) for name in TYPES)),
    "transforms": _spec(
        *((f"{n}_{how.partition('[')[0]}", how, _source(n)) for how, names in _TRANSFORMS.items() for n in names)
    ),
    "odd names": _spec(*((name, "identity", i) for i, name in enumerate(_ODD_NAMES, start=1))),
    "dropped": _spec(
        ("p", "identity", DROPPED_ID), ("b", "bucket[4]", DROPPED_ID), ("s_value", "identity", _source("s"))
    ),
}


def metadata_json(spec: PartitionSpec) -> str:
    """Return the metadata of a table that has files of `spec`, and writes by none now (Java reads only that then)."""
    schemas = [json.loads(schema.model_dump_json()) for schema in (BEFORE, SCHEMA)]
    return json.dumps(
        {
            "format-version": 2,
            "table-uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1",
            "location": "file:///nowhere",
            "last-sequence-number": 0,
            "last-updated-ms": 1,
            "last-column-id": DROPPED_ID,
            "schemas": schemas,
            "current-schema-id": SCHEMA.schema_id,
            "partition-specs": [json.loads(spec.model_dump_json()), {"spec-id": 1, "fields": []}],
            "default-spec-id": 1,
            "last-partition-id": 2000,
            "sort-orders": [{"order-id": 0, "fields": []}],
            "default-sort-order-id": 0,
            "properties": {},
            "snapshots": [],
        }
    )


def metadata_of(spec: PartitionSpec) -> TableMetadata:
    return TableMetadataUtil.parse_raw(metadata_json(spec))


KINDS = {
    "v1 data": (1, ManifestContent.DATA),
    "v2 data": (2, ManifestContent.DATA),
    "v2 deletes": (2, ManifestContent.DELETES),
}
OURS_TOO = {"schema-id"}
"""Required by the specification in v2, and not written by Java."""


def our_manifest(folder: Path, name: str, kind: str, entries: Iterable[ManifestEntry] = ()) -> ManifestFile:
    """Write a manifest of ours for one of `SPECS`."""
    metadata, (version, content) = metadata_of(SPECS[name]), KINDS[kind]
    output = PyArrowFileIO().new_output((folder / f"{uuid.uuid4()}.avro").as_uri())
    spec, schemas = metadata.specs()[0], known_schemas(metadata)
    with ManifestWriter(output, content, spec, schemas, 7, format_version=version) as writer:
        for entry in entries:
            writer.add(entry)
    return writer.manifest_file()


def our_header(folder: Path, name: str, kind: str) -> dict[str, Any]:
    return header_of(local_path(our_manifest(folder, name, kind).manifest_path))


def header_of(path: Path) -> dict[str, Any]:
    """Return the header of an Avro file: schemas without their documentation, other JSON parsed."""
    header = construct_reader(META_SCHEMA, {-1: AvroFileHeader}).read(StreamingBinaryDecoder(path.read_bytes()))
    return {key: _undocumented(json.loads(text)) if text[:1] in "[{" else text for key, text in header.meta.items()}


def _undocumented(value: Any) -> Any:
    """Leave out what says nothing about how a file is read."""
    if isinstance(value, list):
        return [_undocumented(v) for v in value]
    if isinstance(value, dict):
        return {
            k: _undocumented(v) for k, v in value.items() if k != "doc" and not (k == "identifier-field-ids" and not v)
        }
    return value


def data_file_fields(avro: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the fields of a manifest's data file record."""
    (found,) = (f for f in avro["fields"] if f["name"] == "data_file")
    fields: list[dict[str, Any]] = found["type"]["fields"]
    return fields


def partition_fields(avro: dict[str, Any]) -> list[dict[str, Any]]:
    (found,) = (f for f in data_file_fields(avro) if f["name"] == "partition")
    fields: list[dict[str, Any]] = found["type"]["fields"]
    return fields


def spelled_out(fields: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Define each fixed type that is only named, under its name and the number of its use."""
    kinds = [kind for field in fields for kind in field["type"]]
    defined = {kind["name"]: kind for kind in kinds if isinstance(kind, dict) and kind["type"] == "fixed"}
    used: Counter[str] = Counter()

    def of(kind: Any) -> Any:
        name = kind.get("name") if isinstance(kind, dict) else kind
        if name not in defined:
            return kind
        used[name] += 1
        return {**defined[name], "name": f"{name}_{used[name]}" if used[name] > 1 else name}

    return [{**f, "type": [of(kind) for kind in f["type"]] if f["type"] != "null" else "null"} for f in fields]


_VALUES: dict[str, tuple[object, ...]] = {
    "boolean": (False, True),
    "int": (-(2**31), 2**31 - 1, 0),
    "long": (-(2**63), 2**63 - 1, 0),
    "float": (-0.0, 0.0, math.nan, 1.5),
    "double": (0.0, -0.0, math.nan, 0.1),
    "decimal(9, 2)": (Decimal("-1.28"), Decimal("9999999.99")),
    "decimal(38, 10)": (Decimal("-1E-10"), Decimal("9999999999999999999999999999.9999999999")),
    "date": (-719162, 2932896),
    "time": (0, 86_399_999_999),
    "timestamp": (-62135596800000000, 253402300799999999),
    "timestamptz": (-62135596800000000, 253402300799999999),
    "string": ("", "\ud7ff", "\N{GRINNING FACE}", "\uffee", "a/b=c d"),
    "uuid": (uuid.UUID(int=1), uuid.UUID(int=2**126)),
    "fixed[5]": (b"\x00\x00\x00\x00\x01", b"\xff\xff\xff\xff\xff"),
    "binary": (b"", b"\x00", b"\xff\x00"),
}
"""Partition values by type, as a manifest holds them."""


def entries_of(metadata: TableMetadata, content: ManifestContent, *, fixed: bool = True) -> list[ManifestEntry]:
    """Return entries of files whose partitions have every value of `_VALUES`, and one whose values are null.

    Without `fixed`, partition values of that type are null too: Java writes and reads them with a length before them,
    which is no Avro.
    """
    values = {kind: found if fixed or "fixed" not in kind else (None,) for kind, found in _VALUES.items()}
    kinds = [str(f.field_type) for f in partition_type(metadata.specs()[0], known_schemas(metadata)).fields]
    most = max([1, *(len(values[kind]) for kind in kinds)])
    records = [Record(*(values[kind][i % len(values[kind])] for kind in kinds)) for i in range(most)]
    return [entry_of(i, record, content) for i, record in enumerate([*records, Record(*(None for _ in kinds))])]


def entry_of(number: int, partition: Record, content: ManifestContent) -> ManifestEntry:
    equality = content == ManifestContent.DELETES and number % 2 == 0
    described = {
        ManifestContent.DATA: {"content": DataFileContent.DATA, "split_offsets": [4, 8], "sort_order_id": 0},
        ManifestContent.DELETES: {"content": DataFileContent.POSITION_DELETES, "referenced_data_file": "file:/a"},
    }[content]
    if equality:
        described = {"content": DataFileContent.EQUALITY_DELETES, "equality_ids": [1, 2], "sort_order_id": 0}
    file = DataFile.from_args(
        3,
        file_path=f"file:/warehouse/{number}.parquet",
        file_format=FileFormat.PARQUET,
        partition=partition,
        record_count=number + 1,
        file_size_in_bytes=100 + number,
        column_sizes={1: 10},
        value_counts={1: number + 1},
        null_value_counts={1: 0},
        nan_value_counts={4: 1},
        lower_bounds={1: b"\x00"},
        upper_bounds={1: b"\x01"},
        **described,
    )
    return ManifestEntry.from_args(
        status=ManifestEntryStatus.EXISTING,
        snapshot_id=7,
        sequence_number=number,
        file_sequence_number=number,
        data_file=file,
    )


def plain(value: object) -> object:
    """Return a value of a data file's record as it prints alike, whoever made the record."""
    if isinstance(value, uuid.UUID):
        return value.bytes
    return dict(value) if isinstance(value, Mapping) else int(value) if isinstance(value, int) else value
