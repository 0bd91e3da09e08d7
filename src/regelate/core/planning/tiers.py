"""Which small files an automatic run merges, so that none is rewritten more than a few times, however long it goes on.

A run that took all small files would take what it wrote itself again and again: the bytes that it rewrites grow with
the square of time. So sizes form tiers, and files wait for others of about their size (the ADR
0016-automatic-runs-merge-tiers measures this rule beside others).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")

TIER_WIDTH = 8
"""A tier ends below so many times its smallest file, below half of `full` times where that is less: what comes out of a
full tier belongs to the next."""


def small_end(items: Sequence[T], weight: Callable[[T], int], *, full: int) -> tuple[T, ...]:
    """Return the files up to the end of the first full tier, smallest first; none where no tier is full.

    A tier of `full` files is full. With one file less than twice as many in all tiers together the one with the most
    files is full, so that never more than that are left.
    """
    width = min(TIER_WIDTH, max(full / 2, 2))
    tiers: list[list[T]] = []
    for item in sorted(items, key=weight):
        if tiers and weight(item) < width * max(weight(tiers[-1][0]), 1):
            tiers[-1].append(item)
        else:
            tiers.append([item])
    least = full if len(items) < 2 * full - 1 else max(map(len, tiers), default=full)
    end = next((index for index, tier in enumerate(tiers) if len(tier) >= least), None)
    return () if end is None else tuple(item for tier in tiers[: end + 1] for item in tier)
