import copy
import dataclasses
import inspect
import math
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pydantic import TypeAdapter

from regelate.core import values


class Body:
    """Two numbers, what came of them, and a word that is not compared."""

    first: int
    second: float = 2.5
    seen: list[int] = dataclasses.field(default_factory=list)
    word: str = dataclasses.field(default="a", compare=False)
    secret: str = dataclasses.field(default="s", repr=False)

    known: dict[int, int] = dataclasses.field(default_factory=dict, init=False)
    half: float = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "half", self.first / 2)
        if self.first < 0:
            raise ValueError(f"{self.first} is negative")


def _made(decorate: Any) -> Any:
    made = type("Pair", (), dict(Body.__dict__) | {"__qualname__": "Pair"})
    return decorate(frozen=True, slots=True, kw_only=True)(made)


Pair, Plain = _made(values.dataclass), _made(dataclasses.dataclass)


@values.dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Found again by pickle, which looks classes up by name."""

    x: float
    y: float = 0.0


@values.dataclass(frozen=True, slots=True, kw_only=True)
class Solid(Point):
    z: float


@values.dataclass(frozen=True, slots=True, kw_only=True)
class Empty:
    """No fields."""


@pytest.mark.parametrize("given", [{"first": 1}, {"first": 1, "second": 0.0, "seen": [3], "word": "b", "secret": "t"}])
def test_it_reads_as_the_standard_librarys_does(given: dict[str, Any]) -> None:
    ours, theirs = Pair(**given), Plain(**given)
    assert repr(ours) == repr(theirs)
    assert dataclasses.asdict(ours) == dataclasses.asdict(theirs)
    assert repr(dataclasses.replace(ours, first=7)) == repr(dataclasses.replace(theirs, first=7))
    assert [(found.name, found.type) for found in dataclasses.fields(Pair)] == [
        (found.name, found.type) for found in dataclasses.fields(Plain)
    ]
    assert list(inspect.signature(Pair).parameters) == list(inspect.signature(Plain).parameters)


@pytest.mark.parametrize("wrong", [{}, {"first": 1, "third": 2}, {"first": -1}])
def test_it_refuses_what_the_standard_librarys_refuses(wrong: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError)) as theirs:
        Plain(**wrong)
    with pytest.raises(theirs.type):
        Pair(**wrong)
    with pytest.raises(TypeError):
        Pair(1)


def test_a_field_is_set_once_and_there_is_no_other() -> None:
    point = Point(x=1.0)
    for name in ("x", "unheard_of"):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(point, name, 2.0)
        with pytest.raises(dataclasses.FrozenInstanceError):
            delattr(point, name)
    assert point.x == 1.0
    assert not hasattr(point, "__dict__")


def test_values_are_equal_by_the_fields_that_are_compared_and_by_their_class() -> None:
    assert Pair(first=1, word="a") == Pair(first=1, word="b")
    assert Pair(first=1) != Pair(first=2)
    assert Point(x=1.0) != Pair(first=1)
    assert Solid(x=1.0, z=0.0) != Point(x=1.0)
    assert Empty() == Empty()
    same = Point(x=math.nan)
    assert same == same


def test_equal_values_are_one_key() -> None:
    assert len({Point(x=1.0), Point(x=1.0, y=0.0), Solid(x=1.0, z=2.0)}) == 2
    assert len({Empty(), Empty()}) == 1
    with pytest.raises(TypeError):
        hash(Pair(first=1))


def test_each_value_has_a_list_of_its_own_by_default() -> None:
    assert Pair(first=1).seen is not Pair(first=1).seen


@pytest.mark.parametrize("value", [Point(x=1.0), Solid(x=1.0, y=2.0, z=3.0), Empty()])
def test_a_copy_is_equal(value: Any) -> None:
    assert pickle.loads(pickle.dumps(value)) == value
    assert copy.deepcopy(value) == value
    assert copy.copy(value) == value


def test_pydantic_reads_and_writes_it() -> None:
    read = TypeAdapter(Solid).validate_python({"x": 1, "z": "3"})
    assert read == Solid(x=1.0, z=3.0)
    assert TypeAdapter(Solid).dump_python(read) == {"x": 1.0, "y": 0.0, "z": 3.0}


@pytest.mark.parametrize("flag", ["frozen", "slots", "kw_only"])
def test_no_other_kind_of_class_is_made(flag: str) -> None:
    flags = {"frozen": True, "slots": True, "kw_only": True} | {flag: False}
    with pytest.raises(TypeError):
        values.dataclass(**flags)


def test_threads_that_make_the_first_value_at_once_all_get_one() -> None:
    @values.dataclass(frozen=True, slots=True, kw_only=True)
    class First:
        number: int

    together = threading.Barrier(8)

    def made(number: int) -> First:
        together.wait()
        return First(number=number)

    with ThreadPoolExecutor(8) as pool:
        assert [value.number for value in pool.map(made, range(8))] == list(range(8))


def test_the_signature_is_known_before_and_after_the_first_value() -> None:
    @values.dataclass(frozen=True, slots=True, kw_only=True)
    class Kept:
        first: int
        second: float = 2.5

    before = inspect.signature(Kept)
    Kept(first=1)
    assert str(before) == str(inspect.signature(Kept)) == "(*, first: int, second: float = 2.5) -> None"
    assert Kept.__doc__ is None
