"""The rows that come: one batch per iteration, the same for every arm. Pure, but for the frame that Spark makes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VARIANCE, UPDATES = 0.10, 0.10
"""How far a batch's size strays from the size asked for, and which part of its rows were there before."""
COLUMNS: tuple[tuple[str, str, str], ...] = (
    ("id", "BIGINT", "id"),
    ("category", "STRING", "concat('category_', id % 10)"),
    ("value1", "DOUBLE", "round(rand({0}) * (rand({1}) * 1000), 2)"),
    ("value2", "DOUBLE", "round(rand({2}) * (rand({3}) * 10000), 2)"),
    ("value3", "DOUBLE", "round(rand({4}) * (rand({5}) * 100000), 2)"),
    ("date1", "DATE", "date_add(DATE '2022-01-01', int(round(rand({6}) * 1000, 0)))"),
    ("date2", "DATE", "date_add(DATE '2020-01-01', int(round(rand({7}) * 2000, 0)))"),
    ("is_cancelled", "BOOLEAN", "id % 3 != 0"),
)
"""Name, type and Spark expression of every column; a number in braces is the seed of one random column."""
_RANDOM = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The rows of one iteration: ids from `first` to `last`, both included; those up to `newest_before` are updates."""

    iteration: int
    first: int
    last: int
    newest_before: int

    @property
    def rows(self) -> int:
        return self.last - self.first + 1

    @property
    def updates(self) -> int:
        return max(self.newest_before - self.first + 1, 0)


def batches(rows: int, count: int, seed: int) -> Iterator[Batch]:
    """Yield the batches of a run, from iteration 1: a longer run begins with those of a shorter one.

    Each begins a tenth of itself before the end of the last one, so that a tenth of its rows are updates.
    """
    newest = -1
    for iteration in range(1, count + 1):
        size = round(rows * (1 + random.Random(f"{seed}:{iteration}").uniform(-VARIANCE, VARIANCE)))
        updates = 0 if iteration == 1 else round(size * UPDATES)
        first = newest + 1 - updates
        batch = Batch(iteration=iteration, first=first, last=first + size - 1, newest_before=newest)
        newest = batch.last
        yield batch


def frame(spark: SparkSession, batch: Batch, *, tasks: int, seed: int) -> DataFrame:
    """Return the rows of a batch. The same values come out at every reading: seeds and partitions are given."""
    seeds = [(seed * 1_000_003 + batch.iteration) * _RANDOM + number for number in range(_RANDOM)]
    expressions = [f"{expression.format(*seeds)} AS {name}" for name, _, expression in COLUMNS]
    return spark.range(batch.first, batch.last + 1, 1, tasks).selectExpr(*expressions)
