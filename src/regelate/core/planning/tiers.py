"""Which small files an automatic run merges, so that none is rewritten more than a few times, however long it goes on.

A run that took all small files would take what it wrote itself again and again: the bytes that it rewrites grow with
the square of time. So sizes form tiers, and files wait for others of about their size (ADR 0017 measures this rule
beside others).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TypeVar

T = TypeVar("T")

TIER_WIDTH = 8
"""A tier ends below so many times its smallest file, below half of `full` times where that is less: what comes out of a
full tier belongs to the next."""
CROWD = 32
"""Fewer files than this are left to wait where no tier is full: about as many tiers there are of the least width."""


def small_end(items: Sequence[T], weight: Callable[[T], int], *, full: int) -> tuple[T, ...]:
    """Return the files up to the end of the last full tier, smallest first; none where no tier is full.

    A tier of `full` files is full. Where 2 x `full` - 1 files or more would be left (`CROWD` where that is more), so
    many tiers are taken that fewer are; never fewer than `full` files, for a run must be worth it.
    """
    width = min(TIER_WIDTH, max(full / 2, 2))
    ordered = sorted(items, key=weight)
    tiers: list[list[T]] = []
    for item in ordered:
        if tiers and weight(item) < width * max(weight(tiers[-1][0]), 1):
            tiers[-1].append(item)
        else:
            tiers.append([item])
    ends = tuple(accumulate(map(len, tiers)))
    end = max((stop for stop, tier in zip(ends, tiers, strict=True) if len(tier) >= full), default=0)
    most = max(2 * full - 1, CROWD)
    if len(ordered) - end >= most:
        end = next(stop for stop in ends if stop >= full and len(ordered) - stop < most)
    return tuple(ordered[:end])
