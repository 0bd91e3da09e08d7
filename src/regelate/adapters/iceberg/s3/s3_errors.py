"""What a failed request to S3 means: gone, refused, worth another try, or not what it promised."""

from __future__ import annotations

from enum import Enum, auto

from botocore import exceptions as native

from regelate.errors import RegelateError, Unavailable

MISSING_CODES = frozenset({"404", "NoSuchKey", "NotFound"})
DENIED_CODES = frozenset(
    {"AccessDenied", "ExpiredToken", "ExpiredTokenException", "InvalidAccessKeyId", "InvalidToken"}
    | {"RequestTimeTooSkewed", "SignatureDoesNotMatch", "TokenRefreshRequired", "401", "403"}
)
PASSING_CODES = frozenset(
    {"InternalError", "OperationAborted", "RequestTimeout", "ServiceUnavailable", "SlowDown"}
    | {"Throttling", "ThrottlingException", "TooManyRequests"}
)
SHOWN_CHARACTERS = 200


class Failure(Enum):
    MISSING = auto()
    DENIED = auto()
    PASSING = auto()
    """Too busy, broken off or too slow: the same request may succeed."""
    INCONSISTENT = auto()
    """An answer that contradicts itself, another answer, or what was asked."""
    FINAL = auto()


class Inconsistent(Exception):
    """The store answered, and the answer cannot be right."""


class TooSlow(Exception):
    """The answer drips."""


def kind_of(error: Exception) -> Failure:
    """Classify what a request or the reading of its body raised."""
    if isinstance(error, native.ClientError):
        return _of_answer(error)
    http = type(error).__module__.startswith("urllib3.")  # what reads a body is botocore's choice, so it goes by name
    if isinstance(error, Inconsistent | native.FlexibleChecksumError) or (
        http and "Incomplete" in type(error).__name__
    ):
        return Failure.INCONSISTENT
    if isinstance(error, native.NoCredentialsError | native.PartialCredentialsError | native.CredentialRetrievalError):
        return Failure.DENIED
    passing = (TooSlow, native.HTTPClientError, native.ConnectionError, OSError)
    return Failure.PASSING if http or isinstance(error, passing) else Failure.FINAL


def _of_answer(error: native.ClientError) -> Failure:
    code, status = _code(error), error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if code in DENIED_CODES or status in (401, 403):
        return Failure.DENIED
    if code in MISSING_CODES:
        return Failure.MISSING
    if code in PASSING_CODES or status >= 500 or status == 429:
        return Failure.PASSING
    return Failure.FINAL


def as_error(error: Exception, what: str, tries: int) -> RegelateError | FileNotFoundError:
    """Return what the caller is told; `what` names the request and the object."""
    kind, text = kind_of(error), _text(error)
    if kind is Failure.MISSING:
        return FileNotFoundError(f"{what}: there is no such object")
    if kind is Failure.DENIED:
        return Unavailable(
            "STORAGE_AUTH",
            f"the storage refused access: {what}: {text}; check the credentials and what they allow",
            status=502,
            retryable=False,
        )
    if kind is Failure.INCONSISTENT:
        return Unavailable(
            "STORAGE_INCONSISTENT", f"the storage contradicts itself: {what}: {text} ({tries} tries)", status=502
        )
    return Unavailable("STORAGE_UNAVAILABLE", f"the storage failed: {what}: {text} ({tries} tries)")


def _code(error: native.ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def _text(error: Exception) -> str:
    """Return one line. An answer's own message only: botocore's other texts may quote a request with its signature."""
    if isinstance(error, native.ClientError):
        message = str(error.response.get("Error", {}).get("Message", ""))
        found = f"{_code(error)} {message}"
    elif isinstance(error, Inconsistent | TooSlow):
        found = str(error)
    else:
        found = type(error).__name__
    return " ".join(found.split())[:SHOWN_CHARACTERS]
