"""How often a byte is written where automatic runs follow a stream of small commits, by rules for what a run takes.

A model: sizes alone, one partition, and a run merges what its rule takes into files of at most 128 MB. A look is made
after every commit.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.measuring import Promise
from regelate.core.planning.tiers import small_end
from regelate.core.policy.policy import MB

Rule = Callable[[Sequence[int]], Sequence[int]]
MIN_NUM_FILES = 50
TARGET = 128 * MB
COMMITS = {1_000: 2.5, 10_000: 3.5}
"""How many, and how often a byte may be written by then."""
BATCHES = {"1 KB": 1024, "100 KB": 100 * 1024, "5 MB": 5 * MB}
OURS = "tiers"


def tiers(sizes: Sequence[int]) -> Sequence[int]:
    return small_end(sizes, int, full=MIN_NUM_FILES)


def everything(sizes: Sequence[int]) -> Sequence[int]:
    """Take what a COMPACT by hand takes."""
    return sizes if len(sizes) >= MIN_NUM_FILES else ()


def universal(sizes: Sequence[int]) -> Sequence[int]:
    """Take the next file only while what was taken is at least as large (RocksDB's universal compaction)."""
    if len(sizes) < MIN_NUM_FILES:
        return ()
    ordered = sorted(sizes)
    taken = 1
    while taken < len(ordered) and ordered[taken] <= max(sum(ordered[:taken]), 2 * ordered[0]):
        taken += 1
    return ordered[:taken] if taken > 1 else ordered


RULES: Mapping[str, Rule] = {"all small files": everything, "universal": universal, OURS: tiers}


def followed(rule: Rule, commits: int, batch: int, spread: float) -> dict[str, float]:
    """Return what became of so many commits of files of `batch` bytes, give or take `spread` of it."""
    chance = random.Random(commits)
    small: list[int] = []
    data = written = runs = most = 0
    for _ in range(commits):
        size = round(batch * (1 + chance.uniform(-spread, spread)))
        small.append(size)
        data, written, most = data + size, written + size, max(most, len(small))
        taken = rule(small)
        if taken:
            runs, written = runs + 1, written + sum(taken)
            small = list((Counter(small) - Counter(taken)).elements())
            pieces = max(1, round(sum(taken) / TARGET))
            small += [size for size in [sum(taken) // pieces] * pieces if size < TARGET // 2]
    return {"amplification": written / data, "most": most, "compactions": runs}


def amplification(work: Path, runs: int, quick: bool) -> tuple[dict[str, Any], list[Promise]]:
    """How often is a byte written where automatic runs follow a stream of small commits?"""
    found: dict[str, Any] = {}
    promises = []
    for commits, limit in COMMITS.items():
        worst = dict.fromkeys(RULES, 0.0)
        for name, rule in RULES.items():
            for batch, size in BATCHES.items():
                for kind, spread in (("even", 0.1), ("uneven", 0.95)):
                    told = followed(rule, commits, size, spread)
                    found[f"{commits:,} commits of {batch} ({kind}), {name}"] = [told]
                    worst[name] = max(worst[name], told["amplification"])
        promises += [
            Promise(name=f"{commits:,} commits, worst, {name}", ratio=ratio, limit=limit if name == OURS else None)
            for name, ratio in worst.items()
        ]
    most = max(told[0]["most"] for name, told in found.items() if name.endswith(OURS))
    promises.append(
        Promise(name="most small files at once / 2 x min-num-files", ratio=most / (2 * MIN_NUM_FILES), limit=1)
    )
    return found, promises
