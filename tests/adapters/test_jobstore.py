"""Both job stores keep the same promises: SQLite in a file, DynamoDB and SQS on moto's server."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from regelate.adapters.records.dynamo_jobs import DynamoJobs
from regelate.adapters.records.record_json import from_json, to_json
from regelate.adapters.records.sqlite_jobs import SqliteJobs
from regelate.adapters.records.sqs import SqsQueue
from regelate.core.jobs.job import JobRecord, JobState, JobTotals, Origin
from regelate.core.jobs.listing import EVERY_JOB, JobFilter, place_of
from regelate.core.requests import CompactRequest
from regelate.errors import Unavailable
from regelate.operations.jobs.jobs import changed
from tests.servers.moto_aws import aws_server, client, jobs_table

Store = Any
WEEK = 7 * 24 * 3600.0


@pytest.fixture(scope="module")
def aws() -> Iterator[Callable[[str], Any]]:
    with aws_server() as endpoint:
        yield lambda service: client(service, endpoint)


@pytest.fixture(params=["sqlite", "dynamodb"])
def store(request: pytest.FixtureRequest, tmp_path: Path, aws: Callable[[str], Any]) -> Store:
    if request.param == "sqlite":
        return SqliteJobs(tmp_path / "jobs.db", retention_seconds=WEEK)
    name = f"jobs-{abs(hash(tmp_path))}"
    dynamodb = aws("dynamodb")
    jobs_table(dynamodb, name)
    return DynamoJobs(name, retention_seconds=WEEK, client=dynamodb)


def job(store: Store, job_id: str = "job-1", ident: str = "db.t") -> JobRecord:
    now = store.now_ms()
    return JobRecord(
        job_id=job_id,
        tenant_id="t",
        catalog="local",
        ident=ident,
        table="t",
        run_id="run",
        request=CompactRequest(force=True),
        origin=Origin.REQUEST,
        created_ms=now,
        updated_ms=now,
    )


def test_a_record_comes_back_as_it_was_stored(store: Store) -> None:
    totals = JobTotals(files_compacted=3, snapshot_ids=(2**62, 5))
    full = replace(job(store), totals=totals, resume_token="abc", error='{"code": "X"}', groups_all=8)
    assert store.add(full) == full
    assert store.get("job-1") == full
    assert from_json(to_json(full)) == full
    assert store.get("job-2") is None


class Resending:
    """A client that sends every change twice, as boto3 does when no reply came; the second is the one that is told."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.resent = 0

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._client, name)
        if name not in ("put_item", "update_item"):
            return call

        def twice(**arguments: Any) -> Any:
            call(**arguments)
            self.resent += 1
            return call(**arguments)

        return twice


@pytest.fixture
def resending(tmp_path: Path, aws: Callable[[str], Any]) -> DynamoJobs:
    name = f"resent-{abs(hash(tmp_path))}"
    jobs_table(aws("dynamodb"), name)
    return DynamoJobs(name, retention_seconds=WEEK, client=Resending(aws("dynamodb")))


def test_a_job_whose_reply_was_lost_is_the_tables_all_the_same(resending: DynamoJobs) -> None:
    first = resending.add(job(resending))
    assert resending.live(first.lock) == first == resending.get("job-1")
    assert resending.add(job(resending, "job-2")) == first


def test_a_change_whose_reply_was_lost_is_made_once(resending: DynamoJobs) -> None:
    resending.add(job(resending))
    after = changed(resending, "job-1", lambda record: record.started(1, record.updated_ms + 1))
    assert resending.get("job-1") == after
    assert (after.state, after.attempts, after.version) == (JobState.RUNNING, 1, 2)


def test_a_table_has_one_live_job_and_a_second_one_meets_it(store: Store) -> None:
    first = store.add(job(store))
    assert store.add(job(store, "job-2")) == first
    assert store.get("job-2") is None
    assert store.live("local/db.t") == first
    other = job(store, "job-3", ident="db.other")
    assert store.add(other) == other
    assert store.live("local/db.none") is None


def test_the_same_job_submitted_again_is_met_even_when_it_has_ended(store: Store) -> None:
    first = store.add(job(store))
    ended = first.cancel_asked(store.now_ms())
    assert store.save(first, ended)
    assert store.live("local/db.t") is None
    assert store.add(job(store)) == ended
    following = store.add(job(store, "job-2"))
    assert (following.job_id, store.live("local/db.t")) == ("job-2", following)


def test_of_two_changes_to_one_version_only_the_first_is_stored(store: Store) -> None:
    record = store.add(job(store))
    first, second = record.started(1, 5), record.cancel_asked(5)
    assert store.save(record, first)
    assert not store.save(record, second)
    assert store.get("job-1").state is JobState.RUNNING


def test_of_many_at_once_one_job_is_made_and_all_meet_it(store: Store) -> None:
    met: list[str] = []
    threads = [
        threading.Thread(target=lambda n=n: met.append(store.add(job(store, f"job-{n}")).job_id)) for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(met) == 8
    assert set(met) == {store.live("local/db.t").job_id}


def test_a_lease_has_one_holder_until_it_runs_out_and_every_next_one_a_higher_fence(store: Store) -> None:
    first = store.acquire("local/db.t", "a", 60)
    assert first.fence == 1
    assert store.acquire("local/db.t", "b", 60) is None
    assert store.held("local/db.t")
    assert store.acquire("local/db.other", "b", 60).fence == 1
    store.release(first)
    assert not store.held("local/db.t")
    second = store.acquire("local/db.t", "b", 0)  # has run out at once
    third = store.acquire("local/db.t", "c", 60)
    assert (second.fence, third.fence) == (2, 3)


def test_whose_lease_was_taken_over_can_neither_renew_nor_release_it(store: Store) -> None:
    late = store.acquire("local/db.t", "a", 0)
    held = store.acquire("local/db.t", "b", 60)
    assert not store.renew(late, 60)
    store.release(late)
    assert store.acquire("local/db.t", "c", 60) is None
    assert store.renew(held, 60)


def test_a_lease_that_ran_out_and_that_nobody_took_can_be_renewed(store: Store) -> None:
    late = store.acquire("local/db.t", "a", 0)
    assert store.renew(late, 60)
    assert store.acquire("local/db.t", "b", 60) is None


def test_of_many_at_once_one_gets_the_lease(store: Store) -> None:
    got: list[object] = []
    threads = [
        threading.Thread(target=lambda n=n: got.append(store.acquire("local/db.t", f"w{n}", 60))) for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len([lease for lease in got if lease is not None]) == 1


def test_the_newest_jobs_come_first(store: Store) -> None:
    for number in range(3):
        made = replace(job(store, f"job-{number}", ident=f"db.t{number}"), created_ms=number)
        store.add(made)
    assert [record.job_id for record in store.listed(EVERY_JOB, 2)] == ["job-2", "job-1"]


def test_the_jobs_that_wait_are_counted_and_no_others(store: Store) -> None:
    assert store.waiting() == 0
    first, second, _ = (store.add(job(store, f"job-{number}", ident=f"db.t{number}")) for number in range(3))
    assert store.waiting() == 3
    assert store.save(first, first.started(1, first.updated_ms))
    assert store.save(second, second.cancel_asked(second.updated_ms))
    assert store.waiting() == 1
    running = store.get(first.job_id)
    assert store.save(running, running.put_back(running.updated_ms))
    assert store.waiting() == 2


def test_a_list_goes_on_after_a_job_also_where_many_were_made_in_one_millisecond(store: Store) -> None:
    now = store.now_ms()
    for number in range(7):
        store.add(replace(job(store, f"job-{number}", ident=f"db.t{number}"), created_ms=now + number // 4))
    found: list[str] = []
    after = None
    while page := store.listed(EVERY_JOB, 2, after=after):
        found += [record.job_id for record in page]
        after = place_of(page[-1])
    assert found == [f"job-{number}" for number in (6, 5, 4, 3, 2, 1, 0)]


def test_a_list_shows_what_is_asked_for_and_whose_it_is(store: Store) -> None:
    own = store.add(job(store, "own", "db.a"))
    foreign = store.add(replace(job(store, "foreign", "db.b"), tenant_id="other"))
    labelled = store.add(replace(job(store, "labelled", "db.c"), tenant_id="other", catalog="shared"))
    ended = store.add(job(store, "ended", "db.d"))
    store.save(ended, ended.cancel_asked(store.now_ms()))

    def listed(**asked: Any) -> set[str]:
        return {record.job_id for record in store.listed(JobFilter(**asked), 9)}

    assert listed() == {"own", "foreign", "labelled", "ended"}
    assert listed(tenant_id="t") == {"own", "ended"}
    assert listed(tenant_id="t", shared=("shared", "none")) == {"own", "labelled", "ended"}
    assert listed(tenant_id="t", lock=foreign.lock) == set()
    assert listed(lock=foreign.lock) == {"foreign"}
    assert listed(tenant_id="t", shared=("shared",), state=JobState.QUEUED) == {own.job_id, labelled.job_id}
    assert listed(tenant_id="t", state=JobState.CANCELLED, lock=ended.lock) == {"ended"}


def test_sqlite_names_what_waits_and_what_a_dead_worker_left_but_nothing_that_is_held_or_not_due(
    tmp_path: Path,
) -> None:
    store = SqliteJobs(tmp_path / "jobs.db", retention_seconds=WEEK)
    assert store.due(10) == ()
    assert not (tmp_path / "jobs.db").exists()
    now = store.now_ms()
    waiting = store.add(job(store, "waiting", "db.a"))
    held = store.add(job(store, "held", "db.b"))
    dead = store.add(job(store, "dead", "db.c"))
    store.add(replace(job(store, "later", "db.d"), not_before_ms=now + 3_600_000))
    store.save(held, held.started(store.acquire(held.lock, "w", 60).fence, now))  # type: ignore[union-attr]
    store.save(dead, dead.started(store.acquire(dead.lock, "w", 0).fence, now))  # type: ignore[union-attr]
    assert set(store.due(10)) == {"waiting", "dead"}
    store.save(waiting, waiting.cancel_asked(now))
    assert store.due(10) == ("dead",)


def test_sqlite_forgets_jobs_that_ended_longer_ago_than_they_are_kept(tmp_path: Path) -> None:
    store = SqliteJobs(tmp_path / "jobs.db", retention_seconds=WEEK)
    old = replace(job(store), updated_ms=store.now_ms() - int(WEEK * 1000) - 1)
    ended = replace(old, state=JobState.CANCELLED)
    store.add(ended)
    store.add(replace(job(store, "live", "db.b"), updated_ms=old.updated_ms))
    store.add(job(store, "new", "db.c"))
    assert {record.job_id for record in store.listed(EVERY_JOB, 9)} == {"live", "new"}


def test_a_file_that_is_no_database_is_a_fault_with_a_name(tmp_path: Path) -> None:
    (tmp_path / "jobs.db").write_text("not a database, certainly not one" * 50)
    with pytest.raises(Unavailable) as caught:
        SqliteJobs(tmp_path / "jobs.db", retention_seconds=WEEK).get("job-1")
    assert caught.value.code == "JOBS_UNAVAILABLE"


def test_a_dynamodb_table_that_is_missing_is_a_fault_with_a_name(aws: Callable[[str], Any]) -> None:
    with pytest.raises(Unavailable) as caught:
        DynamoJobs("nowhere", retention_seconds=WEEK, client=aws("dynamodb")).get("job-1")
    assert (caught.value.code, caught.value.retryable) == ("JOBS_UNAVAILABLE", True)


def test_dynamodb_lets_its_ttl_remove_what_has_ended_and_nothing_that_is_alive(
    tmp_path: Path, aws: Callable[[str], Any]
) -> None:
    dynamodb, name = aws("dynamodb"), f"ttl-{abs(hash(tmp_path))}"
    jobs_table(dynamodb, name)
    store = DynamoJobs(name, retention_seconds=WEEK, client=dynamodb)
    record = store.add(job(store))

    def expires() -> object:
        (item,) = [i for i in dynamodb.scan(TableName=name)["Items"] if i["pk"]["S"].startswith("job#")]
        return item.get("expires")

    assert expires() is None
    running = record.started(1, record.updated_ms)
    assert store.save(record, running)
    assert expires() is None
    ended = running.failed("{}", record.updated_ms + 5_000)
    assert store.save(running, ended)
    assert expires() == {"N": str(ended.updated_ms // 1000 + int(WEEK))}


def test_a_message_that_is_sent_twice_arrives_once_and_a_table_has_one_at_a_time(aws: Callable[[str], Any]) -> None:
    sqs = aws("sqs")
    url = sqs.create_queue(QueueName="jobs.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    queue = SqsQueue(url, client=sqs)
    record = JobRecord(
        job_id="job-1",
        tenant_id="t",
        catalog="local",
        ident="db.t",
        table="t",
        run_id="run",
        request=CompactRequest(),
        origin=Origin.REQUEST,
        created_ms=1,
        updated_ms=1,
    )
    following = record.started(1, 2).continued("token", JobTotals(), "{}", 3)
    for sent in (record, record, following):
        queue.send(sent)
    first = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, AttributeNames=["MessageGroupId"])["Messages"]
    bodies = [json.loads(message["Body"]) for message in first]
    assert bodies[0] == {"job_id": "job-1", "part": 1}
    queue.postpone(first[0]["ReceiptHandle"], 0)
    assert [body for body in bodies if body["part"] == 1] == [bodies[0]]


def test_every_look_at_a_job_of_sparks_is_a_message_of_its_own(tmp_path: Path) -> None:
    names: list[str] = []
    sqs = SimpleNamespace(send_message=lambda **sent: names.append(sent["MessageDeduplicationId"]))
    queue, store = SqsQueue("q.fifo", client=sqs), SqliteJobs(tmp_path / "jobs.db", retention_seconds=WEEK)
    submitted = job(store)
    handed_over = submitted.started(1, 2).handed_over("too large", 3)
    looked_at = handed_over.started(2, 4).placed("run-1", "too large", 5, 60.0)
    for sent in (submitted, handed_over, looked_at, looked_at, looked_at.taken_over(3, 6)):
        queue.send(sent)
    assert names[2] == names[3]
    assert (len(set(names)), max(map(len, names)) <= 128) == (4, True)


def test_a_queue_that_is_missing_says_that_the_job_is_stored(aws: Callable[[str], Any], tmp_path: Path) -> None:
    store = SqliteJobs(tmp_path / "jobs.db", retention_seconds=WEEK)
    queue = SqsQueue("http://127.0.0.1:9/123456789012/none.fifo", client=aws("sqs"))
    with pytest.raises(Unavailable) as caught:
        queue.send(job(store))
    assert caught.value.details["job_id"] == "job-1"


def test_without_a_region_both_say_that_they_cannot_be_reached(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    for made in (lambda: DynamoJobs("jobs", retention_seconds=WEEK), lambda: SqsQueue("http://127.0.0.1/q.fifo")):
        with pytest.raises(Unavailable, match="NoRegionError") as caught:
            made()
        assert caught.value.code == "JOBS_UNAVAILABLE"
