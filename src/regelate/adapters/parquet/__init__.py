"""Parquet's own bytes: footers read and rewritten, pages left alone."""

__all__ = ["damage", "iceberg_footer", "splicing"]
