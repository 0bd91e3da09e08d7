"""`regelate demo-spark`: the small-file problem made by Spark's micro-batches, shown, healed, and proven healed."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regelate.core.jobs.exit_codes import DONE, FAILED
from regelate.core.policy.sizes import size_text
from regelate.core.values import dataclass
from regelate.entrypoints.cli.failures import Failed, usage
from regelate.pipeline.events import EVENT_COLUMNS, Stream
from regelate.pipeline.ingest import Ingest, IngestResult, append, create, distribution, ingest
from regelate.pipeline.ingest_job import frames
from regelate.pipeline.maintain import Job, maintain
from regelate.pipeline.names import TableName
from regelate.pipeline.options import Rewrite, size_options
from regelate.pipeline.proof import Proof
from regelate.pipeline.result import Result, Status, as_text, write_file
from regelate.pipeline.session import Launch, embedded_lake, open_session
from regelate.pipeline.tables import SparkTable
from regelate.pipeline.terminal import Terminal
from regelate.report import documents, plots
from regelate.report.jobs import report_of

if TYPE_CHECKING:
    from regelate.pipeline.session import SparkSession

MARK = ".regelate-demo-spark"
NAMESPACE, TABLE = "maintenance_demo", "event_stream"
TARGET_MB, MIN_MB = 128, 10
PICTURE, REPORT = "impact.png", "report.html"
QUICK_JAVA = "-XX:TieredStopAtLevel=1"
"""The demo is over before Java's second compiler pays."""
QUERY = """\
SELECT event_type, count(*) AS event_count, count(DISTINCT user_id) AS unique_users, avg(event_value) AS avg_value
FROM {table} WHERE event_type = 'purchase' GROUP BY event_type"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Done:
    """The two tables written, one of them compacted, and compacted once more."""

    written: Sequence[IngestResult]
    healed: Result
    again: Result


def run_demo(home: str, *, jars: str | None, batches: int, as_json: bool = False) -> int:
    """Run the demo in a folder of its own and return an exit code. `jars`: where Iceberg's jars are kept."""
    started = time.perf_counter()
    folder = prepare(Path(home))
    tell = Terminal(quiet=as_json)
    os.environ.setdefault("JDK_JAVA_OPTIONS", QUICK_JAVA)
    conf = {} if jars is None else {"spark.jars.ivy": str(Path(jars).absolute())}
    tell.say("Starting Spark; the first time it fetches Iceberg's jars (50 MB).")
    spark = open_session(embedded_lake(folder), Launch(conf=conf), app_name="regelate-demo-spark")
    try:
        done = _run(spark, batches, tell)
    finally:
        spark.stop()
    results = [*(w.as_dict() for w in done.written), done.healed.as_dict(), done.again.as_dict()]
    for number, result in enumerate(results, start=1):
        write_file(folder / f"result-{number}.json", as_text(result))
    _draw(folder, results, tell)
    tell.say(f"All of it took {time.perf_counter() - started:.0f} s. The lake, and the results as JSON: {folder}")
    if as_json:
        print(json.dumps(results, indent=2, default=str))
    if done.healed.status is Status.FAILED or done.again.status is not Status.NOTHING_TO_DO:
        raise Failed("the validation of the demo failed", "this is a bug; please report it", FAILED)
    return DONE


def prepare(folder: Path) -> Path:
    """Return an empty folder; one that is there is emptied only if an earlier demo has made it. Raises Failed."""
    if folder.exists() and any(folder.iterdir()):
        if not (folder / MARK).is_file():
            raise usage("--home", f"{folder} is not empty, and no demo made it", "choose another folder")
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARK).touch()
    return folder.absolute()


def _run(spark: SparkSession, batches: int, tell: Terminal) -> _Done:
    plain, optimized = (
        TableName(catalog="local", namespace=(NAMESPACE,), table=name) for name in (TABLE, f"{TABLE}_optimized")
    )
    stream = Stream(events=max(10_000, batches), batches=batches)
    tell.say("")
    tell.say(f"1  {stream.events:,} events in {batches} micro-batches, each a commit of its own")
    written = [_write(spark, name, stream, tell) for name in (plain, optimized)]
    tell.say("   The second table has --optimized-write: rows are shuffled together before they are written.")
    table = SparkTable(spark, plain)
    _show_small_files(table, tell)
    tell.say("")
    tell.say(f"3  compact_table.py --table {plain} --target-size-mb {TARGET_MB} --min-size-mb {MIN_MB} --validate")
    healed = _compact(table, tell, proof=Proof(query=QUERY.format(table=plain.sql), rollback=True))
    tell.say("")
    tell.say("4  The same again")
    again = _compact(SparkTable(spark, plain), tell)
    return _Done(written=written, healed=healed, again=again)


def _write(spark: SparkSession, name: TableName, stream: Stream, tell: Terminal) -> IngestResult:
    optimized = name.table != TABLE
    table = create(spark, name, EVENT_COLUMNS, "event_type", distribution(optimized=optimized))
    work = Ingest(
        source="events",
        mode="batches",
        optimized_write=optimized,
        write=lambda table, terminal: append(table, frames(spark, stream), terminal),
    )
    return ingest(table, work, tell)


def _show_small_files(table: SparkTable, tell: Terminal) -> None:
    metrics = table.file_metrics()
    whole = metrics.whole
    tell.say("")
    tell.say(
        f"2  The small-file problem: {whole.files:,} data files of {size_text(whole.average_bytes)} on average, "
        f"where {TARGET_MB} MB is the target"
    )
    rows = [
        (p.path, f"{p.files:,}", size_text(p.average_bytes), size_text(p.max_bytes), f"{p.rows:,}")
        for p in metrics.partitions
    ]
    tell.show(("partition", "files", "average", "largest", "rows"), rows)


def _compact(table: SparkTable, tell: Terminal, *, proof: Proof | None = None) -> Result:
    options = {**size_options(TARGET_MB, MIN_MB), "min-input-files": "2"}
    return maintain(table, Job(rewrite=Rewrite(options=options), proof=proof), tell)


def _draw(folder: Path, results: Sequence[Mapping[str, Any]], tell: Terminal) -> None:
    pictures = [plots.of_result(result) for result in results]
    (folder / REPORT).write_text(documents.page(report_of(results, "Spark, small files, and one compaction"), pictures))
    tell.say("")
    drawn = next((data for data in pictures if data), b"")
    if drawn:
        (folder / PICTURE).write_bytes(drawn)
        tell.say(f"Picture: {folder / PICTURE}")
    else:
        tell.say("No picture: matplotlib is not installed (it comes with the extra `report`).")
    tell.say(f"Report:  {folder / REPORT}")
