"""`when`: what a condition means, what it makes of unknown metrics, and what is refused at which character."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regelate.core.fleet.conditions import MAX_CHARACTERS, Metric, parse_condition
from regelate.errors import InvalidRequest

SEEN = {
    "files": 200.0,
    "small-files": 90.0,
    "small-file-ratio": 0.45,
    "bytes": 600 * 1024**2,
    "commits-per-hour": 0.5,
    "health": 71.0,
}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("files > 100", True),
        ("files > 200", False),
        ("files >= 200", True),
        ("files < 200", False),
        ("files <= 200", True),
        ("files = 200", True),
        ("files == 200", True),
        ("files != 200", False),
        ("small-file-ratio > 0.3 and files > 100", True),
        ("small-file-ratio > 30%", True),
        ("small-file-ratio > 50%", False),
        ("bytes > 512MB", True),
        ("bytes > 0.75GB", False),
        ("bytes >= 629145600", True),
        ("commits-per-hour < 0.75", True),
        ("not files > 100", False),
        ("NOT files > 100 OR health < 80", True),
        ("always", True),
        ("not(files>100)or(health<80)", True),
    ],
)
def test_a_condition_means_what_it_says(text: str, holds: bool) -> None:
    assert parse_condition(text).holds(SEEN) is holds


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("files > 0 or files > 0 and files < 0", True),  # `and` first, or it would be false
        ("(files > 0 or files > 0) and files < 0", False),
        ("not files < 0 and files > 0", True),  # `not` first, or it would be of the whole: the same, so once more
        ("not files > 0 or files > 0", True),
        ("not (files > 0 or files > 0)", False),
    ],
)
def test_not_binds_closest_and_then_and(text: str, holds: bool) -> None:
    assert parse_condition(text).holds(SEEN) is holds


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("snapshots > 5", False),
        ("not snapshots > 5", False),
        ("files > 100 or snapshots > 5", True),
        ("files > 900 or snapshots > 5", False),
        ("files > 900 and snapshots > 5", False),
        ("files > 100 and snapshots > 5", False),
        ("not (files > 900 or snapshots > 5)", False),
        ("not (files > 900 and snapshots > 5)", True),
        ("not (files > 100 and snapshots > 5)", False),
    ],
)
def test_what_hangs_on_an_unknown_metric_does_not_hold_and_its_negation_neither(text: str, holds: bool) -> None:
    assert parse_condition(text).holds(SEEN) is holds
    assert parse_condition(text).holds({**SEEN, "snapshots": float("nan")}) is holds


@pytest.mark.parametrize(
    ("text", "offset", "told"),
    [
        ("filez > 3", 0, "did you mean files?"),
        ("files > 3 and rows > 5", 14, "unknown metric 'rows'; known are files, small-files"),
        ("files", 5, "needs one of >= <= == != > < = after files, and it ends there"),
        ("files > ", 8, "a number such as 100"),
        ("files ( 3", 6, "found '('"),
        ("files > 3 files > 4", 10, "needs `and`, `or` or the end, and found 'files'"),
        ("(files > 3", 10, "needs `)`"),
        ("files > 3)", 9, "found ')'"),
        ("3 < files", 0, "needs the name of a metric, and found '3'"),
        ("", 0, "the name of a metric"),
        ("always and files > 3", 0, "unknown metric 'always'"),
        ("files > 10MB", 8, "compares files with 10MB; it takes a number such as 100"),
        ("files > 1.2.3", 8, "compares files with 1.2.3"),
        ("files > 30%", 8, "compares files with 30%"),
        ("bytes > 10XB", 8, "a size such as 512MB"),
        ("bytes > 30d", 8, "a size such as 512MB"),
        ("small-file-ratio > 30", 19, "a number between 0 and 1, or 30%"),
        ("files > 3; drop", 9, "found ';'"),
        ("not " * 40 + "files > 3", 84, "nested more than 20 deep"),
        ("(" * 400 + "files > 3" + ")" * 400, 21, "nested more than 20 deep"),
        ("files > 3" + " " * MAX_CHARACTERS, MAX_CHARACTERS, "at most 1000 are allowed"),
    ],
)
def test_a_bad_condition_is_refused_at_the_character_at_fault(text: str, offset: int, told: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse_condition(text)
    assert refused.value.code == "FLEET_POLICY_INVALID"
    assert refused.value.details["offset"] == offset
    assert told in refused.value.message


@pytest.mark.parametrize("metric", list(Metric))
def test_every_metric_can_be_asked_for(metric: Metric) -> None:
    assert parse_condition(f"{metric} > 0.5").holds({metric.value: 0.75})
    assert not parse_condition(f"{metric} > 0.5").holds({metric.value: 0.0})


@given(st.text(alphabet="files manot()<>=!0123456789.%MB-&\u00e4\n", max_size=60))
def test_any_text_is_a_condition_or_refused_within_itself(text: str) -> None:
    try:
        offset: object = int(parse_condition(text).holds(SEEN))
    except InvalidRequest as refused:
        offset = refused.details["offset"]
    assert isinstance(offset, int)
    assert 0 <= offset <= max(len(text), 1)
