"""A MERGE by another engine: data files and deletes of both kinds in one snapshot, under one sequence number."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation

from tests.system.simulation.auditor import ModelRows
from tests.system.simulation.foreign import Edit, ForeignEngine, delete_file, exact_bounds
from tests.system.simulation.photograph import Home, Photograph
from tests.system.simulation.rows import Row, encode_keys, encode_positions

if TYPE_CHECKING:
    from tests.system.simulation.world import World


def merge(world: World, engine: ForeignEngine, rng: random.Random) -> bool:
    """Add rows, and delete in the same snapshot: keys of older rows, and places, in older files or in the new one.

    A position delete applies to data files of its own sequence number too, an equality delete to older ones only.
    """
    drawn = world.new_rows(rng, rng.randrange(1, 6))
    with_keys, with_places = rng.choice(((True, False), (False, True), (True, True)))
    shape = rng.random()

    def decide(table: Table, parent: Photograph | None) -> Edit | None:
        if parent is None or table.metadata.format_version == 1:
            return None
        spec = table.spec()
        home: Home = (spec.spec_id, (drawn[0].part,) if spec.fields else ())
        rows = [Row(r.id, r.key, drawn[0].part, r.extras).within(table.schema().field_ids) for r in drawn]
        new = engine.data_file(table, rows)
        added, gone = [new], set[int]()
        if with_places:
            places = _places(rng, parent, home, new.file_path, rows)
            added.append(_positions(engine, table, home, {p: [at for at, _ in found] for p, found in places.items()}))
            gone = {i for found in places.values() for _, i in found}
        keys = {r.key for r in rows} if with_keys else set[int | None]()
        if keys:
            data = encode_keys(keys)
            path = engine.put(table, "keys.parquet", data)
            kind = DataFileContent.EQUALITY_DELETES
            added.append(delete_file(kind, path, home, len(keys), len(data), equality_ids=[2]))
        everywhere = not spec.fields

        def intent(old: ModelRows) -> ModelRows:
            kept = {i: r for i, r in old.items() if not (r[0].key in keys and (everywhere or r[1] == home))}
            return {i: r for i, r in {**kept, **{r.id: (r, home) for r in rows}}.items() if i not in gone}

        return Edit(Operation.OVERWRITE, intent, added=added)

    def _places(
        rng: random.Random, parent: Photograph, home: Home, new: str, rows: list[Row]
    ) -> dict[str, list[tuple[int, int]]]:
        """Path -> (position, row id): of the new file, of an older one of the same partition, or of both."""
        older = sorted(p for p, found in parent.visible.items() if found and parent.data_files[p].home == home)
        found = {new: [(at, rows[at].id) for at in rng.sample(range(len(rows)), 1)]}
        if older and shape < 0.7:
            path = rng.choice(older)
            some = rng.sample(parent.visible[path], rng.randrange(1, len(parent.visible[path]) + 1))
            found = {**(found if shape < 0.3 else {}), path: [(at, row.id) for at, row in some]}
        return found

    return engine.commit(decide)


def _positions(engine: ForeignEngine, table: Table, home: Home, named: dict[str, list[int]]) -> DataFile:
    only = next(iter(named)) if len(named) == 1 else None
    data = encode_positions(named, as_parquet=only is None)
    path = engine.put(table, "positions.parquet", data)
    count = sum(len(at) for at in named.values())
    bounds = exact_bounds(only, only) if only is not None else {}
    return delete_file(DataFileContent.POSITION_DELETES, path, home, count, len(data), **bounds)
