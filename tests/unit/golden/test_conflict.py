"""What a rewrite meets on the head it commits to, as a table of cases (conflict_*.txt).

State, the table at planning:  `table seq=<head's number>`, then
    <name> <partition> seq=<n>                          a data file
    <name> positions <partition> seq=<n> of=<file>      a position delete file that names one data file
    <name> keys <partition or *> seq=<n>                an equality delete file; `*` is global
    group <file>...                                     a group of the plan, in order
Command, one change of others per line, each on the state at planning; the answer is our commit:
    append <name> <partition>
    positions <name> <partition> [of=<file>|<low>..<high>|?] [read=<file>,...]    `?`: no bounds; `read`: what it names
    keys <name> <partition or *> [seq=<n>]              with `seq` one that was written again under an old number
    remove <name>...                                    data or delete files
    tag, add-column, change-spec, expire-others         metadata alone
    rollback, expire-base, head-only, another-table, return-column <field id>
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from regelate.core.planning.plan import FileGroup
from regelate.core.running.conflict import Ancestry, CommitWindow, judge
from regelate.core.table.deletes import DeleteIndex, applies, dangling_after
from regelate.core.table.table import DataFile, DeleteContent, DeleteFile, FileScanTask, Partition
from regelate.errors import Conflict
from tests.unit.core.model_table import UNPARTITIONED, data_file, equality_delete, month, position_delete
from tests.unit.golden.datadriven import run, words

BASE_ID, HEAD_ID = 50, 51
FAR = data_file("~", 1)
ENDS = {
    "rollback": Ancestry.ROLLED_BACK,
    "expire-base": Ancestry.EXPIRED,
    "head-only": Ancestry.HEAD_ONLY,
}
METADATA_ONLY = ("tag", "add-column", "change-spec", "expire-others", "nothing")


def partition_of(name: str) -> Partition:
    return UNPARTITIONED if name in ("-", "*") else month(name)


class ConflictBook:
    """One golden file: the table that its states describe, and what a commit on each head comes to."""

    def __init__(self) -> None:
        self.sequence_number = 0
        self.data: dict[str, DataFile] = {}
        self.deletes: dict[str, DeleteFile] = {}
        self.groups: list[FileGroup] = []

    def interpret(self, lines: list[str]) -> str:
        if lines[0].startswith("table "):
            self._plan(lines)
            return ""
        return self._commit(lines)

    def _plan(self, lines: list[str]) -> None:
        self.sequence_number = int(words(lines[0])[1]["seq"])
        self.data, self.deletes, self.groups = {}, {}, []
        listed = [line for line in lines[1:] if line.startswith("group ")]
        for line in [line for line in lines[1:] if line not in listed]:
            (name, *kind), pairs = words(line)
            if len(kind) == 1:
                self.data[name] = data_file(name, 10, partition=partition_of(kind[0]), seq=int(pairs["seq"]))
            else:
                self.deletes[name] = self._delete([kind[0], name, kind[1]], pairs)
        index = DeleteIndex(self.deletes.values())
        tasks = {f.path: FileScanTask(data_file=f, deletes=index.applicable(f)) for f in self.data.values()}
        self.references = dict(index.references)
        for number, line in enumerate(listed):
            chosen = tuple(tasks[name] for name in line.split()[1:])
            self.groups.append(
                FileGroup(
                    index=number,
                    partition=chosen[0].data_file.partition,
                    tasks=chosen,
                    expected_output_files=1,
                )
            )

    def _delete(self, plain: list[str], pairs: dict[str, str]) -> DeleteFile:
        kind, name, place = plain
        number = int(pairs.get("seq", self.sequence_number + 1))
        if kind == "keys":
            made = equality_delete(name, 1, of=FAR)
            return replace(made, partition=partition_of(place), sequence_number=number, is_global=place == "*")
        low, _, high = pairs.get("of", "?").partition("..")
        made = replace(position_delete(name, 1, of=FAR), partition=partition_of(place), sequence_number=number)
        known = None if low == "?" else low
        return replace(made, referenced_lower=known, referenced_upper=(high or known) if known else None)

    def _commit(self, lines: list[str]) -> str:
        window, live = self._window(lines)
        try:
            verdict = judge(self.groups, window)
        except Conflict as refused:
            return f"{refused.status} {refused.code}"
        answer = [f"drop {d.group.index}: {d.code.value} {d.path}" for d in verdict.dropped]
        answer += [f"keep {g.index}" + self._beside(g, live, window) for g in verdict.kept]
        tasks = [t for g in verdict.kept for t in g.tasks]
        partitions = [g.partition for g in verdict.kept]
        gone = dangling_after(tasks, self.references, self.deletes.values(), self.sequence_number, partitions)
        answer += [f"removes {path}" for path in sorted(gone)]
        return "\n".join(answer if verdict.kept else [*answer, "409 COMMIT_CONFLICT"])

    def _beside(self, group: FileGroup, live: dict[str, DeleteFile], window: CommitWindow) -> str:
        """Say which delete files of the head apply to the outputs: those must be deletes that the inputs had not."""
        output = data_file("output", 10, partition=group.partition, seq=self.sequence_number)
        equality = [d for d in live.values() if d.content is DeleteContent.EQUALITY]
        names = sorted(d.path for d in equality if applies(d, output))
        return f", under {' '.join(names)}" if names else ""

    def _window(self, lines: list[str]) -> tuple[CommitWindow, dict[str, DeleteFile]]:
        window = CommitWindow(
            ancestry=Ancestry.ANCESTOR,
            same_table=True,
            base_snapshot_id=BASE_ID,
            base_sequence_number=self.sequence_number,
            head_snapshot_id=HEAD_ID,
        )
        data, deletes, read = set(self.data), dict(self.deletes), {}
        for line in lines:
            (verb, *plain), pairs = words(line)
            if verb in ENDS:
                window = replace(window, ancestry=ENDS[verb])
            elif verb == "another-table":
                window = replace(window, same_table=False)
            elif verb == "return-column":
                window = replace(window, returned_fields=frozenset({int(plain[0])}))
            elif verb == "append":
                data.add(plain[0])
            elif verb == "remove":
                data -= set(plain)
                deletes = {path: d for path, d in deletes.items() if path not in plain}
            elif verb in ("positions", "keys"):
                deletes[plain[0]] = self._delete([verb, *plain], pairs)
                read |= {plain[0]: frozenset(pairs["read"].split(","))} if "read" in pairs else {}
            else:
                assert verb in METADATA_ONLY, f"no such change: {line}"
        inputs = {t.data_file.path for g in self.groups for t in g.tasks}
        return replace(
            window,
            missing_inputs=frozenset(inputs - data),
            new_deletes=tuple(d for path, d in deletes.items() if path not in self.deletes),
            missing_deletes=frozenset(set(self.deletes) - set(deletes)),
            referenced=read,
        ), deletes


@pytest.mark.parametrize("path", sorted(Path(__file__).parent.glob("conflict_*.txt")), ids=lambda path: path.stem)
def test_the_verdict_is_the_golden_one(path: Path, rewrite_golden: bool) -> None:
    run(path, ConflictBook().interpret, rewrite=rewrite_golden)


def test_every_conflict_book_is_found() -> None:
    assert len(list(Path(__file__).parent.glob("conflict_*.txt"))) >= 5
