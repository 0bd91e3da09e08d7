"""Iceberg's own Java objects, through the JVM behind a Spark session: what Spark SQL has no words for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEY = "id"
"""The column that rows are deleted by; it is an int, and the first of its table."""


def java_table(spark: SparkSession, name: str) -> Any:
    """Load a table, by its name as Spark knows it, as Iceberg's own object."""
    jvm: Any = spark._jvm
    return jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, name)


def each(iterable: Any) -> Iterator[Any]:
    """Yield what a Java iterable holds."""
    iterator = iterable.iterator()
    while iterator.hasNext():
        yield iterator.next()


def delete_by_key(spark: SparkSession, name: str, ids: Iterable[int], *values: object) -> None:
    """Commit one equality delete of these ids to the partition with these values; Spark SQL can write none."""
    jvm: Any = spark._jvm
    iceberg, table = jvm.org.apache.iceberg, java_table(spark, name)
    keys = spark.sparkContext._gateway.new_array(jvm.int, 1)  # type: ignore[union-attr]
    keys[0] = table.schema().findField(KEY).fieldId()
    names = jvm.java.util.ArrayList()
    names.add(KEY)
    schema, form = table.schema().select(names), iceberg.FileFormat.PARQUET
    factory = iceberg.data.GenericAppenderFactory(schema, table.spec(), keys, schema, None)
    files = iceberg.io.OutputFileFactory.builderFor(table, 1, 1).format(form).build()
    partition = iceberg.PartitionData(table.spec().partitionType()) if values else None
    for i, value in enumerate(values):
        partition.set(i, value)
    output = files.newOutputFile(partition) if values else files.newOutputFile()
    writer = factory.newEqDeleteWriter(output, form, partition)
    for number in ids:
        record = iceberg.data.GenericRecord.create(schema)
        record.setField(KEY, number)
        writer.write(record)
    writer.close()
    table.newRowDelta().addDeletes(writer.toDeleteFile()).commit()
