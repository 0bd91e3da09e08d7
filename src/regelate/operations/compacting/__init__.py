"""COMPACT: routed, planned, rewritten, verified, committed; in parts and by jobs."""
