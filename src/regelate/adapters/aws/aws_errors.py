"""What AWS's own client raises, as one of our kinds."""

from __future__ import annotations

from boto3.exceptions import S3UploadFailedError
from botocore.exceptions import ClientError, NoCredentialsError, PartialCredentialsError

from regelate.errors import Unavailable

_REFUSED = frozenset(
    {
        "403",
        "AccessDenied",
        "AccessDeniedException",
        "ExpiredToken",
        "ExpiredTokenException",
        "InvalidAccessKeyId",
        "InvalidClientTokenId",
        "InvalidToken",
        "MalformedPolicyDocument",
        "PackedPolicyTooLarge",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    }
)
_NOWHERE = frozenset({"404", "NoSuchBucket"})


def storage_fault(error: Exception, what: str) -> Unavailable:
    """Return the fault of a refused or failed call; its text names no key, no bucket and no account."""
    code = code_of(error)
    if code in _REFUSED or isinstance(error, NoCredentialsError | PartialCredentialsError):
        message = f"{what}: AWS refused the credentials of this process ({code or 'none were found'})"
        return Unavailable("STORAGE_AUTH", message, status=502, retryable=False)
    if code in _NOWHERE:
        message = f"{what}: the configured bucket does not exist"
        return Unavailable("STORAGE_AUTH", message, status=502, retryable=False)
    return Unavailable("STORAGE_UNAVAILABLE", f"{what}: AWS answered {code or type(error).__name__}; try again later")


def code_of(error: BaseException | None) -> str:
    """Return AWS's code of a refusal, empty where there is none; a failed upload bears it in what caused it."""
    if isinstance(error, ClientError):
        return str(error.response.get("Error", {}).get("Code", ""))
    return code_of(error.__context__) if isinstance(error, S3UploadFailedError) else ""
