"""Queries are answered by processes of their own: what ends or freezes one is that query's error and nobody else's."""

from __future__ import annotations

import os
import pickle
import resource
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from regelate.adapters.duckdb import query_pool, query_process
from regelate.adapters.duckdb.query_pool import QueryPool
from regelate.adapters.duckdb.query_process import QueryProcess
from regelate.adapters.duckdb.question import HEADER, Kind, Limits, Question, ScanPaths, Statement
from regelate.core.table.storage import ObjectStoreAccess
from regelate.errors import RegelateError
from tests.support.queries import MEGABYTE

MEMORY_BYTES = 384 * MEGABYTE
ROOT = Path(__file__).parents[2]
Frames = list[tuple[Kind, Any]]

DEEP = "repeat(repeat('[', 1000), 100) || repeat(repeat(']', 1000), 100)"
ENDED = {"QUERY_CRASHED", "OUT_OF_MEMORY", "QUERY_TIMEOUT"}
KILLERS = {
    "from_json": f"SELECT from_json({DEEP}, repeat('[', 9000) || '\"INT\"' || repeat(']', 9000))",
    "json_structure": f"SELECT json_structure({DEEP})",
    "json_contains": "SELECT json_contains(repeat(repeat('[', 1000), 999) || repeat(repeat(']', 1000), 999), '1')",
    "json_merge_patch": "SELECT json_merge_patch(x, x) FROM (SELECT repeat(repeat('{\"a\":', 1000), 100) || '1' || "
    "repeat(repeat('}', 1000), 100) AS x)",
    "variant": f"SELECT ({DEEP})::JSON::VARIANT::VARCHAR",
    "like": "SELECT count(*) FROM range(100000) WHERE repeat('a', 9000) || range LIKE repeat('%a', 4000) || 'b%c'",
    "glob": "SELECT repeat('a', 1000) || range GLOB repeat('*a', 40) || 'b' FROM range(100)",
    "levenshtein": "SELECT levenshtein(repeat(repeat('ab', 5000), 10), repeat(repeat('cd', 5000), 10))",
    "damerau_levenshtein": "SELECT damerau_levenshtein(repeat(repeat('ab', 5000), 9), repeat(repeat('cd', 5000), 9))",
    "aliases that double": "SELECT 1 AS a0, " + ", ".join(f"a{i} + a{i} AS a{i + 1}" for i in range(40)),
    "self-joins": "SELECT count(*) FROM t" + "".join(f", t AS t{i}" for i in range(900)),
    "CTEs that double": "WITH c0 AS (SELECT 1 AS x)"
    + "".join(f", c{i + 1} AS (SELECT * FROM c{i} UNION ALL SELECT * FROM c{i})" for i in range(30))
    + " SELECT count(*) FROM c30",
    "repeat": "SELECT length(repeat(repeat(repeat('x', 10000), 10000), 25))",
    "replace": "SELECT length(replace(replace(repeat('x', 9999), 'x', repeat('y', 9999)), 'y', repeat('z', 40)))",
    "list_transform": "SELECT length(list_transform(range(9999), lambda x: list_transform(range(9999), lambda y: x)))",
    "error": "SELECT error(repeat(repeat(repeat('a', 10000), 10000), 2))",
    "long values": "SELECT repeat('x', 10000) AS a, repeat('y', 10000) AS b FROM range(10000000)",
    "one long value": "SELECT repeat(repeat('x', 10000), 9999) || repeat(repeat('x', 10000), 9999)",
}
MAY_BE_ANSWERED = {"like"}
"""What a faster machine may be done with in time; no promise is about these but that they harm nobody."""


@pytest.fixture
def made() -> Iterator[Callable[..., QueryPool]]:
    pools: list[QueryPool] = []

    def make(size: int = 1, memory_bytes: int = MEMORY_BYTES) -> QueryPool:
        pools.append(QueryPool(size=size, memory_bytes=memory_bytes))
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()


@pytest.fixture(scope="module")
def shared() -> Iterator[QueryPool]:
    pool = QueryPool(size=1, memory_bytes=MEMORY_BYTES)
    yield pool
    pool.close()


@pytest.fixture
def question(tmp_path: Path) -> Callable[..., Question]:
    def make(text: str, *, seconds: float = 30, max_rows: int = 100_000, max_bytes: int = MEGABYTE) -> Question:
        return Question(
            statement=Statement(text=text),
            source="SELECT 1 AS id, 'a' AS name",
            names=("t",),
            files=(),
            scanned=ScanPaths(),
            limits=Limits(max_rows=max_rows, max_bytes=max_bytes, seconds=seconds),
            threads=1,
            folder=str(tmp_path),
        )

    return make


Make = Callable[..., Question]


def asked(process: QueryProcess, question: Question) -> Frames:
    frames: Frames = []
    process.ask(question, time.monotonic() + question.limits.seconds, lambda kind, words: frames.append((kind, words)))
    return frames


def answered(pool: QueryPool, question: Question, who: str = "a") -> Frames:
    ends = time.monotonic() + question.limits.seconds
    with pool.process(who, ends) as process:
        return asked(process, question)


def rows(frames: Frames) -> list[dict[str, Any]]:
    return [row for kind, words in frames if kind is Kind.ROWS for row in words]


def fault(call: Callable[[], object]) -> RegelateError:
    with pytest.raises(RegelateError) as caught:
        call()
    return caught.value


def ended(pid: int) -> bool:
    """Wait for the end of a process that need not be a child of this one."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], 30)[0])
    finally:
        os.close(handle)


def resident(pid: int | str = "self", name: str = "VmRSS") -> int:
    (line,) = (x for x in Path(f"/proc/{pid}/status").read_text().splitlines() if x.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024


# --- what kills ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("killer", KILLERS)
def test_what_ends_or_freezes_the_engine_is_an_error_of_that_query_alone(
    shared: QueryPool, question: Make, killer: str
) -> None:
    answered(shared, question("SELECT id FROM t"))  # a start is not what the killer's half second is for
    before = resident()
    try:
        answered(shared, question(KILLERS[killer], seconds=0.5))
        found = None
    except RegelateError as error:
        found = error.code
    assert found in ENDED or killer in MAY_BE_ANSWERED
    assert rows(answered(shared, question("SELECT id FROM t"))) == [{"id": 1}]
    assert resident() - before < 16 * MEGABYTE


@pytest.mark.parametrize("killer", ["list_transform", "long values", "one long value", "error"])
def test_a_process_takes_no_more_memory_than_it_may(
    made: Callable[..., QueryPool], question: Make, monkeypatch: pytest.MonkeyPatch, killer: str
) -> None:
    peaks: list[int] = []
    kill = QueryProcess.kill

    def noting(process: QueryProcess) -> None:
        if process.lives:
            peaks.append(resident(process.pid, "VmHWM"))
        kill(process)

    monkeypatch.setattr(QueryProcess, "kill", noting)
    assert fault(lambda: answered(made(), question(KILLERS[killer]))).code == "OUT_OF_MEMORY"
    assert peaks, "it said so by itself"
    assert max(peaks) <= MEMORY_BYTES * 1.1


def test_a_process_that_ran_out_of_memory_is_not_asked_again(made: Callable[..., QueryPool], question: Make) -> None:
    with made().process("a", time.monotonic() + 60) as process:
        assert fault(lambda: asked(process, question(KILLERS["long values"]))).code == "OUT_OF_MEMORY"
    assert ended(process.pid)


def test_a_query_that_ends_its_process_is_told_so_without_the_engines_words(shared: QueryPool, question: Make) -> None:
    error = fault(lambda: answered(shared, question(KILLERS["variant"])))
    assert (error.code, error.status, error.retryable) == ("QUERY_CRASHED", 422, False)
    assert "SIGSEGV" in error.message
    assert "0x" not in error.message


def test_the_next_query_after_a_crash_is_answered_by_another_process(
    made: Callable[..., QueryPool], question: Make
) -> None:
    pool = made()
    with pool.process("a", time.monotonic() + 60) as first:
        assert fault(lambda: asked(first, question(KILLERS["variant"]))).code == "QUERY_CRASHED"
    with pool.process("a", time.monotonic() + 60) as second:
        assert second.pid != first.pid
        assert rows(asked(second, question("SELECT id FROM t"))) == [{"id": 1}]
    assert not Path(f"/proc/{first.pid}").exists(), "no zombie is left"


def test_a_process_that_was_ended_from_outside_amid_its_answer_gives_no_half_of_it(
    made: Callable[..., QueryPool], question: Make
) -> None:
    pool = made()
    text = "SELECT range AS n, repeat('x', 100) AS x FROM range(100000)"
    with pool.process("a", time.monotonic() + 60) as process:

        def take(kind: Kind, words: object) -> None:
            if kind is Kind.ROWS:
                os.kill(process.pid, signal.SIGKILL)

        asking = question(text, max_bytes=64 * MEGABYTE)
        error = fault(lambda: process.ask(asking, time.monotonic() + 60, take))
    assert (error.code, error.status, error.retryable) == ("QUERY_INTERRUPTED", 503, True)
    assert rows(answered(pool, question("SELECT id FROM t"))) == [{"id": 1}]


def test_whoever_stops_listening_ends_the_process_and_the_next_query_is_answered(
    made: Callable[..., QueryPool], question: Make
) -> None:
    def take(kind: Kind, words: object) -> None:
        raise OSError("no space left on device")

    pool = made()
    with pytest.raises(OSError, match="no space"), pool.process("a", time.monotonic() + 60) as process:
        process.ask(question("SELECT id FROM t"), time.monotonic() + 60, take)
    assert ended(process.pid)
    assert rows(answered(pool, question("SELECT id FROM t"))) == [{"id": 1}]


def test_a_query_beyond_every_interrupt_ends_with_its_time(made: Callable[..., QueryPool], question: Make) -> None:
    pool = made()
    with pool.process("a", time.monotonic() + 60) as process:
        asked(process, question("SELECT id FROM t"))  # it has started
        error = fault(lambda: asked(process, question(KILLERS["levenshtein"], seconds=0.2)))
    assert (error.code, error.status) == ("QUERY_TIMEOUT", 504)
    assert ended(process.pid)


# --- who gets a process ---------------------------------------------------------------------------------------------


def test_another_tenant_is_answered_while_one_holds_all_that_it_can_get(
    made: Callable[..., QueryPool], question: Make
) -> None:
    pool = made(size=2)
    with pool.process("a", time.monotonic() + 60):
        error = fault(lambda: pool.process("a", time.monotonic()).__enter__())
        assert (error.code, error.status, error.retryable) == ("TOO_MANY_QUERIES", 429, True)
        assert rows(answered(pool, question("SELECT id FROM t"), who="b")) == [{"id": 1}]


def test_whoever_ended_a_process_waits_for_its_replacement_and_the_others_do_not(
    made: Callable[..., QueryPool], question: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool, gate, start = made(size=2), threading.Event(), QueryProcess.__init__

    def started_late(process: QueryProcess, memory_bytes: int, *, remote: bool = False) -> None:
        gate.wait()
        start(process, memory_bytes, remote=remote)

    with pool.process("a", time.monotonic() + 60) as first, pool.process("b", time.monotonic() + 60) as second:
        asked(first, question("SELECT id FROM t"))
        asked(second, question("SELECT id FROM t"))
    monkeypatch.setattr(QueryProcess, "__init__", started_late)
    assert fault(lambda: answered(pool, question(KILLERS["variant"]))).code == "QUERY_CRASHED"
    assert fault(lambda: pool.process("a", time.monotonic()).__enter__()).code == "TOO_MANY_QUERIES"
    assert rows(answered(pool, question("SELECT id FROM t"), who="b")) == [{"id": 1}]
    gate.set()
    assert rows(answered(pool, question("SELECT id FROM t"))) == [{"id": 1}]


def test_the_last_idle_process_is_for_who_has_none(made: Callable[..., QueryPool], question: Make) -> None:
    pool, soon = made(size=3), time.monotonic() + 60
    with pool.process("a", soon) as first, pool.process("b", soon) as second:
        asked(first, question("SELECT id FROM t"))
        asked(second, question("SELECT id FROM t"))
    with pool.process("a", soon) as one, pool.process("a", soon) as another:
        left = {first.pid, second.pid} - {one.pid}
        assert another.pid not in left
        with pool.process("b", soon) as others:
            assert {others.pid} == left


def test_from_the_second_query_on_one_more_is_kept_than_are_at_work(
    made: Callable[..., QueryPool], question: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool, soon, started, start = made(size=2), time.monotonic() + 60, threading.Semaphore(0), QueryProcess.__init__

    def noted(process: QueryProcess, memory_bytes: int, *, remote: bool = False) -> None:
        start(process, memory_bytes, remote=remote)
        started.release()

    monkeypatch.setattr(QueryProcess, "__init__", noted)
    answered(pool, question("SELECT id FROM t"))
    assert started.acquire(blocking=False)
    pool.warm()
    assert "query-process" not in {thread.name for thread in threading.enumerate()}
    with pool.process("a", soon):
        pool.warm()
        assert started.acquire(timeout=60)


def test_tenants_that_wait_are_served_in_turns_however_long_the_line_of_one_is(made: Callable[..., QueryPool]) -> None:
    pool, soon = made(), time.monotonic() + 60
    served: list[str] = []

    def ask(who: str) -> None:
        with pool.process(who, soon):
            served.append(who)

    waiting: list[threading.Thread] = []
    with pool.process("c", soon):
        for who in ("a", "a", "a", "b", "b"):
            waiting.append(threading.Thread(target=ask, args=(who,)))
            waiting[-1].start()
            while pool.waiting < len(waiting):
                assert time.monotonic() < soon
                time.sleep(0.001)
    for thread in waiting:
        thread.join()
    assert served == ["a", "b", "a", "b", "a"]


def test_who_has_waited_in_vain_keeps_nobody_from_a_process(made: Callable[..., QueryPool], question: Make) -> None:
    pool = made()
    with pool.process("a", time.monotonic() + 60):
        for who in ("a", "b", "b"):
            lending = pool.process(who, time.monotonic())
            assert fault(lending.__enter__).code == "TOO_MANY_QUERIES"
        assert pool.waiting == 0
    assert rows(answered(pool, question("SELECT id FROM t"), who="b")) == [{"id": 1}]


def test_a_query_waits_for_a_process_as_long_as_its_time_lasts(made: Callable[..., QueryPool], question: Make) -> None:
    pool = made()
    found: list[Frames] = []
    waiting = threading.Thread(target=lambda: found.append(answered(pool, question("SELECT id FROM t"), who="b")))
    with pool.process("a", time.monotonic() + 60) as process:
        waiting.start()
        assert rows(asked(process, question("SELECT id FROM t"))) == [{"id": 1}]
    waiting.join()
    assert [rows(frames) for frames in found] == [[{"id": 1}]]


def test_a_warm_process_answers_one_query_after_the_other(made: Callable[..., QueryPool], question: Make) -> None:
    pool, pids = made(), set()
    pool.warm()
    for _ in range(3):
        with pool.process("a", time.monotonic() + 60) as process:
            pids.add(process.pid)
            assert rows(asked(process, question("SELECT id FROM t"))) == [{"id": 1}]
    assert len(pids) == 1


def test_a_process_is_replaced_after_so_many_answers(
    made: Callable[..., QueryPool], question: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_pool, "MAX_ANSWERS", 2)
    pool, pids = made(), []
    for _ in range(3):
        with pool.process("a", time.monotonic() + 60) as process:
            pids.append(process.pid)
            asked(process, question("SELECT id FROM t"))
    assert pids[0] == pids[1] != pids[2]


def test_a_process_that_keeps_too_much_memory_is_replaced(
    made: Callable[..., QueryPool], question: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_pool, "MAX_RESIDENT", 0.01)
    pool = made()
    with pool.process("a", time.monotonic() + 60) as process:
        asked(process, question("SELECT id FROM t"))
    assert ended(process.pid)


def test_a_process_that_died_idle_is_not_lent(made: Callable[..., QueryPool], question: Make) -> None:
    pool = made()
    with pool.process("a", time.monotonic() + 60) as process:
        asked(process, question("SELECT id FROM t"))
    os.kill(process.pid, signal.SIGKILL)
    assert ended(process.pid)
    assert rows(answered(pool, question("SELECT id FROM t"))) == [{"id": 1}]


def test_a_start_that_takes_longer_than_a_query_may_is_not_begun_again(
    made: Callable[..., QueryPool], question: Make
) -> None:
    pool = made()
    with pool.process("a", time.monotonic() + 60) as process:
        error = fault(lambda: asked(process, question("SELECT id FROM t", seconds=0)))
        assert (error.code, error.status, error.retryable) == ("ENGINE_UNAVAILABLE", 503, True)
        assert process.lives
    with pool.process("a", time.monotonic() + 60) as again:
        assert again is process
        assert rows(asked(again, question("SELECT id FROM t"))) == [{"id": 1}]


# --- what a process is ------------------------------------------------------------------------------------------------


def test_a_process_has_no_power_of_its_own(
    made: Callable[..., QueryPool], question: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "ambient-secret")
    store = ObjectStoreAccess(
        scope="s3://b", endpoint=None, region="r", path_style=True, encrypted=True, key_id="k", secret="given-secret"
    )
    with made().process("a", time.monotonic() + 60) as process:
        assert "given-secret" not in repr(store)
        asked(process, question("SELECT id FROM t"))
        proc = Path(f"/proc/{process.pid}")
        environment = proc.joinpath("environ").read_bytes()
        assert b"AWS_" not in environment
        assert b"ambient-secret" not in environment + proc.joinpath("cmdline").read_bytes()
        assert "NoNewPrivs:\t1" in proc.joinpath("status").read_text()
        assert resource.prlimit(process.pid, resource.RLIMIT_CORE) == (0, 0)
        assert os.getsid(process.pid) == process.pid, "the terminal's signals are not for it"


def test_a_process_works_in_the_folder_of_its_query_and_waits_in_none(
    made: Callable[..., QueryPool], question: Make, tmp_path: Path
) -> None:
    with made().process("a", time.monotonic() + 60) as process:
        where: list[Path] = []
        process.ask(
            question("SELECT id FROM t"),
            time.monotonic() + 60,
            lambda kind, words: where.append(Path(f"/proc/{process.pid}/cwd").readlink()),
        )
    assert where[0] in (tmp_path, Path("/")), "an answer may be done before it is read"


def test_a_process_loads_nothing_that_could_change_a_table() -> None:
    code = "import sys, regelate.adapters.duckdb.query_child; print(*sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    shown = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert {"boto3", "pyiceberg", "pandas", "sqlalchemy", "pydantic"}.isdisjoint(shown.stdout.split())


def test_who_asks_loads_no_engine() -> None:
    code = "import sys, regelate.adapters.duckdb.query; print(*sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    shown = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert {"duckdb", "pyarrow"}.isdisjoint(shown.stdout.split())


def test_closing_a_pool_ends_its_processes_and_leaves_no_zombie(made: Callable[..., QueryPool], question: Make) -> None:
    pool = made()
    with pool.process("a", time.monotonic() + 60) as process:
        asked(process, question("SELECT id FROM t"))
    pool.close()
    assert not Path(f"/proc/{process.pid}").exists()


PARENT = """
import pickle, sys, time
from regelate.adapters.duckdb.query_pool import QueryPool
question = pickle.load(sys.stdin.buffer)
with QueryPool(size=1, memory_bytes=384 * 2**20).process("a", time.monotonic() + 60) as process:
    def take(kind, words):
        print(process.pid, flush=True)
    process.ask(question, time.monotonic() + 600, take)
"""


def test_the_death_of_the_parent_ends_a_process_amid_its_work(question: Make) -> None:
    busy = "levenshtein(repeat('ab', 5000) || range, repeat('c', 9999))"
    text = f"SELECT CASE WHEN range > 50000 THEN {busy} ELSE 1 END AS n, repeat('x', 100) AS x FROM range(100000)"
    asking = question(text, seconds=600, max_bytes=64 * MEGABYTE)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert parent.stdin
    assert parent.stdout
    parent.stdin.write(pickle.dumps(asking))
    parent.stdin.close()
    pid = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert ended(pid)


# --- a process that is not believed -----------------------------------------------------------------------------------

LIES = {
    "no frame": b"\xff" * 64,
    "a frame of no kind": HEADER.pack(99, 2) + b"{}",
    "a frame without end": HEADER.pack(Kind.ROWS, 2**31),
    "columns without end": HEADER.pack(Kind.COLUMNS, 2**31),
    "lines that nobody wants": HEADER.pack(Kind.LINES, 10) + b"{}\n" * 4,
    "rows that are no JSON": HEADER.pack(Kind.ROWS, 4) + b"[NaN",
    "numbers that are no JSON": HEADER.pack(Kind.ROWS, 5) + b"[NaN]",
    "rows that are nested without end": HEADER.pack(Kind.ROWS, 200_000) + b"[" * 200_000,
    "rows beyond the limit": (HEADER.pack(Kind.ROWS, 600_000) + b"[" + b" " * 599_998 + b"]") * 2,
    "columns that are a number": HEADER.pack(Kind.COLUMNS, 1) + b"1",
    "columns without a type": HEADER.pack(Kind.COLUMNS, 15) + b'[{"name": "x"}]',
    "rows that are no objects": HEADER.pack(Kind.ROWS, 5) + b"[[1]]",
    "an end without a count": HEADER.pack(Kind.DONE, 2) + b"{}",
    "a second start": HEADER.pack(Kind.READY, 2) + b"{}",
    "a fault of no kind": HEADER.pack(Kind.FAULT, 17) + b'{"kind": "Fault"}',
}


@pytest.mark.parametrize("lie", LIES)
def test_a_process_that_speaks_no_sense_is_ended(question: Make, monkeypatch: pytest.MonkeyPatch, lie: str) -> None:
    monkeypatch.setattr(query_process, "MODULE", "tests.support.lying_child")
    process = QueryProcess(MEMORY_BYTES)
    error = fault(lambda: asked(process, question(LIES[lie].hex())))
    assert (error.code, error.status) == ("QUERY_CRASHED", 422)
    assert ended(process.pid)


def test_a_process_that_does_not_start_is_told_from_one_that_crashed(
    question: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_process, "MODULE", "tests.support.lying_child")
    error = fault(lambda: asked(QueryProcess(MEMORY_BYTES, remote=True), question("SELECT 1")))
    assert (error.code, error.status) == ("ENGINE_UNAVAILABLE", 503)
    assert "3" in error.message
