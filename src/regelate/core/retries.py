"""How long to wait before a request is sent again."""

from __future__ import annotations

FIRST_SECONDS = 0.1
LONGEST_SECONDS = 5.0


def pause_seconds(number: int, jitter: float) -> float:
    """Return the pause after failure `number` (from 0): a share of 100 ms x 2^n, at most 5 s.

    `jitter` is in [0, 1] and takes the pause from half of that to all of it, so that clients that failed together do
    not come back together.
    """
    full: float = min(FIRST_SECONDS * 2 ** min(number, 16), LONGEST_SECONDS)
    return full * (0.5 + jitter / 2)
