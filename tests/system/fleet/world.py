"""A fleet that lives by itself: tenants, sizes of a power law, four kinds of writers. Nothing is random after birth.

Of a table only numbers are kept: how many small files lie in how many partitions, what they weigh, and what is fine.
Small files fall on partitions by chance (Poisson), so that a partition may have one file, which nobody can merge.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from random import Random

from regelate.core.fleet.observation import OverwriteRate, TableObservation
from regelate.core.planning.health import FILES_POINTS, PointsLost
from regelate.core.table.time_ranges import DAY_MS, HOUR_MS

MB, GB = 2**20, 2**30
TARGET = 128 * MB
RETENTION_HOURS = 5 * 24
UNATTENDED_HOURS = 30 * 24
SNAPSHOT_BYTES = 600
MERGED_MANIFESTS = 100
"""So many small manifests Iceberg leaves before a commit merges them."""


class Writer(StrEnum):
    STREAMING = "streaming"
    BATCH = "batch"
    CDC = "cdc"
    DORMANT = "dormant"


SHARES = ((Writer.STREAMING, 0.1), (Writer.BATCH, 0.4), (Writer.CDC, 0.1), (Writer.DORMANT, 0.4))


@dataclass(slots=True)
class Table:
    """`small` files of together `small_bytes` lie in `spread` partitions, of which `open_partitions` are written to."""

    name: str
    tenant: str
    catalog: str
    writer: Writer
    commits_per_hour: float
    files_per_commit: float
    file_bytes: float
    partitions_per_day: float
    open_partitions: float
    settled: float
    settled_bytes: float
    small: float = 0.0
    small_bytes: float = 0.0
    spread: float = 1.0
    deletes: float = 0.0
    deletes_per_hour: float = 0.0
    snapshots: float = 1.0
    expired_until: float = 0.0
    manifests: float = 1.0
    head: int = 1
    hours: float = 0.0
    merged_hours: float = -math.inf
    written: float = 0.0
    pace: float = 1.0

    def live_to(self, hours: float) -> None:
        """Let its writer work until a time, in hours of the simulation."""
        gone = hours - self.hours
        if gone <= 0:
            return
        commits = self.commits_per_hour * gone
        files = commits * self.files_per_commit
        self.hours = hours
        if commits < 1e-9:
            return
        self.small += files
        self.small_bytes += files * self.file_bytes
        self.written += files
        self.spread += self.partitions_per_day * gone / 24
        self.deletes += self.deletes_per_hour * gone
        self.snapshots += commits
        self.manifests = min(self.manifests + commits, MERGED_MANIFESTS + self.files / 500)
        self.head += max(int(commits), 1)

    @property
    def files(self) -> float:
        return self.settled + self.small

    @property
    def size_bytes(self) -> float:
        return self.settled_bytes + self.small_bytes

    def mergeable(self) -> tuple[float, float]:
        """Files in partitions that have two small ones or more, and how many files they would become."""
        per_partition = self.small / self.spread
        none_or_one = math.exp(-per_partition) if per_partition < 50 else 0.0
        lonely = self.spread * per_partition * none_or_one
        partitions = self.spread * (1 - none_or_one) - lonely
        candidates = self.small - lonely
        if candidates < 2 or partitions <= 0:
            return 0.0, 0.0
        weight = candidates * self.small_bytes / self.small
        return candidates, partitions * max(1.0, math.ceil(weight / partitions / TARGET))

    def merge(self, share: float) -> float:
        """COMPACT this share of it; returns by how many files fewer. In open partitions the outputs are small again."""
        candidates, outputs = self.mergeable()
        if candidates <= outputs:
            return 0.0
        removed = (candidates - outputs) * share
        weight = self.small_bytes / self.small
        kept = min(self.open_partitions, outputs) * share
        stay = self.small - candidates * share
        if share >= 1.0:
            self.settled += stay + outputs - kept
            self.settled_bytes += self.small_bytes - kept * weight
            self.small, self.small_bytes, self.spread = kept, kept * weight, max(self.open_partitions, 1.0)
            self.merged_hours = self.hours
        else:
            self.settled += outputs * share
            self.settled_bytes += candidates * share * weight
            self.small, self.small_bytes = stay, stay * weight
            self.spread = max(self.spread * (1 - share), self.open_partitions, 1.0)
        self.head += 1
        self.snapshots += 1
        return removed

    def apply_deletes(self, share: float) -> float:
        removed = self.deletes * share
        self.deletes -= removed
        self.head += 1
        self.snapshots += 1
        return removed

    @property
    def expirable(self) -> float:
        young = self.commits_per_hour * RETENTION_HOURS
        return max(self.snapshots - max(young, 1.0), 0.0)

    def expire(self) -> None:
        self.snapshots -= self.expirable

    @property
    def manifests_after(self) -> float:
        return max(self.files / 5000, 1.0)

    def merge_manifests(self) -> None:
        self.manifests = self.manifests_after
        self.head += 1

    @property
    def health(self) -> float:
        """The score of 100, of which only files take points here."""
        return 100.0 - (FILES_POINTS * self.removable / self.files if self.files else 0.0)

    @property
    def saturated_health(self) -> float:
        """The score that SWEEP ranked by before fleets: 0.3 x files of a partition / 100, 0.3 x deletes, 0.2 x days
        and 0.2 x the share of small files, each capped at 1, over the partitions that have work."""
        candidates, _ = self.mergeable()
        if not candidates:
            return 100.0
        per = self.small / self.spread
        none_or_one = math.exp(-per) * (1 + per) if per < 50 else 0.0
        files = min(candidates / max(self.spread * (1 - none_or_one), 1.0) / 100, 1.0)
        deletes, age = min(self.deletes / max(self.files, 1.0), 1.0), min((self.hours - self.merged_hours) / 24, 1.0)
        return round(100 - 30 * files - 30 * deletes - 20 * age - 20, 1)

    @property
    def removable(self) -> float:
        candidates, outputs = self.mergeable()
        return max(candidates - outputs, 0.0)

    def observed(self, now_ms: int) -> TableObservation:
        candidates, outputs = self.mergeable()
        files, deletes = int(self.files), int(self.deletes)
        worth = candidates > outputs
        taken = min(int(candidates), files) if worth else 0
        rewritten = min(3 * deletes, max(int(self.settled), 0))
        return TableObservation(
            table_uuid=self.name,
            catalog=self.catalog,
            ident=f"db.{self.name}",
            tenant=self.tenant,
            observed_ms=now_ms,
            metadata_location=f"s3://lake/{self.name}/{self.head}.json",
            snapshot_id=self.head,
            files=files,
            size_bytes=int(self.size_bytes),
            small_files=int(self.small),
            candidate_files=taken,
            candidate_bytes=int(candidates * self.small_bytes / self.small) if worth else 0,
            files_after=max(files - int(candidates - outputs), 0) if worth else files,
            delete_files=deletes,
            delete_bytes=deletes * 50_000,
            deleting_files=rewritten,
            deleting_bytes=int(rewritten * self.settled_bytes / self.settled) if self.settled else 0,
            snapshots=int(self.snapshots),
            expirable_snapshots=int(self.expirable),
            manifests=int(self.manifests),
            manifests_after=min(int(self.manifests_after), int(self.manifests)),
            metadata_bytes=int(self.snapshots * SNAPSHOT_BYTES),
            partitions=max(int(self.spread), 1),
            commits_per_hour=self.commits_per_hour,
            files_per_hour=self.commits_per_hour * self.files_per_commit,
            commit_kinds=(("append", 3), ("overwrite", 1)) if self.writer is Writer.CDC else (("append", 1),),
            overwrites=(OverwriteRate(age_hours=24, probability=0.0),),
            lost=PointsLost(files=100.0 - self.health),
        )


def born(seed: int, tables: int, tenants: int) -> list[Table]:
    """Return a fleet that nobody has looked after: each table has up to thirty days of small files behind it.

    Tenants are of unequal size, as tables are.
    """
    random = Random(seed)
    shares = [random.paretovariate(1.2) for _ in range(tenants)]
    owners = [n % tenants for n in range(tenants)]  # each has one table at least
    owners += random.choices(range(tenants), shares, k=max(tables - tenants, 0))
    return [_table(random, number, f"tenant-{owners[number]:02}") for number in range(tables)]


def _table(random: Random, number: int, tenant: str) -> Table:
    writer = random.choices([w for w, _ in SHARES], [share for _, share in SHARES])[0]
    size = min(100 * MB * random.paretovariate(0.7), 50_000 * GB)
    keys = min(random.paretovariate(0.8), 500.0)
    commits, files, mb, per_day = _habits(random, writer, keys)
    settled = max(size / (100 * MB), 1.0)
    table = Table(
        name=f"t{number:05}",
        tenant=tenant,
        catalog=f"catalog-{number % 3}",
        writer=writer,
        commits_per_hour=commits,
        files_per_commit=files,
        file_bytes=mb * MB,
        partitions_per_day=per_day,
        open_partitions=keys,
        settled=settled,
        settled_bytes=size,
        spread=keys,
        deletes_per_hour=commits / 2 if writer is Writer.CDC else 0.0,
        pace=1.2 * math.exp(random.gauss(0, 0.25)),
    )
    if writer is Writer.DORMANT and random.random() < 0.5:  # written once, by too many tasks, and left
        table.small = float(int(min(2 * random.paretovariate(0.6), 50_000)))
        table.small_bytes = table.small * table.file_bytes
        table.spread = max(table.small / _between(random, 0.5, 100), 1.0)
    table.live_to(random.uniform(0, UNATTENDED_HOURS))
    table.hours, table.written = 0.0, 0.0
    return table


def _habits(random: Random, writer: Writer, keys: float) -> tuple[float, float, float, float]:
    """Commits an hour, files a commit, MB a file, new partitions a day: a day's partition for each of its keys."""
    if writer is Writer.STREAMING:
        return random.uniform(6, 12), random.choice([1, 2, 8]), _between(random, 0.1, 8), 1.0
    if writer is Writer.BATCH:
        per_key = random.choice([1, 2, 4])
        return random.choice([1 / 24, 1 / 24, 1 / 4, 1.0]), per_key * keys, _between(random, 1, 96), keys
    if writer is Writer.CDC:
        return random.uniform(1, 12), random.choice([1, 4]), _between(random, 0.05, 2), 0.0
    return 0.0, 1.0, _between(random, 0.05, 96), 0.0


def _between(random: Random, low: float, high: float) -> float:
    """A number between two, each order of magnitude as likely as any other."""
    return low * (high / low) ** random.random()


NOW_ZERO_MS = 20_000 * DAY_MS


def ms_of(hours: float) -> int:
    return NOW_ZERO_MS + int(hours * HOUR_MS)
