"""template.yaml as plain values: `!Ref X` is {"Ref": "X"}, `!Sub text` is {"Fn::Sub": text}, and so on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]


class _Loader(yaml.SafeLoader):
    pass


def _made(loader: _Loader, tag: str, node: yaml.Node) -> dict[str, Any]:
    name = tag if tag in ("Ref", "Condition") else f"Fn::{tag}"
    if isinstance(node, yaml.ScalarNode):
        text = loader.construct_scalar(node)
        return {name: text.split(".", 1) if tag == "GetAtt" else text}
    if isinstance(node, yaml.SequenceNode):
        return {name: loader.construct_sequence(node, deep=True)}
    return {name: loader.construct_mapping(node, deep=True)}


_Loader.add_multi_constructor("!", _made)


def template() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.load((ROOT / "template.yaml").read_text(), _Loader)
    return loaded


def walk(value: Any) -> Iterator[Any]:
    """Every value within, itself first."""
    yield value
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for child in children:
        yield from walk(child)


def names_in(value: Any) -> Iterator[str]:
    """Every parameter, resource and pseudo parameter that is referred to within."""
    for found in walk(value):
        if not isinstance(found, dict):
            continue
        if isinstance(found.get("Ref"), str):
            yield found["Ref"]
        if "Fn::GetAtt" in found:
            yield found["Fn::GetAtt"][0]
        if isinstance(found.get("Fn::Sub"), str):
            yield from (name.partition(".")[0] for name in re.findall(r"\$\{([^}!]+)\}", found["Fn::Sub"]))


def conditions_in(value: Any) -> Iterator[str]:
    for found in walk(value):
        if isinstance(found, dict):
            if "Fn::If" in found:
                yield found["Fn::If"][0]
            if isinstance(found.get("Condition"), str):
                yield found["Condition"]
