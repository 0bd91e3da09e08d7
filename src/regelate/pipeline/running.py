"""Runs one job from its flags: every end of it becomes an answer, two lines on standard error, and an exit code."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from regelate.core.jobs.exit_codes import FAILED, INTERRUPTED
from regelate.errors import RegelateError
from regelate.pipeline.arguments import lake_of, launch_of
from regelate.pipeline.names import TableName
from regelate.pipeline.result import as_text, exit_code, failure, write_file, write_object
from regelate.pipeline.session import Target, open_session
from regelate.pipeline.terminal import Terminal, printable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Answer(Protocol):
    """What a job returns."""

    def as_dict(self) -> dict[str, object]: ...

    @property
    def exit_code(self) -> int: ...

    @property
    def error(self) -> RegelateError | None: ...


GO_BACK = "look at the checks above; CALL system.rollback_to_snapshot, or --rollback-on-failure, goes back"
Work = Callable[["SparkSession", argparse.Namespace, Terminal], Answer]


def run(job: str, args: argparse.Namespace, work: Work) -> int:
    """Open Spark, do the work, put the result where it was asked for, and return the exit code."""
    started_at_ms = round(time.time() * 1000)
    terminal = Terminal(sys.stderr if args.json else sys.stdout, quiet=args.quiet)
    spark: SparkSession | None = None
    try:
        with java_on_standard_error():
            spark = _session(args, job)
        answer = work(spark, args, terminal)
        made, code = answer.as_dict(), answer.exit_code
        if answer.error is not None:
            _complain(f"{answer.error}", GO_BACK)
    except RegelateError as fault:
        made, code = failure(fault, job=job, table=str(args.table), started_at_ms=started_at_ms), exit_code(fault)
        _complain(f"{fault}", "nothing more was done; correct what is named, or look at the table, and run it again")
    except KeyboardInterrupt:
        _complain("interrupted", "what was committed stays; run the command again")
        return INTERRUPTED
    delivered = _deliver(made, args, spark)
    return code if delivered else max(code, FAILED)


@contextmanager
def java_on_standard_error() -> Iterator[None]:
    """Give a Java that is started meanwhile this process's standard error for both: Ivy tells of its jars on standard
    output, where a result has to be JSON and nothing else."""
    sys.stdout.flush()
    output, errors = 1, 2
    kept = os.dup(output)
    os.dup2(errors, output)
    try:
        yield
    finally:
        os.dup2(kept, output)
        os.close(kept)


def _session(args: argparse.Namespace, job: str) -> SparkSession:
    launch = launch_of(args)
    configured = launch.target is not Target.LOCAL and _is_configured(args.table, launch.conf)
    return open_session(lake_of(args, configured=configured), launch, app_name=f"regelate-{job}")


def _is_configured(table: TableName, conf: Mapping[str, str]) -> bool:
    """Say whether Spark's configuration, or one given by --conf, names the table's catalog."""
    key = f"spark.sql.catalog.{table.catalog}"
    if key in conf:
        return True
    try:
        from pyspark import SparkConf, SparkContext
    except ImportError:
        return False  # opening the session says so
    SparkContext._ensure_initialized()  # before the JVM answers, SparkConf is empty
    return bool(SparkConf().contains(key))


def _deliver(made: dict[str, object], args: argparse.Namespace, spark: SparkSession | None) -> bool:
    """Write the result; a place that takes none is told, and changes the exit code, not the table."""
    text = as_text(made)
    if args.json:
        sys.stdout.write(text)
        sys.stdout.flush()
    if args.result is None:
        return True
    try:
        if "://" not in args.result and not args.result.startswith("file:"):
            write_file(Path(args.result), text)
        elif spark is None:
            raise OSError("there is no Spark session to write it with")
        else:
            write_object(spark, args.table.catalog, args.result, text)
    except (OSError, RegelateError) as fault:
        _complain(f"the result could not be written to {args.result}: {fault}", "the job itself has ended as told")
        return False
    return True


def _complain(what: str, todo: str) -> None:
    sys.stderr.write(f"error: {printable(' '.join(what.split()))}\nhelp: {todo}\n")
