"""Plans as a table of cases (plan_*.txt).

State, one snapshot per line:  <partition or -> <count> x <size> [rows=N] [deleted=N] [delete-files=N]
Commands:  plan [option ...]   and   compact [option ...], which also carries the plan out, outputs as predicted.
Options: target= min= max= (sizes), min-input-files=, max-files-per-group=, max-file-group-size=, max-files=, ratio=,
delete-file-threshold=, order=, selection=, quiet=<seconds>, now=<hours>, filter=<key>:<value>, force, rewrite-all.
`@<n>` after a partition is its spec; `until=<hours>` the end of its time range.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from regelate.core.planning.plan import CompactionPlan, FileGroup, plan_compaction
from regelate.core.planning.selection import check_partition_filters
from regelate.core.policy.policy import GB, MB, CompactionPolicy, JobOrder, Selection
from regelate.core.table.table import FileScanTask, Partition
from regelate.errors import InvalidRequest
from tests.unit.core.model_table import HOUR_MS, UNPARTITIONED, ModelTable, even, month, position_delete, sized_policy
from tests.unit.golden.datadriven import run, words

UNITS = {"KB": 1024, "MB": MB, "GB": GB}
WHOLE_NUMBERS = ("min-input-files", "max-files-per-group", "max-files", "delete-file-threshold")


def size(text: str) -> int:
    number, unit = re.fullmatch(r"([\d.]+)([KMG]B)", text).groups()  # type: ignore[union-attr]
    return int(float(number) * UNITS[unit])


def shown(size_bytes: int) -> str:
    return f"{size_bytes / MB:.10g} MB" if size_bytes % (MB // 8) == 0 else f"{size_bytes / MB:.3f} MB"


def counted(number: int) -> str:
    return f"{number} file" if number == 1 else f"{number} files"


class PlanBook:
    """One golden file: the table that its states build, and its commands."""

    def __init__(self) -> None:
        self.table = ModelTable()

    def interpret(self, lines: list[str]) -> str:
        plain, _ = words(lines[0])
        if plain and plain[0] in ("plan", "compact"):
            try:
                return self._command(plain[0], " ".join(lines))
            except InvalidRequest as refused:
                return str(refused)
        if lines[0] == "empty table":
            self.table = ModelTable()
            lines = lines[1:]
        for line in lines:
            self._append(line)
        return ""

    def _append(self, line: str) -> None:
        name, count, _, each, *_ = line.split()
        _, pairs = words(line)
        ends = int(pairs["until"]) * HOUR_MS if "until" in pairs else None
        partition = UNPARTITIONED if name == "-" else partition_named(name, ends)
        added = self.table.append([size(each)] * int(count), partition=partition)
        rows, deleted = int(pairs.get("rows", 1000)), int(pairs.get("deleted", 0))
        files = int(pairs.get("delete-files", 1 if deleted else 0))
        del self.table.tasks[len(self.table.tasks) - len(added) :]
        for found in (replace(f, record_count=rows) for f in added):
            deletes = tuple(position_delete(f"{found.path}-d{n}", deleted // files, of=found) for n in range(files))
            self.table.add(FileScanTask(data_file=found, deletes=deletes))

    def _command(self, verb: str, line: str) -> str:
        policy, ratio = policy_of(line)
        check_partition_filters([t.data_file.partition for t in self.table.tasks], policy)
        plan = plan_compaction(self.table.photograph(policy), policy, size_ratio=ratio)
        answer = described(plan)
        if verb == "compact":
            self.table.apply(plan, even, policy)
            answer += f"\nnow {counted(len(self.table.tasks))}"
        return answer


def partition_named(name: str, ends_at_ms: int | None) -> Partition:
    text, _, spec = name.partition("@")
    return month(text.removeprefix("month="), spec_id=int(spec or 0), ends_at_ms=ends_at_ms)


def policy_of(line: str) -> tuple[CompactionPolicy, float | None]:
    plain, pairs = words(line)
    knobs: dict[str, object] = {name.replace("-", "_"): int(pairs[name]) for name in WHOLE_NUMBERS if name in pairs}
    for name, knob in (("min", "min_file_size_bytes"), ("max", "max_file_size_bytes")):
        knobs |= {knob: size(pairs[name])} if name in pairs else {}
    if "max-file-group-size" in pairs:
        knobs["max_file_group_size_bytes"] = size(pairs["max-file-group-size"])
    if "filter" in pairs:
        key, _, value = pairs["filter"].partition(":")
        knobs["partition_filters"] = (((key, value),),)
    knobs["now_ms"] = int(pairs.get("now", 0)) * HOUR_MS
    knobs["quiet_window_seconds"] = int(pairs.get("quiet", 3600))
    knobs["job_order"] = JobOrder(pairs.get("order", "none"))
    knobs["selection"] = Selection(pairs.get("selection", "small-files"))
    knobs["force"] = "force" in plain
    knobs["rewrite_all"] = "rewrite-all" in plain
    ratio = float(pairs["ratio"]) if "ratio" in pairs else None
    return sized_policy(size(pairs.get("target", "100MB")) // MB, **knobs), ratio


def described(plan: CompactionPlan) -> str:
    lines = [plan.reason.value]
    lines += [_group("group", g) for g in plan.groups]
    lines += [_group("deferred", g) for g in plan.deferred]
    for s in plan.skipped:
        lines.append(f"skip {s.partition.path or '-'}: {counted(s.files)}, {shown(s.size_bytes)}: {s.reason.value}")
    return "\n".join(lines)


def _group(word: str, group: FileGroup) -> str:
    why = ", ".join(f"{count} {reason.value}" for reason, count in group.reasons)
    spec = f"@{group.partition.spec_id}" if group.partition.spec_id else ""
    name = f"{group.partition.path or '-'}{spec}"
    outputs = group.expected_output_files
    return f"{word} {group.index} {name}: {counted(len(group.tasks))}, {shown(group.size_bytes)} -> {outputs} ({why})"


@pytest.mark.parametrize("path", sorted(Path(__file__).parent.glob("plan_*.txt")), ids=lambda path: path.stem)
def test_the_plan_is_the_golden_one(path: Path, rewrite_golden: bool) -> None:
    run(path, PlanBook().interpret, rewrite=rewrite_golden)


def test_every_plan_book_is_found() -> None:
    assert len(list(Path(__file__).parent.glob("plan_*.txt"))) >= 4
