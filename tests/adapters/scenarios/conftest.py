"""One lake per scenario; most play on a table of two partitions, three small files each."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.table import Table

from tests.adapters.scenarios.scene import BY_P, SCHEMA, batch
from tests.support.lake import Lake


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


@pytest.fixture
def table(lake: Lake) -> Table:
    """Three small files in each of the partitions x (ids 0-4, 10-14, 20-24) and y (100-104, ...)."""
    return lake.table(SCHEMA, *(batch(10 * i, "x") + batch(100 + 10 * i, "y") for i in range(3)), spec=BY_P)
