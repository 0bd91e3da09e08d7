"""Slopes with their confidence intervals, by ordinary least squares. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

CONFIDENCE = 0.95
_STEPS = 400
_HALVINGS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Slope:
    """How much a value grows from one iteration to the next, and how sure that is: the interval is two-sided."""

    per_step: float
    low: float
    high: float

    @property
    def may_be_zero(self) -> bool:
        return self.low <= 0 <= self.high


def deviation(values: Sequence[float]) -> float:
    """Return the standard deviation of a sample; 0 where there is only one value."""
    if len(values) < 2:
        return 0.0
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


def slope(values: Sequence[float], confidence: float = CONFIDENCE) -> Slope | None:
    """Return the slope of values at 0, 1, 2, ...; None for fewer than three, of which no interval can be said.

    The interval is Student's and takes the values for independent: noise that lasts over several of them makes the
    true one wider.
    """
    count = len(values)
    if count < 3:
        return None
    middle, mean = (count - 1) / 2, math.fsum(values) / count
    spread = math.fsum((at - middle) ** 2 for at in range(count))
    per_step = math.fsum((at - middle) * (value - mean) for at, value in enumerate(values)) / spread
    left = math.fsum((value - mean - per_step * (at - middle)) ** 2 for at, value in enumerate(values))
    margin = student(confidence, count - 2) * math.sqrt(left / (count - 2) / spread)
    return Slope(per_step=per_step, low=per_step - margin, high=per_step + margin)


@cache
def student(confidence: float, freedom: int) -> float:
    """Return the t within which a value of Student's distribution lies with this probability.

    With t = sqrt(freedom) tan(angle) the density is a power of the cosine, which Simpson's rule takes well.
    """
    constant = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2) - math.log(math.pi) / 2
    low, high = 0.0, math.pi / 2
    for _ in range(_HALVINGS):
        angle = (low + high) / 2
        if 2 * math.exp(constant) * _integral(angle, freedom - 1) < confidence:
            low = angle
        else:
            high = angle
    return math.sqrt(freedom) * math.tan((low + high) / 2)


def _integral(angle: float, power: int) -> float:
    """Return the integral of cos(x)**power from 0 to an angle."""
    step = angle / _STEPS
    weights = (1 if number in (0, _STEPS) else 4 if number % 2 else 2 for number in range(_STEPS + 1))
    return math.fsum(weight * math.cos(number * step) ** power for number, weight in enumerate(weights)) * step / 3
