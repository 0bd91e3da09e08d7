"""A catalog in memory: metadata really written as JSON, and one compare-and-swap per commit.

Three kinds: with `sql` the client itself checks every requirement, writes the metadata file through PyIceberg's own
staging and swaps the pointer (so do Glue and others in this process); `rest` knows only the requirements of the REST
specification and keeps parent ids when snapshots go, as Iceberg's Java does; `head-only` shows no history (Nessie,
trap T16).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.exceptions import (
    BadRequestError,
    CommitFailedException,
    CommitStateUnknownException,
    ForbiddenError,
    ServerError,
    ServiceUnavailableError,
)
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil, TableMetadataV2
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
    update_table_metadata,
)

from tests.system.simulation import statuses
from tests.system.simulation.scheduler import Actor, Scheduler
from tests.system.simulation.store import ActorIO, ObjectStore
from tests.system.simulation.weather import BEFORE_LANDING, LOST, CatalogFault, Weather

IDENT = ("lake", "t")
TWIN = ("lake", "twin")
LOCATION = "sim://lake/t"
Requirements = tuple[TableRequirement, ...]
Updates = tuple[TableUpdate, ...]
Landing = Callable[[], None]


@dataclass
class Late:
    """A request that is still under way although its sender got an error. `base_id`: what its branch was on then."""

    land: Landing
    ref: str
    base_id: int | None
    sender: Actor
    is_held: bool = False
    """It does not come before a story is over, and then at once: `is_due`."""
    is_due: bool = False


class CatalogKind(Enum):
    SQL = "sql"
    REST = "rest"
    HEAD_ONLY = "head-only"


class Server:
    """The one truth about the table. `on_commit(before, after, actor)` is told of every commit, at once."""

    def __init__(self, kind: CatalogKind, store: ObjectStore, scheduler: Scheduler, *, has_twin: bool = False) -> None:
        """`has_twin`: another table of the catalog lies at the same location, so that nobody may delete a file."""
        self.has_twin = has_twin
        self.kind = kind
        self.store = store
        self.scheduler = scheduler
        self.metadata: TableMetadata
        self.location = ""
        self.version = -1
        self.locations: set[str] = set()
        """Every metadata file that the pointer has ever named."""
        self.late: list[Late] = []
        self.on_commit: Callable[[TableMetadata, TableMetadata, Actor], None] = lambda before, after, actor: None

    def create(self, metadata: TableMetadata) -> None:
        self.metadata = self._stored(metadata.model_copy(update={"last_updated_ms": self.scheduler.now_ms}))

    def commit(self, requirements: Requirements, updates: Updates, actor: Actor) -> None:
        """Check and apply in one go. Errors: CommitFailedException; BadRequestError for what makes no sense."""
        base, base_location = self.metadata, self.location
        for requirement in requirements:
            if self.kind is CatalogKind.REST and requirement.type.startswith("regelate-"):
                raise BadRequestError(f"unknown requirement {requirement.type}")
            requirement.validate(base)
        if self.kind is CatalogKind.REST and base.format_version > 1:
            _check_numbers(updates, base.last_sequence_number)
        try:
            after = update_table_metadata(base, updates, metadata_location=base_location)
        except ValueError as error:
            raise BadRequestError(str(error)) from error
        if after != base:
            self.metadata = self._stored(self.shaped(base, after))
            self.on_commit(base, self.metadata, actor)

    def swap(self, base_location: str, metadata: TableMetadata, location: str, actor: Actor) -> None:
        """Let the pointer name a file that the client has written, if it still is what the client started from."""
        if self.location != base_location:
            raise CommitFailedException("the pointer has moved")
        base = self.metadata
        self.version += 1
        self.metadata, self.location = metadata, location
        self.locations.add(location)
        self.on_commit(base, metadata, actor)

    def shaped(self, base: TableMetadata, after: TableMetadata) -> TableMetadata:
        return after.model_copy(update=self._shape(base, after))

    def _shape(self, base: TableMetadata, after: TableMetadata) -> dict[str, Any]:
        times = [s.timestamp_ms for s in after.snapshots]
        shape: dict[str, Any] = {"last_updated_ms": max(self.scheduler.now_ms, *times, 0)}
        if self.kind is CatalogKind.REST:
            parents = {s.snapshot_id: s.parent_snapshot_id for s in base.snapshots}
            shape["snapshots"] = [
                s.model_copy(update={"parent_snapshot_id": parents.get(s.snapshot_id, s.parent_snapshot_id)})
                for s in after.snapshots
            ]
            live = {s.snapshot_id for s in after.snapshots}
            shape["partition_statistics"] = [s for s in after.partition_statistics if s.snapshot_id in live]
        if self.kind is CatalogKind.HEAD_ONLY:
            head = after.current_snapshot()
            shape["snapshots"] = [] if head is None else [head.model_copy(update={"parent_snapshot_id": None})]
            shape["refs"] = {name: ref for name, ref in after.refs.items() if name == "main"}
            shape["snapshot_log"], shape["metadata_log"] = [], []
            for name in ("statistics", "partition_statistics"):
                shape[name] = [
                    s for s in getattr(after, name) if head is not None and s.snapshot_id == head.snapshot_id
                ]
        return shape

    def _stored(self, metadata: TableMetadata) -> TableMetadata:
        self.version += 1
        self.location = f"{LOCATION}/metadata/{self.version:05d}-{uuid.uuid4()}.metadata.json"
        self.locations.add(self.location)
        text = metadata.model_dump_json()
        self.store.put(self.location, text.encode(), self.scheduler.now_ms, "server")
        return TableMetadataUtil.parse_raw(text)


def tip(metadata: TableMetadata, ref: str) -> int | None:
    """Return what a branch is on; None where main is empty, or another branch is gone."""
    if ref == MAIN_BRANCH:
        return metadata.current_snapshot_id
    return metadata.refs[ref].snapshot_id if ref in metadata.refs else None


def last_number(metadata: TableMetadata) -> int:
    """Return the last sequence number that was given; format 1 gives none."""
    return metadata.last_sequence_number if isinstance(metadata, TableMetadataV2) else 0


def _ref_of(updates: Updates) -> str:
    """Return the branch that a commit is for: an expiry counts as one to main."""
    return next((u.ref_name for u in updates if isinstance(u, SetSnapshotRefUpdate)), MAIN_BRANCH)


def _check_numbers(updates: Updates, last: int) -> None:
    """Iceberg's `TableMetadata.Builder.addSnapshot` (1.10) refuses what PyIceberg's own catalogs let pass."""
    for update in updates:
        if isinstance(update, AddSnapshotUpdate):
            number, parent = update.snapshot.sequence_number or 0, update.snapshot.parent_snapshot_id
            if number <= last and parent is not None:
                raise BadRequestError(f"sequence number {number} after {last}")
            last = number


class _Client(Catalog):
    """The catalog as one actor reaches it."""

    def __init__(self, server: Server, io: ActorIO, weather: Weather, actor: Actor) -> None:
        Catalog.__init__(self, "sim")
        self._server = server
        self._io = io
        self._weather = weather
        self._actor = actor

    def load_table(self, identifier: Any) -> Table:
        fault = self._weather.storage(self._actor, "load")
        self._step("load table", crashes=fault.value == "crash")
        if self._actor.unreachable_looks:
            self._actor.unreachable_looks -= 1
            self._weather.events["took no route to the catalog"] += 1
            raise self._no_look()
        if fault.value not in ("none", "slow", "crash"):
            raise ServiceUnavailableError("503")
        metadata = self._server.metadata
        if self._actor.refused_on is not None:
            ref, on, number = self._actor.refused_on
            self._actor.may_return |= tip(metadata, ref) != on and last_number(metadata) == number
        if Catalog.identifier_to_tuple(identifier) == TWIN:
            metadata = metadata.model_copy(update={"table_uuid": uuid.UUID(int=1)})
        return Table(IDENT, metadata, self._server.location, self._io, self)

    def commit_table(self, table: Table, requirements: Requirements, updates: Updates) -> CommitTableResponse:
        actor = self._actor
        actor.is_committing = True
        try:
            fault = self._send(table.metadata, requirements, updates)
        finally:
            actor.is_committing = False
        metadata, location = self._server.metadata, self._server.location
        wait_ms = actor.rng.randrange(30_000) if fault in LOST else 0
        self._step("hear of the commit", crashes=fault is CatalogFault.CRASH_AFTER, wait_ms=wait_ms)
        self._weather.took(actor, fault)
        if fault is CatalogFault.RESENT:
            raise CommitFailedException("the table has changed since")
        if fault is CatalogFault.STATUS_LANDED:
            raise self._answered("landed")
        if fault is CatalogFault.LOST_RESPONSE:
            raise actor.rng.choice((CommitStateUnknownException("502"), TimeoutError("read"), OSError("reset")))
        return CommitTableResponse(metadata=metadata, metadata_location=location)

    def _send(self, base: TableMetadata, requirements: Requirements, updates: Updates) -> CatalogFault:
        actor = self._actor
        fault = self._weather.catalog(actor, self._server.location)
        ref = _ref_of(updates)
        slow = actor.is_ours and not self._weather.is_over
        wait_ms = actor.rng.choice((0, 0, 200, 2_000)) if slow else 0
        self._step("commit", crashes=fault is CatalogFault.CRASH, wait_ms=wait_ms)
        if fault in (CatalogFault.ERROR, CatalogFault.LATE, CatalogFault.STATUS):
            actor.unknown_attempts += 1
        if fault not in (CatalogFault.NONE, CatalogFault.REFUSED, CatalogFault.RESENT):
            actor.is_unanswered = True
            actor.unreachable_looks = actor.rng.choice((0, 0, 0, 1, 6))
            self._weather.events["ran no route to the catalog"] += bool(actor.unreachable_looks)
        reusable = base.format_version == 1 or tip(base, ref) is None  # as its sender knows it
        fits_again = reusable and self._server.kind is not CatalogKind.SQL
        adds = any(isinstance(update, AddSnapshotUpdate) for update in updates)
        if adds and self._server.kind is not CatalogKind.SQL:
            actor.refused_on = ref, tip(base, ref), last_number(base)
        if fault in (*BEFORE_LANDING, CatalogFault.LATE):
            actor.may_return |= fits_again
        if fault in BEFORE_LANDING:
            self._weather.took(actor, fault)
        if fault is CatalogFault.ERROR:
            raise actor.rng.choice((ServiceUnavailableError("503"), ConnectionError("reset"), ServerError("500")))
        if fault is CatalogFault.STATUS:
            raise self._answered("did not land")
        if fault is CatalogFault.REFUSED:
            actor.was_turned_away = True
            raise CommitFailedException("somebody else was first")
        try:
            land = self._staged(requirements, updates)
            if fault is CatalogFault.LATE:
                self._server.late.append(Late(land, ref, tip(self._server.metadata, ref), actor))
                if actor.is_held_up:
                    actor.is_held_up = False
                    self._step("wait for an answer", wait_ms=actor.rng.randrange(1_000, 30_000))
                raise self._told_of_another_sending()
            land()
        except CommitFailedException:  # a schema that changed, perhaps, which no head explains
            actor.may_return |= fits_again
            if tip(self._server.metadata, ref) == tip(base, ref):
                actor.is_unanswered = True
                actor.unknown_attempts += 1
            raise
        except (BadRequestError, OSError):
            actor.is_unanswered = True
            actor.unknown_attempts += 1
            raise
        return fault

    def _told_of_another_sending(self) -> Exception:
        """What is heard while the first sending is under way: nothing, a conflict with it, or a gatekeeper's no."""
        kinds = (CommitStateUnknownException("504"), CommitFailedException("locked"), ForbiddenError("403"))
        error = kinds[self._server.scheduler.now_ms // 7 % 3]
        self._weather.events[f"late request, told {error}"] += 1
        return error

    def _no_look(self) -> Exception:
        """What a look gets that no catalog answers: nothing, or a status (of a gateway, of old credentials)."""
        rng = self._actor.rng
        if rng.random() < 0.4:
            return ConnectionError("no route")
        status = statuses.drawn(rng)
        self._weather.events[f"status {status // 100}xx to a look"] += 1
        return statuses.to_load(status, rng)

    def _answered(self, what: str) -> Exception:
        status = statuses.drawn(self._actor.rng)
        self._weather.events[f"status {status // 100}xx, {what}"] += 1
        return statuses.to_commit(status, self._actor.rng)

    def _staged(self, requirements: Requirements, updates: Updates) -> Landing:
        """Prepare a commit as far as the client does it, and return what remains to be done."""
        return lambda: self._server.commit(requirements, updates, self._actor)

    def list_namespaces(self, namespace: Any = ()) -> list[Any]:
        self._step("list namespaces")
        return [IDENT[:1]] if not namespace else []

    def list_tables(self, namespace: Any) -> list[Any]:
        self._step("list tables")
        return [IDENT, TWIN] if self._server.has_twin else [IDENT]

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


class _SqlClient(_Client, MetastoreCatalog):
    """Checks, stages and writes by itself, as PyIceberg's SqlCatalog does; only the swap is the database's."""

    def _staged(self, requirements: Requirements, updates: Updates) -> Landing:
        server = self._server
        base, base_location = server.metadata, server.location
        current = Table(IDENT, base, base_location, self._io, self)
        try:
            staged = self._update_and_stage_table(current, IDENT, requirements, updates)
        except ValueError as error:
            raise BadRequestError(str(error)) from error
        if staged.metadata == base:
            return lambda: None
        shaped, location = server.shaped(base, staged.metadata), staged.metadata_location
        self._write_metadata(shaped, self._io, location)
        metadata = TableMetadataUtil.parse_raw(shaped.model_dump_json())
        return lambda: server.swap(base_location, metadata, location, self._actor)

    def _load_file_io(self, properties: Any = None, location: str | None = None) -> ActorIO:
        return self._io


class _RestClient(_Client):
    """The committer asks the class's module whether a server checks the requirements."""

    __module__ = "pyiceberg.catalog.rest.simulated"


def client(server: Server, io: ActorIO, weather: Weather, actor: Actor) -> Catalog:
    kinds = {CatalogKind.REST: _RestClient, CatalogKind.SQL: _SqlClient}
    return kinds.get(server.kind, _Client)(server, io, weather, actor)
