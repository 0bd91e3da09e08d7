"""regelate: compaction of Apache Iceberg tables, serverless and without losing a row."""

__version__ = "0.1.0"
