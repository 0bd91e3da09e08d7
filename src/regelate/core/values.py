"""`@dataclass(frozen=True, slots=True, kw_only=True)` as the standard library makes it, at a third of the time.

A worker's start makes 270 such classes. The standard library writes six methods for each as text and compiles them,
0.6 ms a class; here only `__init__` is compiled, when the first value is made, and the others are the same for all.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError
from inspect import Signature, signature
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, TypeVar

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(*, frozen: bool, slots: bool, kw_only: bool) -> Callable[[type[T]], type[T]]:
        """Make a class of values: equal and hashed by its fields, which are set once, by name.

        The three flags are said at each class, for whoever reads it and for type checkers; no others exist.
        """
        if not (frozen and slots and kw_only):
            raise TypeError("for anything but frozen, slots and kw_only there is dataclasses.dataclass")
        return _value


T = TypeVar("T")


def _value(cls: type[T]) -> type[T]:
    if "__eq__" in cls.__dict__:
        raise TypeError(f"{cls.__qualname__} compares by itself: dataclasses.dataclass keeps that")
    described = cls.__doc__
    cls.__doc__ = described or cls.__name__  # else the standard library makes one of the signature: slow
    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True, kw_only=True)(cls)
    made.__doc__ = described
    fields: tuple[Field[Any], ...] = dataclasses.fields(made)
    made.__init__ = _first_init(made, fields)
    made.__signature__ = _SIGNATURE
    if "__repr__" not in cls.__dict__:
        made.__repr__ = _repr
    made.__eq__, made.__hash__ = _comparison(tuple(found.name for found in fields if found.compare))
    made.__setattr__, made.__delattr__ = _refuse_to_set, _refuse_to_delete
    made.__getstate__, made.__setstate__ = _state, _set_state
    return made  # type: ignore[no-any-return]


def _first_init(cls: Any, fields: tuple[Field[Any], ...]) -> Callable[..., None]:
    """Return the `__init__` of a class until its first value is made: it puts the compiled one into its place."""

    def __init__(self: Any, *given: Any, **named: Any) -> None:  # noqa: N807  it is one
        cls.__init__ = _init(cls, fields)
        cls.__init__(self, *given, **named)

    __init__.__annotations__ = {found.name: found.type for found in fields} | {"return": None}
    return __init__


class _ClassSignature:
    """What `inspect.signature` reads of a class: that of the compiled `__init__`."""

    def __get__(self, value: object, cls: type) -> Signature:
        init = signature(_init(cls, dataclasses.fields(cls)))
        _, *parameters = init.parameters.values()
        return init.replace(parameters=parameters)


_SIGNATURE = _ClassSignature()


def _init(cls: type, fields: tuple[Field[Any], ...]) -> Callable[..., None]:
    """Compile `__init__`: it sets each slot by the slot's own descriptor, past `__setattr__`, which refuses."""
    names: dict[str, Any] = {"_MISSING": MISSING}
    parameters, lines = [], []
    for found in fields:
        name = found.name
        names[f"_set_{name}"] = getattr(cls, name).__set__
        value = name
        if not found.init:
            if found.default_factory is MISSING:
                continue  # `__post_init__` sets it
            names[f"_new_{name}"] = found.default_factory
            value = f"_new_{name}()"
        elif found.default_factory is not MISSING:
            names[f"_new_{name}"] = found.default_factory
            parameters.append(f"{name}=_MISSING")
            value = f"_new_{name}() if {name} is _MISSING else {name}"
        elif found.default is not MISSING:
            names[f"_default_{name}"] = found.default
            parameters.append(f"{name}=_default_{name}")
        else:
            parameters.append(name)
        lines.append(f" _set_{name}(self, {value})")
    if hasattr(cls, "__post_init__"):
        lines.append(" self.__post_init__()")
    head = f"def __init__(self{', *, ' if parameters else ''}{', '.join(parameters)}):\n"
    exec(head + ("\n".join(lines) or " pass"), names)
    init: Callable[..., None] = names["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    init.__module__ = cls.__module__
    init.__annotations__ = {found.name: found.type for found in fields} | {"return": None}
    return init


def _comparison(names: tuple[str, ...]) -> tuple[Callable[..., Any], Callable[..., int]]:
    compared = attrgetter(*names) if names else lambda _: ()

    def equal(self: Any, other: object) -> Any:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return self is other or compared(self) == compared(other)

    def hashed(self: Any) -> int:
        return hash(compared(self))

    return equal, hashed


@recursive_repr()
def _repr(self: Any) -> str:
    shown = (f"{found.name}={getattr(self, found.name)!r}" for found in dataclasses.fields(self) if found.repr)
    return f"{self.__class__.__qualname__}({', '.join(shown)})"


def _refuse_to_set(self: Any, name: str, value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, found.name) for found in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for found, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, found.name, value)
