"""One step of a run of Spark's, for every state, time and fault: the job can always come to its end."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from regelate.core.answers import CompactAnswer
from regelate.core.engines import Engine
from regelate.core.jobs.job import JobRecord, JobState, Origin
from regelate.core.jobs.spark_job import REMOTE_GRACE_SECONDS, SparkJobSpec, SparkRun, SparkState
from regelate.core.requests import CompactRequest
from regelate.errors import RegelateError, Unavailable
from regelate.operations.compacting.partial_progress import Stop
from regelate.operations.jobs.delegating import Patience, spark_part
from regelate.operations.jobs.parts import Elsewhere
from tests.system.faults.test_delegation import DONE

PATIENCE = Patience(start_seconds=600.0, run_seconds=3600.0, look_again_seconds=60.0)
SPEC = SparkJobSpec(
    name="job-1-1", job_id="job-1", created_ms=1, table="c.n.t", request="{}", conf={}, timeout_seconds=3600.0
)
WENT_WRONG = {"success": False, "error": {"code": "COMMIT_CONFLICT", "message": "m", "retryable": True}}
ANSWERS: st.SearchStrategy[Any] = st.sampled_from([None, {}, WENT_WRONG, DONE.answer])
RUNS = st.one_of(
    st.sampled_from([SparkRun(state=SparkState.WAITING), SparkRun(state=SparkState.RUNNING)]),
    st.builds(SparkRun, state=st.sampled_from([SparkState.ENDED, SparkState.CANCELLED]), answer=ANSWERS),
)


class OneRun:
    """Implements SparkJobs for one run that stands as it is given, or cannot be asked."""

    def __init__(self, run: SparkRun | None) -> None:
        self.run = run
        self.cancelled = False

    def start(self, spec: SparkJobSpec) -> str:
        return "run-1"

    def look(self, run_id: str) -> SparkRun:
        if self.run is None:
            raise Unavailable("SPARK_UNAVAILABLE", "throttled")
        return self.run

    def cancel(self, run_id: str) -> None:
        self.cancelled = True
        if self.run is None:
            raise Unavailable("SPARK_UNAVAILABLE", "throttled")

    def job_of(self, run_id: str) -> str | None:
        return "job-1"


@given(
    run=RUNS | st.none(),
    cancelling=st.booleans(),
    waited=st.integers(0, 10_000),
)
def test_every_step_leaves_the_job_at_its_end_or_on_its_way_there(
    run: SparkRun | None, cancelling: bool, waited: int
) -> None:
    state = JobState.CANCELLING if cancelling else JobState.RUNNING
    record = JobRecord(
        job_id="job-1", tenant_id="t", catalog="c", ident="n.t", table="t", run_id="r", request=CompactRequest(),
        origin=Origin.REQUEST, created_ms=1, updated_ms=1, state=state, engine=Engine.SPARK,
        remote="run-1", remote_ms=1,
    )  # fmt: skip
    spark, settled = OneRun(run), list[CompactAnswer]()

    def settle(answer: CompactAnswer) -> CompactAnswer:
        settled.append(answer)
        return answer

    now, late = 1 + waited * 1000, waited > PATIENCE.run_seconds + REMOTE_GRACE_SECONDS
    try:
        done = spark_part(spark, record, lambda: SPEC, PATIENCE, now_ms=now, why="w", settle=settle)
    except RegelateError:
        assert run is None
        assert not late, "whoever cannot be asked holds no table for ever"
        return
    if isinstance(done, Elsewhere):
        assert run is not None
        assert not run.is_over
        assert not late
        assert spark.cancelled is cancelling
        return
    if done.stopped is Stop.CANCELLED:
        assert cancelling, "a job that nobody has cancelled cannot become CANCELLED"
    landed = run is not None and run.is_over and run.answer == DONE.answer
    assert (done.failed is None and done.stopped is None) is landed
    assert (len(settled) == 1) is (landed and not late)
    if run is None or not run.is_over:
        assert done.failed is not None
        assert (done.failed.code, spark.cancelled) == ("DELEGATION_TIMEOUT", True)
