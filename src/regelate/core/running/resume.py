"""The resume token: what the next part of an interrupted COMPACT needs to know. What is left, the table itself says."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import field

from regelate.core.jobs.job import MAX_PARTS
from regelate.core.requests import CompactRequest, fields_of, request_of
from regelate.core.values import dataclass
from regelate.errors import Conflict, InvalidRequest

FORMAT = 1
MAX_TOKEN_CHARACTERS = 32_768
_KEYS = {"format", "uuid", "snapshot", "sequence", "run", "part", "now", "options"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeToken:
    """The table and the snapshot at which a COMPACT began, its run id, the part that comes next, and its policy.

    `request` is the first one, less what was judged then. Files that came into the table after
    `starting_sequence_number` are not taken, so that a COMPACT beside a busy writer comes to an end. `now_ms` is the
    time that a selection by time was made at.
    """

    table_uuid: str
    starting_snapshot_id: int
    starting_sequence_number: int
    run_id: str
    part: int
    now_ms: int
    request: CompactRequest = field(default_factory=CompactRequest)

    def encoded(self) -> str:
        """Return the token as URL-safe text."""
        document = {
            "format": FORMAT,
            "uuid": self.table_uuid,
            "snapshot": self.starting_snapshot_id,
            "sequence": self.starting_sequence_number,
            "run": self.run_id,
            "part": self.part,
            "now": self.now_ms,
            "options": fields_of(self.request),
        }
        text = json.dumps(document, separators=(",", ":"), sort_keys=True)
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

    def check_table(self, table_uuid: str) -> None:
        """Refuse a token of another table, or of one that had this name before. Errors: Conflict TABLE_REPLACED."""
        if table_uuid != self.table_uuid:
            message = (
                "the resume token belongs to another table, or to one that had this name before; start again without it"
            )
            raise Conflict("TABLE_REPLACED", message, retryable=False)


def read_token(text: str) -> ResumeToken:
    """Read a token of an earlier answer. Errors: InvalidRequest INVALID_FIELD for anything else.

    Whoever forges one gains nothing: it holds only what its sender could ask for directly.
    """
    try:
        padded = text + "=" * (-len(text) % 4)
        found = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (ValueError, binascii.Error, RecursionError):
        raise _malformed() from None
    if not isinstance(found, dict) or found.keys() != _KEYS or found["format"] != FORMAT:
        raise _malformed()
    numbers = [found[name] for name in ("snapshot", "sequence", "part", "now")]
    sound = all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in numbers)
    if not sound or not isinstance(found["uuid"], str) or not isinstance(found["options"], dict):
        raise _malformed()
    if not isinstance(found["run"], str) or not _is_run(found["run"]) or not 2 <= found["part"] <= MAX_PARTS:
        raise _malformed()
    try:
        request = request_of(CompactRequest, found["options"])
    except ValueError:
        raise _malformed() from None
    return ResumeToken(
        table_uuid=found["uuid"],
        starting_snapshot_id=found["snapshot"],
        starting_sequence_number=found["sequence"],
        run_id=found["run"],
        part=found["part"],
        now_ms=found["now"],
        request=request,
    )


def _is_run(text: str) -> bool:
    """A run id ends up in snapshot summaries and logs: visible ASCII only."""
    return 0 < len(text) <= 160 and all("!" <= c <= "~" for c in text)


def _malformed() -> InvalidRequest:
    return InvalidRequest(
        "INVALID_FIELD",
        "resume_token: was not made by this service; send it as an answer gave it",
        field="resume_token",
    )
