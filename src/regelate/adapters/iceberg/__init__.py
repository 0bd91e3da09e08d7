"""Tables of Iceberg through PyIceberg: catalogs, metadata, files, commits, clean-up."""

__all__ = ["admin", "catalogs", "dead_runs", "manifests", "metadata_files", "rows", "scan", "session"]
