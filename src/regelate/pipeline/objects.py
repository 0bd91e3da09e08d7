"""Small objects beside the tables, such as the result of a job, written by the session's own means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from regelate.pipeline.faults import spark_faults

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def write_object(spark: SparkSession, catalog: str, uri: str, content: str) -> None:
    """Write a text to a URI: S3 by Iceberg's S3FileIO with the catalog's own properties, the rest by Hadoop."""
    jvm: Any = spark._jvm
    prefix = f"spark.sql.catalog.{catalog}."
    given = {key.removeprefix(prefix): value for key, value in spark.sparkContext.getConf().getAll() if prefix in key}
    properties = jvm.java.util.HashMap()
    for key, value in given.items():
        properties.put(key, value)
    hadoop = spark._jsc.hadoopConfiguration()
    with spark_faults(uri):
        io = jvm.org.apache.iceberg.CatalogUtil.loadFileIO("org.apache.iceberg.io.ResolvingFileIO", properties, hadoop)
        stream = io.newOutputFile(uri).createOrOverwrite()
        try:
            stream.write(bytearray(content.encode()))
        finally:
            stream.close()
            io.close()
