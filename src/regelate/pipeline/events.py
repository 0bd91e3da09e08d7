"""A web shop's events in batches, with late corrections; the same for the same seed. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from random import Random

from regelate.core.values import dataclass
from regelate.errors import InvalidRequest

EVENT_COLUMNS = (
    "event_id STRING NOT NULL, user_id INT NOT NULL, event_type STRING NOT NULL, event_timestamp TIMESTAMP NOT NULL, "
    "event_value DOUBLE, device_type STRING, session_id STRING"
)
EVENT_TYPES = ("page_view", "click", "purchase", "add_to_cart", "search")
DEVICE_TYPES = ("mobile", "desktop", "tablet")
Event = tuple[str, int, str, datetime, float | None, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """`events` in `batches` of the same size (what does not divide is left out), from `day` on.

    `update_share`: of each batch but the first, so much corrects events of the batches before.
    """

    events: int = 10_000
    batches: int = 50
    day: date = date(2025, 1, 17)
    seed: int = 0
    update_share: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.batches <= self.events:
            rule = f"must be from 1 to --num-events ({self.events})"
            raise InvalidRequest("INVALID_OPTION", f"num-batches = {self.batches}: {rule}", option="num-batches")
        if not 0 <= self.update_share < 1:
            rule = "must be from 0 to below 1"
            raise InvalidRequest("INVALID_OPTION", f"update-share = {self.update_share}: {rule}", option="update-share")

    @property
    def batch_size(self) -> int:
        return self.events // self.batches

    @property
    def updates(self) -> int:
        """Corrections in each batch but the first."""
        return round(self.batch_size * self.update_share)

    def __iter__(self) -> Iterator[list[Event]]:
        """Yield the batches; an event keeps its type and id when it is corrected, so it stays in its partition."""
        known = 0
        for number in range(self.batches):
            updates = self.updates if number else 0
            old = sorted(Random(f"{self.seed}/{number}").sample(range(known), updates))
            new = range(known, known + self.batch_size - updates)
            yield [self._event(i, number) for i in (*old, *new)]
            known += len(new)

    def _event(self, index: int, batch: int) -> Event:
        kind = Random(f"{self.seed}/{index}").choice(EVENT_TYPES)
        random = Random(f"{self.seed}/{index}/{batch}")
        user = random.randint(1, 10_000)
        start = datetime.combine(self.day, datetime.min.time(), UTC)
        return (
            f"evt_{index:08d}",
            user,
            kind,
            start + timedelta(minutes=batch * 10 + index % self.batch_size),
            round(random.uniform(0, 1000), 2) if kind == "purchase" else None,
            random.choice(DEVICE_TYPES),
            f"session_{user % 100}",
        )
