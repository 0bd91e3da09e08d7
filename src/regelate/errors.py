"""What went wrong, grouped by what the caller should do next.

Nine kinds, one base. `code` names the fault exactly (the catalogue is docs/errors.md), `status` is its HTTP status,
`retryable` says whether the same request may succeed later. `keeps_files` is True where clean-up of our own new files
must not run, because nobody knows whether a commit landed, or a request for one may still be under way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MAX_MESSAGE_CHARACTERS = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorDetail:
    """`code` is stable, `retryable` says whether the same request may succeed later; docs/errors.md lists the codes."""

    code: str
    message: str
    retryable: bool
    details: Mapping[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """Return it as an answer has it in JSON."""
        return {name: getattr(self, name) for name in self.__slots__}


class RegelateError(Exception):
    """A fault with a stable code, an HTTP status and details that are safe to show to the caller."""

    status_default = 500
    retryable_default = False
    keeps_files = False

    def __init__(
        self,
        code: str,
        message: str,
        *,
        status: int | None = None,
        retryable: bool | None = None,
        **details: object,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = self.status_default if status is None else status
        self.retryable = self.retryable_default if retryable is None else retryable
        self.details: Mapping[str, object] = details

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"

    @classmethod
    def of_error(cls, found: Mapping[str, Any]) -> RegelateError:
        """Return the error whose `as_error` this was as JSON, in another process perhaps."""
        return cls(found["code"], found["message"], retryable=found["retryable"], **found.get("details", {}))

    def as_error(self) -> ErrorDetail:
        """Return the `error` of an answer."""
        message = self.message[:MAX_MESSAGE_CHARACTERS]
        return ErrorDetail(code=self.code, message=message, retryable=self.retryable, details=dict(self.details))


def keeps_files(error: Exception) -> bool:
    """Say whether the files that an operation made must outlive its error, for a sweep to judge."""
    return getattr(error, "keeps_files", False) is True


def keep_files(error: Exception) -> None:
    """Let the files that an operation made outlive this error, even one that is a bug."""
    error.keeps_files = True  # type: ignore[attr-defined]


class InvalidRequest(RegelateError):
    """Fix the request; nothing was written. 400, or 413 (too large), 422 (values do not fit the table)."""

    status_default = 400


class NotAllowed(RegelateError):
    """Ask for access; the text never says whether the thing exists. 403."""

    status_default = 403


class NotFound(RegelateError):
    """Check the name. 404."""

    status_default = 404


class Unsupported(RegelateError):
    """Use another engine: we refuse rather than guess. 501."""

    status_default = 501


class DataUnavailable(RegelateError):
    """Repair the table or its storage: a file is missing, corrupt or disagrees with the metadata. 424."""

    status_default = 424


class Conflict(RegelateError):
    """Plan again: the table changed, and nothing of ours landed. 409."""

    status_default = 409
    retryable_default = True


class Unavailable(RegelateError):
    """Retry the same request later. 503, or 429 / 502 / 504."""

    status_default = 503
    retryable_default = True


class ResourceExhausted(RegelateError):
    """Use a smaller group, a larger worker or Spark. 507."""

    status_default = 507


class CommitStateUnknown(RegelateError):
    """Look before retrying: the commit may have landed, so every file is kept. 503."""

    status_default = 503
    retryable_default = False
    keeps_files = True


class InvariantViolated(RegelateError):
    """A law of this program does not hold; nothing was committed. Report it as a bug. 500."""

    status_default = 500
