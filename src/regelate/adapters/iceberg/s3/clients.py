"""boto3 clients: one per store and credentials in a process, because to make one takes as long as ten requests."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import botocore.session
from botocore import UNSIGNED
from botocore.config import Config
from botocore.credentials import Credentials, RefreshableCredentials

from regelate.adapters.iceberg.s3.settings import S3Settings
from regelate.core.table.storage import ObjectStoreAccess

DEFAULT_REGION = "us-east-1"
SESSION_NAME = "regelate"
CLIENTS_KEPT = 32
"""A catalog that hands out credentials hands out others for every table."""
_clients: OrderedDict[S3Settings, S3Client] = OrderedDict()
_making = threading.Lock()


class S3Client:
    """botocore's client for one store, and the credentials it signs with. Retries are ours, so it makes one try."""

    def __init__(self, settings: S3Settings) -> None:
        self.settings = settings
        session = botocore.session.Session(profile=settings.profile_name)
        self._region = settings.region or session.get_config_variable("region") or DEFAULT_REGION
        self._credentials = None if settings.anonymous else _credentials(session, settings, self._region)
        session._credentials = self._credentials
        self.api: Any = session.create_client(
            "s3", region_name=self._region, endpoint_url=settings.endpoint, config=_config(settings)
        )

    def access(self, scope: str) -> ObjectStoreAccess:
        """Return what another engine needs to read the same store, with the credentials of this moment."""
        frozen = self._credentials.get_frozen_credentials() if self._credentials is not None else None
        scheme, _, host = (self.settings.endpoint or "https://").partition("://")
        return ObjectStoreAccess(
            scope=scope,
            endpoint=host.rstrip("/") or None,
            region=self._region,
            path_style=self.settings.path_style,
            encrypted=scheme != "http",
            key_id=frozen.access_key if frozen else None,
            secret=frozen.secret_key if frozen else None,
            session_token=frozen.token if frozen else None,
        )


def client_of(settings: S3Settings) -> S3Client:
    """Return the process's client for a store."""
    with _making:
        if settings not in _clients:
            _clients[settings] = S3Client(settings)
            if len(_clients) > CLIENTS_KEPT:
                _clients.popitem(last=False)
        _clients.move_to_end(settings)
        return _clients[settings]


def renewed(settings: S3Settings, stale: S3Client) -> S3Client:
    """Return a client with credentials asked for anew, unless another thread has renewed it since."""
    with _making:
        if _clients.get(settings) in (stale, None):
            _clients[settings] = S3Client(settings)
        return _clients[settings]


def _config(settings: S3Settings) -> Config:
    return Config(
        connect_timeout=settings.connect_seconds,
        read_timeout=settings.request_seconds,
        retries={"total_max_attempts": 1},
        max_pool_connections=settings.connections,
        s3={"addressing_style": "path" if settings.path_style else "virtual"},
        proxies={"http": settings.proxy, "https": settings.proxy} if settings.proxy else None,
        signature_version=UNSIGNED if settings.anonymous else None,
    )


def _credentials(session: Any, settings: S3Settings, region: str) -> Any:
    if settings.access_key_id and settings.secret_access_key:
        session._credentials = Credentials(
            settings.access_key_id, settings.secret_access_key, settings.session_token, method="properties"
        )
    if settings.role_arn is None:
        return session.get_credentials()
    role = {
        "RoleArn": settings.role_arn,
        "RoleSessionName": settings.role_session_name or SESSION_NAME,
    }
    patience = Config(connect_timeout=settings.connect_seconds, read_timeout=settings.request_seconds)
    sts = session.create_client("sts", region_name=region, config=patience)

    def assumed() -> Mapping[str, str]:
        found = sts.assume_role(**role)["Credentials"]
        return {
            "access_key": found["AccessKeyId"],
            "secret_key": found["SecretAccessKey"],
            "token": found["SessionToken"],
            "expiry_time": found["Expiration"].isoformat(),
        }

    return RefreshableCredentials.create_from_metadata(
        metadata=assumed(), refresh_using=assumed, method="sts-assume-role"
    )
