"""Where a table's objects are, and how they may be reached."""

from __future__ import annotations

from dataclasses import field

from regelate.core.values import dataclass

S3_SCHEMES = ("s3", "s3a", "s3n")
"""Three spellings of one store: Hadoop's connectors have names of their own for it."""
S3_PREFIXES = tuple(f"{scheme}://" for scheme in S3_SCHEMES)


def store_of(scheme: str) -> str:
    """Return a location's scheme in one spelling: that of S3 for all of its names, `file` where there is none."""
    found = scheme.lower()
    return "s3" if found in S3_SCHEMES else found or "file"


def is_remote(location: str) -> bool:
    """Say whether a location is an object store's, not a path or a `file:` address on this machine."""
    return "://" in location and not location.startswith("file:")


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectStoreAccess:
    """How an engine reaches the S3 store of a table, and nothing beyond `scope` in it. Its text shows no secret.

    `endpoint` is host and port, None for AWS's own; without `key_id` requests are not signed.
    """

    scope: str
    endpoint: str | None
    region: str
    path_style: bool
    encrypted: bool
    key_id: str | None = field(default=None, repr=False)
    secret: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
