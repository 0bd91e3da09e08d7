"""How long a request to another service may be silent, and how long to wait before it is sent again."""

from __future__ import annotations

from collections.abc import Mapping

from regelate.core.values import dataclass

CONNECT_SECONDS = "regelate.network.connect-seconds"
READ_SECONDS = "regelate.network.read-seconds"


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Seconds until a connection must stand, and until the next byte of an answer must have come."""

    connect_seconds: float = 5.0
    read_seconds: float = 30.0

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> Timeouts:
        """Read them from a catalog's properties: a library that opens catalogs is handed nothing else."""
        given = {"connect_seconds": properties.get(CONNECT_SECONDS), "read_seconds": properties.get(READ_SECONDS)}
        return cls(**{name: float(text) for name, text in given.items() if text})

    @property
    def properties(self) -> dict[str, str]:
        return {CONNECT_SECONDS: str(self.connect_seconds), READ_SECONDS: str(self.read_seconds)}

    def at_most(self, read_seconds: float) -> Timeouts:
        """Return less patience with a service that answers at once or not at all."""
        return Timeouts(connect_seconds=self.connect_seconds, read_seconds=min(self.read_seconds, read_seconds))


FIRST_SECONDS = 0.1
LONGEST_SECONDS = 5.0


def pause_seconds(number: int, jitter: float) -> float:
    """Return the pause after failure `number` (from 0): a share of 100 ms x 2^n, at most 5 s.

    `jitter` is in [0, 1] and takes the pause from half of that to all of it, so that clients that failed together do
    not come back together.
    """
    full: float = min(FIRST_SECONDS * 2 ** min(number, 16), LONGEST_SECONDS)
    return full * (0.5 + jitter / 2)
