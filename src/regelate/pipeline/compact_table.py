"""`compact_table.py --table --partition --target-size-mb --min-size-mb`: one table, or what a filter names.

Runs by itself, by `spark-submit --py-files regelate.zip compact_table.py ...`, or as `python -m` of this module.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from regelate.core.policy.options import CompactionDefaults
from regelate.core.policy.policy import MB
from regelate.pipeline.arguments import Parser, add_common, add_proof, reader, whole
from regelate.pipeline.maintain import Job, maintain
from regelate.pipeline.options import Rewrite, size_options
from regelate.pipeline.proof import proof_of
from regelate.pipeline.result import Result
from regelate.pipeline.running import run
from regelate.pipeline.tables import SparkTable
from regelate.pipeline.terminal import Terminal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULTS = CompactionDefaults(target_file_size_bytes=128 * MB, min_file_size_bytes=10 * MB, min_input_files=2)
"""Where neither a flag nor a property of the table says otherwise."""


def make_parser() -> Parser:
    parser = Parser(prog="compact_table.py", description="Merge a table's small files, or those of some partitions.")
    add_common(parser)
    parser.add_argument(
        "--partition", metavar="FILTER", help="a row filter of Spark SQL, such as \"event_date = DATE '2025-01-16'\""
    )
    parser.add_argument("--target-size-mb", type=reader(whole(1)), metavar="MB", help="default: the table's, else 128")
    parser.add_argument("--min-size-mb", type=reader(whole(0)), metavar="MB", help="default: the table's, else 10")
    parser.add_argument("--dry-run", action="store_true", help="say what would be done, and do nothing")
    add_proof(parser)
    return parser


def job_of(args: argparse.Namespace) -> Job:
    rewrite = Rewrite(
        where=args.partition, options=size_options(args.target_size_mb, args.min_size_mb), defaults=DEFAULTS
    )
    return Job(rewrite=rewrite, proof=proof_of(vars(args)), dry_run=args.dry_run)


def _work(spark: SparkSession, args: argparse.Namespace, terminal: Terminal) -> Result:
    return maintain(SparkTable(spark, args.table), job_of(args), terminal)


def main(argv: Sequence[str] | None = None) -> int:
    """Compact one table and return the exit code."""
    return run("compact_table", make_parser().parse_args(argv), _work)


if __name__ == "__main__":
    sys.exit(main())
