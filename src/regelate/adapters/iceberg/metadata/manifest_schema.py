"""The Avro schemas of manifests and manifest lists, field by field as Iceberg's specification has them.

PyIceberg's differ where it hurts: with them Java cannot read a delete manifest with `equality_ids` (trap T33: manifests
that Java cannot read), nor a manifest of two partition fields of one fixed type. Order and names are those of Iceberg's
Java writers (`V1Metadata`, `V2Metadata`, `TypeToSchema` of 1.10); a test holds them against files that those wrote.
"""

from __future__ import annotations

import json
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    UnknownType,
)
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

MANIFEST_ENTRY, MANIFEST_FILE = "manifest_entry", "manifest_file"
"""Names of the root records of a manifest and of a manifest list."""
FIELD_ID, FIELD_NAME = "field-id", "iceberg-field-name"
_NESTED = {"type", "items", "values", "fields"}
PARTITION_ID, BLOCK_SIZE_ID, EQUALITY_IDS_ID, REFERENCED_DATA_FILE_ID = 102, 105, 135, 143
_INT, _LONG, _STRING, _BYTES, _BOOLEAN = IntegerType(), LongType(), StringType(), BinaryType(), BooleanType()


def _required(field_id: int, name: str, kind: Any) -> NestedField:
    return NestedField(field_id=field_id, name=name, field_type=kind, required=True)


def _optional(field_id: int, name: str, kind: Any) -> NestedField:
    return NestedField(field_id=field_id, name=name, field_type=kind, required=False)


def _by_column(key_id: int, value: PrimitiveType) -> MapType:
    return MapType(key_id=key_id, key_type=_INT, value_id=key_id + 1, value_type=value, value_required=True)


def _each(element_id: int, element: PrimitiveType | StructType) -> ListType:
    return ListType(element_id=element_id, element_type=element, element_required=True)


_DATA_FILE = (
    _required(134, "content", _INT),
    _required(100, "file_path", _STRING),
    _required(101, "file_format", _STRING),
    _required(PARTITION_ID, "partition", StructType()),
    _required(103, "record_count", _LONG),
    _required(104, "file_size_in_bytes", _LONG),
    _required(BLOCK_SIZE_ID, "block_size_in_bytes", _LONG),
    _optional(108, "column_sizes", _by_column(117, _LONG)),
    _optional(109, "value_counts", _by_column(119, _LONG)),
    _optional(110, "null_value_counts", _by_column(121, _LONG)),
    _optional(137, "nan_value_counts", _by_column(138, _LONG)),
    _optional(125, "lower_bounds", _by_column(126, _BYTES)),
    _optional(128, "upper_bounds", _by_column(129, _BYTES)),
    _optional(131, "key_metadata", _BYTES),
    _optional(132, "split_offsets", _each(133, _LONG)),
    _optional(EQUALITY_IDS_ID, "equality_ids", _each(136, _INT)),
    _optional(140, "sort_order_id", _INT),
    _optional(REFERENCED_DATA_FILE_ID, "referenced_data_file", _STRING),
)
_NOT_IN_DATA_FILE = {1: {134, EQUALITY_IDS_ID, REFERENCED_DATA_FILE_ID}, 2: {BLOCK_SIZE_ID}}
"""By format version."""
_ENTRY = (
    _required(0, "status", _INT),
    _optional(1, "snapshot_id", _LONG),
    _optional(3, "sequence_number", _LONG),
    _optional(4, "file_sequence_number", _LONG),
)
_NOT_IN_ENTRY: dict[int, set[int]] = {1: {3, 4}, 2: set()}
_SUMMARY = StructType(
    _required(509, "contains_null", _BOOLEAN),
    _optional(518, "contains_nan", _BOOLEAN),
    _optional(510, "lower_bound", _BYTES),
    _optional(511, "upper_bound", _BYTES),
)
_PATH = (
    _required(500, "manifest_path", _STRING),
    _required(501, "manifest_length", _LONG),
    _required(502, "partition_spec_id", _INT),
)
_SNAPSHOT = _required(503, "added_snapshot_id", _LONG)
_FILES = ((504, "added_files_count"), (505, "existing_files_count"), (506, "deleted_files_count"))
_ROWS = ((512, "added_rows_count"), (513, "existing_rows_count"), (514, "deleted_rows_count"))
_PARTITIONS = _optional(507, "partitions", _each(508, _SUMMARY))
_KEY = _optional(519, "key_metadata", _BYTES)
_LISTS = {
    1: (
        *_PATH,
        _SNAPSHOT,
        *(_optional(i, name, _INT) for i, name in _FILES),
        _PARTITIONS,
        *(_optional(i, name, _LONG) for i, name in _ROWS),
        _KEY,
    ),
    2: (
        *_PATH,
        _required(517, "content", _INT),
        _required(515, "sequence_number", _LONG),
        _required(516, "min_sequence_number", _LONG),
        _SNAPSHOT,
        *(_required(i, name, _INT) for i, name in _FILES),
        *(_required(i, name, _LONG) for i, name in _ROWS),
        _PARTITIONS,
        _KEY,
    ),
}


def manifest_schema(format_version: int, partition: StructType) -> Schema:
    """Return the schema of a manifest, of data files or of delete files, whose partition values are of this type."""
    left_out = _NOT_IN_DATA_FILE[format_version]
    fields = (_required(f.field_id, f.name, partition) if f.field_id == PARTITION_ID else f for f in _DATA_FILE)
    data_file = StructType(*(f for f in fields if f.field_id not in left_out))
    entry = (f for f in _ENTRY if f.field_id not in _NOT_IN_ENTRY[format_version])
    return Schema(*entry, _required(2, "data_file", data_file))


def manifest_list_schema(format_version: int) -> Schema:
    """Return the schema of a manifest list."""
    return Schema(*_LISTS[format_version])


def partition_type(spec: PartitionSpec, schemas: Sequence[Schema]) -> StructType:
    """Return the type of the partition values of a spec; each field is optional, whatever its source column is.

    A source column is looked for in the schemas one after the other: of one that was dropped, an older schema still
    has the type, and without it the values would be lost. Java has `unknown` for it (and reads what has the type).
    """
    return StructType(
        *(
            _optional(f.field_id, f.name, UnknownType() if kind is None else f.transform.result_type(kind))
            for f in spec.fields
            for kind in [next((s.find_type(f.source_id) for s in schemas if s.find_column_name(f.source_id)), None)]
        )
    )


def avro_schema(schema: Schema, name: str) -> dict[str, Any]:
    """Return a schema in Avro's words: fields named as in Java, fixed types numbered from their second use on.

    Java defines one once and names it then, which PyIceberg cannot parse; twice under one name Java cannot parse. By
    other names both read it (trap T33: manifests that Java cannot read).
    """
    known: Counter[str] = Counter()

    def change(avro: Any) -> Any:
        if avro == ["null", "null"]:
            return "null"  # of a type that is unknown, which holds null without a union
        if not isinstance(avro, dict):
            return avro
        if avro.get("type") == "fixed":
            known[avro["name"]] += 1
            count = known[avro["name"]]
            return avro if count == 1 else {**avro, "name": f"{avro['name']}_{count}"}
        if FIELD_ID in avro:
            original = avro.pop(FIELD_NAME, avro["name"])
            avro["name"] = avro_name(original)
            if avro["name"] != original:
                avro[FIELD_NAME] = original
        return avro

    return dict(_rebuilt(AvroSchemaConversion().iceberg_to_avro(schema, schema_name=name), change))


def expanded(avro: Any) -> Any:
    """Return an Avro schema with each use of a named type spelled out, as PyIceberg's reader has to have it."""
    known: dict[str, Any] = {}

    def change(found: Any) -> Any:
        if isinstance(found, str):
            return known.get(found, found)
        if isinstance(found, dict) and found.get("type") in ("fixed", "record"):
            known[found["name"]] = found
        return found

    return _rebuilt(avro, change)


@lru_cache(maxsize=256)
def has_long_equality_ids(avro_text: str) -> bool:
    """Say whether a manifest's Avro schema has `equality_ids` of longs, which Java cannot read (trap T33: manifests
    that Java cannot read)."""
    fields = [f for top in json.loads(avro_text)["fields"] if top["name"] == "data_file" for f in top["type"]["fields"]]
    found = [kind for f in fields if f.get(FIELD_ID) == EQUALITY_IDS_ID for kind in f["type"]]
    return any(isinstance(kind, dict) and kind.get("items") != "int" for kind in found)


def avro_name(name: str) -> str:
    """Return a field's name in Avro, by `AvroSchemaUtil.makeCompatibleName` (Iceberg 1.10): letters of any language
    stay, other characters become their UTF-16 code units, and a digit at the beginning gets an underscore."""
    units = name.encode("utf-16-be", "surrogatepass")
    characters = [chr(int.from_bytes(units[i : i + 2], "big")) for i in range(0, len(units), 2)]
    return "".join(
        c if c == "_" or _is_letter(c) or (i and _is_digit(c)) else f"_{c}" if _is_digit(c) else f"_x{ord(c):X}"
        for i, c in enumerate(characters)
    )


def _rebuilt(avro: Any, change: Callable[[Any], Any]) -> Any:
    """Return an Avro schema with each of its types and fields changed, the innermost first, in order."""
    if isinstance(avro, list):
        return change([_rebuilt(a, change) for a in avro])
    if isinstance(avro, dict):
        return change({key: _rebuilt(value, change) if key in _NESTED else value for key, value in avro.items()})
    return change(avro)


def _is_letter(character: str) -> bool:
    return unicodedata.category(character) in {"Lu", "Ll", "Lt", "Lm", "Lo"}


def _is_digit(character: str) -> bool:
    return unicodedata.category(character) == "Nd"
