"""Says from a manifest entry alone whether a data file may hold rows that match a filter."""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from typing import Any

from pyiceberg.expressions import (
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThanOrEqual,
    In,
    LessThanOrEqual,
    Reference,
)
from pyiceberg.expressions.visitors import (
    _InclusiveMetricsEvaluator,
    bind,
    expression_evaluator,
    manifest_evaluator,
)
from pyiceberg.manifest import DataFile, ManifestContent, ManifestFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import DateType, IntegerType, LongType, StringType

from regelate.adapters.iceberg.metadata.packed_maps import PackedMap, unpacked
from regelate.adapters.iceberg.metadata.row_filter import expression_of_text
from regelate.adapters.iceberg.metadata.transforms import UNREADABLE, Projection
from regelate.core.table.table import Partition
from regelate.errors import InvalidRequest


class FilePruner:
    """Never wrongly says no; PyIceberg's own inclusive evaluators, one per partition spec.

    Errors: InvalidRequest INVALID_FIELD when the text does not parse or names an unknown column.
    """

    def __init__(self, expression: BooleanExpression, metadata: TableMetadata, schema: Schema) -> None:
        self._expression = expression
        self._schema = schema
        self._specs = metadata.specs()
        self._metrics = _InclusiveMetricsEvaluator(schema, expression)
        self._projections = lru_cache(maxsize=None)(self._projection)
        self._partition_evaluators = lru_cache(maxsize=None)(self._partition_evaluator)
        self._manifest_evaluators = lru_cache(maxsize=None)(self._manifest_evaluator)

    @classmethod
    def from_text(cls, text: str, metadata: TableMetadata) -> FilePruner:
        """Parse an Iceberg row filter such as `day >= '2025-01-01' and id < 7`."""
        schema = metadata.schema()
        expression = expression_of_text(text, "where")
        try:
            bind(schema, expression, case_sensitive=True)
            return cls(expression, metadata, schema)
        except (ValueError, TypeError) as error:
            reason = str(error).splitlines()[0][:200]
            raise InvalidRequest("INVALID_FIELD", f"where: {reason}", field="where") from error

    def manifest_may_match(self, manifest: ManifestFile) -> bool:
        return isinstance(self._expression, AlwaysTrue) or _says(
            self._manifest_evaluators(manifest.partition_spec_id), manifest
        )

    def may_match(self, native: DataFile) -> bool:
        if isinstance(self._expression, AlwaysTrue):
            return True
        in_partition = _says(self._partition_evaluators(native.spec_id), native)
        return in_partition and _says(self._metrics.eval, _with_maps(native))

    def _projection(self, spec_id: int) -> BooleanExpression:
        return Projection(self._schema, self._specs[spec_id], case_sensitive=True).project(self._expression)

    def _partition_evaluator(self, spec_id: int):  # type: ignore[no-untyped-def]
        partition_schema = Schema(*self._specs[spec_id].partition_type(self._schema).fields)
        evaluate = expression_evaluator(partition_schema, self._projections(spec_id), case_sensitive=True)
        return lambda native: evaluate(native.partition)

    def _manifest_evaluator(self, spec_id: int):  # type: ignore[no-untyped-def]
        return manifest_evaluator(self._specs[spec_id], self._schema, self._projections(spec_id), case_sensitive=True)


def _says(evaluate: Callable[[Any], object], of: object) -> bool:
    """Say whether a match is possible; where values or bounds cannot be read, it is."""
    try:
        return bool(evaluate(of))
    except (*UNREADABLE, struct.error):
        return True


def _with_maps(native: DataFile) -> DataFile:
    """Unpack the statistics of an entry once, for an evaluator that looks into them again and again."""
    return DataFile(*(unpacked(value) if isinstance(value, PackedMap) else value for value in native._data))


KEYS_BY_VALUE = 200
"""PyIceberg's own limit for an `in` that its metrics evaluator still looks into."""


def key_pruner(rows: object, key: Sequence[str], metadata: TableMetadata) -> FilePruner:
    """Return a pruner for files that may hold one of the keys in `rows` (Arrow): by value, or by range when many.

    Columns whose values no literal can stand for (floats: NaN) do not prune.
    """
    schema = metadata.schema()
    expression: BooleanExpression = AlwaysTrue()
    for name in key:
        kind = schema.find_type(name)
        if isinstance(kind, IntegerType | LongType | StringType | DateType):
            values = rows[name].unique()  # type: ignore[index]
            if isinstance(kind, DateType):
                values = values.cast("int32")
            found = [v for v in values.to_pylist() if v is not None]
            expression = And(expression, _any_of(name, found))
    return FilePruner(expression, metadata, schema)


def _any_of(name: str, values: list[Any]) -> BooleanExpression:
    if not values:
        return AlwaysTrue()
    if len(values) <= KEYS_BY_VALUE:
        return In(term=Reference(name), literals=set(values))
    low = GreaterThanOrEqual(term=Reference(name), value=min(values))
    return And(low, LessThanOrEqual(term=Reference(name), value=max(values)))


def partition_pruner(partitions: Collection[Partition], metadata: TableMetadata) -> Callable[[ManifestFile], bool]:
    """Return a test of data manifests that may list files of these partitions, by their bounds as far as these tell.

    Only plain values are compared: readers differ in the order of others (trap T34: two orders of uuids).
    """
    tests: dict[int, list[Callable[[ManifestFile], bool]]] = {}
    schema = metadata.schema()
    for partition in partitions:
        spec = metadata.specs()[partition.spec_id]
        tests.setdefault(spec.spec_id, []).append(
            manifest_evaluator(spec, schema, _in_partition(partition, spec, schema))
        )

    def may_hold(manifest: ManifestFile) -> bool:
        return manifest.content == ManifestContent.DATA and any(
            _says(test, manifest) for test in tests.get(manifest.partition_spec_id, ())
        )

    return may_hold


def _in_partition(partition: Partition, spec: PartitionSpec, schema: Schema) -> BooleanExpression:
    """Return a condition on partition fields that the partition meets."""
    found: BooleanExpression = AlwaysTrue()
    for field, value in zip(spec.partition_type(schema).fields, partition.values, strict=True):
        is_number = type(value) is int and isinstance(field.field_type, IntegerType | LongType)
        if is_number or (type(value) is str and isinstance(field.field_type, StringType)):
            found = And(found, EqualTo(term=Reference(field.name), value=value))
    return found
