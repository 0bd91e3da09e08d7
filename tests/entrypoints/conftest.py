from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pytest

from regelate.entrypoints.log import logger
from tests.entrypoints.fakes import FakeService


@pytest.fixture
def log_lines(monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[dict[str, Any]]]:
    """Everything that was logged since the test began; reading it parses every line."""
    stream = io.StringIO()
    monkeypatch.setattr(logger.registered_handler, "stream", stream)
    return lambda: [json.loads(line) for line in stream.getvalue().splitlines()]


@pytest.fixture
def service() -> FakeService:
    return FakeService(preset=["default.users", "default.test_users", "default.sales"])
