"""The job that the service asks for when it leaves a COMPACT to Spark: its fields in, its names in the answer."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from regelate.core.jobs.spark_job import ZORDER, SparkRequest
from regelate.core.policy.option_values import partition_filters, sort_fields
from regelate.core.policy.options import resolve_retention, resolve_verify
from regelate.core.policy.policy import Verify
from regelate.core.policy.table_properties import Use, refuse_unusable
from regelate.pipeline.arguments import add_common, reader
from regelate.pipeline.maintain import Job, maintain
from regelate.pipeline.options import Layout, Rewrite, size_options
from regelate.pipeline.proof import Proof
from regelate.pipeline.result import Result
from regelate.pipeline.running import run
from regelate.pipeline.steps import StepKnobs, StepName
from regelate.pipeline.tables import SparkTable
from regelate.pipeline.terminal import Terminal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NEEDS_SPARK = 3
"""From this format version on the service cannot expire snapshots, so the job does."""


def add(jobs: Any) -> None:
    """Add the job to the parser."""
    parser = jobs.add_parser("compact", help="run a compaction that the service has left to Spark", description=__doc__)
    add_common(parser)
    parser.add_argument(
        "--request", required=True, type=reader(SparkRequest.of_json), metavar="JSON", help="written by the service"
    )
    parser.set_defaults(run=main)


def rewrite_of(request: SparkRequest) -> Rewrite:
    """Return what rewrite_data_files is asked for. Errors: InvalidRequest."""
    asked = request.compact
    layout = Layout(asked.strategy or Layout.BINPACK)
    order = sort_fields(asked.sort_order) if asked.sort_order else ()
    sizes = size_options(asked.target_file_size_mb, None)
    return Rewrite(
        layout=layout,
        sort=order if layout is Layout.SORT else (),
        zorder=tuple(f.column for f in order) if layout == ZORDER else (),
        where=asked.where,
        selection=asked.selection,
        partition_filters=tuple(dict(wanted) for wanted in partition_filters(asked.partition_filter)),
        force=asked.force,
        options={**sizes, **{name: _text(value) for name, value in (asked.options or {}).items()}},
        defaults=request.defaults,
    )


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def job_of(request: SparkRequest, format_version: int, properties: Mapping[str, str]) -> Job:
    """Return the maintenance job that a request comes to on a table of this format version with these properties.

    Errors: InvalidRequest, also for a retention that only the last step would refuse: by then the rewrite has landed.
    """
    asked = request.compact
    expires = asked.expire_snapshots and format_version >= NEEDS_SPARK
    knobs = StepKnobs(retention_hours=asked.snapshot_retention_hours, defaults=request.retention)
    if expires:
        refuse_unusable(properties, Use.EXPIRE)
        resolve_retention(
            request_hours=asked.snapshot_retention_hours,
            table_properties=properties,
            config=request.retention,
            hours_field="snapshot_retention_hours",
        )
    verify = resolve_verify(asked.verify, properties, request.config_verify)
    return Job(
        rewrite=rewrite_of(request),
        steps=(StepName.REWRITE, *((StepName.EXPIRE,) if expires else ())),
        knobs=knobs,
        proof=Proof(rollback=True) if verify is Verify.STRICT else None,
        clears_only_after_a_rewrite=True,
    )


def _work(spark: SparkSession, args: argparse.Namespace, terminal: Terminal) -> Result:
    table = SparkTable(spark, args.table)
    return maintain(table, job_of(args.request, table.format_version, table.properties), terminal)


def main(args: argparse.Namespace) -> int:
    """Compact one table and return the exit code."""
    return run("compact", args, _work)
