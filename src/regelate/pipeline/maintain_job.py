"""The flags of `maintain`."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING, Any

from regelate.core.policy import Selection, SortField
from regelate.errors import InvalidRequest
from regelate.pipeline.arguments import add_common, pair, reader, whole
from regelate.pipeline.maintain import Job, maintain
from regelate.pipeline.options import Layout, Rewrite, size_options
from regelate.pipeline.result import Result
from regelate.pipeline.running import run
from regelate.pipeline.tables import SparkTable
from regelate.pipeline.terminal import Terminal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ORDER = re.compile(r"(.+?)(?:\s+(asc|desc))?(?:\s+nulls[\s-](first|last))?", re.IGNORECASE)


def add(jobs: Any) -> None:
    """Add the job to the parser."""
    parser = jobs.add_parser("maintain", help="rewrite the data files of a table that ask for it")
    add_common(parser)
    group = parser.add_argument_group("what is rewritten (left out: the table's properties, then Iceberg's defaults)")
    group.add_argument("--dry-run", action="store_true", help="say what would be done, and do nothing")
    group.add_argument("--selection", choices=[s.value for s in Selection], help="default: small-files")
    group.add_argument("--where", metavar="FILTER", help="a row filter of Spark SQL")
    group.add_argument(
        "--partition",
        action="append",
        default=[],
        type=reader(_partition),
        metavar="K=V",
        help="month=2025-01[,region=eu]; repeat for more",
    )
    group.add_argument("--force", action="store_true", help="merge any 2 small files, whatever the thresholds")
    group.add_argument("--target-size-mb", type=reader(whole(1)), metavar="MB")
    group.add_argument("--min-size-mb", type=reader(whole(0)), metavar="MB")
    group.add_argument("--strategy", choices=[layout.value for layout in Layout], default=Layout.BINPACK.value)
    group.add_argument(
        "--sort",
        action="append",
        default=[],
        type=reader(sort_field),
        metavar="ORDER",
        help="'column [desc] [nulls last]'",
    )
    group.add_argument("--zorder", type=reader(_names), default=(), metavar="A,B", help="columns to interleave")
    group.add_argument(
        "--option", action="append", default=[], type=reader(pair), metavar="K=V", help="by Iceberg's names"
    )
    parser.set_defaults(run=main)


def sort_field(text: str) -> SortField:
    """Read `column`, `column desc` or `column desc nulls last`; Iceberg's defaults: asc, nulls first; desc, last."""
    match = _ORDER.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not COLUMN [asc|desc] [nulls first|last]")
    descending = (match[2] or "asc").lower() == "desc"
    nulls = match[3].lower() if match[3] else ("last" if descending else "first")
    return SortField(column=match[1], descending=descending, nulls_first=nulls == "first")


def _names(text: str) -> tuple[str, ...]:
    found = tuple(part.strip() for part in text.split(","))
    if not all(found):
        raise ValueError(f"{text!r} holds an empty name")
    return found


def _partition(text: str) -> dict[str, str]:
    return dict(pair(part) for part in text.split(","))


def job_of(args: argparse.Namespace) -> Job:
    """Return the job that the flags ask for. Errors: InvalidRequest."""
    sizes = size_options(args.target_size_mb, args.min_size_mb)
    options = dict(args.option)
    twice = sorted(name for name in sizes if options.get(name, sizes[name]) != sizes[name])
    if twice:
        raise InvalidRequest("INVALID_OPTION", f"--option {twice[0]} differs from the flag for it", option=twice[0])
    rewrite = Rewrite(
        layout=Layout(args.strategy),
        sort=tuple(args.sort),
        zorder=args.zorder,
        where=args.where,
        selection=args.selection,
        partition_filters=tuple(args.partition),
        force=args.force,
        options={**options, **sizes},
    )
    return Job(rewrite=rewrite, dry_run=args.dry_run)


def _work(spark: SparkSession, args: argparse.Namespace, terminal: Terminal) -> Result:
    return maintain(SparkTable(spark, args.table), job_of(args), terminal)


def main(args: argparse.Namespace) -> int:
    """Maintain one table and return the exit code."""
    return run("maintain", args, _work)
