"""Iceberg's own Java writers, through the JVM behind Spark: equality deletes, and types that Spark SQL lacks."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from tests.external.bench import NAMESPACE, Bench
from tests.spark.iceberg import java_table

_numbers = itertools.count(1)


def equality_delete(
    bench: Bench, name: str, rows: Sequence[Mapping[str, object]], partition: Mapping[str, object] | None = None
) -> None:
    """Commit one equality delete; the keys of its first row are its columns. `partition`: of identity fields."""
    jvm: Any = bench.spark._jvm
    iceberg, table = jvm.org.apache.iceberg, java_table(bench.spark, f"{bench.catalog}.{NAMESPACE}.{name}")
    columns = list(rows[0])
    schema = table.schema().select(_java_list(jvm, columns))
    keys = bench.spark.sparkContext._gateway.new_array(jvm.int, len(columns))  # type: ignore[union-attr]
    for index, column in enumerate(columns):
        keys[index] = table.schema().findField(column).fieldId()
    spec, key = table.spec(), None
    if partition is not None:
        key = iceberg.PartitionKey(spec, table.schema())
        for index, field in enumerate(spec.fields()):
            key.set(index, partition[field.name()])
    form = iceberg.FileFormat.PARQUET
    factory = iceberg.data.GenericAppenderFactory(table.schema(), spec, keys, schema, None)
    files = iceberg.io.OutputFileFactory.builderFor(table, 1, next(_numbers)).format(form).build()
    output = files.newOutputFile() if key is None else files.newOutputFile(key)
    writer = factory.newEqDeleteWriter(output, form, key)
    for row in rows:
        writer.write(_record(bench, schema, row))
    writer.close()
    table.newRowDelta().addDeletes(writer.toDeleteFile()).commit()
    bench.sql(f"REFRESH TABLE {bench.name(name)}")


def append_records(
    bench: Bench, name: str, fields: Sequence[tuple[str, Any]], batches: Sequence[Sequence[Mapping[str, object]]]
) -> None:
    """Create an unpartitioned table of any types and append one file of records per batch."""
    jvm: Any = bench.spark._jvm
    iceberg = jvm.org.apache.iceberg
    columns = [iceberg.types.Types.NestedField.optional(i + 1, n, kind) for i, (n, kind) in enumerate(fields)]
    schema = iceberg.Schema(_java_list(jvm, columns))
    spark3 = iceberg.spark.Spark3Util
    catalog = spark3.loadIcebergCatalog(bench.spark._jsparkSession, bench.catalog)
    table = catalog.createTable(iceberg.catalog.TableIdentifier.parse(f"{NAMESPACE}.{name}"), schema)
    form = iceberg.FileFormat.PARQUET
    factory = iceberg.data.GenericAppenderFactory(schema, table.spec())
    files = iceberg.io.OutputFileFactory.builderFor(table, 1, next(_numbers)).format(form).build()
    for batch in batches:
        writer = factory.newDataWriter(files.newOutputFile(), form, None)
        for row in batch:
            writer.write(_record(bench, schema, row))
        writer.close()
        table.newAppend().appendFile(writer.toDataFile()).commit()


def _record(bench: Bench, schema: Any, row: Mapping[str, object]) -> Any:
    jvm: Any = bench.spark._jvm
    record = jvm.org.apache.iceberg.data.GenericRecord.create(schema)
    for name, value in row.items():
        is_uuid = schema.findField(name).type().toString() == "uuid"
        record.setField(name, jvm.java.util.UUID.fromString(str(value)) if is_uuid else value)
    return record


def _java_list(jvm: Any, items: Sequence[Any]) -> Any:
    made = jvm.java.util.ArrayList()
    for item in items:
        made.add(item)
    return made
