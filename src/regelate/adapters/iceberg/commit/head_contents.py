"""What maintenance asks of a head: its manifests in short, its dangling delete files, its entries in order."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import ManifestContent, ManifestEntryStatus, ManifestFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import PrimitiveType, UnknownType

from regelate.adapters.iceberg.commit.manifest_writing import ManifestFiles, known_schemas
from regelate.adapters.iceberg.commit.removal import with_status
from regelate.adapters.iceberg.manifests import ManifestReader
from regelate.adapters.iceberg.metadata.entry_order import SortedEntries
from regelate.adapters.iceberg.metadata.manifest_schema import partition_type
from regelate.adapters.iceberg.metadata.tasks import Entries
from regelate.core.table.deletes import DeleteIndex
from regelate.core.upkeep.manifests import Edge, ManifestGroup, ManifestSummary
from regelate.errors import InvariantViolated

FIRST: Edge = (-1, None)
LAST: Edge = (1, None)


def manifest_summaries(
    metadata: TableMetadata, manifests: Sequence[ManifestFile], unreadable: Collection[str]
) -> tuple[ManifestSummary, ...]:
    """Describe manifests by what their list says of them, and those that Java cannot read (by path) as such."""
    return tuple(_summary(metadata, manifest, manifest.manifest_path in unreadable) for manifest in manifests)


def _summary(metadata: TableMetadata, manifest: ManifestFile, unreadable: bool) -> ManifestSummary:
    lower, upper = _range(metadata, manifest)
    return ManifestSummary(
        path=manifest.manifest_path,
        holds_deletes=manifest.content == ManifestContent.DELETES,
        spec_id=manifest.partition_spec_id,
        size_bytes=manifest.manifest_length,
        live_entries=(manifest.added_files_count or 0) + (manifest.existing_files_count or 0),
        dead_entries=manifest.deleted_files_count or 0,
        lower=lower,
        upper=upper,
        unreadable=unreadable,
    )


def _range(metadata: TableMetadata, manifest: ManifestFile) -> tuple[Edge | None, Edge | None]:
    """Return the range of the first partition field. Nulls come first and NaN last, as `SortedEntries` has them."""
    spec = metadata.specs()[manifest.partition_spec_id]
    if not spec.fields or not manifest.partitions:
        return None, None
    found = manifest.partitions[0]
    kind = partition_type(spec, known_schemas(metadata)).fields[0].field_type
    if not isinstance(kind, PrimitiveType) or isinstance(kind, UnknownType):
        return None, None
    low = None if found.lower_bound is None else from_bytes(kind, found.lower_bound)
    high = None if found.upper_bound is None else from_bytes(kind, found.upper_bound)
    lower = FIRST if found.contains_null else LAST if low is None else (0, low)
    upper = LAST if found.contains_nan else FIRST if high is None else (0, high)
    return lower, upper


def dangling_deletes(entries: Entries, manifests: Sequence[ManifestFile]) -> frozenset[str]:
    """Return the live delete files that apply to no live data file of these manifests. Data files are streamed."""
    index = DeleteIndex(entries.delete_files(manifests))
    if not index.references:
        return frozenset()
    for _, data_file in entries.data_files(manifests):
        index.applicable(data_file)
    return frozenset(path for path, count in index.references.items() if not count)


def write_group(
    files: ManifestFiles, reader: ManifestReader, listed: Mapping[str, ManifestFile], group: ManifestGroup
) -> list[ManifestFile]:
    """Write the live entries of a group anew, sorted by partition; snapshot ids and sequence numbers stay.

    Errors: InvariantViolated MANIFEST_NOT_LISTED, ENTRIES_LOST when not every entry came through.
    """
    missing = [path for path in group.paths if path not in listed]
    if missing:
        raise InvariantViolated("MANIFEST_NOT_LISTED", f"a manifest to rewrite is not in the head: {missing[0]}")
    content = ManifestContent.DELETES if group.holds_deletes else ManifestContent.DATA
    members = [listed[path] for path in group.paths]
    entries = SortedEntries(lambda: (e for m in members for e in reader.entries(files.io, m)))
    outputs = [
        manifest
        for part in entries.parts(group.outputs)
        for manifest in files.write_one(
            content, group.spec_id, (with_status(e, ManifestEntryStatus.EXISTING) for e in part)
        )
    ]
    written = sum(m.existing_files_count or 0 for m in outputs)
    if written != len(entries) or len(entries) != group.entries:
        raise InvariantViolated(
            "ENTRIES_LOST", f"{group.entries} entries were planned, {len(entries)} read and {written} written"
        )
    return outputs
