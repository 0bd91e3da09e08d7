"""How other engines read the S3 store of a table."""

from __future__ import annotations

from urllib.parse import urlsplit

from pyiceberg.table import Table

from regelate.adapters.iceberg.s3.file_io import S3FileIO
from regelate.adapters.iceberg.s3.settings import S3Settings, boto3_is_installed, is_s3
from regelate.core.table.storage import ObjectStoreAccess
from regelate.errors import Unavailable


def access_of(table: Table) -> ObjectStoreAccess | None:
    """Return the store that a table's files are in, with the credentials of now; None where that is no S3.

    Errors: Unavailable ENGINE_UNAVAILABLE without the extra `aws`; STORAGE_AUTH where no credentials are to be had.
    """
    location, io = table.metadata.location, table.io
    if not is_s3(location):
        return None
    if not boto3_is_installed():
        raise Unavailable(
            "ENGINE_UNAVAILABLE", "a table on S3 needs the extra aws: pip install 'regelate[aws]'", retryable=False
        )
    from regelate.adapters.iceberg.s3.clients import client_of
    from regelate.adapters.iceberg.s3.s3_errors import as_error

    client = io.store.client() if isinstance(io, S3FileIO) else client_of(S3Settings.of(io.properties))
    try:
        return client.access(f"s3://{urlsplit(location).netloc}/")
    except Exception as error:
        raise as_error(error, f"credentials for {location}", 1) from error
