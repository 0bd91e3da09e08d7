"""Is everything in order when all is quiet? Compacted to rest, swept clean, and every snapshot as it was."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyiceberg.table.metadata import TableMetadataUtil

from regelate.adapters.iceberg.manifests import ManifestReader
from regelate.operations.compacting.compact import CompactOutcome, Status
from regelate.operations.upkeep.sweep import SweptTable
from tests.system.simulation.auditor import OWN_FOLDER, all_statistics
from tests.system.simulation.catalog import CatalogKind
from tests.system.simulation.jobs import judge_jobs
from tests.system.simulation.photograph import Broken, photograph
from tests.system.simulation.service import PLAIN
from tests.system.simulation.session import Request
from tests.system.simulation.store import PlainIO

if TYPE_CHECKING:
    from tests.system.simulation.world import World

METADATA = ".metadata.json"
QUARANTINE = "/regelate/quarantine/"
ROUNDS = 4
LONGER_THAN_ANYTHING_HOURS = 72


def judge_end(world: World) -> None:
    judge_jobs(world)
    for number in range(ROUNDS):
        answer = world.request("compact", Request(f"last-{number}", f"{world.seed}/last", policy=PLAIN))
        assert isinstance(answer, CompactOutcome)
        if answer.status is Status.NOTHING_TO_DO:
            break
    else:
        raise Broken(f"still something to compact after {ROUNDS} rounds: law 11")
    world.pass_hours(LONGER_THAN_ANYTHING_HOURS)
    if world.may_delete:
        _sweep(world)
        _remove_orphans(world)
    _read_again(world)


def _sweep(world: World) -> None:
    """After the longest run and every grace, a sweep leaves nothing of a run that did not land (law 9)."""
    swept = world.request("sweep", Request("last-sweep", f"{world.seed}/last-sweep"))
    assert isinstance(swept, SweptTable)
    if swept.error is not None:
        raise Broken(f"in quiet weather a sweep answered {swept.error!r}") from swept.error
    left = [path for maker in sorted(world.ours) for path in world.auditor.unreferenced(maker)]
    left += [path for path in world.store.objects if OWN_FOLDER in path and path.endswith(".json")]
    once = world.auditor.ever_referenced.intersection(world.store.objects) - world.store.undeleted
    if not any(QUARANTINE in path for path in world.store.torn):  # what such a list named waits for the orphan removal
        left += sorted(once - _needed(world))
    left += sorted(world.store.uploads)
    if left:
        raise Broken(f"a sweep left {left[:3]} behind: law 9")


def _remove_orphans(world: World) -> None:
    """What other engines left lying about goes as well: then the store holds what the table is made of, and no more."""
    world.request("orphans", Request("last-orphans", "0"))
    needed = _needed(world)
    stored = {path for path in world.store.objects if not path.endswith(METADATA)}
    if needed != stored:
        raise Broken(f"the table is {sorted(needed - stored)[:3]} short, and {sorted(stored - needed)[:3]} too many")


def _needed(world: World) -> set[str]:
    photographs, metadata = world.auditor.photographs, world.server.metadata
    needed = {path for s in metadata.snapshots for path in photographs[s.snapshot_id].paths}
    return needed | all_statistics(metadata)


def _read_again(world: World) -> None:
    server, auditor, io = world.server, world.auditor, PlainIO(world.store)
    metadata = TableMetadataUtil.parse_raw(world.store.get(server.location).decode())
    if metadata != server.metadata:
        raise Broken("the metadata in the store is not what the catalog says")
    named = {ref.snapshot_id for ref in metadata.refs.values()}
    kept = [s for s in metadata.snapshots if s.snapshot_id in named or server.kind is not CatalogKind.HEAD_ONLY]
    reader = ManifestReader()
    for snapshot in kept:
        again = photograph(metadata, snapshot, world.store, io, reader)
        before = auditor.photographs[snapshot.snapshot_id]
        if again.visible != before.visible or again.paths != before.paths:
            raise Broken(f"snapshot {snapshot.snapshot_id} is not what it was")
    head = metadata.current_snapshot()
    if head is not None:
        seen = auditor.photographs[head.snapshot_id]
        native = {
            (entry.data_file.file_path, entry.sequence_number)
            for manifest in head.manifests(io)
            for entry in manifest.fetch_manifest_entry(io, discard_deleted=True)
        }
        ours = {(f.path, f.sequence_number) for f in (*seen.data_files.values(), *seen.delete_files.values())}
        if native != ours:
            raise Broken(f"PyIceberg reads another table: {sorted(native ^ ours)[:3]}")
