"""Rewrites, upserts and queries in DuckDB, and what it reads fetched ahead."""

__all__ = ["copies", "engine", "key_rewriter", "query", "query_pool", "session"]
