"""A resume token says again what it was made of, and nothing else is one."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regelate.core.requests import CompactRequest
from regelate.core.running.resume import ResumeToken, read_token
from regelate.errors import Conflict, InvalidRequest

TEXT = st.text(max_size=20)
REQUESTS = st.builds(
    CompactRequest,
    force=st.booleans(),
    max_files=st.none() | st.integers(1, 2**60),
    where=st.none() | TEXT,
    partition_filter=st.none() | st.dictionaries(TEXT, st.none() | st.integers() | TEXT, max_size=3),
    options=st.none() | st.dictionaries(TEXT, TEXT | st.booleans(), max_size=3),
    expire_snapshots=st.booleans(),
)
NUMBER = st.integers(0, 2**63 - 1)
RUNS = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=160)


@given(TEXT, NUMBER, NUMBER, RUNS, st.integers(2, 1000), NUMBER, REQUESTS)
def test_a_token_says_again_what_it_was_made_of(
    uuid: str, snapshot: int, sequence: int, run: str, part: int, now: int, request: CompactRequest
) -> None:
    made = ResumeToken(
        table_uuid=uuid,
        starting_snapshot_id=snapshot,
        starting_sequence_number=sequence,
        run_id=run,
        part=part,
        now_ms=now,
        request=request,
    )
    text = made.encoded()
    assert text.replace("-", "").replace("_", "").isalnum()
    assert read_token(text) == made


@given(st.text(max_size=60) | st.binary(max_size=60).map(lambda b: base64.urlsafe_b64encode(b).decode()))
def test_anything_else_is_refused_by_its_field(text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read_token(text)
    assert (caught.value.code, caught.value.details["field"]) == ("INVALID_FIELD", "resume_token")


SOUND = {"format": 1, "uuid": "u", "snapshot": 1, "sequence": 1, "run": "r", "part": 2, "now": 0, "options": {}}


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"part": 1},
        {"part": 1001},
        {"part": True},
        {"run": "a b"},
        {"run": ""},
        {"run": "x" * 161},
        {"run": "\u00e9"},
        {"snapshot": -1},
        {"snapshot": "1"},
        {"options": []},
        {"options": {"sudo": True}},
        {"options": {"dry_run": "no"}},
        {"options": {"max_files": True}},
        {"options": {"where": 7}},
        {"more": 1},
    ],
)
def test_a_token_with_one_wrong_value_is_refused(change: dict[str, object]) -> None:
    def text(document: dict[str, object]) -> str:
        return base64.urlsafe_b64encode(json.dumps(document).encode()).decode().rstrip("=")

    assert read_token(text(SOUND)).part == 2
    with pytest.raises(InvalidRequest):
        read_token(text({**SOUND, **change}))


def test_a_token_of_another_table_is_refused() -> None:
    token = read_token(base64.urlsafe_b64encode(json.dumps(SOUND).encode()).decode().rstrip("="))
    token.check_table("u")
    with pytest.raises(Conflict) as caught:
        token.check_table("v")
    assert caught.value.code == "TABLE_REPLACED"
