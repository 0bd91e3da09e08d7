"""Snapshots as written: the producer, manifests, the committer, expiry."""
