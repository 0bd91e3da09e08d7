"""The events of the demo: the same for the same seed, unique, and corrected as asked."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regelate.errors import InvalidRequest
from regelate.pipeline.events import EVENT_TYPES, Stream
from regelate.pipeline.ingest import distribution

streams = st.builds(
    Stream,
    events=st.integers(20, 120),
    batches=st.integers(1, 6),
    seed=st.integers(0, 3),
    update_share=st.sampled_from([0.0, 0.1, 0.5]),
)


@given(streams)
def test_a_stream_is_the_same_each_time_and_has_as_many_events_as_it_says(stream: Stream) -> None:
    batches = list(stream)
    assert batches == list(stream)
    assert [len(batch) for batch in batches] == [stream.batch_size] * stream.batches
    corrections = stream.updates * (stream.batches - 1)
    assert len({event[0] for batch in batches for event in batch}) == stream.batch_size * stream.batches - corrections


@given(streams)
def test_no_batch_holds_an_event_twice_and_a_correction_stays_in_its_partition(stream: Stream) -> None:
    kinds: dict[str, str] = {}
    for number, batch in enumerate(stream):
        ids = [event[0] for event in batch]
        assert len(set(ids)) == len(ids)
        assert sum(i in kinds for i in ids) == (stream.updates if number else 0)
        assert all(kinds.setdefault(event[0], event[2]) == event[2] for event in batch)


def test_only_a_purchase_has_a_value_and_every_type_occurs() -> None:
    events = [event for batch in Stream(events=500, batches=5) for event in batch]
    assert {event[2] for event in events} == set(EVENT_TYPES)
    assert all((event[4] is not None) == (event[2] == "purchase") for event in events)


@pytest.mark.parametrize("wrong", [{"batches": 0}, {"events": 5, "batches": 6}, {"update_share": 1.0}])
def test_a_stream_that_cannot_be_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidRequest, match="INVALID_OPTION"):
        Stream(**wrong)  # type: ignore[arg-type]


def test_optimized_write_shuffles_for_every_kind_of_write() -> None:
    assert {v for k, v in distribution(optimized=True).items() if k.endswith("distribution-mode")} == {"hash"}
    plain = distribution(optimized=False)
    assert set(plain.values()) == {"none"}
    assert plain.keys() < distribution(optimized=True).keys()
