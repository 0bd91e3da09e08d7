"""One table of the corpus through COMPACT in every manner, MAINTAIN and expiry; Spark says whether a row changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.catalogs.served import LaterClock
from tests.external.bench import Bench
from tests.external.digest import BOTH_READERS, PLAIN_READER, Digest, configured, digest

Maker = Callable[[Bench, str], None]
SMALL_BYTES = 16_384
MANNERS: Mapping[str, Mapping[str, Any]] = {
    "fast": {},
    "strict": {"verify": "strict"},
    "tiny targets": {"options": {"target-file-size-bytes": SMALL_BYTES, "rewrite-all": True}, "verify": "strict"},
    "sort": {"strategy": "sort"},
}


@dataclass(frozen=True, kw_only=True)
class Table:
    """`make` writes it. `refused`: the code, and a word of its reason, of the answer that COMPACT may give instead.

    `sort`: columns of the sorted manner; none leaves that manner out. `at`: refs that must read the same as well.
    `untouched`: there is nothing for COMPACT to do. `not_cleaned`: the code by which files must not be deleted.
    `promoted`: columns and their wider types of the schema change that
    follows. `plain_reader`: what the foreign writer left, Spark's vectorized reader cannot read; ours it can.
    """

    name: str
    make: Maker
    refused: tuple[str, str] | None = None
    sort: tuple[str, ...] = ("id",)
    at: tuple[str, ...] = ()
    untouched: bool = False
    not_cleaned: str | None = None
    promoted: Mapping[str, str] = field(default_factory=dict)
    plain_reader: bool = False
    case_sensitive: bool = False


@dataclass(kw_only=True)
class Outcome:
    """What became of one table; `faults` is empty where all went as promised."""

    table: str
    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def run(bench: Bench, table: Table) -> Outcome:
    """Make the table and put it through everything. Digests are of every column, by both readers of Spark."""
    with configured(bench.spark, "spark.sql.caseSensitive", str(table.case_sensitive).lower()):
        return _run(bench, table)


def _run(bench: Bench, table: Table) -> Outcome:
    outcome = Outcome(table=table.name)
    table.make(bench, table.name)
    before = digests(bench, table, PLAIN_READER if table.plain_reader else BOTH_READERS)
    for manner, request in MANNERS.items():
        sort = {"sort_order": [{"column": c} for c in table.sort]} if manner == "sort" else {}
        if manner != "sort" or table.sort:
            _compact(bench, table, manner, {**request, **sort}, before, outcome, roll_back=True)
    _compact(bench, table, "for good", {}, before, outcome, roll_back=False)
    _maintain(bench, table, before, outcome)
    _evolve(bench, table, before, outcome)
    return outcome


def digests(bench: Bench, table: Table, readers: Sequence[str] = BOTH_READERS) -> dict[str, Digest]:
    return {at: digest(bench.spark, bench.name(table.name), at, readers=readers) for at in ("", *table.at)}


def _compact(
    bench: Bench,
    table: Table,
    manner: str,
    request: Mapping[str, Any],
    before: Mapping[str, Digest],
    outcome: Outcome,
    *,
    roll_back: bool,
) -> None:
    head = bench.head(table.name)
    status, answer = bench.ask("COMPACT", table.name, force=True, expire_snapshots=False, **request)
    if not answer["success"]:
        _judge_refusal(table, manner, status, answer["error"], outcome)
        return
    if table.refused is not None:
        outcome.faults.append(f"{manner}: {answer['status']}, where {table.refused[0]} was due")
    expected = "NOTHING_TO_DO" if table.untouched else "COMPLETED"
    if answer["status"] != expected:
        outcome.faults.append(f"{manner}: {answer['status']} ({answer['reason']}) {answer['warnings']}")
    if not answer["compacted"]:
        return
    bench.sql(f"REFRESH TABLE {bench.name(table.name)}")
    _compare(bench, table, manner, before, outcome)
    if roll_back and head is not None:
        bench.roll_back(table.name, head)


def _judge_refusal(table: Table, manner: str, status: int, error: Mapping[str, Any], outcome: Outcome) -> None:
    told = f"{status} {error['code']}: {error['message']}"
    if table.refused is None or table.refused[0] != error["code"] or table.refused[1] not in told:
        outcome.faults.append(f"{manner}: {told}")
    else:
        outcome.notes.append(f"refused: {error['code']}")


def _maintain(bench: Bench, table: Table, before: Mapping[str, Digest], outcome: Outcome) -> None:
    """Everything at once, two hours later and files deleted without a grace; main and all refs read as before."""
    built = bench.stack.built
    clock = built.clock
    built.again(clock=LaterClock(hours=2))
    try:
        status, answer = bench.ask(
            "MAINTAIN", table.name, retention_hours=1, min_snapshots_to_keep=1, grace_hours=0, force=True
        )
    finally:
        built.again(clock=clock)
    if not answer["success"]:
        _judge_refusal(table, "maintain", status, answer["error"], outcome)
    elif table.refused is None:
        failed = [(s["step"], s["error"]) for s in answer["steps"] if s["status"] == "FAILED"]
        failed = [(step, error) for step, error in failed if error["code"] != table.not_cleaned]
        outcome.faults += [f"maintain: {step}: {error}" for step, error in failed]
    bench.sql(f"REFRESH TABLE {bench.name(table.name)}")
    _compare(bench, table, "maintained and expired", before, outcome)


def _evolve(bench: Bench, table: Table, before: Mapping[str, Digest], outcome: Outcome) -> None:
    """What was written is read after the next schema change, too."""
    name = bench.name(table.name)
    bench.sql(f"ALTER TABLE {name} ADD COLUMN added_later string")
    for column, kind in table.promoted.items():
        bench.sql(f"ALTER TABLE {name} ALTER COLUMN {column} TYPE {kind}")
    found = digest(bench.spark, name)
    changed = {"*", "added_later", *table.promoted}
    wrong = [c for c, value in before[""].items() if c not in changed and found.get(c) != value]
    wrong += [c for c in table.promoted if found[c][0] != before[""][c][0]]
    if wrong:
        outcome.faults.append(f"after the next schema change: {', '.join(wrong)} read differently")


def _compare(bench: Bench, table: Table, when: str, before: Mapping[str, Digest], outcome: Outcome) -> None:
    try:
        after = digests(bench, table)
    except Exception as error:  # noqa: BLE001  whatever Spark says is the finding
        outcome.faults.append(f"{when}: Spark cannot read it: {str(error)[:400]}")
        return
    for at, digest_before in before.items():
        wrong = [c for c, value in digest_before.items() if after[at].get(c) != value]
        if wrong:
            outcome.faults.append(f"{when}{' ' + at if at else ''}: {', '.join(wrong)} read differently")
