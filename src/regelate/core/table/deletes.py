"""Which deletes apply to a data file, and which delete files no live data file needs any more.

Rules: Iceberg spec, "Scan planning". A position delete applies to data files of its own partition whose data sequence
number is not above its own; an equality delete to those strictly below; an equality delete written under an
unpartitioned spec applies to the files of every spec.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from regelate.core.table.table import DataFile, DeleteContent, DeleteFile, FileScanTask, Partition


def applies(delete: DeleteFile, data_file: DataFile) -> bool:
    """Say whether a delete file may hold deletes for a data file; the range of referenced paths decides for
    positions."""
    if not delete.is_global and delete.partition != data_file.partition:
        return False
    if delete.content is DeleteContent.EQUALITY:
        return data_file.sequence_number < delete.sequence_number
    if data_file.sequence_number > delete.sequence_number:
        return False
    low, high = delete.referenced_lower, delete.referenced_upper
    return (low is None or low <= data_file.path) and (high is None or data_file.path <= high)


class DeleteIndex:
    """Finds the deletes of one data file without looking at those of other partitions; counts who was asked for.

    `references` counts per delete file path the data files that it was found to apply to.
    """

    def __init__(self, deletes: Iterable[DeleteFile]) -> None:
        self._global: list[DeleteFile] = []
        self._exact: dict[str, list[DeleteFile]] = defaultdict(list)
        self._by_partition: dict[Partition, list[DeleteFile]] = defaultdict(list)
        self.references: dict[str, int] = {}
        for delete in deletes:
            self.references.setdefault(delete.path, 0)
            if delete.is_global:
                self._global.append(delete)
            elif delete.content is DeleteContent.POSITION and delete.exact_reference is not None:
                self._exact[delete.exact_reference].append(delete)
            else:
                self._by_partition[delete.partition].append(delete)

    def applicable(self, data_file: DataFile) -> tuple[DeleteFile, ...]:
        """Return the deletes that apply to a live data file, and count the reference. Ask once per live file."""
        if not self.references:
            return ()
        nearby = self._exact.get(data_file.path, []) + self._by_partition.get(data_file.partition, []) + self._global
        found = tuple(d for d in nearby if applies(d, data_file))
        for delete in found:
            self.references[delete.path] += 1
        return found


def dangling_after(
    rewritten: Iterable[FileScanTask],
    references: Mapping[str, int],
    deletes: Iterable[DeleteFile],
    output_sequence_number: int,
    output_partitions: Iterable[Partition],
) -> frozenset[str]:
    """Return paths of delete files that apply to no live data file once the given tasks are gone (law 6: delete files
    leave last).

    The outputs count as live: an equality delete younger than their sequence number still applies to them. `references`
    are the counts over ALL live files at the planning snapshot; files that others add later carry higher sequence
    numbers, so no delete of the planning snapshot reaches them.
    """
    left = dict(references)
    for task in rewritten:
        for delete in task.deletes:
            left[delete.path] -= 1
    partitions = frozenset(output_partitions)

    def reaches_outputs(delete: DeleteFile) -> bool:
        if delete.content is not DeleteContent.EQUALITY or output_sequence_number >= delete.sequence_number:
            return False
        return bool(partitions) and (delete.is_global or delete.partition in partitions)

    return frozenset(d.path for d in deletes if left.get(d.path, 1) == 0 and not reaches_outputs(d))
