"""S3 credentials for a DuckDB session: a secret in memory, never a setting, because settings stay readable."""

from __future__ import annotations

import duckdb

from regelate.adapters.duckdb.sql import literal
from regelate.core.table.storage import S3_PREFIXES, ObjectStoreAccess
from regelate.errors import Unavailable

NAME = "regelate_store"
TIMEOUT_SECONDS, RETRIES = 10, 5
"""The engine's own patience, with pauses from 100 ms that grow fourfold."""


def use_store(connection: duckdb.DuckDBPyConnection, access: ObjectStoreAccess) -> None:
    """Let a session with httpfs read one store; called again, with other credentials.

    It has to come before the session is locked: the first secret opens DuckDB's secret storage. The statement holds the
    credentials, so what it raises is not shown. Errors: Unavailable STORAGE_AUTH.
    """
    said = {
        "KEY_ID": access.key_id,
        "SECRET": access.secret,
        "SESSION_TOKEN": access.session_token,
        "REGION": access.region,
        "ENDPOINT": access.endpoint,
        "URL_STYLE": "path" if access.path_style else "vhost",
    }
    options = [f"{name} {literal(value)}" for name, value in said.items() if value]
    scopes = ", ".join(literal(prefix + access.scope.partition("://")[2]) for prefix in S3_PREFIXES)
    options += [f"USE_SSL {str(access.encrypted).lower()}", f"SCOPE [{scopes}]"]
    connection.execute(f"SET http_timeout = {TIMEOUT_SECONDS}")
    connection.execute(f"SET http_retries = {RETRIES}")
    try:
        connection.execute(
            f"CREATE OR REPLACE TEMPORARY SECRET {NAME} (TYPE s3, PROVIDER config, {', '.join(options)})"
        )
    except duckdb.Error:
        refused = True
    else:
        refused = False
    if refused:  # outside of the block: no traceback keeps the statement
        raise Unavailable(
            "STORAGE_AUTH", "DuckDB did not accept the storage's credentials", status=502, retryable=False
        )
