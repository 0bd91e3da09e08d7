"""Avro files as the Avro specification has them, read by the schema in the file alone: what the auditor believes."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

MAGIC = b"Obj\x01"
SYNC_SIZE = 16
Decode = Callable[["_Bytes"], Any]


@dataclass(frozen=True)
class AvroFile:
    """Records as dictionaries by field name. `meta`: the file's own key-value pairs, `schema` the one in it."""

    meta: dict[str, str]
    schema: dict[str, Any]
    records: tuple[dict[str, Any], ...]


class _Bytes:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, count: int) -> bytes:
        found = self.data[self.at : self.at + count]
        if len(found) < count or count < 0:
            raise ValueError("an Avro file is cut")
        self.at += count
        return found

    def number(self) -> int:
        shift = value = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
            shift += 7

    def text(self) -> str:
        return self.take(self.number()).decode()


@lru_cache(maxsize=4_000)
def read(data: bytes) -> AvroFile:
    """Errors: ValueError for what is no Avro file of the codecs null and deflate."""
    source = _Bytes(data)
    if source.take(4) != MAGIC:
        raise ValueError("no Avro file")
    meta = {name: value.decode() for name, value in _blocks(source, lambda s: (s.text(), s.take(s.number())))}
    sync = source.take(SYNC_SIZE)
    decode = _decoder_of(meta["avro.schema"])
    records: list[dict[str, Any]] = []
    while source.at < len(data):
        count, block = source.number(), source.take(source.number())
        inner = _Bytes(zlib.decompress(block, -15) if meta.get("avro.codec") == "deflate" else block)
        records += [decode(inner) for _ in range(count)]
        if inner.at != len(inner.data) or source.take(SYNC_SIZE) != sync:
            raise ValueError("a block is not what its head says")
    return AvroFile(meta, json.loads(meta["avro.schema"]), tuple(records))


@lru_cache(maxsize=500)
def _decoder_of(schema: str) -> Decode:
    return _decoder(json.loads(schema), {})


def _decoder(schema: Any, named: dict[str, Decode]) -> Decode:
    if isinstance(schema, list):
        branches = [_decoder(s, named) for s in schema]
        return lambda s: branches[s.number()](s)
    if isinstance(schema, str):
        return named[schema] if schema in named else _PRIMITIVES[schema]
    match schema["type"]:
        case "record":
            fields: list[tuple[str, Decode]] = []
            decode: Decode = lambda s: {name: read(s) for name, read in fields}  # noqa: E731
            named[schema["name"]] = decode
            fields += [(f["name"], _decoder(f["type"], named)) for f in schema["fields"]]
        case "array":
            item = _decoder(schema["items"], named)
            decode = lambda s: _blocks(s, item)  # noqa: E731
        case "map":
            value = _decoder(schema["values"], named)
            decode = lambda s: dict(_blocks(s, lambda b: (b.text(), value(b))))  # noqa: E731
        case "fixed":
            size = schema["size"]
            decode = named[schema["name"]] = lambda s: s.take(size)
        case other:
            decode = _decoder(other, named)
    return decode


def _blocks(source: _Bytes, item: Decode) -> list[Any]:
    found: list[Any] = []
    while count := source.number():
        if count < 0:  # followed by the block's size in bytes
            count = -count
            source.number()
        found += [item(source) for _ in range(count)]
    return found


_PRIMITIVES: dict[str, Decode] = {
    "null": lambda s: None,
    "boolean": lambda s: s.take(1) == b"\x01",
    "int": lambda s: s.number(),
    "long": lambda s: s.number(),
    "float": lambda s: struct.unpack("<f", s.take(4))[0],
    "double": lambda s: struct.unpack("<d", s.take(8))[0],
    "bytes": lambda s: s.take(s.number()),
    "string": lambda s: s.text(),
}


def field(schema: dict[str, Any], field_id: int) -> Any:
    """Return the type of the field with this Iceberg id, wherever it stands; None if there is none."""
    for name in ("field-id", "element-id"):
        if schema.get(name) == field_id:
            return schema.get("items" if name == "element-id" else "type")
    for inner in (*schema.get("fields", ()), schema.get("type"), schema.get("items"), schema.get("values")):
        for part in inner if isinstance(inner, list) else (inner,):
            found = field(part, field_id) if isinstance(part, dict) else None
            if found is not None:
                return found
    return None
