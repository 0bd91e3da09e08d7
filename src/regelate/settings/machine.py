"""The memory and the processors that this process may use: Lambda's, a container's, or the machine's."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path

MB = 1024 * 1024
CGROUPS = Path("/sys/fs/cgroup")
_MEMORY_FILES = ("memory.max", "memory/memory.limit_in_bytes")
"""Version 2, then version 1."""


def available_memory_bytes(environ: Mapping[str, str], cgroups: Path = CGROUPS) -> int:
    """Return the least of physical memory, the container's limit and Lambda's configured size, in bytes."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    lambda_mb = environ.get("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "")
    if lambda_mb.isdecimal() and int(lambda_mb) > 0:
        limits.append(int(lambda_mb) * MB)
    for name in _MEMORY_FILES:
        text = _first_line(cgroups / name)
        if text.isdecimal() and int(text) > 0:
            limits.append(int(text))
    return min(limits)


def available_processors(cgroups: Path = CGROUPS) -> int:
    """Return how many processors this process may run on, at least 1; a container's CPU quota is rounded up."""
    counts = [len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1]
    quota, _, period = _first_line(cgroups / "cpu.max").partition(" ")
    if quota.isdecimal() and period.isdecimal() and int(period) > 0:
        counts.append(math.ceil(int(quota) / int(period)))
    return max(min(counts), 1)


def _first_line(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").partition("\n")[0].strip()
    except (OSError, UnicodeDecodeError):
        return ""
