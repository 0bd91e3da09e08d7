"""Fixtures of the fault catalogue: a stack of one test's own, and one that the refusals of a module share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.system.faults.stack import Stack


@pytest.fixture
def stack(tmp_path: Path) -> Stack:
    return Stack(tmp_path)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Stack:
    """A table `t` of two rows, that no test of the module may change."""
    made = Stack(tmp_path_factory.mktemp("lake"))
    made.create("t", {"id": "long!", "v": "string"})
    made.ok("WRITE", "t", records=[{"id": 1, "v": "a"}, {"id": 2, "v": None}])
    return made
