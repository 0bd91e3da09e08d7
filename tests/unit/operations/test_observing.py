from __future__ import annotations

import pytest

from regelate.core.measures.measures import CompactionEnded, CompactionStarted
from regelate.errors import CommitStateUnknown, Conflict, InvalidRequest, NotAllowed, NotFound, Unsupported
from regelate.operations.observing import observed_compaction
from tests.unit.operations.fakes import Told


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (Conflict("COMMIT_CONFLICT", ""), "COMMIT_CONFLICT"),
        (CommitStateUnknown("COMMIT_STATE_UNKNOWN", ""), "COMMIT_STATE_UNKNOWN"),
        (ZeroDivisionError(), "ZeroDivisionError"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (InvalidRequest("INVALID_OPTION", ""), None),
        (NotAllowed("FORBIDDEN", ""), None),
        (NotFound("TABLE_NOT_FOUND", ""), None),
        (Unsupported("UNSUPPORTED_TABLE", ""), None),
    ],
)
def test_a_compaction_that_failed_for_no_fault_of_the_request_is_told_by_its_code(
    fault: BaseException, code: str | None
) -> None:
    told = Told()
    with pytest.raises(type(fault)), observed_compaction(told, table="t"):
        raise fault
    assert told.occurrences == [CompactionStarted(table="t"), CompactionEnded(table="t", failed_with=code)]
    assert told.spans == [("compact", {"table": "t"})]


def test_a_compaction_that_ended_well_is_told_without_a_code() -> None:
    told = Told()
    with observed_compaction(told, table="t"):
        pass
    assert told.occurrences == [CompactionStarted(table="t"), CompactionEnded(table="t")]
