"""The engines that rewrite, one row each: who commits what they make, and what their work takes where we do."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from regelate.core.values import dataclass

MB, GB = 2**20, 2**30


class Engine(StrEnum):
    """What does the rewriting."""

    DUCKDB = "duckdb"
    SPARK = "spark"

    @property
    def is_remote(self) -> bool:
        """Whether it runs somewhere else, and commits by itself."""
        return ENGINES[self] is None


@dataclass(frozen=True, slots=True, kw_only=True)
class CostModel:
    """What rewriting takes in a process, measured (benchmarks/results) and rounded to the side of caution.

    `spliced_bytes_per_second_and_thread`: where row groups are copied. `process_bytes`: everything loaded, before any
    work. `scan_bytes_per_file`: of each file that one scan reads.
    `output_bytes`: of one output under way. `sorted_bytes_per_byte`: of rows decoded for a sort, to their files' bytes.
    """

    bytes_per_second_and_thread: float
    spliced_bytes_per_second_and_thread: float
    seconds_per_file: float
    seconds_per_group: float
    process_bytes: int
    scan_bytes_per_file: int
    output_bytes: int
    sorted_bytes_per_byte: int
    max_files_per_scan: int

    def seconds(self, size_bytes: int, files: int, *, threads: int, spliced_bytes: int = 0) -> float:
        """Return a cautious number of seconds for rewriting this many bytes and files, of which some are spliced."""
        recoded = (size_bytes - spliced_bytes) / (self.bytes_per_second_and_thread * max(threads, 1))
        spliced = spliced_bytes / (self.spliced_bytes_per_second_and_thread * max(threads, 1))
        return recoded + spliced + files * self.seconds_per_file

    def bytes_of_output(self, files_per_scan: int) -> int:
        """Return what one output takes: the worst case, as if it read every file of its group."""
        return self.output_bytes + files_per_scan * self.scan_bytes_per_file


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What a process costs while it runs."""

    dollars_per_gb_second: float
    dollars_per_request: float

    def dollars(self, seconds: float, memory_bytes: int) -> float:
        return seconds * memory_bytes / GB * self.dollars_per_gb_second + self.dollars_per_request


DUCKDB_COST = CostModel(
    # Two cores rewrite about 55 MB of compressed Parquet per second.
    bytes_per_second_and_thread=55 * MB / 2,
    # They are read three times and written once; a disk and not a processor is in the way.
    spliced_bytes_per_second_and_thread=100 * MB,
    # 400 files of together 125 MB took 4 s on two cores, where their bytes alone would take 2.3 s.
    seconds_per_file=0.005,
    # However small a group is: a view of its own, a statement, an output.
    seconds_per_group=0.05,
    # Python, PyIceberg, PyArrow and DuckDB take 150 MB once loaded; the rest is for manifests and the plan.
    process_bytes=200 * MB,
    # DuckDB takes about 0.2 MB per file when it binds a scan (trap T13: memory for every input file).
    scan_bytes_per_file=MB // 5,
    # A row group of up to a million rows decoded, and its columns encoded again: 400 files of 20,000 rows each in
    # one scan peaked at 420 MB; less the process (200) and the scan (80) that leaves about as much.
    output_bytes=128 * MB,
    # Parquet of ours is about a quarter of its rows decoded, and much less where values repeat.
    sorted_bytes_per_byte=4,
    # A bound on memory, not on the run (trap T13: memory for every input file).
    max_files_per_scan=500,
)
ENGINES: Mapping[Engine, CostModel | None] = {Engine.DUCKDB: DUCKDB_COST, Engine.SPARK: None}
"""What the work of each takes in a process of ours; None where it does not run in one."""
HERE = Engine.DUCKDB
"""The engine of this process and of workers of ours: we verify and commit what it makes."""
COST_HERE = DUCKDB_COST
LAMBDA = Price(dollars_per_gb_second=0.0000166667, dollars_per_request=0.0000002)
"""AWS Lambda's list price, x86, us-east-1, first tier; https://aws.amazon.com/lambda/pricing/"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestPrice:
    """What an object store charges for requests."""

    dollars_per_get: float
    dollars_per_put: float


OBJECT_STORE = RequestPrice(dollars_per_get=0.0000004, dollars_per_put=0.000005)
"""S3 Standard's list price, us-east-1; https://aws.amazon.com/s3/pricing/"""
