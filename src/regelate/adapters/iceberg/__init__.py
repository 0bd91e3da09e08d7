"""Tables of Iceberg through PyIceberg: catalogs, metadata, files, commits, clean-up."""

__all__ = ["admin", "catalogs", "manifests", "metadata_files", "session"]
