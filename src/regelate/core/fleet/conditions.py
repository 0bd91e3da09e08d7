"""`when` of a fleet's policy: `small-file-ratio > 0.3 and files > 100`, read once and asked of every table.

    condition  = "always" | or
    or         = and { "or" and }
    and        = not { "and" not }
    not        = "not" not | "(" or ")" | comparison
    comparison = metric operator number

A number carries the unit of its metric: `512MB` of bytes, `30%` of a ratio.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from enum import Enum, StrEnum
from types import MappingProxyType
from typing import NoReturn

from regelate.core.policy.option_values import parse_size
from regelate.core.policy.policy import Selection
from regelate.core.values import dataclass
from regelate.errors import InvalidRequest

ALWAYS = "always"
MAX_CHARACTERS = 1000
MAX_DEPTH = 20


class _Unit(Enum):
    COUNT = "a number such as 100"
    RATIO = "a number between 0 and 1, or 30%"
    BYTES = "a size such as 512MB, or a number of bytes"


class Metric(StrEnum):
    """What a condition may ask of a table, as the last look at it had it."""

    FILES = "files"
    SMALL_FILES = Selection.SMALL_FILES.value
    SMALL_FILE_RATIO = "small-file-ratio"
    CANDIDATE_FILES = "candidate-files"
    DELETE_FILES = "delete-files"
    DELETE_ROWS = "delete-rows"
    BYTES = "bytes"
    SNAPSHOTS = "snapshots"
    MANIFESTS = "manifests"
    METADATA_BYTES = "metadata-bytes"
    PARTITIONS = "partitions"
    COMMITS_PER_HOUR = "commits-per-hour"
    HEALTH = "health"


_UNITS: Mapping[Metric, _Unit] = {
    Metric.BYTES: _Unit.BYTES,
    Metric.METADATA_BYTES: _Unit.BYTES,
    Metric.SMALL_FILE_RATIO: _Unit.RATIO,
}
_OPERATORS: Mapping[str, Callable[[float, float], bool]] = MappingProxyType(
    {
        ">=": operator.ge,
        "<=": operator.le,
        "==": operator.eq,
        "!=": operator.ne,
        ">": operator.gt,
        "<": operator.lt,
        "=": operator.eq,
    }
)
_TOKEN = re.compile(
    r"(?P<word>[A-Za-z][A-Za-z0-9_-]*)|(?P<number>-?[0-9][0-9.]*(?:[A-Za-z]+|%)?)|(?P<sign>>=|<=|==|!=|[<>=()])|(?P<other>\S)"
)
_NUMBER = re.compile(r"-?[0-9]{1,20}(?:\.[0-9]{1,20})?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    metric: Metric
    sign: str
    number: float

    def truth(self, metrics: Mapping[str, float]) -> bool | None:
        """Say whether it holds; None where nobody knows the metric."""
        known = metrics.get(self.metric)
        return None if known is None or math.isnan(known) else _OPERATORS[self.sign](known, self.number)


@dataclass(frozen=True, slots=True, kw_only=True)
class Negation:
    of: Term

    def truth(self, metrics: Mapping[str, float]) -> bool | None:
        """Say whether it holds: what is unknown stays unknown."""
        known = self.of.truth(metrics)
        return None if known is None else not known


@dataclass(frozen=True, slots=True, kw_only=True)
class Junction:
    """All of its terms, or any of them; of no terms, all: what always holds."""

    terms: tuple[Term, ...]
    every: bool

    def truth(self, metrics: Mapping[str, float]) -> bool | None:
        """Say whether it holds: one term that decides is enough, whatever is unknown of the others."""
        found = [term.truth(metrics) for term in self.terms]
        deciding = not self.every
        if deciding in found:
            return deciding
        return None if None in found else self.every


Term = Comparison | Negation | Junction


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A condition as its author wrote it, and what it asks; made by `parse_condition`."""

    text: str
    term: Term

    def holds(self, metrics: Mapping[str, float]) -> bool:
        """Say whether it certainly holds for a table's metrics; what an unknown metric decides does not."""
        return self.term.truth(metrics) is True


def parse_condition(text: str) -> Condition:
    """Read a condition. Errors: InvalidRequest FLEET_POLICY_INVALID; `details.offset` is the character at fault."""
    if len(text) > MAX_CHARACTERS:
        _refuse(f"has {len(text)} characters; at most {MAX_CHARACTERS} are allowed", MAX_CHARACTERS)
    return Condition(text=text.strip(), term=_Reader(text).whole())


class _Reader:
    """Recursive descent over the tokens of one text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(_TOKEN.finditer(text))
        self._at = 0

    def whole(self) -> Term:
        if [token[0].lower() for token in self._tokens] == [ALWAYS]:
            return Junction(terms=(), every=True)
        term = self._either(0)
        if self._at < len(self._tokens):
            self._expected("`and`, `or` or the end")
        return term

    def _either(self, depth: int) -> Term:
        terms = [self._both(depth)]
        while self._took("or"):
            terms.append(self._both(depth))
        return terms[0] if len(terms) == 1 else Junction(terms=tuple(terms), every=False)

    def _both(self, depth: int) -> Term:
        terms = [self._one(depth)]
        while self._took("and"):
            terms.append(self._one(depth))
        return terms[0] if len(terms) == 1 else Junction(terms=tuple(terms), every=True)

    def _one(self, depth: int) -> Term:
        if depth > MAX_DEPTH:
            _refuse(f"is nested more than {MAX_DEPTH} deep", self._offset())
        if self._took("not"):
            return Negation(of=self._one(depth + 1))
        if self._took("("):
            inner = self._either(depth + 1)
            if not self._took(")"):
                self._expected("`)`")
            return inner
        return self._comparison()

    def _comparison(self) -> Comparison:
        metric = self._metric()
        sign = self._next("sign")
        if sign is None or sign not in _OPERATORS:
            self._expected(f"one of {' '.join(_OPERATORS)} after {metric}", back=sign is not None)
        number = self._next("number")
        if number is None:
            self._expected(f"{_unit(metric).value} after {metric} {sign}")
        return Comparison(metric=metric, sign=sign, number=self._number(metric, number))

    def _metric(self) -> Metric:
        offset, word = self._offset(), self._next("word")
        if word is None:
            self._expected("the name of a metric")
        known = [metric.value for metric in Metric]
        if word not in known:
            near = get_close_matches(word, known, n=1)
            meant = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
            _refuse(f"has an unknown metric {word!r}; {meant}", offset)
        return Metric(word)

    def _number(self, metric: Metric, text: str) -> float:
        unit, digits = _unit(metric), text.removesuffix("%")
        offset = self._tokens[self._at - 1].start()
        if unit is _Unit.BYTES:
            try:
                return float(parse_size(text))
            except InvalidRequest:
                _refuse(f"compares {metric} with {text}; it takes {unit.value}", offset)
        percent = unit is _Unit.RATIO and digits != text
        if not _NUMBER.fullmatch(digits if percent else text):
            _refuse(f"compares {metric} with {text}; it takes {unit.value}", offset)
        number = float(digits) / 100 if percent else float(digits)
        if unit is _Unit.RATIO and not 0 <= number <= 1:
            _refuse(f"compares {metric} with {text}; it takes {unit.value}", offset)
        return number

    def _took(self, word: str) -> bool:
        found = self._at < len(self._tokens) and self._tokens[self._at][0].lower() == word
        self._at += found
        return found

    def _next(self, kind: str) -> str | None:
        if self._at == len(self._tokens) or self._tokens[self._at].lastgroup != kind:
            return None
        self._at += 1
        return self._tokens[self._at - 1][0]

    def _offset(self) -> int:
        return self._tokens[self._at].start() if self._at < len(self._tokens) else len(self._text)

    def _expected(self, what: str, *, back: bool = False) -> NoReturn:
        self._at -= back
        found = f"found {self._tokens[self._at][0]!r}" if self._at < len(self._tokens) else "it ends there"
        _refuse(f"needs {what}, and {found}", self._offset())


def _unit(metric: Metric) -> _Unit:
    return _UNITS.get(metric, _Unit.COUNT)


def _refuse(rule: str, offset: int) -> NoReturn:
    raise InvalidRequest("FLEET_POLICY_INVALID", rule, offset=offset)
