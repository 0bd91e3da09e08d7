"""Sizes as people read them."""

from __future__ import annotations

import pytest

from regelate.core.policy.sizes import size_text

MB = 1024 * 1024


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KB"),
        (12.3 * MB, "12.3 MB"),
        (1024 * MB, "1.0 GB"),
        (5000 * 1024**5, "5000.0 PB"),
        (-2 * MB, "-2.0 MB"),
    ],
)
def test_a_size_is_written_as_people_write_it(size: float, text: str) -> None:
    assert size_text(size) == text
