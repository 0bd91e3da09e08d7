"""Spark jobs on EMR Serverless: started once by their name, asked how they stand, cancelled.

The program that a run needs is this package itself: it is put into the bucket before the first run of each version.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from regelate.core.jobs.spark_job import SparkJobSpec, SparkRun, SparkState, answered
from regelate.core.policy.timeouts import Timeouts
from regelate.errors import Unavailable

Pack = Callable[[Path], tuple[Path, ...]]
PROGRAM = "pipeline.py"
JOB_TAG = "regelate:job"
CLOCKS_DIFFER = timedelta(minutes=10)
STATES: Mapping[str, SparkState] = {
    "SUBMITTED": SparkState.WAITING,
    "PENDING": SparkState.WAITING,
    "SCHEDULED": SparkState.WAITING,
    "QUEUED": SparkState.WAITING,
    "RUNNING": SparkState.RUNNING,
    "CANCELLING": SparkState.RUNNING,
    "SUCCESS": SparkState.ENDED,
    "FAILED": SparkState.ENDED,
    "CANCELLED": SparkState.CANCELLED,
}
_PASSES = frozenset(
    {"InternalServerException", "ServiceQuotaExceededException", "ThrottlingException", "TooManyRequestsException"}
)
READ_SECONDS = 10.0


class EmrServerless:
    """Implements SparkJobs. `location` is `s3://bucket/prefix`, for the program and the results.

    Errors: Unavailable SPARK_UNAVAILABLE; not retryable where AWS refuses the call itself.
    """

    def __init__(
        self,
        application_id: str,
        role_arn: str,
        location: str,
        *,
        pack: Pack,
        emr: Any = None,
        s3: Any = None,
        timeouts: Timeouts | None = None,
    ) -> None:
        self._application_id = application_id
        self._role_arn = role_arn
        self._location = location.rstrip("/")
        bucket, _, prefix = self._location.removeprefix("s3://").partition("/")
        self._bucket, self._prefix = bucket, f"{prefix}/" if prefix else ""
        self._pack = pack
        patience = _config(timeouts or Timeouts())
        with _faults("a client could not be made"):
            self._emr = boto3.client("emr-serverless", config=patience) if emr is None else emr
            self._s3 = boto3.client("s3", config=patience) if s3 is None else s3

    def start(self, spec: SparkJobSpec) -> str:
        """Start a run, or return the one of this name: its answer may have been lost, or its starter died."""
        with _faults("the Spark job could not be started"):
            known = self._known(spec)
            if known is not None:
                return known
            archive, program = self._program()
            answer = self._emr.start_job_run(
                applicationId=self._application_id,
                clientToken=spec.name,
                executionRoleArn=self._role_arn,
                name=spec.name,
                executionTimeoutMinutes=max(round(spec.timeout_seconds / 60), 5),
                tags={JOB_TAG: spec.job_id},
                jobDriver={
                    "sparkSubmit": {
                        "entryPoint": program,
                        "entryPointArguments": [*spec.arguments, "--result", self._result_uri(spec.name)],
                        "sparkSubmitParameters": submit_parameters(spec.conf, archive),
                    }
                },
                **({} if spec.policy is None else {"executionIamPolicy": {"policy": spec.policy}}),
            )
            return str(answer["jobRunId"])

    def _known(self, spec: SparkJobSpec) -> str | None:
        """Look for a run that was started before, by its name and its tag: a client token is not kept for ever."""
        since = datetime.fromtimestamp(spec.created_ms / 1000, tz=UTC) - CLOCKS_DIFFER
        pages = self._emr.get_paginator("list_job_runs").paginate(
            applicationId=self._application_id, createdAtAfter=since
        )
        for page in pages:
            for run in page["jobRuns"]:
                if run.get("name") == spec.name and self._tagged(run["id"]) == spec.job_id:
                    return str(run["id"])
        return None

    def _tagged(self, run_id: str) -> str | None:
        tags = self._run(run_id).get("tags") or {}
        return tags.get(JOB_TAG)

    def _run(self, run_id: str) -> dict[str, Any]:
        found = self._emr.get_job_run(applicationId=self._application_id, jobRunId=run_id)
        return dict(found["jobRun"])

    def look(self, run_id: str) -> SparkRun:
        try:
            with _faults("the Spark job could not be asked"):
                run = self._run(run_id)
                state = STATES.get(run["state"], SparkState.RUNNING)
                if state not in (SparkState.ENDED, SparkState.CANCELLED):
                    return SparkRun(state=state)
                result = self._result(run["name"])
                if result is not None:
                    return answered(result)
                return SparkRun(state=state, detail=str(run.get("stateDetails") or run["state"]))
        except _Unknown:
            return SparkRun(state=SparkState.ENDED, detail="EMR Serverless knows no such run")

    def cancel(self, run_id: str) -> None:
        try:
            with _faults("the Spark job could not be cancelled"):
                self._emr.cancel_job_run(applicationId=self._application_id, jobRunId=run_id)
        except _Unknown:
            return

    def job_of(self, run_id: str) -> str | None:
        """Return the job that a run belongs to, None for one that is none of this service."""
        try:
            with _faults("the Spark job could not be asked"):
                return self._tagged(run_id)
        except _Unknown:
            return None

    def _result_uri(self, name: str) -> str:
        return f"{self._location}/results/{name}.json"

    def _result(self, name: str) -> bytes | None:
        """Read the result of a run; None where it ended before it could write one."""
        try:
            found = self._s3.get_object(Bucket=self._bucket, Key=f"{self._prefix}results/{name}.json")
        except ClientError as error:
            if _code(error) in ("404", "NoSuchKey"):
                return None
            raise
        return bytes(found["Body"].read())

    def _program(self) -> tuple[str, str]:
        """Return the URIs of the zip and the program; puts them there unless this very version is."""
        with tempfile.TemporaryDirectory(prefix="regelate-") as folder:
            archive, *programs = self._pack(Path(folder))
            program = next(path for path in programs if path.name == PROGRAM)
            digest = hashlib.sha256(archive.read_bytes() + program.read_bytes()).hexdigest()[:16]
            for path in (archive, program):
                key = f"{self._prefix}program/{digest}/{path.name}"
                if not self._is_there(key):
                    self._s3.put_object(Bucket=self._bucket, Key=key, Body=path.read_bytes())
        return (
            f"{self._location}/program/{digest}/{archive.name}",
            f"{self._location}/program/{digest}/{program.name}",
        )

    def _is_there(self, key: str) -> bool:
        try:
            self._s3.head_object(Bucket=self._bucket, Key=key)
        except ClientError as error:
            if _code(error) in ("404", "NoSuchKey"):
                return False
            raise
        return True


def submit_parameters(conf: Mapping[str, str], archive: str) -> str:
    """Return spark-submit's flags as the one text that EMR splits as a shell would: a value may hold blanks, quotes."""
    flags = [f"--conf {_quoted(f'{key}={value}')}" for key, value in conf.items()]
    return " ".join([f"--py-files {archive}", *flags])


def _quoted(text: str) -> str:
    if not any(character.isspace() or character in "\"'\\" for character in text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


class _Unknown(Exception):
    """There is no such run."""


def _config(timeouts: Timeouts) -> Config:
    patience = timeouts.at_most(read_seconds=READ_SECONDS)
    return Config(
        connect_timeout=patience.connect_seconds,
        read_timeout=patience.read_seconds,
        retries={"mode": "standard", "max_attempts": 5},
    )


@contextmanager
def _faults(what: str) -> Iterator[None]:
    try:
        yield
    except ClientError as error:
        code = _code(error)
        if code == "ResourceNotFoundException" and error.operation_name in ("GetJobRun", "CancelJobRun"):
            raise _Unknown from error
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        told = f"{what}: AWS answered {code}"
        if code in _PASSES or status >= 500:
            raise Unavailable("SPARK_UNAVAILABLE", told) from error
        raise Unavailable("SPARK_UNAVAILABLE", told, retryable=False) from error
    except BotoCoreError as error:
        raise Unavailable("SPARK_UNAVAILABLE", f"{what}: {type(error).__name__}") from error


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))
