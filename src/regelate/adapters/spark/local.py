"""Spark jobs as processes of this machine: spark-submit, in a folder of their own that says how they stand.

A job outlives the process that started it. It holds a lock on a file of its folder for as long as it lives, so whoever
looks later, also after a restart, knows whether it still runs; and it writes its result whole or not at all.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from regelate.core.jobs.spark_job import SparkJobSpec, SparkRun, SparkState, answered
from regelate.errors import Unavailable

TOLD_CHARACTERS = 500
_LOG_TAIL_BYTES = 20_000
_SPARKS_ERROR = re.compile(r"\bERROR\b|Exception\b|^Error:|^Exception in ")
Pack = Callable[[Path], tuple[Path, ...]]
"""Writes the pipeline's zip and its programs into a folder and returns their paths, the zip first."""


class LocalSpark:
    """Implements SparkJobs. Job folders older than `kept_seconds` go when another job starts.

    `spark_home` holds bin/spark-submit; `environ` is what the processes get. Errors: Unavailable SPARK_UNAVAILABLE.
    """

    def __init__(
        self, folder: Path, *, spark_home: Path, environ: Mapping[str, str], pack: Pack, kept_seconds: float
    ) -> None:
        self._folder = folder
        self._spark_home = spark_home
        self._environ = dict(environ)
        self._pack = pack
        self._kept_seconds = kept_seconds
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._lock = threading.Lock()

    def start(self, spec: SparkJobSpec) -> str:
        home = self._folder / spec.name
        try:
            self._prune()
            home.mkdir(parents=True, exist_ok=True)
            with _claimed(home) as claim:
                if claim is not None and not (home / "pid").exists():
                    self._submit(home, spec, claim)
        except OSError as error:
            raise Unavailable("SPARK_UNAVAILABLE", f"spark-submit could not be started: {error}") from error
        return spec.name

    def _submit(self, home: Path, spec: SparkJobSpec, claim: int) -> None:
        archive, *programs = self._pack(home)
        program = next(path for path in programs if path.name == "pipeline.py")
        conf = home / "spark.conf"
        with os.fdopen(os.open(conf, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.writelines(f"{_escaped(key)}={_escaped(value)}\n" for key, value in spec.conf.items())
        submit = str(self._spark_home / "bin" / "spark-submit")
        command = [submit, "--properties-file", str(conf), "--py-files", str(archive), str(program), *spec.arguments]
        with (home / "log.txt").open("wb") as log:
            child = subprocess.Popen(
                [*command, "--result", str(home / "result.json")],
                cwd=home,
                env=self._environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=(claim,),
            )
        (home / "pid").write_text(str(child.pid), encoding="ascii")
        with self._lock:
            self._children[spec.name] = child

    def look(self, run_id: str) -> SparkRun:
        try:
            return self._found(run_id)
        except OSError as error:
            raise Unavailable("SPARK_UNAVAILABLE", f"the folder of {run_id} cannot be read: {error}") from error

    def _found(self, run_id: str) -> SparkRun:
        home = self._folder / run_id
        killed = self._reaped(run_id)
        if not home.is_dir():
            return SparkRun(state=SparkState.ENDED, detail="there is no such run on this machine")
        with _claimed(home) as claim:
            if claim is None:
                return SparkRun(state=SparkState.RUNNING)
            result, cancelled = home / "result.json", (home / "cancelled").exists()
            if result.exists():
                return answered(result.read_bytes())
            if cancelled:
                return SparkRun(state=SparkState.CANCELLED)
            return SparkRun(state=SparkState.ENDED, detail=_last_words(home / "log.txt") or killed)

    def cancel(self, run_id: str) -> None:
        """End the processes, the second time without asking. What is committed stays."""
        home = self._folder / run_id
        mark = home / "cancelled"
        with suppress(OSError, ValueError):
            how = signal.SIGKILL if mark.exists() else signal.SIGTERM
            mark.touch()
            with _claimed(home) as claim:
                if claim is None:  # while it holds the lock the process lives, and the id is its own
                    os.killpg(int((home / "pid").read_text(encoding="ascii")), how)

    def job_of(self, run_id: str) -> str | None:
        return run_id.rpartition("-")[0] or None

    def _reaped(self, run_id: str) -> str:
        """Let a child that has ended go, and say how it did; one of another process is init's."""
        with self._lock:
            child = self._children.get(run_id)
            code = None if child is None else child.poll()
            if code is None:
                return "its process was ended from outside"
            del self._children[run_id]
        return (
            f"its process was ended by {signal.Signals(-code).name}" if code < 0 else f"it ended with exit code {code}"
        )

    def _prune(self) -> None:
        if not self._folder.is_dir():
            return
        for home in self._folder.iterdir():
            with suppress(OSError):
                if time.time() - home.stat().st_mtime > self._kept_seconds:
                    with _claimed(home) as claim:
                        if claim is not None:
                            shutil.rmtree(home)


@contextmanager
def _claimed(home: Path) -> Iterator[int | None]:
    """Take the lock of a job's folder for a moment; None while its process has it.

    A child that is given the descriptor keeps the lock until it ends, however it does.
    """
    descriptor = os.open(home / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
        else:
            yield descriptor
    finally:
        os.close(descriptor)


def _escaped(text: str) -> str:
    """Spell a text as java.util.Properties reads it, which ends a key at the first `=`, `:` or blank."""
    special = {
        "\\": "\\\\",
        "=": "\\=",
        ":": "\\:",
        " ": "\\ ",
        "#": "\\#",
        "!": "\\!",
        "\n": "\\n",
        "\r": "\\r",
        "\t": "\\t",
    }
    return "".join(special.get(character, character) for character in text)


def _last_words(log: Path) -> str:
    """Return what a job said of its end: its own error where there is one, else Spark's; empty for neither."""
    try:
        with log.open("rb") as file:
            file.seek(max(log.stat().st_size - _LOG_TAIL_BYTES, 0))
            lines = [line.strip() for line in file.read().decode(errors="replace").splitlines()]
    except OSError:
        return ""
    own = [line for line in lines if line.startswith("error: ")]
    spark = [line for line in lines if _SPARKS_ERROR.search(line)]
    return (own or spark or [""])[-1][:TOLD_CHARACTERS]
