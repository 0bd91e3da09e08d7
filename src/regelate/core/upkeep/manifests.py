"""Which manifests to write anew: too many small ones, or partitions scattered over all of them. Pure.

After Iceberg 1.10, `BaseRewriteManifests` and `RewriteManifestsSparkAction`: entries are clustered by partition into
manifests of `commit.manifest.target-size-bytes`. Iceberg writes all of them anew each time; this has a fixed point.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from regelate.core.values import dataclass

SMALL = 1 / 3
"""A manifest below this share of the target is small. Outputs come out at two thirds of the target or more, wherever
there is enough for two, so that they are not small again though they compress better than their inputs."""
LEAST_TO_CLUSTER = 4
MOST_ENTRIES = 200_000
"""Entries of one group: their order is held in memory, and of themselves as many as fit into a number of bytes."""

Edge = tuple[int, object]
"""One end of a range of partition values: (-1, None) before all, (0, value), (1, None) after all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestSummary:
    """What a manifest list says of one manifest. `lower` and `upper`: values of the first partition field, None where
    the spec has none. `unreadable`: Java fails on it (trap T33: manifests that Java cannot read), though we do not."""

    path: str
    holds_deletes: bool
    spec_id: int
    size_bytes: int
    live_entries: int
    dead_entries: int = 0
    lower: Edge | None = None
    upper: Edge | None = None
    unreadable: bool = False

    @property
    def live_bytes(self) -> int:
        entries = self.live_entries + self.dead_entries
        return self.size_bytes * self.live_entries // entries if entries else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestGroup:
    """Manifests of one content and spec, to be written anew as `outputs` manifests of about the same size."""

    holds_deletes: bool
    spec_id: int
    paths: tuple[str, ...]
    entries: int
    outputs: int


def plan_manifest_rewrite(manifests: Sequence[ManifestSummary], target_size_bytes: int) -> tuple[ManifestGroup, ...]:
    """Return what to write anew; nothing where at most one manifest of a kind is small and partitions lie together.

    All manifests of a kind are taken when more than half of them overlap with one before, else the small ones only.
    Those that Java cannot read are always taken, and first.
    """
    kinds: dict[tuple[bool, int], list[ManifestSummary]] = defaultdict(list)
    for manifest in manifests:
        kinds[(manifest.holds_deletes, manifest.spec_id)].append(manifest)
    groups = (_group(members, target_size_bytes) for members in kinds.values())
    return tuple(g for g in groups if g is not None)


def _group(members: Sequence[ManifestSummary], target_size_bytes: int) -> ManifestGroup | None:
    small = [m for m in members if m.unreadable or m.live_bytes < SMALL * target_size_bytes]
    taken = _bounded(list(members) if _is_scattered(members) else small)
    cured = any(m.unreadable for m in taken)
    if len(taken) < 2 and not cured:
        return None
    total = sum(m.live_bytes for m in taken)
    outputs = max(1, round(total / target_size_bytes))
    entries = sum(m.live_entries for m in taken)
    if outputs >= len(taken) and not cured and not _is_scattered(taken):
        return None
    return ManifestGroup(
        holds_deletes=taken[0].holds_deletes,
        spec_id=taken[0].spec_id,
        paths=tuple(m.path for m in taken),
        entries=entries,
        outputs=max(1, min(outputs, entries)),
    )


def _bounded(manifests: Sequence[ManifestSummary]) -> list[ManifestSummary]:
    """Take what lies together first, up to the number of entries that fits in memory; the rest is for the next run."""
    taken: list[ManifestSummary] = []
    entries = 0
    near = sorted(manifests, key=_start) if all(m.lower for m in manifests) else manifests
    for manifest in sorted(near, key=lambda m: not m.unreadable):
        if taken and entries + manifest.live_entries > MOST_ENTRIES:
            continue
        taken.append(manifest)
        entries += manifest.live_entries
    return taken


def _is_scattered(manifests: Sequence[ManifestSummary]) -> bool:
    """Say whether more than half of the manifests begin within the range of one that begins before them."""
    if len(manifests) < LEAST_TO_CLUSTER or any(m.lower is None or m.upper is None for m in manifests):
        return False
    overlaps, reach = 0, None
    for manifest in sorted(manifests, key=_start):
        upper = manifest.upper or (1, None)
        overlaps += reach is not None and _before(manifest.lower or (-1, None), reach)
        reach = upper if reach is None or _before(reach, upper) else reach
    return overlaps > len(manifests) / 2


class _Start:
    """Orders edges of one partition field."""

    __slots__ = ("edge",)

    def __init__(self, edge: Edge) -> None:
        self.edge = edge

    def __lt__(self, other: _Start) -> bool:
        return _before(self.edge, other.edge)


def _start(manifest: ManifestSummary) -> _Start:
    return _Start(manifest.lower or (-1, None))


def _before(first: Edge, second: Edge) -> bool:
    if first[0] != second[0] or first[0] != 0:
        return first[0] < second[0]
    return bool(first[1] < second[1])  # type: ignore[operator]  # values of one partition field
