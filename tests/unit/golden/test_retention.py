"""Expiry as a table of cases (retention_*.txt).

State:  `log`, then one snapshot per line, oldest first:  <id> <age>ago [on=<parent id>|root] [staged];
        `refs`, then one ref per line:  <name> branch|tag <id> [keep=N] [age=<age>] [ref-age=<age>].
A snapshot's parent is the line before it unless said. Without refs `main` is the last snapshot of the log.
Command:  expire [older-than=<age>] [keep=N] [ref-age=<age>] [head=<id>]    Ages: 90s, 5m, 3h, 2d.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from regelate.core.policy.policy import RetentionPolicy
from regelate.core.table.table import RefKind, SnapshotEntry, SnapshotRef
from regelate.core.upkeep.retention import plan_expiry
from tests.unit.golden.datadriven import run, words

NOW_MS = 1_000 * 24 * 3_600_000
UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 24 * 3_600_000}


def age_ms(text: str) -> int:
    return int(text[:-1]) * UNITS_MS[text[-1]]


def optional(pairs: dict[str, str], key: str) -> int | None:
    return age_ms(pairs[key]) if key in pairs else None


class RetentionBook:
    def __init__(self) -> None:
        self.log: list[SnapshotEntry] = []
        self.refs: list[SnapshotRef] = []

    def interpret(self, lines: list[str]) -> str:
        first, *rest = lines
        if first == "log":
            self.log, self.refs = [], []
            for line in rest:
                self._snapshot(line)
        elif first == "refs":
            self.refs = [self._ref(line) for line in rest]
        else:
            return self._expire(first)
        return ""

    def _snapshot(self, line: str) -> None:
        (number, age), pairs = words(line)
        before = self.log[-1].snapshot_id if self.log else None
        parent = {"root": None, "": before}.get(
            pairs.get("on", ""), int(pairs["on"]) if pairs.get("on", "").isdigit() else None
        )
        self.log.append(
            SnapshotEntry(
                snapshot_id=int(number),
                parent_id=parent,
                sequence_number=len(self.log) + 1,
                timestamp_ms=NOW_MS - age_ms(age.removesuffix("ago")),
                operation="append",
            )
        )

    def _ref(self, line: str) -> SnapshotRef:
        (name, kind, snapshot_id), pairs = words(line)
        return SnapshotRef(
            name=name,
            kind=RefKind(kind),
            snapshot_id=int(snapshot_id),
            min_snapshots_to_keep=int(pairs["keep"]) if "keep" in pairs else None,
            max_snapshot_age_ms=optional(pairs, "age"),
            max_ref_age_ms=optional(pairs, "ref-age"),
        )

    def _expire(self, line: str) -> str:
        _, pairs = words(line)
        policy = RetentionPolicy(
            max_snapshot_age_ms=age_ms(pairs.get("older-than", "5d")),
            min_snapshots_to_keep=int(pairs.get("keep", 1)),
            max_ref_age_ms=age_ms(pairs["ref-age"]) if "ref-age" in pairs else RetentionPolicy().max_ref_age_ms,
        )
        last = self.log[-1].snapshot_id if self.log and not self.refs else None
        head = int(pairs["head"]) if "head" in pairs else last
        plan = plan_expiry(self.log, self.refs, head, policy, NOW_MS)
        lines = [f"expire {' '.join(str(i) for i in plan.snapshot_ids) or 'nothing'}"]
        lines += [f"remove ref {name}" for name in plan.ref_names]
        lines += [f"keep {number} {reason.value}" for number, reason in plan.kept]
        return "\n".join(lines)


@pytest.mark.parametrize("path", sorted(Path(__file__).parent.glob("retention_*.txt")), ids=lambda path: path.stem)
def test_the_expiry_is_the_golden_one(path: Path, rewrite_golden: bool) -> None:
    run(path, RetentionBook().interpret, rewrite=rewrite_golden)


def test_every_retention_book_is_found() -> None:
    assert len(list(Path(__file__).parent.glob("retention_*.txt"))) >= 3
