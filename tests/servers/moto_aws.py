"""AWS on loopback: moto's server, with the optimistic lock that its Glue lacks (trap T14), and conditional writes of
DynamoDB that are one step, as AWS's are: moto's threads look first and write later."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import boto3
from botocore.loaders import JSONFileLoader
from moto.dynamodb.models import DynamoDBBackend
from moto.glue.exceptions import GlueClientError
from moto.glue.responses import GlueResponse
from moto.server import ThreadedMotoServer

REGION = "us-east-1"
KEYS = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing-secret"}
_commits = threading.Lock()
_writes = threading.RLock()
_update_table = GlueResponse.update_table
_item_writes = {name: getattr(DynamoDBBackend, name) for name in ("put_item", "update_item", "delete_item")}
_load_file = JSONFileLoader.load_file


def _load_once(self: JSONFileLoader, file_path: str) -> Any:
    """Read the description of a service once; every session of boto3 does for itself, and there are hundreds here."""
    return _described(file_path)


@cache
def _described(file_path: str) -> Any:
    return _load_file(JSONFileLoader(), file_path)


def _checked_update_table(self: GlueResponse) -> Any:
    """Refuse an update that names a version which is not the table's, as Glue does; moto ignores the version."""
    wanted, table = self.parameters.get("VersionId"), self.parameters["TableInput"]
    with _commits:
        found = self.glue_backend.get_table(self.parameters["DatabaseName"], table["Name"]).as_dict()["VersionId"]
        if wanted is not None and str(wanted) != str(found):
            raise GlueClientError("ConcurrentModificationException", "the table was changed meanwhile")
        return _update_table(self)


def _in_one_step(write: Callable[..., Any]) -> Callable[..., Any]:
    def written(*arguments: Any, **named: Any) -> Any:
        with _writes:
            return write(*arguments, **named)

    return written


@contextmanager
def aws_server() -> Iterator[str]:
    """Run the server on a free port and yield its endpoint. Its state is the process's: see `reset`."""
    GlueResponse.update_table = _checked_update_table  # type: ignore[method-assign]
    for name, write in _item_writes.items():
        setattr(DynamoDBBackend, name, _in_one_step(write))
    JSONFileLoader.load_file = _load_once  # type: ignore[method-assign]
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield f"http://{host}:{port}"
    finally:
        server.stop()
        GlueResponse.update_table = _update_table  # type: ignore[method-assign]
        for name, write in _item_writes.items():
            setattr(DynamoDBBackend, name, write)
        JSONFileLoader.load_file = _load_file  # type: ignore[method-assign]


def client(service: str, endpoint: str) -> Any:
    return boto3.client(service, endpoint_url=endpoint, region_name=REGION, **KEYS)  # type: ignore[call-overload]


def jobs_table(dynamodb: Any, name: str) -> None:
    """Make the table of jobs as template.yaml does."""
    dynamodb.create_table(
        TableName=name,
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        AttributeDefinitions=[
            {"AttributeName": name, "AttributeType": "S"} for name in ("pk", "listed_as", "listed_at", "waits_as")
        ],
        GlobalSecondaryIndexes=[
            {
                "IndexName": "newest",
                "KeySchema": [
                    {"AttributeName": "listed_as", "KeyType": "HASH"},
                    {"AttributeName": "listed_at", "KeyType": "RANGE"},
                ],
                "Projection": {"ProjectionType": "ALL"},
            },
            {
                "IndexName": "waiting",
                "KeySchema": [
                    {"AttributeName": "waits_as", "KeyType": "HASH"},
                    {"AttributeName": "listed_at", "KeyType": "RANGE"},
                ],
                "Projection": {"ProjectionType": "KEYS_ONLY"},
            },
        ],
        BillingMode="PAY_PER_REQUEST",
    )
