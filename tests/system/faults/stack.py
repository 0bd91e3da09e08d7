"""The whole program behind its handler, over a lake in a folder; and what a refused request must leave untouched."""

from __future__ import annotations

import base64
import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyiceberg.table import Table

from regelate.handler import make_handler
from regelate.service.facade import Service
from regelate.settings import load_settings
from tests.entrypoints.fakes import LambdaContext
from tests.support.answers import check_answer, check_error
from tests.support.built import Built
from tests.support.iceberg_tables import live_data_paths, local_path

TENANT = "default"
Answer = dict[str, Any]
Edit = Callable[[dict[str, Any]], object]
WITHOUT_SPARK = {"REGELATE_SPARK": "none"}
"""What a refusal is tested with: where pyspark is installed, Spark takes over what cannot be done here."""
LOCAL_CATALOG = {
    "type": "sql",
    "uri": "sqlite:///${REGELATE_HOME}/catalog.db?timeout=30",
    "warehouse": "${REGELATE_HOME}/warehouse",
}


@dataclass(frozen=True, kw_only=True)
class Stored:
    """Every table's metadata location, and every file but the catalog's own, by size and time."""

    tables: Mapping[str, str]
    files: Mapping[str, tuple[int, int]]


class Stack:
    """One service behind `lambda_handler`, and the folder that it keeps everything in."""

    def __init__(
        self, folder: Path, environ: Mapping[str, str] | None = None, *, built: Built | None = None, **given: Any
    ) -> None:
        """`given` is what the service is built with, `built` one that is already."""
        self.folder = folder
        settings = load_settings({"REGELATE_HOME": str(folder), **WITHOUT_SPARK, **(environ or {})})
        self.built = built or Built(settings, **given)
        self._handler = make_handler(lambda: self.service)

    @property
    def service(self) -> Service:
        return self.built.service

    def post(
        self, body: object, *, path: str = "/database", claims: Mapping[str, str] | None = None
    ) -> tuple[int, Answer]:
        """Send a body as an HTTP API event: text and bytes as they are, anything else as JSON."""
        raw, encoded = (body if isinstance(body, str) else json.dumps(body, default=str)), False
        if isinstance(body, bytes):
            raw, encoded = base64.b64encode(body).decode(), True
        authorizer = {} if claims is None else {"authorizer": {"jwt": {"claims": dict(claims), "scopes": None}}}
        event = {
            "version": "2.0",
            "rawPath": path,
            "headers": {"content-type": "application/json"},
            "requestContext": {
                "http": {"method": "POST", "path": path},
                "requestId": "gateway",
                "stage": "$default",
                **authorizer,
            },
            "body": raw,
            "isBase64Encoded": encoded,
        }
        answered = self._handler(event, LambdaContext())  # type: ignore[arg-type]  # what it reads of a context
        return answered["statusCode"], json.loads(answered["body"])

    def invoke(self, request: Mapping[str, object]) -> Answer:
        """Send one request as a direct invoke."""
        return self._handler(dict(request), LambdaContext())  # type: ignore[arg-type]  # what it reads of a context

    def ok(self, operation: str, table: str | None = None, **fields: object) -> Answer:
        """Send one operation over HTTP; the answer must be 200 and as openapi.json promises."""
        return self.accepted(operation, request(operation, table, **fields))

    def accepted(self, operation: str, body: object, **how: Any) -> Answer:
        status, answer = self.post(body, **how)
        assert status == 200, answer
        check_answer(operation, answer)
        return answer

    def refused(self, status: int, code: str, words: Sequence[str], body: object, **how: Any) -> dict[str, Any]:
        """Send a body that must be refused with this status and code, by a message that holds these words."""
        found, answer = self.post(body, **how)
        assert (found, answer.get("error", {}).get("code")) == (status, code), answer
        check_error(answer)
        error: dict[str, Any] = answer["error"]
        for word in words:
            assert word in error["message"], error["message"]
        assert "Traceback" not in json.dumps(answer)
        return error

    def create(self, table: str, columns: Mapping[str, str], **fields: object) -> Answer:
        """Create a table; a type that ends in `!` is a required column."""
        return self.ok("CREATE_TABLE", table, schema=schema(columns), **fields)

    def rows(self, table: str, **query: object) -> list[dict[str, Any]]:
        """Return what QUERY answers, in the order of its texts."""
        found = self.ok("QUERY", table, **query)["rows"]
        return sorted(found, key=lambda row: json.dumps(row, sort_keys=True))

    def table(self, ident: str) -> Table:
        """Load a table by plain PyIceberg."""
        loaded: Table = self.built.catalog().load_table(ident)
        return loaded

    def stored(self) -> Stored:
        database = self.folder / "catalog.db"
        tables = {}
        if database.exists():
            with sqlite3.connect(database) as connection:
                query = "SELECT catalog_name, table_namespace, table_name, metadata_location FROM iceberg_tables"
                tables = {"/".join(key): location for *key, location in connection.execute(query)}
        files = {}
        for path in self.folder.rglob("*"):
            if path.is_file() and not path.name.startswith(("catalog.db", "jobs.db", "fleet.db")):
                found = path.stat()
                files[str(path.relative_to(self.folder))] = (found.st_size, found.st_mtime_ns)
        return Stored(tables=tables, files=files)

    @contextmanager
    def untouched(self) -> Iterator[None]:
        """No table gains or loses a snapshot, and no file comes, goes or changes."""
        before = self.stored()
        yield
        after = self.stored()
        assert after.tables == before.tables
        assert after.files == before.files

    @contextmanager
    def no_catalog_call(self) -> Iterator[None]:
        """Nothing is opened before the first call of the catalog: neither the catalog itself nor its file."""
        yield
        assert self.built.catalogs.asked == 0
        assert not (self.folder / "catalog.db").exists()
        assert self.stored() == Stored(tables={}, files={})


def stack_with(
    folder: Path, *, environment: str = "development", given: Mapping[str, Any] | None = None, **section: object
) -> Stack:
    """Return a stack over `folder` whose config.json has this section; the file lies beside the folder."""
    written = folder.parent / f"{folder.name}.json"
    written.write_text(json.dumps({"environments": {environment: section}}))
    folder.mkdir(exist_ok=True)
    return Stack(folder, {"REGELATE_CONFIG": str(written), "REGELATE_ENVIRONMENT": environment}, **(given or {}))


def stack_of_tenants(folder: Path, *tenants: str) -> Stack:
    """Return a stack where every tenant has its own namespaces, and proves who it is by a claim."""
    catalog = {**LOCAL_CATALOG, "namespace_template": "{tenant_id}__{namespace}"}
    return stack_with(
        folder, environment="production", auth="claims", tenants=list(tenants), catalogs={"shared": catalog}
    )


def request(operation: str, table: object = None, **fields: object) -> Answer:
    """Return a request of the tenant `default`, unless the fields name another."""
    named = {} if table is None else {"table": table}
    return {"operation": operation, "tenant_id": TENANT, **named, **fields}


def schema(columns: Mapping[str, str]) -> dict[str, Any]:
    return {"fields": {n: {"type": t.rstrip("!"), "required": t.endswith("!")} for n, t in columns.items()}}


def data_files(table: Table) -> set[str]:
    """Return all files in the data folder of a table, live or not."""
    folder = local_path(table.location()) / "data"
    return {str(path) for path in folder.rglob("*") if path.is_file()}


def assert_nothing_left_behind(table: Table) -> None:
    """Every data file in the table's folder is named by some snapshot of its metadata."""
    known = set(live_data_paths(table.refresh()))
    for snapshot in table.snapshots():
        known |= {e.data_file.file_path for m in snapshot.manifests(table.io) for e in m.fetch_manifest_entry(table.io)}
    assert data_files(table) - {str(local_path(path)) for path in known} == set()


def edit_metadata(table: Table, change: Edit) -> None:
    """Rewrite the table's current metadata file, as another program would have written it."""
    path = local_path(table.metadata_location)
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


EVERY_TABLE_OPERATION: Mapping[str, Mapping[str, object]] = {
    "ALTER_TABLE": {"set_properties": {"a": "b"}},
    "DESCRIBE_TABLE": {},
    "DROP_TABLE": {"purge": True},
    "CREATE_TAG": {"tag": "a"},
    "DROP_TAG": {"tag": "a"},
    "ROLLBACK": {"as_of": 4_000_000_000_000},
    "WRITE": {"records": [{"id": 1}]},
    "QUERY": {},
    "COMPACT": {"force": True},
    "TABLE_HEALTH": {},
    "TABLE_STATS": {},
    "NOTIFY_COMMIT": {},
    "REPORT_METRICS": {"report": {"report-type": "commit-report", "metrics": {}}},
    "EXPIRE_SNAPSHOTS": {},
    "REMOVE_ORPHAN_FILES": {},
    "REWRITE_MANIFESTS": {},
    "MAINTAIN": {},
}
"""The least that each operation needs beside its table; CREATE_TABLE and LIST_TABLES name none that exists."""
