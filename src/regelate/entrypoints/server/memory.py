"""What requests took, given back to the system when it is freed.

glibc raises by itself what it keeps: once a body of 6 MB is freed, blocks of up to 6 MB come from heaps, and the last
12 MB of each heap stay, for as many heaps as threads have made (8 per processor). `malloc_trim` does not come by them.
Arrow's own allocator keeps pages for each thread. After 483 hostile requests the two held 155 MB more than before,
after as many again 440; so it is 44 and 60.
"""

from __future__ import annotations

import ctypes

from regelate.entrypoints.memory import use_system_memory

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Parameters of mallopt(3)."""
KEPT_BYTES = 128 * 1024
"""What glibc begins with, for both. Larger blocks are mapped by themselves and go when they are freed."""


def keep_little_memory() -> None:
    """Let this process give back what it frees. Call it before PyArrow is imported; ARROW_DEFAULT_MEMORY_POOL wins."""
    use_system_memory()
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is None:  # not glibc
        return
    for threshold in (_TRIM_THRESHOLD, _MMAP_THRESHOLD):  # one that is set is no longer raised
        set_option(threshold, KEPT_BYTES)
