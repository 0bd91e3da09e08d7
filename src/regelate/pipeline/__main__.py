"""`python -m regelate.pipeline JOB`, or `spark-submit --py-files regelate.zip main.py JOB`: the jobs by name."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from regelate.pipeline import compact_job, ingest_job, maintain_job
from regelate.pipeline.arguments import Parser


def make_parser() -> Parser:
    """Return the parser of all jobs; `run` of its namespace is the job."""
    parser = Parser(prog="python -m regelate.pipeline", description="The data pipeline on Spark.")
    jobs = parser.add_subparsers(metavar="JOB", parser_class=Parser, required=True)
    for job in (ingest_job, maintain_job, compact_job):
        job.add(jobs)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one job and return its exit code; --help lists the codes."""
    args = make_parser().parse_args(argv)
    code: int = args.run(args)
    return code


if __name__ == "__main__":
    sys.exit(main())
