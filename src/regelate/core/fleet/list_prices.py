"""What services that compact tables by themselves list for the same work, to be told beside our own price."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from regelate.core.fleet.candidates import Candidate
from regelate.core.values import dataclass

GB, MILLION = 10**9, 10**6


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPrice:
    """How one service charges for compaction, in dollars: by GB read and written, by data file read, and by run.

    `is_least`: it charges by its own working time, which nobody else knows, and this is the least of that. `source` and
    `as_of` say where the price was read, and when.
    """

    name: str
    per_gb: float = 0.0
    per_million_files: float = 0.0
    per_run: float = 0.0
    is_least: bool = False
    source: str
    as_of: str

    def dollars(self, runs: Iterable[Candidate]) -> float:
        """Return what rewrites of so many files and bytes would cost; as much is written as is read."""
        found = [run for run in runs if run.operation.rewrites_data]
        gigabytes = sum(2 * run.read_bytes for run in found) / GB
        files = sum(run.read_files for run in found)
        return gigabytes * self.per_gb + files * self.per_million_files / MILLION + len(found) * self.per_run


LIST_PRICES: Mapping[str, ListPrice] = MappingProxyType(
    {
        "r2": ListPrice(
            name="Cloudflare R2 Data Catalog",
            per_gb=0.005,
            per_million_files=2.0,
            source="https://developers.cloudflare.com/r2-data-catalog/platform/pricing/",
            as_of="2026-11-23",
        ),
        "glue": ListPrice(
            name="AWS Glue Data Catalog",
            per_run=0.44 / 60,  # $0.44 for an hour of a DPU, and a minute at least
            is_least=True,
            source="https://aws.amazon.com/glue/pricing/",
            as_of="2026-10-07",
        ),
    }
)
"""Without the free part of a month. S3 Tables is not here: its price for compaction was not found at its source."""
