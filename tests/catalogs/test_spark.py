"""Spark and the service on one catalog server: what one wrote the other compacts, and the rows are the same.

Every row is read by Spark, before and after. What Nessie does not show (trap T16) is no sign that nothing happened.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from moto.s3.models import s3_backends

from regelate.core.measures.impact import CheckName, Verdict
from regelate.pipeline import proof
from regelate.pipeline.events import EVENT_COLUMNS, Stream
from regelate.pipeline.ingest import MERGE_ON_READ, Ingest, append, create, ingest
from regelate.pipeline.ingest_job import frames
from regelate.pipeline.maintain import Job, maintain
from regelate.pipeline.names import TableName
from regelate.pipeline.options import Rewrite
from regelate.pipeline.proof import Proof
from regelate.pipeline.result import Result, Status
from regelate.pipeline.session import open_session
from regelate.pipeline.steps import StepKnobs, StepName
from regelate.pipeline.tables import SparkTable
from regelate.pipeline.terminal import Terminal
from tests.catalogs.lakes import GLUE_BUCKET, Shared, glue, nessie, rest
from tests.catalogs.served import stack_on
from tests.pipeline.conftest import LAUNCH
from tests.servers.moto_aws import client
from tests.servers.nessie import make_branch
from tests.spark.iceberg import each
from tests.support.iceberg_tables import live_data_paths, live_delete_files
from tests.system.faults.stack import Stack

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.catalogs
QUIET = Terminal(quiet=True)
ANY_TWO = Rewrite(options={"min-input-files": "2"})
Open = Callable[[str], Shared]
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def branch(nessie_rest: tuple[str, str]) -> str:
    make_branch(nessie_rest[0], "dev")
    return "dev"


@pytest.fixture
def shared(spark: SparkSession, iceberg_rest: str, nessie_rest: tuple[str, str], aws: str, branch: str) -> Open:
    """Return what opens a kind of catalog in the session; a name is given once, as Spark keeps what it opened."""

    def opened(kind: str) -> Shared:
        name = f"c{next(_numbers)}"
        if kind == "glue" and GLUE_BUCKET not in {b["Name"] for b in client("s3", aws).list_buckets()["Buckets"]}:
            client("s3", aws).create_bucket(Bucket=GLUE_BUCKET)
        found = {
            "rest": lambda: rest(name, iceberg_rest),
            "nessie": lambda: nessie(name, *nessie_rest),
            "nessie on a branch": lambda: nessie(name, *nessie_rest, ref=branch),
            "native nessie": lambda: nessie(name, *nessie_rest, native=True),
            "native nessie on a branch": lambda: nessie(name, *nessie_rest, ref=branch, native=True),
            "glue": lambda: glue(name, aws),
        }[kind]()
        open_session(found.spark, LAUNCH, app_name="catalogs")
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {name}.default")
        return found

    return opened


def made(spark: SparkSession, lake: Shared, inserts: int = 4) -> TableName:
    """Create a table of two partitions and insert into both so many times."""
    name = TableName.parse(f"{lake.spark.name}.default.t{next(_numbers)}")
    properties = ", ".join(f"'{key}' = '{value}'" for key, value in MERGE_ON_READ.items())
    spark.sql(
        f"CREATE TABLE {name.sql} (id bigint, kind string) USING iceberg PARTITIONED BY (kind) "
        f"TBLPROPERTIES ({properties})"
    )
    for number in range(inserts):
        insert(spark, name, 10 * number)
    return name


def insert(spark: SparkSession, name: TableName, start: int) -> None:
    kinds = "element_at(array('a', 'b'), cast(id % 2 + 1 AS int))"
    spark.sql(f"INSERT INTO {name.sql} SELECT /*+ COALESCE(1) */ id, {kinds} FROM range({start}, {start + 10})")


def rows_of(spark: SparkSession, name: TableName) -> Counter[tuple[object, ...]]:
    return Counter(tuple(row) for row in spark.sql(f"SELECT * FROM {name.sql}").collect())


def rows_of_service(stack: Stack, name: TableName) -> Counter[tuple[object, ...]]:
    return Counter((row["id"], row["kind"]) for row in stack.rows(name.table))


def compacted(spark: SparkSession, name: TableName, *, rollback: bool = False) -> Result:
    job = Job(rewrite=ANY_TWO, proof=Proof(rollback=rollback))
    return maintain(SparkTable(spark, name), job, QUIET)


def verdicts(done: Result) -> dict[object, object]:
    assert done.impact is not None
    checks: Any = done.impact["checks"]
    return {check["name"]: check["verdict"] for check in checks}


@pytest.mark.parametrize(
    "kind", ["rest", "nessie", "nessie on a branch", "native nessie", "native nessie on a branch", "glue"]
)
def test_each_engine_compacts_what_the_other_wrote_and_no_row_changes(
    spark: SparkSession, shared: Open, folder: Path, kind: str
) -> None:
    lake = shared(kind)
    stack = stack_on(folder, lake.service)
    name = made(spark, lake)
    spark.sql(f"DELETE FROM {name.sql} WHERE id IN (3, 14)")
    table = stack.table(f"default.{name.table}")
    assert live_delete_files(table), "Spark merges on read here"
    before = rows_of(spark, name)
    assert sum(before.values()) == 38
    assert stack.ok("COMPACT", name.table, force=True, expire_snapshots=False)["stats"]["files_after"] == 2
    assert rows_of(spark, name) == before
    assert live_delete_files(table.refresh()) == []

    for number in range(3):
        stack.ok("WRITE", name.table, records=[{"id": 100 + number, "kind": "a"}, {"id": 200 + number, "kind": "b"}])
    before = rows_of(spark, name)
    assert sum(before.values()) == 44
    done = compacted(spark, name)
    assert (done.status, done.error, verdicts(done)[CheckName.ROWS]) == (Status.COMPLETED, None, Verdict.PASSED)
    assert len(live_data_paths(table.refresh())) == 2
    assert rows_of(spark, name) == rows_of_service(stack, name) == before


@pytest.mark.parametrize("native", ["", "native "])
def test_a_branch_of_nessie_is_compacted_and_main_stays_as_it_is(
    spark: SparkSession, shared: Open, nessie_rest: tuple[str, str], native: str
) -> None:
    main = shared(f"{native}nessie")
    name = made(spark, main)
    branch = f"since_{name.table}"
    make_branch(nessie_rest[0], branch)
    lake = nessie(f"{branch}_lake", *nessie_rest, ref=branch, native=bool(native))
    open_session(lake.spark, LAUNCH, app_name="catalogs")
    there = TableName(catalog=lake.spark.name, namespace=name.namespace, table=name.table)
    before, head = rows_of(spark, name), SparkTable(spark, name).snapshot_id
    done = compacted(spark, there)
    assert done.stats is not None
    assert (done.stats.files_before, done.stats.files_after) == (8, 2)
    assert rows_of(spark, there) == before
    stays = SparkTable(spark, name)
    assert (stays.snapshot_id, stays.file_metrics().whole.files) == (head, 8)


@pytest.mark.parametrize("kind", ["nessie", "native nessie"])
def test_t16_what_would_delete_files_is_refused_and_names_nessies_own_tool(
    spark: SparkSession, shared: Open, kind: str
) -> None:
    name = made(spark, shared(kind), inserts=2)
    job = Job(steps=(StepName.EXPIRE, StepName.ORPHANS), knobs=StepKnobs(retention_hours=1.0, delete_orphans=True))
    done = maintain(SparkTable(spark, name), job, QUIET, clock=lambda: time.time() + 7 * 86_400)
    assert done.status is Status.FAILED
    for step in done.steps:
        assert step.error is not None
        assert step.error.code == "GC_DISABLED"
        assert "nessie-gc" in step.error.message
    assert sum(rows_of(spark, name).values()) == 20


def test_t16_a_validation_judges_the_rows_although_only_the_head_is_shown(spark: SparkSession, shared: Open) -> None:
    name = made(spark, shared("nessie"))
    table = SparkTable(spark, name)
    assert [entry.parent_id for entry in table.log] == [None]
    job = Job(rewrite=ANY_TWO, proof=Proof(rollback=True), steps=(StepName.REWRITE, StepName.MANIFESTS))
    done = maintain(table, job, QUIET)
    assert (done.status, done.error) == (Status.COMPLETED, None)
    found = verdicts(done)
    judged = (CheckName.ROWS, CheckName.FILE_COUNT, CheckName.AVERAGE_SIZE)
    assert [found[name] for name in judged] == [Verdict.PASSED] * 3
    assert len(table.history) == 3, "the head before, and both commits"


def test_t16_rows_that_others_wrote_meanwhile_are_no_failure(
    spark: SparkSession, shared: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = made(spark, shared("nessie"))
    refresh = SparkTable.refresh

    def refreshed_after_another_commit(table: SparkTable) -> None:
        refresh(table)
        if table.history[-1].operation == "replace":
            monkeypatch.setattr(SparkTable, "refresh", refresh)
            insert(spark, name, 900)

    monkeypatch.setattr(SparkTable, "refresh", refreshed_after_another_commit)
    done = compacted(spark, name, rollback=True)
    assert (done.error, verdicts(done)[CheckName.ROWS]) == (None, Verdict.NOT_APPLICABLE)
    assert done.impact is not None
    assert done.impact["foreign_commits"] == 1
    assert sum(rows_of(spark, name).values()) == 50


def test_t16_a_failed_validation_says_how_to_go_back_on_nessie(
    spark: SparkSession, shared: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = made(spark, shared("nessie"))
    prints = iter([proof.Fingerprint(rows=40, hash_sum="1"), proof.Fingerprint(rows=40, hash_sum="2")])
    monkeypatch.setattr(proof, "fingerprint", lambda *_: next(prints))
    done = compacted(spark, name, rollback=True)
    assert done.error is not None
    assert done.error.code == "VALIDATION_FAILED"
    assert done.impact is not None
    assert "assign the branch to the commit before" in str(done.impact["not_gone_back_because"])


def test_t16_an_ingest_counts_all_its_commits(spark: SparkSession, shared: Open) -> None:
    name = TableName.parse(f"{shared('nessie').spark.name}.default.ingested")
    stream = Stream(events=60, batches=3)
    table = create(spark, name, EVENT_COLUMNS, "event_type", MERGE_ON_READ)

    def write(table: SparkTable, terminal: Terminal) -> None:
        append(table, frames(spark, stream), terminal)

    for _ in range(2):
        work = Ingest(source="events", mode="batches", optimized_write=False, write=write)
        found = ingest(table, work, QUIET).ingest
        assert (found.commits, found.rows) == (3, 60)
    whole = table.file_metrics().whole
    assert (whole.rows, whole.files) == (120, 2 * found.files)


def test_a_failed_validation_goes_back_where_nessie_shows_the_whole_history(
    spark: SparkSession, shared: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = made(spark, shared("native nessie"))
    before, head = rows_of(spark, name), SparkTable(spark, name).snapshot_id
    prints = iter([proof.Fingerprint(rows=40, hash_sum="1"), proof.Fingerprint(rows=40, hash_sum="2")])
    monkeypatch.setattr(proof, "fingerprint", lambda *_: next(prints))
    done = compacted(spark, name, rollback=True)
    assert done.impact is not None
    assert (done.impact["went_back_to"], done.impact["not_gone_back_because"]) == (head, None)
    back = SparkTable(spark, name)
    assert (back.snapshot_id, back.file_metrics().whole.files, rows_of(spark, name)) == (head, 8, before)


def test_t16_icebergs_rewrite_gives_way_to_any_commit_that_it_cannot_look_behind(
    spark: SparkSession, shared: Open
) -> None:
    """An append would be no conflict; without a history Iceberg cannot know that it is one, and refuses."""
    from py4j.protocol import Py4JJavaError

    name = made(spark, shared("nessie"))
    java: Any = SparkTable(spark, name).java
    jvm: Any = spark._jvm
    old, new = jvm.java.util.HashSet(), jvm.java.util.HashSet()
    tasks = list(each(java.newScan().planFiles()))
    old.add(tasks[0].file())
    new.add(tasks[1].file())
    rewrite = java.newRewrite().validateFromSnapshot(java.currentSnapshot().snapshotId()).rewriteFiles(old, new)
    insert(spark, name, 900)
    with pytest.raises(Py4JJavaError, match="Cannot determine history between starting snapshot"):
        rewrite.commit()
    assert sum(rows_of(spark, name).values()) == 50


def test_orphans_on_s3_are_listed_and_deleted_and_a_sibling_with_a_longer_name_is_left_alone(
    spark: SparkSession, shared: Open, aws: str
) -> None:
    lake = shared("glue")
    name = made(spark, lake, inserts=1)
    location = str(SparkTable(spark, name).metadata["location"])
    key = location.removeprefix(f"s3://{GLUE_BUCKET}/")
    s3 = client("s3", aws)
    stray, young, siblings = (f"{key}/data/stray", f"{key}/data/young", f"{key}0/data/of_another_table")
    for place in (stray, young, siblings):
        s3.put_object(Bucket=GLUE_BUCKET, Key=place, Body=b"PAR1")
    for place in (stray, siblings):
        bucket = s3_backends["123456789012"]["aws"].buckets[GLUE_BUCKET]
        bucket.keys[place].last_modified = datetime.now(UTC).replace(tzinfo=None) - timedelta(days=9)
    before = rows_of(spark, name)
    for delete, found in ((False, {"orphan_files": 1}), (True, {"orphan_files": 1, "deleted_files_count": 1})):
        job = Job(steps=(StepName.ORPHANS,), knobs=StepKnobs(delete_orphans=delete))
        (step,) = maintain(SparkTable(spark, name), job, QUIET).steps
        assert step.error is None
        assert {count: step.found[count] for count in found} == found
        assert step.found["orphans"] == [f"s3://{GLUE_BUCKET}/{stray}"]
    left = {found["Key"] for found in s3.list_objects_v2(Bucket=GLUE_BUCKET, Prefix=key)["Contents"]}
    assert stray not in left
    assert {young, siblings} <= left
    assert rows_of(spark, name) == before
