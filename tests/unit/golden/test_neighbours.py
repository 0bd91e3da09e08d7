"""Which small files a WRITE takes along, as a table of cases (neighbours_*.txt).

State:    <partition> own=<size>  and the live files that the request does not touch, after `|` each:
          <size> [deletes] [sorted] [avro] [made-for=BYTES]
          `spec=N` after the partition: of another spec than that of the rows, which is 1
Command:  take target=<size> [at-most=<size>]
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from regelate.core.planning.neighbours import Place, taken_along
from regelate.core.policy.targets import target_suffix
from regelate.core.policy.write_options import TAKEN_BYTES
from regelate.core.table.table import FileScanTask, Partition
from tests.unit.core.model_table import data_file, position_delete
from tests.unit.golden.datadriven import run, words
from tests.unit.golden.test_plan import size


class Book:
    def __init__(self) -> None:
        self.places: list[Place] = []

    def interpret(self, lines: list[str]) -> str:
        if not lines[0].startswith("take"):
            self.places = [self._place(line) for line in lines]
            return ""
        _, pairs = words(lines[0])
        most = size(pairs["at-most"]) if "at-most" in pairs else TAKEN_BYTES
        found = taken_along(self.places, spec_id=1, target_bytes=size(pairs["target"]), max_bytes=most)
        return "\n".join(self._told(place, found.get(place.partition, ())) for place in self.places)

    def _place(self, line: str) -> Place:
        first, *files = line.split(" | ")
        (name,), pairs = words(first)
        partition = Partition(spec_id=int(pairs.get("spec", 1)), values=(name,), path=f"p={name}")
        others = tuple(self._file(number, text, partition) for number, text in enumerate(files))
        return Place(partition=partition, own_bytes=size(pairs["own"]), others=others)

    def _file(self, number: int, text: str, partition: Partition) -> FileScanTask:
        (weight, *kinds), pairs = words(text)
        suffix = target_suffix(int(pairs["made-for"]) if "made-for" in pairs else None)
        file = data_file(f"{weight}#{number}{suffix}", size(weight), partition=partition)
        file = replace(file, sort_order_id=1 if "sorted" in kinds else 0)
        file = replace(file, file_format="AVRO" if "avro" in kinds else "PARQUET")
        deletes = (position_delete("d", 1, of=file),) if "deletes" in kinds else ()
        return FileScanTask(data_file=file, deletes=deletes)

    def _told(self, place: Place, taken: tuple[FileScanTask, ...]) -> str:
        names = [task.data_file.path.partition("#")[0] for task in taken]
        return f"{place.partition.path}: {' '.join(names) or 'none'}"


@pytest.mark.parametrize("path", sorted(Path(__file__).parent.glob("neighbours_*.txt")), ids=lambda path: path.stem)
def test_what_is_taken_along_is_the_golden_one(path: Path, rewrite_golden: bool) -> None:
    run(path, Book().interpret, rewrite=rewrite_golden)
