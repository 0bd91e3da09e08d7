"""The flags of `maintain`."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING, Any

from regelate.core.planning.partition_rule import PartitionRule
from regelate.core.policy.policy import Selection, SortField
from regelate.errors import InvalidRequest
from regelate.pipeline.arguments import add_common, add_proof, number, pair, reader, whole
from regelate.pipeline.maintain import ONLY_REWRITE, Job, maintain
from regelate.pipeline.options import Layout, Rewrite, size_options
from regelate.pipeline.proof import proof_of
from regelate.pipeline.result import Result
from regelate.pipeline.running import run
from regelate.pipeline.steps import StepKnobs, StepName, step_names
from regelate.pipeline.tables import SparkTable
from regelate.pipeline.terminal import Terminal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STEPS = f"""\
Run the maintenance steps of a table, in this order:
  {", ".join(StepName)}.
If one step fails, the others still run."""
_ORDER = re.compile(r"(.+?)(?:\s+(asc|desc))?(?:\s+nulls[\s-](first|last))?", re.IGNORECASE)


def add(jobs: Any) -> None:
    """Add the job to the parser."""
    parser = jobs.add_parser("maintain", help="rewrite the data files that need it, and clean up", description=STEPS)
    add_common(parser)
    parser.add_argument("--dry-run", action="store_true", help="say what would be done, and do nothing")
    parser.add_argument(
        "--steps",
        type=reader(step_names),
        default=ONLY_REWRITE,
        metavar="A,B",
        help=f"these steps, or all; default: {StepName.REWRITE}",
    )
    _add_rewrite(parser)
    _add_steps(parser)
    add_proof(parser)
    parser.set_defaults(run=main)


def _add_rewrite(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what is rewritten (left out: the table's properties, then Iceberg's defaults)")
    selections = [selection.value for selection in Selection if selection is not Selection.SIZE_TIERED]
    group.add_argument("--selection", choices=selections, help="default: small-files")
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
        "--option", action="append", default=[], type=reader(pair), metavar="K=V", help="an option, by Iceberg's name"
    )
    rule = parser.add_argument_group("which partitions (all that are given must hold)")
    rule.add_argument(
        "--last-partitions",
        type=reader(whole(1)),
        metavar="N",
        help="only the last N partitions whose time has ended: 1 is yesterday",
    )
    rule.add_argument(
        "--min-small-files", type=reader(whole(1)), metavar="N", help="only partitions with at least N small files"
    )
    rule.add_argument(
        "--min-small-share", type=reader(number), metavar="S", help="or with at least this share of small files, 0 to 1"
    )


def _add_steps(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what the other steps do")
    group.add_argument("--retention-hours", type=reader(number), metavar="H", help="keep younger snapshots")
    group.add_argument("--min-snapshots-to-keep", type=reader(whole(1)), metavar="N")
    group.add_argument("--older-than-hours", type=reader(number), metavar="H", help="age of orphans; default: 72")
    group.add_argument("--delete-orphans", action="store_true", help="delete them; without this they are only listed")
    group.add_argument("--stats-columns", type=reader(_names), default=(), metavar="A,B", help="default: all columns")


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
    named = dict(args.option)
    twice = sorted(name for name in sizes if named.get(name, sizes[name]) != sizes[name])
    if twice:
        raise InvalidRequest("INVALID_OPTION", f"--option {twice[0]} differs from the flag for it", option=twice[0])
    rewrite = Rewrite(
        layout=Layout(args.strategy),
        sort=tuple(args.sort),
        zorder=args.zorder,
        where=args.where,
        selection=args.selection,
        partition_filters=tuple(args.partition),
        rule=PartitionRule(
            newest_closed=args.last_partitions,
            min_small_files=args.min_small_files,
            min_small_share=args.min_small_share,
        ),
        force=args.force,
        options={**named, **sizes},
    )
    knobs = StepKnobs(
        retention_hours=args.retention_hours,
        min_snapshots_to_keep=args.min_snapshots_to_keep,
        orphan_age_hours=args.older_than_hours,
        delete_orphans=args.delete_orphans,
        statistics_columns=args.stats_columns,
    )
    return Job(rewrite=rewrite, steps=args.steps, knobs=knobs, proof=proof_of(vars(args)), dry_run=args.dry_run)


def _work(spark: SparkSession, args: argparse.Namespace, terminal: Terminal) -> Result:
    return maintain(SparkTable(spark, args.table), job_of(args), terminal)


def main(args: argparse.Namespace) -> int:
    """Maintain one table and return the exit code."""
    return run("maintain", args, _work)
