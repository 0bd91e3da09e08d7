"""A rewrite that loses a concurrent equality delete (trap T9), side by side: Iceberg's own RewriteFiles and COMPACT.

`python -m tests.spark.lost_delete`. One interleaving: plan, an equality delete by one client, an append by
another, commit. The delete is written by Iceberg's own writer, the rows before and after are counted by Spark.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from regelate.pipeline.session import ICEBERG_VERSION, Launch, embedded_lake, open_session
from tests.spark.iceberg import delete_by_key, each, java_table
from tests.support.lake import Lake

CACHE = Path(__file__).parents[2] / ".servers" / "ivy"
FILES, ROWS_PER_FILE, DELETED = 3, 10, (1, 11, 21)
LATE = (900, 901)
RIGHT = FILES * ROWS_PER_FILE - len(DELETED) + len(LATE)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What became of the interleaving under one committer. `back`: rows that were deleted and are there again."""

    committer: str
    answer: str
    rows: int
    back: int
    delete_files: int

    @property
    def verdict(self) -> str:
        if self.back:
            return f"**wrong: {self.back} deleted rows are back**"
        return "right" if self.rows == RIGHT else f"**wrong: {self.rows} rows**"


class Stage:
    """One table of three files, and the two clients that act between plan and commit."""

    def __init__(self, spark: SparkSession, name: str) -> None:
        self.spark = spark
        self.name = f"local.lost_delete.{name}"
        self.jvm: Any = spark._jvm  # type: ignore[attr-defined]
        spark.sql(f"CREATE TABLE {self.name} (id INT) USING iceberg TBLPROPERTIES ('format-version'='2')")
        for number in range(FILES):
            start = number * ROWS_PER_FILE
            rows = spark.range(start, start + ROWS_PER_FILE, 1, 1).selectExpr("cast(id AS int) AS id")
            rows.writeTo(self.name).append()

    def table(self) -> Any:
        return java_table(self.spark, self.name)

    def delete_by_key(self) -> None:
        delete_by_key(self.spark, self.name, DELETED)

    def append(self) -> None:
        self.spark.createDataFrame([(number,) for number in LATE], "id int").writeTo(self.name).append()

    def meanwhile(self) -> None:
        self.delete_by_key()
        self.append()

    def judged(self, committer: str, answer: str) -> Answer:
        ids = [row.id for row in self.spark.sql(f"SELECT id FROM {self.name}").collect()]
        deletes = self.spark.sql(f"SELECT count(*) AS n FROM {self.name}.delete_files").first()
        assert deletes is not None
        return Answer(
            committer=committer,
            answer=answer,
            rows=len(ids),
            back=sum(number in DELETED for number in ids),
            delete_files=deletes.n,
        )


def by_iceberg(stage: Stage, *, starting_sequence_number: bool) -> Answer:
    """RewriteFiles as RewriteDataFilesCommitManager makes it, over files that Spark has really rewritten."""
    table = stage.table()
    base = table.currentSnapshot()
    old = stage.jvm.java.util.HashSet()
    for task in each(table.newScan().planFiles()):
        old.add(task.file())
    new = stage.jvm.java.util.HashSet()
    copy = Stage(stage.spark, stage.name.rpartition(".")[2] + "_copy")
    stage.spark.sql(f"SELECT id FROM {stage.name} ORDER BY id").coalesce(1).writeTo(copy.name).overwritePartitions()
    for task in each(copy.table().newScan().planFiles()):
        new.add(task.file())
    stage.meanwhile()
    rewrite = table.newRewrite().validateFromSnapshot(base.snapshotId())
    try:
        if starting_sequence_number:
            rewrite.rewriteFiles(old, new, base.sequenceNumber()).commit()
        else:
            rewrite.rewriteFiles(old, new).commit()
        answer = "committed"
    except Py4JJavaError as error:
        answer = f"refused: {error.java_exception.getMessage().split(': ')[0].split(' for ')[0]}"
    flag = str(starting_sequence_number).lower()
    return stage.judged(f"Iceberg {ICEBERG_VERSION} RewriteFiles, `use-starting-sequence-number={flag}`", answer)


def by_us(stage: Stage, folder: Path) -> Answer:
    lake, ident = Lake(folder), stage.name.partition(".")[2]
    answer = lake.compact(ident, between=stage.meanwhile, force=True, expire_snapshots=False)
    return stage.judged("regelate COMPACT", f"{answer['status']}")


def side_by_side(spark: SparkSession, folder: Path) -> list[Answer]:
    """Play the interleaving under each committer, each on a table of its own. `folder`: of the session's lake."""
    spark.sql("CREATE NAMESPACE local.lost_delete")
    return [
        by_iceberg(Stage(spark, "iceberg_true"), starting_sequence_number=True),
        by_iceberg(Stage(spark, "iceberg_false"), starting_sequence_number=False),
        by_us(Stage(spark, "ours"), folder),
    ]


def table_of(answers: list[Answer]) -> str:
    lines = [
        f"| committed by | answer | rows (right: {RIGHT}) | delete files left | |",
        "| --- | --- | --- | --- | --- |",
    ]
    lines += [f"| {a.committer} | {a.answer} | {a.rows} | {a.delete_files} | {a.verdict} |" for a in answers]
    return "\n".join(lines)


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="regelate-") as made:
        folder = Path(made)
        launch = Launch(driver_memory="1g", conf={"spark.jars.ivy": str(CACHE), "spark.sql.shuffle.partitions": "2"})
        spark = open_session(embedded_lake(folder), launch, app_name="lost_delete")
        try:
            found = side_by_side(spark, folder)
        finally:
            spark.stop()
    sys.stdout.write(table_of(found) + "\n")
    return int(found[-1].verdict != "right")


if __name__ == "__main__":
    sys.exit(main())
