"""Manifests and metadata as read: schemas, statistics, partitions, pruning, history."""
