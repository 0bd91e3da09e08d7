"""Trap T9 side by side: one interleaving, committed by Iceberg's own RewriteFiles and by COMPACT.

`python -m tests.spark.t9`. Plan, equality delete by another client, append by another client, commit. The delete is
written by Iceberg's own writer, the rows before and after are counted by Spark. Needs Java 17 and pyspark 3.5
(requirements/spark.txt); the Iceberg runtime comes from Maven Central.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from regelate.settings import load_settings
from tests.lake import HookedApplication, address

ICEBERG = "1.10.1"
PACKAGES = f"org.apache.iceberg:iceberg-spark-runtime-3.5_2.12:{ICEBERG},org.xerial:sqlite-jdbc:3.50.3.0"
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


@contextmanager
def spark_over(folder: Path) -> Iterator[SparkSession]:
    """Start local Spark over the embedded catalog of a folder; one process, one session."""
    prefix = "spark.sql.catalog.local"
    settings = {
        "spark.jars.packages": PACKAGES,
        "spark.jars.ivy": str(CACHE),
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        prefix: "org.apache.iceberg.spark.SparkCatalog",
        f"{prefix}.type": "jdbc",
        f"{prefix}.uri": f"jdbc:sqlite:{folder}/catalog.db",
        f"{prefix}.jdbc.schema-version": "V1",
        f"{prefix}.warehouse": (folder / "warehouse").as_uri(),
        f"{prefix}.cache-enabled": "false",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
    }
    builder = SparkSession.builder.master("local[2]").appName("t9")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


class Stage:
    """One table of three files, and the two clients that act between plan and commit."""

    def __init__(self, spark: SparkSession, name: str) -> None:
        self.spark = spark
        self.name = f"local.db.{name}"
        self.jvm: Any = spark._jvm  # type: ignore[attr-defined]
        spark.sql(f"CREATE TABLE {self.name} (id INT) USING iceberg TBLPROPERTIES ('format-version'='2')")
        for number in range(FILES):
            start = number * ROWS_PER_FILE
            rows = spark.range(start, start + ROWS_PER_FILE, 1, 1).selectExpr("cast(id AS int) AS id")
            rows.writeTo(self.name).append()

    def table(self) -> Any:
        return self.jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(
            self.spark._jsparkSession,  # type: ignore[attr-defined]
            self.name,
        )

    def delete_by_key(self) -> None:
        """Commit an equality delete of three ids with Iceberg's own writer, which Spark SQL cannot do."""
        iceberg, table = self.jvm.org.apache.iceberg, self.table()
        form = iceberg.FileFormat.PARQUET
        keys = self.spark.sparkContext._gateway.new_array(self.jvm.int, 1)  # type: ignore[union-attr]
        keys[0] = 1
        schema = table.schema()
        factory = iceberg.data.GenericAppenderFactory(schema, table.spec(), keys, schema, None)
        files = iceberg.io.OutputFileFactory.builderFor(table, 1, 1).format(form).build()
        writer = factory.newEqDeleteWriter(files.newOutputFile(), form, None)
        for number in DELETED:
            record = iceberg.data.GenericRecord.create(schema)
            record.setField("id", number)
            writer.write(record)
        writer.close()
        table.newRowDelta().addDeletes(writer.toDeleteFile()).commit()

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
    for task in _each(table.newScan().planFiles()):
        old.add(task.file())
    new = stage.jvm.java.util.HashSet()
    copy = Stage(stage.spark, stage.name.rpartition(".")[2] + "_copy")
    stage.spark.sql(f"SELECT id FROM {stage.name} ORDER BY id").coalesce(1).writeTo(copy.name).overwritePartitions()
    for task in _each(copy.table().newScan().planFiles()):
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
    return stage.judged(f"Iceberg {ICEBERG} RewriteFiles, `use-starting-sequence-number={flag}`", answer)


def by_us(stage: Stage, folder: Path) -> Answer:
    application = HookedApplication(load_settings({"REGELATE_HOME": str(folder)}))
    application.between = stage.meanwhile
    ident = stage.name.partition(".")[2]
    request = {"force": True, "expire_snapshots": False}
    answer = application.compact(address(ident), request, request_id="t9", idempotency_key=None)
    return stage.judged("regelate COMPACT", f"{answer['status']}")


def _each(iterable: Any) -> Iterator[Any]:
    iterator = iterable.iterator()
    while iterator.hasNext():
        yield iterator.next()


def side_by_side(folder: Path) -> list[Answer]:
    """Play the interleaving under each committer, each on a table of its own."""
    (folder / "warehouse").mkdir(parents=True, exist_ok=True)
    with spark_over(folder) as spark:
        spark.sql("CREATE NAMESPACE local.db")
        plays: list[Callable[[], Answer]] = [
            lambda: by_iceberg(Stage(spark, "iceberg_true"), starting_sequence_number=True),
            lambda: by_iceberg(Stage(spark, "iceberg_false"), starting_sequence_number=False),
            lambda: by_us(Stage(spark, "ours"), folder),
        ]
        return [play() for play in plays]


def table_of(answers: list[Answer]) -> str:
    lines = [
        f"| committed by | answer | rows (right: {RIGHT}) | delete files left | |",
        "| --- | --- | --- | --- | --- |",
    ]
    lines += [f"| {a.committer} | {a.answer} | {a.rows} | {a.delete_files} | {a.verdict} |" for a in answers]
    return "\n".join(lines)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="regelate-") as made:
        found = side_by_side(Path(made))
    sys.stdout.write(table_of(found) + "\n")
    sys.exit(int(found[-1].verdict != "right"))
