"""The JSON API of EMR Serverless on loopback: what moto's lacks, and the jobs run by a real spark-submit if wanted.

Runs go through SUBMITTED, PENDING, SCHEDULED, RUNNING to SUCCESS, FAILED or CANCELLED; the same client token gives the
same run; calls can be throttled, and an answer lost after its call was carried out.
https://docs.aws.amazon.com/emr-serverless/latest/APIReference/
"""

from __future__ import annotations

import json
import shlex
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

APPLICATION, ACCOUNT = "00fapp1", "123456789012"
FINAL = ("SUCCESS", "FAILED", "CANCELLED")
Run = dict[str, Any]
Runner = Callable[[Run], "subprocess.Popen[bytes]"]


@dataclass
class EmrState:
    """What the server knows. `throttled`: calls still to be refused; `losing`: answers still to be lost.

    `runner` starts a run's own process; without one a run stays as the test sets it.
    """

    runs: dict[str, Run] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)
    throttled: int = 0
    losing: int = 0
    runner: Runner | None = None
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self, wanted: Mapping[str, Any]) -> Run:
        for run in self.runs.values():
            if run["clientToken"] == wanted["clientToken"]:
                return run
        number = f"00r{len(self.runs):013x}"
        arn = f"arn:aws:emr-serverless:us-east-1:{ACCOUNT}:/applications/{APPLICATION}/jobruns/{number}"
        run = {
            **wanted, "jobRunId": number, "arn": arn, "state": "SUBMITTED", "stateDetails": "",
            "createdAt": time.time(), "updatedAt": time.time(),
        }  # fmt: skip
        self.runs[number] = run
        if self.runner is not None:
            self.processes[number] = self.runner(run)
            run["state"] = "RUNNING"
        return run

    def looked(self, run: Run) -> Run:
        process = self.processes.get(run["jobRunId"])
        if process is not None and run["state"] not in FINAL and process.poll() is not None:
            ended = "CANCELLED" if run["state"] == "CANCELLING" else "SUCCESS" if process.returncode == 0 else "FAILED"
            run |= {"state": ended, "stateDetails": f"exit code {process.returncode}"}
        return run

    def cancel(self, run: Run) -> None:
        process = self.processes.get(run["jobRunId"])
        if run["state"] in FINAL:
            return
        run["state"] = "CANCELLED" if process is None else "CANCELLING"
        if process is not None:
            process.terminate()


def _shown(run: Run) -> Run:
    return {
        "applicationId": APPLICATION, "jobRunId": run["jobRunId"], "arn": run["arn"], "name": run.get("name"),
        "createdBy": "arn:aws:sts::1:x", "createdAt": run["createdAt"], "updatedAt": run["updatedAt"],
        "executionRole": run["executionRoleArn"], "state": run["state"], "stateDetails": run["stateDetails"],
        "releaseLabel": "emr-7.13.0", "jobDriver": run["jobDriver"], "tags": run.get("tags", {}),
    }  # fmt: skip


def _handler(state: EmrState) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            return

        def _answer(self, status: int, made: Mapping[str, Any], error: str = "") -> None:
            body = json.dumps(made).encode()
            self.send_response(status)
            if error:
                self.send_header("x-amzn-ErrorType", error)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            with state.lock:
                state.asked.append((self.command, self.path))
                if state.throttled:
                    state.throttled -= 1
                    return self._answer(429, {"message": "Rate exceeded"}, "ThrottlingException")
                made = self._done(json.loads(body) if body else {})
                if state.losing:
                    state.losing -= 1
                    self.close_connection = True
                    return None
            if made is None:
                return self._answer(404, {"message": "there is none"}, "ResourceNotFoundException")
            return self._answer(200, made)

        def _done(self, body: Mapping[str, Any]) -> Mapping[str, Any] | None:
            url = urlsplit(self.path)
            parts = url.path.strip("/").split("/")
            if parts[1] != APPLICATION:
                return None
            if len(parts) == 3 and self.command == "POST":
                run = state.start(body)
                return {"applicationId": APPLICATION, "jobRunId": run["jobRunId"], "arn": run["arn"]}
            if len(parts) == 3:
                return self._page(parse_qs(url.query))
            run = state.runs.get(parts[3], {})
            if not run:
                return None
            if self.command == "DELETE":
                state.cancel(run)
                return {"applicationId": APPLICATION, "jobRunId": run["jobRunId"]}
            return {"jobRun": _shown(state.looked(run))}

        def _page(self, query: Mapping[str, list[str]]) -> Mapping[str, Any]:
            """Two runs a page, so that paging is seen."""
            start = int(query.get("nextToken", ["0"])[0])
            found = [_shown(run) | {"id": run["jobRunId"]} for run in state.runs.values()]
            more = {"nextToken": str(start + 2)} if start + 2 < len(found) else {}
            return {"jobRuns": found[start : start + 2], **more}

        do_GET = do_POST = do_DELETE = _serve  # noqa: N815

    return Handler


@contextmanager
def emr_server(runner: Runner | None = None) -> Iterator[tuple[str, EmrState]]:
    """Run the server on a free port; yield its endpoint and what it knows. Ends every process that it started."""
    state = EmrState(runner=runner)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(state))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", state
    finally:
        server.shutdown()
        server.server_close()
        for process in state.processes.values():
            process.kill()
            process.wait()


def spark_submit(
    s3: Any, folder: Path, spark_home: Path, environ: Mapping[str, str], conf: Mapping[str, str]
) -> Runner:
    """Return a runner that does what EMR does: fetch the program from the bucket, and spark-submit it.

    `conf` is what differs here from EMR's image: its jars, and a master of one machine.
    """

    def fetched(uri: str, home: Path) -> str:
        bucket, _, key = uri.removeprefix("s3://").partition("/")
        path = home / key.rpartition("/")[2]
        s3.download_file(bucket, key, str(path))
        return str(path)

    def run(asked: Run) -> subprocess.Popen[bytes]:
        home = folder / str(asked["jobRunId"])
        home.mkdir(parents=True)
        submit = asked["jobDriver"]["sparkSubmit"]
        words = shlex.split(submit["sparkSubmitParameters"])
        archive = fetched(words[words.index("--py-files") + 1], home)
        given = dict(words[i + 1].split("=", 1) for i, word in enumerate(words) if word == "--conf")
        ours = {key: text for key, text in given.items() if not key.startswith(("spark.emr-serverless", "spark.jars"))}
        flags = [word for key, text in {**ours, **conf}.items() for word in ("--conf", f"{key}={text}")]
        program = fetched(submit["entryPoint"], home)
        with (home / "log.txt").open("wb") as log:
            return subprocess.Popen(
                [
                    str(spark_home / "bin" / "spark-submit"), "--py-files", archive, *flags, program,
                    *submit["entryPointArguments"],
                ],
                env=dict(environ), cwd=home, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip

    return run
