"""Readers and writers of Avro schemas, made once: PyIceberg makes them anew per file, a third of a seed's time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from pyiceberg import manifest as native
from pyiceberg.avro import file as avro_file
from pyiceberg.manifest import MANIFEST_LIST_FILE_SCHEMAS, ManifestWriter
from pyiceberg.schema import Schema
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from regelate.adapters.iceberg import manifests

_kept: dict[int, Schema] = {}
"""Schemas that live as long as the process, by their identity; what is made of any other is not remembered."""
_made: dict[Any, Any] = {}
"""They hold no state of a file."""


def _keep(schema: Schema) -> Schema:
    return _kept.setdefault(id(schema), schema)


for _schema in (avro_file.META_SCHEMA, *MANIFEST_LIST_FILE_SCHEMAS.values(), *native.MANIFEST_ENTRY_SCHEMAS.values()):
    _keep(_schema)


def _by_identity(make: Callable[..., Any]) -> Callable[..., Any]:
    def made(*args: Any, **named: Any) -> Any:
        given = [a for a in (*args, *named.values()) if isinstance(a, Schema)]
        if not given or any(id(a) not in _kept for a in given):
            return make(*args, **named)
        key = (
            make,
            *(id(a) for a in given),
            repr(
                [a if isinstance(a, str) else tuple(a) for a in (*args, *named.values()) if isinstance(a, str | dict)]
            ),
        )
        if key not in _made:
            _made[key] = make(*args, **named)
        return _made[key]

    return made


def _with_partition(make: Callable[[Any, Any], Schema]) -> Callable[[Any, Any], Schema]:
    def made(self: Any, format_version: Any) -> Schema:
        types = [str(f.field_type) for f in self._spec.partition_type(self._schema).fields]
        key = (make, format_version, tuple(f"{f.field_id} {f.name}" for f in self._spec.fields), tuple(types))
        if key not in _made:
            _made[key] = _keep(make(self, format_version))
        return _made[key]

    return made


def _get_schema(make: Callable[[Any], Schema]) -> Callable[[Any], Schema]:
    def made(self: Any) -> Schema:
        key = (make, self.meta["avro.schema"])
        if key not in _made:
            _made[key] = _keep(make(self))
        return _made[key]

    return made


@contextmanager
def schemas() -> Iterator[None]:
    with ExitStack() as stack:
        for where, name, how in (
            (avro_file, "construct_reader", _by_identity),
            (avro_file, "construct_writer", _by_identity),
            (avro_file, "resolve_writer", _by_identity),
            (avro_file, "resolve_reader", _by_identity),
            (avro_file.AvroFileHeader, "get_schema", _get_schema),
            (manifests, "construct_reader", _by_identity),
            (AvroSchemaConversion, "iceberg_to_avro", _by_identity),
            (ManifestWriter, "_with_partition", _with_partition),
        ):
            stack.enter_context(mock.patch.object(where, name, how(getattr(where, name))))
        yield
