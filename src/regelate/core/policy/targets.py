"""How large files become: a target that grows with its table, and the target that a file was once made for.

The target of its day is written in the name of each file that a COMPACT makes. Names go wherever the file goes: through
every rewrite of manifests, expiry of snapshots and copy of metadata, whoever does them (ADR 0018).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from regelate.core.policy.policy import GB, MB
from regelate.core.table.table import TOTAL_BYTES, told_total

ADAPTIVE = "adaptive"
LEAST, MOST = 128 * MB, GB
SMALL_TABLE, LARGE_TABLE = 10 * GB, 10 * 1024 * GB
LARGE_WHERE_TARGETS_GROW = int(1.80 * MOST)
"""No file that any such target would make is too large, though the table has shrunk since, or does not say its size."""
STEP = 16 * MB
"""A target that moved with every commit would give each plan another id."""
_TARGET = re.compile(r"-t([1-9][0-9]{0,12})\.parquet", re.ASCII)


def adaptive_target(table_bytes: int) -> int:
    """Return the target of a table of this size: 128 MB up to 10 GB, from there linear to 1 GB at 10 TB, in whole
    steps of 16 MB.
    """
    grown = (table_bytes - SMALL_TABLE) * (MOST - LEAST) // (LARGE_TABLE - SMALL_TABLE)
    return min(max(LEAST, LEAST + grown // STEP * STEP), MOST)


def stored_bytes(summary: Mapping[str, str]) -> int:
    """Return the bytes of a table's files by the summary of its snapshot; 0 where that does not say."""
    return told_total(summary, TOTAL_BYTES) or 0


def named_target(path: str) -> int | None:
    """Return the target, in bytes, that a file was made for; None of one that no COMPACT made."""
    found = _TARGET.fullmatch(path, max(path.rfind("-t"), 0))
    return int(found[1]) if found is not None else None


def reached_its_target(path: str, size_bytes: int) -> bool:
    """Say whether a file has half of the target that it was made for, or more: it is done, whatever targets are now."""
    made_for = named_target(path)
    return made_for is not None and 2 * size_bytes >= made_for


def target_suffix(target_bytes: int | None) -> str:
    """Return what the name of a file ends with that is made for this target."""
    return ".parquet" if target_bytes is None else f"-t{target_bytes}.parquet"
