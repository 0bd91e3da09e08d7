"""What the other engines do, one function per kind of action."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from pyiceberg.manifest import DataFileContent
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSchemaUpdate,
    AssertCurrentSchemaId,
    AssertDefaultSpecId,
    AssertRefSnapshotId,
    AssertTableUUID,
    RemoveSnapshotRefUpdate,
    SetCurrentSchemaUpdate,
    SetDefaultSpecUpdate,
    SetSnapshotRefUpdate,
)
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField

from tests.system.simulation.auditor import ModelRows
from tests.system.simulation.catalog import Late, Server, tip
from tests.system.simulation.foreign import Edit, ForeignEngine, Updates, delete_file, exact_bounds, without
from tests.system.simulation.photograph import Home, Photograph
from tests.system.simulation.rows import PART, Row, encode_keys, encode_positions
from tests.system.simulation.scheduler import State

if TYPE_CHECKING:
    from tests.system.simulation.world import World

BRANCH = "dev"
Foreign = Callable[["World", ForeignEngine, random.Random], object]


def adding(rows: list[Row], home_of: Callable[[Row], Home]) -> Callable[[ModelRows], ModelRows]:
    return lambda old: {**old, **{r.id: (r, home_of(r)) for r in rows}}


def append(world: World, engine: ForeignEngine, rng: random.Random, branch: str = "main") -> bool:
    rows = world.new_rows(rng, rng.randrange(1, 6))
    part = rows[0].part
    rows = [Row(r.id, r.key, part, r.extras) for r in rows]

    def decide(table: Table, parent: Photograph | None) -> Edit:
        spec = table.spec()
        home: Home = (spec.spec_id, (part,) if spec.fields else ())
        known = [r.within(table.schema().field_ids) for r in rows]
        return Edit(Operation.APPEND, adding(known, lambda row: home), added=[engine.data_file(table, known)])

    return engine.commit(decide, branch)


def append_to_branch(world: World, engine: ForeignEngine, rng: random.Random) -> bool:
    return append(world, engine, rng, BRANCH)


def position_delete(world: World, engine: ForeignEngine, rng: random.Random, branch: str = "main") -> bool:
    """Delete some rows by their places: of one data file, or of several of one partition in one delete file."""

    def decide(table: Table, parent: Photograph | None) -> Edit | None:
        with_rows = sorted(p for p, rows in parent.visible.items() if rows) if parent else []
        if parent is None or not with_rows or table.metadata.format_version == 1:
            return None
        first = rng.choice(with_rows)
        home = parent.data_files[first].home
        beside = [p for p in with_rows if parent.data_files[p].home == home and p != first]
        paths = sorted({first, *rng.sample(beside, min(len(beside), rng.choice((0, 0, 0, 1, 2))))})
        chosen = {p: rng.sample(parent.visible[p], rng.randrange(1, len(parent.visible[p]) + 1)) for p in paths}
        named = {p: [at for at, _ in rows] for p, rows in chosen.items()}
        is_exact = len(paths) == 1 and rng.random() < 0.6
        data = encode_positions(named, as_parquet=not is_exact)
        bounds = exact_bounds(paths[0], paths[-1]) if is_exact or rng.random() < 0.3 else {}
        path = engine.put(table, "positions.parquet", data)
        count = sum(len(at) for at in named.values())
        made = delete_file(DataFileContent.POSITION_DELETES, path, home, count, len(data), **bounds)
        gone = [row.id for rows in chosen.values() for _, row in rows]
        return Edit(Operation.DELETE, without(gone), added=[made])

    return engine.commit(decide, branch)


def delete_on_branch(world: World, engine: ForeignEngine, rng: random.Random) -> bool:
    return position_delete(world, engine, rng, BRANCH)


def equality_delete(world: World, engine: ForeignEngine, rng: random.Random) -> bool:
    """Delete by key, in one partition of one spec or (from an unpartitioned spec) everywhere."""
    keys = {rng.choice((*range(world.keys), None)) for _ in range(rng.randrange(1, 3))}

    def decide(table: Table, parent: Photograph | None) -> Edit | None:
        homes = sorted({f.home for f in parent.data_files.values()}, key=repr) if parent else []
        everywhere = [spec_id for spec_id, spec in table.specs().items() if not spec.fields]
        if everywhere and rng.random() < 0.4:
            homes = [(everywhere[0], ())]
        if not homes or table.metadata.format_version == 1:
            return None
        home = rng.choice(homes)
        data = encode_keys(keys)
        path = engine.put(table, "keys.parquet", data)
        made = delete_file(DataFileContent.EQUALITY_DELETES, path, home, len(keys), len(data), equality_ids=[2])

        def intent(rows: ModelRows) -> ModelRows:
            reached = {i for i, (_, at) in rows.items() if at == home or home[0] in everywhere}
            return {i: r for i, r in rows.items() if not (i in reached and r[0].key in keys)}

        return Edit(Operation.DELETE, intent, added=[made])

    return engine.commit(decide)


def remove_files(world: World, engine: ForeignEngine, rng: random.Random) -> bool:
    """Drop some data files, or all of a partition, preferably of one with deletes: they are left dangling."""

    def decide(table: Table, parent: Photograph | None) -> Edit | None:
        if parent is None or len(parent.data_files) < 2:
            return None
        paths = frozenset(rng.sample(sorted(parent.data_files), rng.randrange(1, 3)))
        deleted_from = {file.home for file in parent.delete_files.values()}
        worn = sorted(path for path, file in parent.data_files.items() if file.home in deleted_from)
        if worn and rng.random() < 0.6:
            paths = frozenset({rng.choice(worn)})
        if rng.random() < 0.6:
            homes = {parent.data_files[path].home for path in paths}
            paths = frozenset(path for path, file in parent.data_files.items() if file.home in homes)
        gone = [row.id for p in paths for _, row in parent.visible[p]]
        return Edit(Operation.DELETE, without(gone), removed=paths)

    return engine.commit(decide)


def overwrite(world: World, engine: ForeignEngine, rng: random.Random) -> bool:
    """Replace whole data files by new rows of the same partition, in one snapshot."""
    rows = world.new_rows(rng, rng.randrange(1, 4))

    def decide(table: Table, parent: Photograph | None) -> Edit | None:
        spec = table.spec()
        now = [p for p, f in parent.data_files.items() if f.home[0] == spec.spec_id] if parent else []
        if parent is None or not now:
            return None
        first = rng.choice(sorted(now))
        home = parent.data_files[first].home
        known = table.schema().field_ids
        part = (lambda row: home[1][0]) if home[1] else (lambda row: row.part)
        new = [Row(r.id, r.key, part(r), r.extras).within(known) for r in rows]  # type: ignore[arg-type]
        gone = {row.id for _, row in parent.visible[first]}

        def intent(old: ModelRows) -> ModelRows:
            return {**{i: r for i, r in old.items() if i not in gone}, **{r.id: (r, home) for r in new}}

        return Edit(Operation.OVERWRITE, intent, added=[engine.data_file(table, new)], removed=frozenset({first}))

    return engine.commit(decide)


def rewrite_manifests(world: World, engine: ForeignEngine, rng: random.Random) -> bool:
    """Put all entries into new manifests: inputs stay live although the manifests that listed them are gone."""

    def decide(table: Table, parent: Photograph | None) -> Edit | None:
        if parent is None or not parent.data_files:
            return None
        return Edit(Operation.REPLACE, lambda rows: rows, rewrite_manifests=True)

    return engine.commit(decide)


def change_schema(world: World, engine: ForeignEngine, rng: random.Random) -> bool:
    """Add a column, drop one, or go back to an earlier schema (which brings a dropped column back)."""
    choice = rng.random()

    def make(table: Table) -> tuple[tuple[object, ...], tuple[object, ...]] | None:
        metadata = table.metadata
        fields = list(metadata.schema().fields)
        extras = [f for f in fields if f.field_id > PART]
        others = [s.schema_id for s in metadata.schemas if s.schema_id != metadata.current_schema_id]
        asserted = (
            AssertTableUUID(uuid=metadata.table_uuid),
            AssertCurrentSchemaId(current_schema_id=metadata.current_schema_id),
        )
        if choice < 0.3 and others:
            return asserted, (SetCurrentSchemaUpdate(schema_id=rng.choice(others)),)
        if choice < 0.6 and extras:
            fields.remove(rng.choice(extras))
        else:
            new_id = metadata.last_column_id + 1
            fields.append(NestedField(new_id, f"c{new_id}", LongType(), required=False))
        schema = Schema(*fields, schema_id=max(s.schema_id for s in metadata.schemas) + 1)
        return asserted, (AddSchemaUpdate(schema=schema), SetCurrentSchemaUpdate(schema_id=-1))

    return engine.update(make)


def drop_and_return(world: World, engine: ForeignEngine, rng: random.Random) -> bool:
    """Drop a column, and go back to the schema that had it: a little later, or while files that the service wrote for
    the columns in between await their commit."""
    before: list[int] = []

    def drop(table: Table) -> tuple[tuple[object, ...], tuple[object, ...]] | None:
        metadata = table.metadata
        fields = list(metadata.schema().fields)
        extras = [f for f in fields if f.field_id > PART]
        if not extras:
            return None
        before[:] = [metadata.current_schema_id]
        fields.remove(rng.choice(extras))
        schema = Schema(*fields, schema_id=max(s.schema_id for s in metadata.schemas) + 1)
        asserted = (
            AssertTableUUID(uuid=metadata.table_uuid),
            AssertCurrentSchemaId(current_schema_id=metadata.current_schema_id),
        )
        return asserted, (AddSchemaUpdate(schema=schema), SetCurrentSchemaUpdate(schema_id=-1))

    if not engine.update(drop):
        return False
    written = world.outputs_waiting()
    for _ in range(rng.randrange(60)):
        engine.wait()
        if world.outputs_waiting() - written and rng.random() < 0.15:
            break
    asserted = (AssertTableUUID(uuid=world.server.metadata.table_uuid),)
    return engine.update(lambda table: (asserted, (SetCurrentSchemaUpdate(schema_id=before[0]),)))


def change_spec(world: World, engine: ForeignEngine, rng: random.Random) -> bool:
    """Switch between a spec by partition and one without."""

    def make(table: Table) -> tuple[tuple[object, ...], tuple[object, ...]]:
        metadata = table.metadata
        wanted = not metadata.spec().fields
        known = [i for i, spec in metadata.specs().items() if bool(spec.fields) == wanted]
        asserted = (
            AssertTableUUID(uuid=metadata.table_uuid),
            AssertDefaultSpecId(default_spec_id=metadata.default_spec_id),
        )
        if known:
            return asserted, (SetDefaultSpecUpdate(spec_id=known[0]),)
        field = PartitionField(source_id=PART, field_id=1000, transform=IdentityTransform(), name="p")
        spec = PartitionSpec(*([field] if wanted else []), spec_id=max(metadata.specs()) + 1)
        return asserted, (AddPartitionSpecUpdate(spec=spec), SetDefaultSpecUpdate(spec_id=-1))

    return engine.update(make)


def tag(world: World, engine: ForeignEngine, rng: random.Random) -> bool:
    return _make_ref(engine, rng, f"tag-{rng.randrange(1000)}", SnapshotRefType.TAG)


def branch(world: World, engine: ForeignEngine, rng: random.Random) -> bool:
    return _make_ref(engine, rng, BRANCH, SnapshotRefType.BRANCH)


def branch_off(world: World, engine: ForeignEngine, rng: random.Random) -> bool:
    """Make the branch where main is."""

    def make(table: Table) -> Updates | None:
        head = table.metadata.current_snapshot_id
        if head is None or BRANCH in table.metadata.refs:
            return None
        return _asserted(table.metadata, BRANCH), (_put(BRANCH, head),)

    return engine.update(make)


def move_branch(world: World, engine: ForeignEngine, rng: random.Random) -> bool:
    """Put the branch on another snapshot that the table has, as often as not on the one before."""

    def make(table: Table) -> Updates | None:
        metadata = table.metadata
        at = tip(metadata, BRANCH)
        others = [s.snapshot_id for s in metadata.snapshots if s.snapshot_id != at]
        if at is None or not others:
            return None
        head = metadata.snapshot_by_id(at)
        before = head.parent_snapshot_id if head is not None else None
        chosen = before if before in others and rng.random() < 0.5 else rng.choice(others)
        return _asserted(metadata, BRANCH), (_put(BRANCH, chosen),)

    return engine.update(make)


def fast_forward(world: World, engine: ForeignEngine, rng: random.Random) -> bool:
    """Put main where the branch is, if the branch goes on from main."""

    def make(table: Table) -> Updates | None:
        metadata = table.metadata
        head, at = tip(metadata, "main"), tip(metadata, BRANCH)
        behind, parents = at, {s.snapshot_id: s.parent_snapshot_id for s in metadata.snapshots}
        while behind is not None and behind != head:
            behind = parents.get(behind)
        if behind is None or at is None or at == head:
            return None
        asserted = (*_asserted(metadata, "main"), AssertRefSnapshotId(ref=BRANCH, snapshot_id=at))
        return asserted, (_put("main", at),)

    return engine.update(make)


def _make_ref(engine: ForeignEngine, rng: random.Random, name: str, kind: SnapshotRefType) -> bool:
    def make(table: Table) -> tuple[tuple[object, ...], tuple[object, ...]] | None:
        metadata = table.metadata
        if not metadata.snapshots or name in metadata.refs:
            return None
        chosen = rng.choice(metadata.snapshots[: rng.choice((2, 2, len(metadata.snapshots)))]).snapshot_id
        asserted = (AssertTableUUID(uuid=metadata.table_uuid), AssertRefSnapshotId(ref=name, snapshot_id=None))
        return asserted, (SetSnapshotRefUpdate(ref_name=name, type=kind, snapshot_id=chosen),)

    return engine.update(make)


def drop_ref(world: World, engine: ForeignEngine, rng: random.Random) -> bool:
    def make(table: Table) -> tuple[tuple[object, ...], tuple[object, ...]] | None:
        names = sorted(n for n in table.metadata.refs if n != "main")
        if not names:
            return None
        asserted = (AssertTableUUID(uuid=table.metadata.table_uuid),)
        return asserted, (RemoveSnapshotRefUpdate(ref_name=rng.choice(names)),)

    return engine.update(make)


def roll_back(world: World, engine: ForeignEngine, rng: random.Random) -> bool:
    """Set main to another snapshot that the table still has, as often as not to the one before."""

    def make(table: Table) -> tuple[tuple[object, ...], tuple[object, ...]] | None:
        metadata = table.metadata
        others = [s.snapshot_id for s in metadata.snapshots if s.snapshot_id != metadata.current_snapshot_id]
        if not others:
            return None
        asserted = (
            AssertTableUUID(uuid=metadata.table_uuid),
            AssertRefSnapshotId(ref="main", snapshot_id=metadata.current_snapshot_id),
        )
        awaited = [late.base_id for late in world.server.late if late.ref == "main" and late.base_id in others]
        if awaited and rng.random() < 0.6:  # back to what a request that is still under way was made on
            return asserted, (_main_to(rng.choice(awaited)),)
        head = metadata.current_snapshot()
        before = head.parent_snapshot_id if head is not None else None
        chosen = before if before in others and rng.random() < 0.5 else rng.choice(others[-4:])
        return asserted, (_main_to(chosen),)

    return engine.update(make)


def returnable(server: Server) -> list[Late]:
    """Return the requests under way whose branch is still on what they were made on."""
    return [late for late in server.late if late.base_id is not None and late.base_id == tip(server.metadata, late.ref)]


def there_and_back(world: World, engine: ForeignEngine, rng: random.Random) -> bool:
    """Put a branch elsewhere, or drop it, and later put it back where it was: no sequence number is taken by that.

    Preferably while a request that was made there is under way: it comes when its sender has answered and all is back.
    """
    waiting = returnable(world.server)
    late = rng.choice(waiting) if waiting else None
    ref = late.ref if late is not None else "main"
    drops = ref != "main" and rng.random() < 0.5
    was: list[int] = []

    def away(table: Table) -> Updates | None:
        metadata = table.metadata
        at = tip(metadata, ref)
        others = [s.snapshot_id for s in metadata.snapshots if s.snapshot_id != at]
        if at is None or not (others or drops):
            return None
        was[:] = [at]
        if drops:
            return _asserted(metadata, ref), (RemoveSnapshotRefUpdate(ref_name=ref),)
        head = metadata.snapshot_by_id(at)
        before = head.parent_snapshot_id if head is not None else None
        chosen = before if before in others and rng.random() < 0.7 else rng.choice(others[-4:])
        return _asserted(metadata, ref), (_put(ref, chosen),)

    def back(table: Table) -> Updates | None:
        metadata = table.metadata
        if metadata.snapshot_by_id(was[0]) is None:  # expired meanwhile
            return None
        return _asserted(metadata, ref), (_put(ref, was[0]),)

    if late is None:
        return engine.update(away) and engine.update(back)
    late.is_held = True
    try:
        if not engine.update(away):
            return False
        waits, wait_ms = rng.choice(((60, 2_000), (60, 2_000), (rng.randrange(60), 50)))
        for _ in range(waits):
            if late.sender.state is not State.READY:
                break
            engine.wait(wait_ms)
        is_back = engine.update(back)
        late.is_due = is_back
        return is_back
    finally:
        late.is_held = False


def _asserted(metadata: TableMetadata, ref: str) -> tuple[object, ...]:
    at = AssertRefSnapshotId(ref=ref, snapshot_id=tip(metadata, ref))
    return AssertTableUUID(uuid=metadata.table_uuid), at


def _main_to(snapshot_id: int) -> SetSnapshotRefUpdate:
    return _put("main", snapshot_id)


def _put(ref: str, snapshot_id: int) -> SetSnapshotRefUpdate:
    return SetSnapshotRefUpdate(ref_name=ref, type=SnapshotRefType.BRANCH, snapshot_id=snapshot_id)
