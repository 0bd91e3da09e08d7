"""Which position delete files are worth merging, and which apply to nothing any more. Pure.

The groups are Iceberg's (1.10, `BinPackRewritePositionDeletePlanner`: by partition), but a group is taken only when
fewer files would come out, so that a second run finds nothing to do.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from regelate.core.table.table import DeleteContent, DeleteFile, Partition

GRANULARITY_PROPERTY = "write.delete.granularity"
PUFFIN = "PUFFIN"
"""The format of deletion vectors (v3), of which each data file has at most one."""


def is_vector(delete: DeleteFile) -> bool:
    return delete.file_format.upper() == PUFFIN


def mergeable(deletes: Iterable[DeleteFile], *, by_partition: bool) -> tuple[Partition, ...]:
    """Return the partitions whose position delete files would become fewer, in the order of their names.

    `by_partition`: the table writes one delete file for all data files of a partition, not one for each.
    """
    files: dict[Partition, int] = Counter()
    outputs: dict[Partition, set[str | None]] = defaultdict(set)
    for delete in deletes:
        if delete.content is DeleteContent.POSITION and not is_vector(delete):
            files[delete.partition] += 1
            outputs[delete.partition].add(None if by_partition else delete.exact_reference)
    found = (p for p, count in files.items() if count > len(outputs[p]))
    return tuple(sorted(found, key=lambda p: (p.spec_id, p.path, p.key)))


def dangling(deletes: Iterable[DeleteFile], references: Mapping[str, int]) -> tuple[DeleteFile, ...]:
    """Return the delete files that apply to no live data file. `references`: data files by path of the delete file."""
    return tuple(d for d in deletes if references.get(d.path, 1) == 0)
