"""What PyIceberg's `s3.*` and `client.*` properties say about a store, as one value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from importlib.util import find_spec
from typing import Any

from regelate.core.policy.timeouts import CONNECT_SECONDS
from regelate.core.table.storage import S3_PREFIXES
from regelate.core.values import dataclass

RETRY_SECONDS = "regelate.storage.retry-seconds"
REQUEST_SECONDS = "regelate.storage.request-seconds"
CONNECTIONS = "regelate.storage.connections"
"""`storage` of config.json, put among a catalog's properties: a FileIO is handed nothing else."""
PROVIDED = ("access-key-id", "secret-access-key", "session-token", "role-arn", "role-session-name", "profile-name")


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Settings:
    """One store and how to talk to it. Without keys, boto3's own chain finds credentials. Never shows a secret."""

    endpoint: str | None = None
    region: str | None = None
    access_key_id: str | None = field(default=None, repr=False)
    secret_access_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    role_arn: str | None = None
    role_session_name: str | None = None
    profile_name: str | None = None
    anonymous: bool = False
    virtual_addressing: bool | None = None
    proxy: str | None = field(default=None, repr=False)
    encryption: str | None = None
    kms_key_id: str | None = None
    retry_seconds: float = 15.0
    """A request is tried again for so long."""
    request_seconds: float = 10.0
    """Silence that ends a try, and the time after which a slow answer does."""
    connect_seconds: float = 5.0
    connections: int = 32

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> S3Settings:
        """Read the properties of a FileIO; `s3.*` wins over `client.*`, as in PyIceberg."""
        given = {name: properties.get(f"s3.{name}") or properties.get(f"client.{name}") for name in PROVIDED}
        virtual = properties.get("s3.force-virtual-addressing")
        numbers = {
            "retry_seconds": properties.get(RETRY_SECONDS),
            "request_seconds": properties.get("s3.request-timeout") or properties.get(REQUEST_SECONDS),
            "connect_seconds": properties.get("s3.connect-timeout") or properties.get(CONNECT_SECONDS),
            "connections": properties.get(CONNECTIONS),
        }
        texts = {
            "endpoint": properties.get("s3.endpoint"),
            "region": properties.get("s3.region") or properties.get("client.region"),
            "proxy": properties.get("s3.proxy-uri"),
            "encryption": properties.get("s3.server-side-encryption"),
            "kms_key_id": properties.get("s3.sse-kms-key-id"),
            **{name.replace("-", "_"): value for name, value in given.items()},
        }
        found: dict[str, Any] = {name: text for name, text in texts.items() if text}
        found |= {name: float(text) for name, text in numbers.items() if text}
        if "connections" in found:
            found["connections"] = int(found["connections"])
        return cls(
            **found,
            anonymous=_is_true(properties.get("s3.anonymous", "")),
            virtual_addressing=None if virtual is None else _is_true(virtual),
        )

    @property
    def path_style(self) -> bool:
        """Whether the bucket stands in the path: at an endpoint of its own, unless told otherwise."""
        return self.endpoint is not None if self.virtual_addressing is None else not self.virtual_addressing


def _is_true(text: str) -> bool:
    return text.strip().lower() in ("true", "1", "yes", "on", "y", "t")


def is_s3(location: str) -> bool:
    return location.startswith(S3_PREFIXES)


def boto3_is_installed() -> bool:
    return find_spec("botocore") is not None
