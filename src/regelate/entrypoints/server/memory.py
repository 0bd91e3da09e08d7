"""What large requests took, given back to the system.

A body of 6 MB becomes up to a hundred as small objects. glibc keeps the pages of what was freed, for every thread on
its own, and looks only at the end of a heap for some to return: 36 bodies of 5 MB, 8 at a time, left 360 MB more than
there were before, with fewer arenas (MALLOC_ARENA_MAX) no less, with `malloc_trim` 120.
"""

from __future__ import annotations

import ctypes

_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
"""None where the C library is not glibc."""


def give_back_memory() -> None:
    """Return pages that hold nothing any more; takes milliseconds, in which other threads run."""
    if _trim is not None:
        _trim(0)
