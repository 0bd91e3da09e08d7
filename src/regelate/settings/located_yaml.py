"""YAML as values and where in the file each stands: the plain half of YAML 1.2, and a refusal of the rest.

Refused are anchors and aliases (with which a kilobyte expands to gigabytes), tags, a second document, a key that stands
twice, and what is too large or too deep. A plain `true`, `false`, `null` or number is one; `no`, `off` and `22:00` are
texts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

MAX_BYTES = 1024 * 1024
MAX_DEPTH = 20
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)
_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,18}\.[0-9]{0,18}|\.[0-9]{1,18}|[0-9]{1,18})(?:[eE][+-]?[0-9]{1,3})?", re.ASCII)
_WORDS: Mapping[str, bool | None] = {"true": True, "false": False, "null": None, "~": None, "": None}
_SHOWN_CHARACTERS = 60

Path = tuple[str | int, ...]
Mark = tuple[int, int]
"""Line and column, both from 1."""


class YamlFault(ValueError):
    """What is wrong with a file, and where."""

    def __init__(self, mark: Mark, rule: str) -> None:
        super().__init__(rule)
        self.mark, self.rule = mark, rule


@dataclass(frozen=True, slots=True, kw_only=True)
class LocatedYaml:
    """`value`: mappings, lists and scalars. `keys`: where the key (or the item of a list) of each path stands;
    `values`: where its value does; `texts`: where the first character of a text of one line does, behind its quote.
    """

    value: Any
    keys: Mapping[Path, Mark]
    values: Mapping[Path, Mark]
    texts: Mapping[Path, Mark]

    def key_mark(self, path: Path) -> Mark:
        """Return where a path's key stands, or that of the nearest thing around it which the file has."""
        while path and path not in self.keys:
            path = path[:-1]
        return self.keys.get(path, (1, 1))

    def value_mark(self, path: Path) -> Mark:
        """Return where a path's value stands, or that of the nearest thing around it which the file has."""
        return self.values[path] if path in self.values else self.key_mark(path)

    def text_mark(self, path: Path, offset: int) -> Mark:
        """Return where a character of a text stands, or where its value does that takes several lines."""
        line, column = self.texts.get(path, (0, 0))
        return (line, column + offset) if line else self.value_mark(path)


def read_located_yaml(content: bytes) -> LocatedYaml:
    """Read a file. Errors: YamlFault."""
    if len(content) > MAX_BYTES:
        raise YamlFault((1, 1), f"the file has more than {MAX_BYTES:,} bytes")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as fault:
        raise YamlFault(_mark_at(content, fault.start), "is no UTF-8 text") from None
    import yaml  # only who has a policy pays for it

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    builder = _Builder()
    try:
        for event in yaml.parse(text.removeprefix("\ufeff"), Loader=loader):
            builder.take(event)
    except yaml.MarkedYAMLError as fault:
        mark = fault.problem_mark or fault.context_mark
        where = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        raise YamlFault(where, f"is no YAML: {fault.problem or fault.context}") from None
    except yaml.reader.ReaderError as fault:
        where = _mark_at(content, len(text[: fault.position].encode()))
        raise YamlFault(where, "holds a character that YAML does not allow") from None
    return LocatedYaml(value=builder.value, keys=builder.keys, values=builder.values, texts=builder.texts)


def _mark_at(content: bytes, offset: int) -> Mark:
    before = content[:offset]
    line_start = before.rfind(b"\n") + 1
    return before.count(b"\n") + 1, len(before[line_start:].decode("utf-8", "replace")) + 1


@dataclass(slots=True)
class _Open:
    """A mapping or a list that has begun; `key` is the one whose value comes next."""

    path: Path
    value: Any
    key: str | None = None


@dataclass(slots=True)
class _Builder:
    """Makes values of a parser's events, whose depth costs no recursion."""

    value: Any = None
    keys: dict[Path, Mark] = field(default_factory=dict)
    values: dict[Path, Mark] = field(default_factory=dict)
    texts: dict[Path, Mark] = field(default_factory=dict)
    _open: list[_Open] = field(default_factory=list)
    _documents: int = 0

    def take(self, event: Any) -> None:
        """Take the next event of PyYAML."""
        kind, mark = type(event).__name__, (event.start_mark.line + 1, event.start_mark.column + 1)
        if getattr(event, "anchor", None) is not None:
            raise YamlFault(mark, "anchors and aliases are not allowed; name a profile and let others inherit it")
        if getattr(event, "tag", None) is not None:
            raise YamlFault(mark, "tags are not allowed")
        if kind == "DocumentStartEvent":
            self._documents += 1
            if self._documents > 1:
                raise YamlFault(mark, "a second document begins; a policy is one")
        elif kind == "ScalarEvent":
            self._scalar(event, mark)
        elif kind in ("MappingStartEvent", "SequenceStartEvent"):
            path = self._place(mark)
            if len(path) > MAX_DEPTH:
                raise YamlFault(mark, f"is nested more than {MAX_DEPTH} deep")
            self._open.append(_Open(path=path, value={} if kind == "MappingStartEvent" else []))
        elif kind in ("MappingEndEvent", "SequenceEndEvent"):
            self._put(self._open.pop().value)

    def _scalar(self, event: Any, mark: Mark) -> None:
        here = self._open[-1] if self._open else None
        if here is not None and isinstance(here.value, dict) and here.key is None:
            self._key(here, event.value, mark)
        else:
            path = self._place(mark)
            if event.start_mark.line == event.end_mark.line:
                self.texts[path] = (mark[0], mark[1] + (1 if event.style else 0))
            self._put(_resolved(event.value) if event.implicit[0] else event.value)

    def _key(self, here: _Open, key: str, mark: Mark) -> None:
        if key in here.value:
            first, _ = self.keys[(*here.path, key)]
            raise YamlFault(mark, f"the key {key[:_SHOWN_CHARACTERS]!r} stands twice; line {first} has it too")
        here.key = key
        self.keys[(*here.path, key)] = mark

    def _place(self, mark: Mark) -> Path:
        """Return the path of the value that begins, and note where."""
        if not self._open:
            path: Path = ()
        else:
            here = self._open[-1]
            if isinstance(here.value, dict):
                if here.key is None:
                    raise YamlFault(mark, "a key must be a text")
                path = (*here.path, here.key)
            else:
                path = (*here.path, len(here.value))
        self.keys.setdefault(path, mark)
        self.values[path] = mark
        return path

    def _put(self, value: Any) -> None:
        if not self._open:
            self.value = value
            return
        here = self._open[-1]
        if isinstance(here.value, dict):
            here.value[here.key] = value
            here.key = None
        else:
            here.value.append(value)


def _resolved(text: str) -> Any:
    """Return what a plain scalar stands for."""
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _NUMBER.fullmatch(text) else text
