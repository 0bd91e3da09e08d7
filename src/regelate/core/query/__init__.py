"""A query as values, and results that are too large for an answer."""
