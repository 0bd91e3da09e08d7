"""What expiry finds unreachable, held against the plain rule: read everything that is kept (law 10)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.manifest import ManifestEntryStatus

from regelate.adapters.iceberg.cleanup.reach import Reach
from regelate.adapters.iceberg.metadata.byte_cache import ReachMemory

LIVE, DEAD = ManifestEntryStatus.EXISTING, ManifestEntryStatus.DELETED


class Tables:
    """Manifests and lists of a made-up table; a reader of them that counts what it reads."""

    def __init__(self, manifests: dict[str, dict[str, bool]], lists: dict[str, list[str]], limit_bytes: int) -> None:
        self.contents, self.lists = manifests, lists
        self.reach = ReachMemory(limit_bytes)
        self.reads: list[str] = []

    def manifests(self, io: object, manifest_list: str) -> tuple[Any, ...]:
        self.reads.append(manifest_list)
        return tuple(SimpleNamespace(manifest_path=m, manifest_length=7) for m in self.lists[manifest_list])

    def all_entries(self, io: object, manifest: Any) -> Iterator[Any]:
        self.reads.append(manifest.manifest_path)
        for path, live in self.contents[manifest.manifest_path].items():
            file = SimpleNamespace(file_path=path, file_size_in_bytes=1)
            yield SimpleNamespace(data_file=file, status=LIVE if live else DEAD)

    def entries(self, io: object, manifest: Any) -> tuple[Any, ...]:
        return tuple(e for e in self.all_entries(io, manifest) if e.status == LIVE)

    def reached(self, snapshots: Iterable[Any]) -> set[str]:
        """The plain rule."""
        found: set[str] = set()
        for snapshot in snapshots:
            named = self.lists[snapshot.manifest_list]
            found |= {snapshot.manifest_list, *named}
            found |= {path for m in named for path, live in self.contents[m].items() if live}
        return found


def snapshot(number: int) -> Any:
    return SimpleNamespace(
        snapshot_id=number, sequence_number=number, timestamp_ms=number, manifest_list=f"s/snap-{number}.avro"
    )


def table(kept: list[Any]) -> Any:
    metadata = SimpleNamespace(
        snapshots=kept,
        metadata_log=[SimpleNamespace(metadata_file="s/0.json")],
        statistics=[],
        partition_statistics=[],
        current_snapshot=lambda: kept[-1] if kept else None,
    )
    return SimpleNamespace(metadata=metadata, metadata_location="s/1.json", io=None)


@st.composite
def histories(draw: st.DrawFn) -> tuple[Tables, list[Any], list[Any]]:
    """Any history at all, files that come back and lists that share nothing with their parents included."""
    files = [f"s/f{n}" for n in range(6)]
    contents = st.dictionaries(st.sampled_from(files), st.booleans(), max_size=4)
    manifests = {f"s/m{n}": draw(contents) for n in range(draw(st.integers(1, 8)))}
    snapshots = [snapshot(n) for n in range(1, draw(st.integers(2, 10)) + 1)]
    named = st.lists(st.sampled_from(sorted(manifests)), unique=True, max_size=4)
    lists = {s.manifest_list: draw(named) for s in snapshots}
    gone = [s for s in snapshots if draw(st.booleans())]
    kept = [s for s in snapshots if s not in gone]
    return Tables(manifests, lists, draw(st.sampled_from([0, 4_000, 1 << 20]))), kept, gone


@given(histories(), st.booleans())
def test_what_is_deleted_is_what_nothing_kept_reaches_whatever_the_history(
    history: tuple[Tables, list[Any], list[Any]], warm: bool
) -> None:
    tables, kept, gone = history
    reach = Reach(None, tables, freely)  # type: ignore[arg-type]
    if warm:
        reach.unreached(table([*kept, *gone]), {"s/other": 1})
    listed = {f.path: f.size_bytes for f in reach.left_by(gone, table(kept))}
    assert listed.keys() >= tables.reached(gone) - tables.reached(kept)
    every = {**listed, **dict.fromkeys(tables.reached([*kept, *gone]), 1)}
    assert {f.path for f in reach.unreached(table(kept), every)} == every.keys() - tables.reached(kept)
    assert reach.needed(gone, every) == every.keys() & tables.reached(gone)


def freely(requests: int) -> None:
    return None


@st.composite
def linear_histories(draw: st.DrawFn) -> tuple[Tables, list[Any], list[Any]]:
    """Appends, removals and merges on one branch; a file that was removed does not come back."""
    manifests: dict[str, dict[str, bool]] = {}
    head: list[str] = []
    lists: dict[str, list[str]] = {}
    snapshots = [snapshot(n) for n in range(1, draw(st.integers(2, 12)) + 1)]
    for number, made in enumerate(snapshots):
        action = draw(st.sampled_from(["append", "append", "remove", "merge"]))
        if action == "append" or not head:
            manifests[f"s/m{number}"] = {f"s/f{number}": True}
            head = [*head, f"s/m{number}"]
        else:
            taken = draw(st.lists(st.sampled_from(head), unique=True, min_size=1))
            entries = {p: live for m in taken for p, live in manifests[m].items() if live}
            if action == "remove":
                entries |= dict.fromkeys(draw(st.lists(st.sampled_from(sorted(entries)))) if entries else [], False)
            manifests[f"s/m{number}"] = entries
            head = [*(m for m in head if m not in taken), f"s/m{number}"]
        lists[made.manifest_list] = head
    kept_too = draw(st.lists(st.sampled_from(snapshots[:-1]), max_size=2))
    oldest_kept = draw(st.integers(1, len(snapshots) - 1))
    gone = [s for s in snapshots[:oldest_kept] if s not in kept_too]
    return Tables(manifests, lists, 0), [s for s in snapshots if s not in gone], gone


@given(linear_histories())
def test_in_a_history_of_one_branch_the_snapshots_beside_the_expired_ones_say_it_all(
    history: tuple[Tables, list[Any], list[Any]],
) -> None:
    """Tags included: what is listed is then what is deleted, and no other list of a kept snapshot was read."""
    tables, kept, gone = history
    reach = Reach(None, tables, freely)  # type: ignore[arg-type]
    listed = {f.path: f.size_bytes for f in reach.left_by(gone, table(kept))}
    assert len([p for p in tables.reads if "snap" in p]) <= len(gone) + 7
    assert {f.path for f in reach.unreached(table(kept), listed)} == listed.keys()


def test_what_was_read_once_is_not_read_again() -> None:
    manifests = {f"s/m{n}": {f"s/f{n}": True} for n in range(50)}
    kept = [snapshot(n) for n in range(1, 51)]
    tables = Tables(manifests, {s.manifest_list: [f"s/m{s.snapshot_id - 1}"] for s in kept}, 1 << 20)
    asked: list[int] = []
    reach = Reach(None, tables, asked.append)  # type: ignore[arg-type]
    for _ in range(2):
        assert [f.path for f in reach.unreached(table(kept), {"s/gone": 3, "s/f7": 1})] == ["s/gone"]
    assert (len(tables.reads), len(set(tables.reads)), sum(asked)) == (100, 100, 100)
