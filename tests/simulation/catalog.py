"""A catalog in memory: metadata really written as JSON, and one compare-and-swap per commit.

Three kinds: `sql` checks every requirement against the latest metadata (so do Glue and others in this process), `rest`
knows only the requirements of the REST specification and keeps parent ids when snapshots go, as Iceberg's Java does;
`head-only` shows no history (Nessie, trap T16).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from enum import Enum
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    BadRequestError,
    CommitFailedException,
    CommitStateUnknownException,
    ServerError,
    ServiceUnavailableError,
)
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.update import TableRequirement, TableUpdate, update_table_metadata

from tests.simulation.scheduler import Actor, Scheduler
from tests.simulation.store import ActorIO, ObjectStore
from tests.simulation.weather import CatalogFault, Weather

IDENT = ("lake", "t")
LOCATION = "sim://lake/t"


class CatalogKind(Enum):
    SQL = "sql"
    REST = "rest"
    HEAD_ONLY = "head-only"


class Server:
    """The one truth about the table. `on_commit(before, after, actor)` is told of every commit, at once."""

    def __init__(self, kind: CatalogKind, store: ObjectStore, scheduler: Scheduler) -> None:
        self.kind = kind
        self.store = store
        self.scheduler = scheduler
        self.metadata: TableMetadata
        self.location = ""
        self.version = -1
        self.late: list[Callable[[], None]] = []
        """Requests that are still under way although their sender got an error."""
        self.on_commit: Callable[[TableMetadata, TableMetadata, Actor], None] = lambda before, after, actor: None

    def create(self, metadata: TableMetadata) -> None:
        self.metadata = self._stored(metadata.model_copy(update={"last_updated_ms": self.scheduler.now_ms}))

    def commit(
        self, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...], actor: Actor
    ) -> None:
        """Check and apply in one go. Errors: CommitFailedException; BadRequestError for what makes no sense."""
        base, base_location = self.metadata, self.location
        for requirement in requirements:
            if self.kind is CatalogKind.REST and requirement.type.startswith("regelate-"):
                raise BadRequestError(f"unknown requirement {requirement.type}")
            requirement.validate(base)
        try:
            after = update_table_metadata(base, updates, metadata_location=base_location)
        except ValueError as error:
            raise BadRequestError(str(error)) from error
        if after == base:
            return
        self.metadata = self._stored(after.model_copy(update=self._shape(base, after)))
        self.on_commit(base, self.metadata, actor)

    def _shape(self, base: TableMetadata, after: TableMetadata) -> dict[str, Any]:
        times = [s.timestamp_ms for s in after.snapshots]
        shape: dict[str, Any] = {"last_updated_ms": max(self.scheduler.now_ms, *times, 0)}
        if self.kind is CatalogKind.REST:
            parents = {s.snapshot_id: s.parent_snapshot_id for s in base.snapshots}
            shape["snapshots"] = [
                s.model_copy(update={"parent_snapshot_id": parents.get(s.snapshot_id, s.parent_snapshot_id)})
                for s in after.snapshots
            ]
        if self.kind is CatalogKind.HEAD_ONLY:
            head = after.current_snapshot()
            shape["snapshots"] = [] if head is None else [head.model_copy(update={"parent_snapshot_id": None})]
            shape["refs"] = {name: ref for name, ref in after.refs.items() if name == "main"}
            shape["snapshot_log"], shape["metadata_log"] = [], []
        return shape

    def _stored(self, metadata: TableMetadata) -> TableMetadata:
        self.version += 1
        self.location = f"{LOCATION}/metadata/{self.version:05d}-{uuid.uuid4()}.metadata.json"
        text = metadata.model_dump_json()
        self.store.put(self.location, text.encode(), self.scheduler.now_ms, "server")
        return TableMetadataUtil.parse_raw(text)


class _Client(Catalog):
    """The catalog as one actor reaches it."""

    def __init__(self, server: Server, io: ActorIO, weather: Weather, actor: Actor) -> None:
        super().__init__("sim")
        self._server = server
        self._io = io
        self._weather = weather
        self._actor = actor

    def load_table(self, identifier: Any) -> Table:
        fault = self._weather.storage(self._actor, "load")
        self._step("load table", crashes=fault.value == "crash")
        if self._actor.unreachable_looks:
            self._actor.unreachable_looks -= 1
            raise ConnectionError("no route")
        if fault.value not in ("none", "slow", "crash"):
            raise ServiceUnavailableError("503")
        return Table(IDENT, self._server.metadata, self._server.location, self._io, self)

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        fault = self._weather.catalog(self._actor)
        slow = self._actor.is_ours and not self._weather.is_over
        wait_ms = self._actor.rng.choice((0, 0, 200, 2_000)) if slow else 0
        self._step("commit", crashes=fault is CatalogFault.CRASH, wait_ms=wait_ms)
        actor, server = self._actor, self._server
        if fault in (CatalogFault.ERROR, CatalogFault.LATE):
            actor.unknown_attempts += 1
        if fault in (CatalogFault.ERROR, CatalogFault.LATE, CatalogFault.LOST_RESPONSE):
            actor.unreachable_looks = actor.rng.choice((0, 0, 0, 1, 6))
        if fault is CatalogFault.ERROR:
            raise self._actor.rng.choice((ServiceUnavailableError("503"), ConnectionError("reset"), ServerError("500")))
        if fault is CatalogFault.REFUSED:
            raise CommitFailedException("somebody else was first")
        if fault is CatalogFault.LATE:
            server.late.append(lambda: server.commit(requirements, updates, actor))
            raise CommitStateUnknownException("504")
        try:
            server.commit(requirements, updates, actor)
        except BadRequestError:
            actor.unknown_attempts += 1
            raise
        metadata, location = server.metadata, server.location
        wait_ms = actor.rng.randrange(30_000) if fault in (CatalogFault.RESENT, CatalogFault.LOST_RESPONSE) else 0
        self._step("hear of the commit", crashes=fault is CatalogFault.CRASH_AFTER, wait_ms=wait_ms)
        if fault is CatalogFault.RESENT:
            raise CommitFailedException("the table has changed since")
        if fault is CatalogFault.LOST_RESPONSE:
            raise self._actor.rng.choice((CommitStateUnknownException("502"), TimeoutError("read"), OSError("reset")))
        return CommitTableResponse(metadata=metadata, metadata_location=location)

    def list_namespaces(self, namespace: Any = ()) -> list[Any]:
        self._step("list namespaces")
        return [IDENT[:1]] if not namespace else []

    def list_tables(self, namespace: Any) -> list[Any]:
        self._step("list tables")
        return [IDENT]

    def _step(self, what: str, *, crashes: bool = False, wait_ms: int = 0) -> None:
        self._server.scheduler.step(self._actor, what, crashes=crashes, wait_ms=wait_ms)

    def _never(self, *args: object, **kwargs: object) -> Any:
        raise AssertionError("the simulator's catalog holds one table")

    create_table = create_table_transaction = register_table = drop_table = purge_table = rename_table = _never
    create_namespace = drop_namespace = load_namespace_properties = _never
    update_namespace_properties = list_views = drop_view = view_exists = table_exists = namespace_exists = _never
    register_view = load_view = create_view = rename_view = replace_view = close = supports_server_side_planning = (
        _never
    )


class _RestClient(_Client):
    """The committer asks the class's module whether a server checks the requirements."""

    __module__ = "pyiceberg.catalog.rest.simulated"


def client(server: Server, io: ActorIO, weather: Weather, actor: Actor) -> Catalog:
    kind = _RestClient if server.kind is CatalogKind.REST else _Client
    return kind(server, io, weather, actor)
