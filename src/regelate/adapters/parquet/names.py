"""How Iceberg's writer calls a column in a file: as Avro could, which knows no spaces and no dots."""

from __future__ import annotations

import unicodedata

_UNIT = 2
"""Bytes of a character as Java counts: beyond the first 65,536 they come in pairs."""


def in_file(name: str) -> str:
    """Return a column's name with `_x` and its number for each character that is no letter, digit or underscore.

    Source: org.apache.iceberg.avro.AvroSchemaUtil.makeCompatibleName, 1.10.1.
    """
    units = name.encode("utf-16-be", "surrogatepass")
    characters = [chr(int.from_bytes(units[at : at + _UNIT])) for at in range(0, len(units), _UNIT)]
    return "".join(c if _fits(c, at) else _spelt(c) for at, c in enumerate(characters))


def _fits(character: str, at: int) -> bool:
    return character == "_" or character.isalpha() or (at > 0 and _is_digit(character))


def _spelt(character: str) -> str:
    return f"_{character}" if _is_digit(character) else f"_x{ord(character):X}"


def _is_digit(character: str) -> bool:
    return unicodedata.category(character) == "Nd"
