"""`python -m studies.small_files`: the arms take turns; what comes out is a report, and a log to go on from."""

from __future__ import annotations

import argparse
import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from regelate.report.frames import Frame
from studies.small_files import reporting
from studies.small_files.arms import ARMS, Arm, Compaction
from studies.small_files.compactors import EngineName, compactor
from studies.small_files.lake import Lake, start_spark
from studies.small_files.logbook import Logbook, Measured, Mismatch, Session, Workload
from studies.small_files.running import run, warm_up

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOME, LOG = "study-lake", "log.jsonl"


def main(given: Sequence[str] | None = None) -> None:
    """Measure what is not measured yet, and write the report."""
    options = _parser().parse_args(given)
    workload = Workload(
        rows=options.rows,
        tasks=options.tasks,
        seed=options.seed,
        merge_on_read=options.merge_on_read,
        engine=options.engine.value,
    )
    arms = [arm for arm in ARMS if not options.arm or arm.key in options.arm]
    folder = Path(options.home).absolute() / workload.name
    try:
        log = Logbook(folder / LOG, workload)
        if any(len(log.of(arm.key)) < options.iterations for arm in arms):
            _measure(folder, log, arms, options)
    except Mismatch as fault:
        raise SystemExit(str(fault)) from None
    console, results = Console(), reporting.results_of(log, arms, options.iterations)
    for section in reporting.write(log, results, folder).sections[:1]:
        console.print(section.line, *section.notes, sep="\n", markup=False, highlight=False)
        for name, frame in section.frames:
            console.print(_table(name, frame))
    console.print(f"Report: {folder / reporting.PAGE}", markup=False, highlight=False, soft_wrap=True)
    if options.publish:
        reporting.publish(log, results)


def _measure(folder: Path, log: Logbook, arms: Sequence[Arm], options: Any) -> None:
    spark = start_spark(folder, options.jars)
    try:
        log.begin(Session(began=datetime.now(UTC).isoformat(timespec="seconds"), machine=machine(spark)))
        lake = Lake(spark, log.workload, compactor(options.engine, spark, folder))
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as bar:
            missing = sum(max(options.iterations - len(log.of(arm.key)), 0) for arm in arms)
            task = bar.add_task("warming up", total=missing)

            def watch(one: Measured) -> None:
                bar.update(task, advance=1, description=f"{one.arm} {one.iteration}: {one.data_files:,} files")

            warm_up(lake, [arm for arm in ARMS if arm.compaction is Compaction.AUTOMATIC], log)
            run(lake, arms, log, options.iterations, watch=watch)
    finally:
        spark.stop()


def machine(spark: SparkSession) -> dict[str, str]:
    """Return where it is measured, and with what."""
    jvm: Any = spark._jvm
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "cores": str(os.cpu_count()),
        "memory": f"{memory_gb:.0f} GB",
        "Spark": str(spark.version),
        "Iceberg": str(jvm.org.apache.iceberg.IcebergBuild.version()),
        "Java": str(jvm.java.lang.System.getProperty("java.version")),
        "Python": platform.python_version(),
    }


def _table(title: str, frame: Frame) -> Table:
    table = Table(title=title, title_justify="left")
    for number, name in enumerate(frame.columns):
        table.add_column(name, justify="right" if number in frame.right else "left")
    for row in frame.rows:
        table.add_row(*row)
    return table


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m studies.small_files", description=__doc__)
    parser.add_argument("--iterations", type=_count, default=reporting.WHOLE, help="of every arm (%(default)s)")
    parser.add_argument("--rows", type=_count, default=1_000, help="of a batch, +/- a tenth (%(default)s)")
    parser.add_argument("--tasks", type=_count, default=16, help="that write, without optimized write (%(default)s)")
    parser.add_argument("--merge-on-read", action="store_true", help="MERGE writes delete files, instead of copies")
    parser.add_argument("--engine", type=EngineName, default=EngineName.REGELATE, choices=list(EngineName))
    parser.add_argument("--arm", action="append", choices=[arm.key for arm in ARMS], help="only this one; repeatable")
    parser.add_argument("--seed", type=int, default=1, help="of the rows (%(default)s)")
    parser.add_argument("--home", default=HOME, help="where the lake, its log and the report are (%(default)s)")
    parser.add_argument("--jars", type=Path, help="where Iceberg's jars are kept")
    parser.add_argument("--publish", action="store_true", help="put the figures into docs/study.md")
    return parser


def _count(text: str) -> int:
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return count


if __name__ == "__main__":
    main()
