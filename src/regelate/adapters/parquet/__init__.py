"""Parquet's own bytes: footers read and rewritten, pages left alone."""

__all__ = ["iceberg_footer", "splicing"]
