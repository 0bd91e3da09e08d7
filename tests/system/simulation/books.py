"""What a snapshot's manifest list and manifests say of themselves, held against their entries, the parent and the rows.

Read by `avro.py` from the bytes alone: what a reader of the service forgives or fills in is seen here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from tests.system.simulation import avro
from tests.system.simulation.photograph import Broken
from tests.system.simulation.rows import PART, decode
from tests.system.simulation.store import ObjectStore

EXISTING, ADDED, DELETED = 0, 1, 2
EQUALITY_IDS_ELEMENT = 136
UNCHANGED = (
    "manifest_length",
    "partition_spec_id",
    "content",
    "added_snapshot_id",
    "partitions",
    "key_metadata",
    "sequence_number",
    "min_sequence_number",
    *(f"{status}_{what}_count" for status in ("added", "existing", "deleted") for what in ("files", "rows")),
)
"""Of a manifest that is carried over."""
COUNTS = {"added": ADDED, "existing": EXISTING, "deleted": DELETED}

Entry = dict[str, Any]


@dataclass(frozen=True)
class Fact:
    """A live file: where it comes from, by whatever its entry says or inherits, and all that its entry says of it."""

    snapshot_id: int
    sequence_number: int
    file_sequence_number: int
    spec_id: int
    data_file: Mapping[str, Any]


@dataclass
class Book:
    """The manifests and live files of one snapshot, and the files that left with it."""

    manifests: dict[str, Entry] = field(default_factory=dict)
    live: dict[str, Fact] = field(default_factory=dict)
    gone: dict[str, Fact] = field(default_factory=dict)


def audit(
    snapshot: Snapshot, metadata: TableMetadata, parent: Book | None, store: ObjectStore, *, is_ours: bool
) -> Book:
    """Read and judge one new snapshot. Errors: Broken."""
    before = parent or Book()
    book = Book()
    number = (snapshot.sequence_number or 0) if metadata.format_version > 1 else 0
    listed = avro.read(store.get(snapshot.manifest_list))
    _check_list_head(snapshot, listed.meta, number)
    for said in listed.records:
        path = said["manifest_path"]
        if path in book.manifests:
            raise Broken(f"{path} is listed twice")
        book.manifests[path] = said
        manifest = avro.read(store.get(path))
        is_new = path not in before.manifests
        if is_new:
            _check_new(said, snapshot, number, len(store.get(path)))
            _check_head(manifest, said, is_ours=is_ours)
        else:
            _check_carried(said, before.manifests[path])
        _check_counts(said, manifest.records)
        _check_partitions(said, manifest.records, metadata)
        _enter(book, said, manifest.records, is_new=is_new)
    _check_movement(book, before, snapshot.snapshot_id, number)
    for path in book.live.keys() - before.live.keys():
        _check_rows(path, book.live[path].data_file, store)
    if is_ours and snapshot.summary is not None:
        _check_summary(book, before, snapshot.summary.additional_properties)
    return book


def _enter(book: Book, said: Entry, entries: Iterable[Entry], *, is_new: bool) -> None:
    inherited = said.get("sequence_number") or 0
    numbers = []
    for entry in entries:
        path = entry["data_file"]["file_path"]
        is_added = entry["status"] == ADDED
        for name in ("snapshot_id", "sequence_number", "file_sequence_number") if inherited else ():
            if entry[name] is None and not is_added:
                raise Broken(f"{path} in {said['manifest_path']} has no {name}, and is not ADDED")
        fact = Fact(
            snapshot_id=said["added_snapshot_id"] if entry["snapshot_id"] is None else entry["snapshot_id"],
            sequence_number=_or(entry.get("sequence_number"), inherited),
            file_sequence_number=_or(entry.get("file_sequence_number"), inherited),
            spec_id=said["partition_spec_id"],
            data_file=_said(entry["data_file"]),
        )
        if is_added and fact.snapshot_id != said["added_snapshot_id"]:
            raise Broken(f"{path} is ADDED by {fact.snapshot_id} in a manifest of {said['added_snapshot_id']}")
        if is_added and fact.file_sequence_number != inherited:
            raise Broken(f"{path} is ADDED with file sequence number {fact.file_sequence_number}, not {inherited}")
        if entry["status"] != DELETED:
            numbers.append(fact.sequence_number)
            book.live[path] = fact
        elif is_new:
            book.gone[path] = fact
    least = said.get("min_sequence_number") or 0
    if numbers and least != min(numbers):
        raise Broken(f"{said['manifest_path']}: min sequence number {least}, and its entries have {min(numbers)}")


def _said(data_file: Entry) -> Entry:
    """What an entry says, whatever the format version of its manifest: v2 has no block size, v1 no content."""
    return {n: v for n, v in data_file.items() if v is not None and n != "block_size_in_bytes"} | {
        "content": data_file.get("content") or 0
    }


def _or(value: int | None, otherwise: int) -> int:
    return otherwise if value is None else value


def _check_list_head(snapshot: Snapshot, meta: Mapping[str, str], number: int) -> None:
    parent = "null" if snapshot.parent_snapshot_id is None else str(snapshot.parent_snapshot_id)
    expected = {"snapshot-id": str(snapshot.snapshot_id), "sequence-number": str(number)}
    wrong = {n: (meta[n], v) for n, v in expected.items() if meta.get(n, v) != v}
    if wrong:
        raise Broken(f"{snapshot.manifest_list} says of itself {wrong}; its parent is {parent}")


def _check_new(said: Entry, snapshot: Snapshot, number: int, size: int) -> None:
    path = said["manifest_path"]
    found = (said["added_snapshot_id"], said.get("sequence_number") or 0, said["manifest_length"])
    if found != (snapshot.snapshot_id, number, size):
        raise Broken(f"{path}: snapshot, number and bytes {found}, not {(snapshot.snapshot_id, number, size)}")


def _check_carried(now: Entry, then: Entry) -> None:
    changed = [n for n in UNCHANGED if (now.get(n) or None) != (then.get(n) or None)]  # v1 leaves out what v2 says is 0
    if changed:
        raise Broken(f"{now['manifest_path']} was carried over, and its list says another {changed[0]}")


def _check_head(manifest: avro.AvroFile, said: Entry, *, is_ours: bool) -> None:
    """What a manifest says of itself, and the one element type that Iceberg Java casts without looking."""
    content = "deletes" if said.get("content") else "data"
    if manifest.meta.get("content", "data") != content:
        raise Broken(f"{said['manifest_path']} calls itself {manifest.meta.get('content')}, its list {content}")
    if manifest.meta.get("partition-spec-id") != str(said["partition_spec_id"]):
        raise Broken(f"{said['manifest_path']} is of spec {manifest.meta.get('partition-spec-id')}")
    element = avro.field(manifest.schema, EQUALITY_IDS_ELEMENT)
    if is_ours and element not in (None, "int"):
        raise Broken(f"{said['manifest_path']} has equality_ids of {element}; the specification says int")


def _check_counts(said: Entry, entries: Iterable[Entry]) -> None:
    by_status = {
        status: [e["data_file"]["record_count"] for e in entries if e["status"] == status]
        for status in (EXISTING, ADDED, DELETED)
    }
    for name, status in COUNTS.items():
        counted = (len(by_status[status]), sum(by_status[status]))
        found = (said[f"{name}_files_count"], said[f"{name}_rows_count"])
        if found != counted:
            raise Broken(f"{said['manifest_path']}: {name} files and rows {found}, and its entries are {counted}")


def _check_partitions(said: Entry, entries: Iterable[Entry], metadata: TableMetadata) -> None:
    fields = metadata.specs()[said["partition_spec_id"]].fields
    summaries = said["partitions"] or []
    if len(summaries) != len(fields):
        raise Broken(f"{said['manifest_path']} has {len(summaries)} partition summaries for {len(fields)} fields")
    for at, summary in enumerate(summaries):
        values = [list(e["data_file"]["partition"].values())[at] for e in entries]
        known = [v for v in values if v is not None]
        bounds = tuple(struct.pack("<i", v) for v in (min(known), max(known))) if known else (None, None)
        found = (summary["contains_null"], summary["lower_bound"], summary["upper_bound"])
        if found != (None in values, *bounds):
            raise Broken(f"{said['manifest_path']}: partitions {found}, and its entries have {values}")


def _check_movement(book: Book, before: Book, snapshot_id: int, number: int) -> None:
    """Every file that comes or leaves has its entry; whatever stays is what it was, in every field."""
    for path in before.live.keys() & book.live.keys():
        if before.live[path] != book.live[path]:
            raise Broken(f"{path} is not what it was: {_difference(before.live[path], book.live[path])}")
    for path in book.live.keys() - before.live.keys():
        fact = book.live[path]
        if (fact.snapshot_id, fact.file_sequence_number) != (snapshot_id, number):
            raise Broken(f"{path} came with {snapshot_id}, number {number}, and says {fact}")
        if fact.sequence_number > number:
            raise Broken(f"{path} is of sequence number {fact.sequence_number}, after that of its snapshot, {number}")
    left = before.live.keys() - book.live.keys()
    if left != book.gone.keys():
        raise Broken(f"left without an entry, or with one that did not leave: {sorted(left ^ book.gone.keys())[:3]}")
    for path in left:
        then, now = before.live[path], book.gone[path]
        if now != replace(then, snapshot_id=snapshot_id):
            raise Broken(f"{path} left as another than it was: {_difference(then, now)}")


def _difference(then: Fact, now: Fact) -> dict[str, Any]:
    fields = {n: (getattr(then, n), getattr(now, n)) for n in Fact.__dataclass_fields__ if n != "data_file"}
    fields |= {n: (then.data_file.get(n), now.data_file.get(n)) for n in {**then.data_file, **now.data_file}}
    return {name: pair for name, pair in fields.items() if pair[0] != pair[1]}


def _check_rows(path: str, data_file: Mapping[str, Any], store: ObjectStore) -> None:
    """Counts and bounds of a new data file against its rows: a bound that is too narrow hides rows from readers."""
    if data_file.get("content"):
        return
    rows = decode(store.get(path))
    counts, nulls, lower, upper = (
        {pair["key"]: pair["value"] for pair in data_file[name] or ()}
        for name in ("value_counts", "null_value_counts", "lower_bounds", "upper_bounds")
    )
    for field_id, count in counts.items():
        known = [v for row in rows if (v := row.value(field_id)) is not None]
        if (count, nulls.get(field_id)) != (len(rows), len(rows) - len(known)):
            raise Broken(f"{path}: column {field_id} has {count} values, {nulls.get(field_id)} nulls by its entry")
        bounds = [b[field_id] for b in (lower, upper) if field_id in b]
        form = "<i" if field_id == PART else "<q"
        if known and bounds != [struct.pack(form, v) for v in (min(known), max(known))]:
            raise Broken(f"{path}: column {field_id} has bounds {bounds}, and its values are {known}")


def _check_summary(book: Book, before: Book, summary: Mapping[str, str]) -> None:
    """What a summary of ours says was added and removed is what was."""
    added = [book.live[p].data_file for p in book.live.keys() - before.live.keys()]
    removed = [f.data_file for f in book.gone.values()]
    counted = {}
    for word, files, of_data in (("added", added, "added"), ("removed", removed, "deleted")):
        data, deletes = [f for f in files if not f.get("content")], [f for f in files if f.get("content")]
        counted[f"{of_data}-data-files"] = len(data)
        counted[f"{of_data}-records"] = sum(f["record_count"] for f in data)
        counted[f"{word}-delete-files"] = len(deletes)
        counted[f"{word}-files-size"] = sum(f["file_size_in_bytes"] for f in files)
        for kind, content in (("position", 1), ("equality", 2)):
            counted[f"{word}-{kind}-deletes"] = sum(f["record_count"] for f in deletes if f["content"] == content)
    wrong = {n: (summary.get(n, "0"), c) for n, c in counted.items() if int(summary.get(n, "0")) != c}
    if wrong:
        raise Broken(f"the summary says {wrong}")
