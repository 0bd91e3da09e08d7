"""What manifest lists and manifests name, in few bytes."""

from __future__ import annotations

from array import array

from regelate.adapters.iceberg.byte_cache import ByteCache

REMEMBERED_BYTES = 64 * 1024 * 1024


class ReachMemory:
    """Manifest list -> paths of its manifests; manifest -> marks of its live files, 8 bytes each; for one process."""

    def __init__(self, limit_bytes: int = REMEMBERED_BYTES) -> None:
        self.lists: ByteCache[str, tuple[str, ...]] = ByteCache(limit_bytes // 2)
        self.marks: ByteCache[str, array[int]] = ByteCache(limit_bytes // 2)
