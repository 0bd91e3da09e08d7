"""One switch per law: what the shipped code would be without it. The simulator must notice each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

from pyiceberg.table import Table
from pyiceberg.table.update import AssertTableUUID

from regelate.adapters.iceberg import committer, producer, reclaim
from regelate.core import conflict, plan
from regelate.core.table import DeleteContent
from regelate.operations import attempt, compact, write
from regelate.ports import Head

Patch = tuple[Any, str, Callable[[Any], Any]]
"""Where, which attribute, and how the shipped one is changed."""


@dataclass(frozen=True)
class Mutation:
    """`law`: its number in docs/traps.md, or the trap's."""

    law: str
    what: str
    patches: tuple[Patch, ...]

    @contextmanager
    def applied(self) -> Iterator[None]:
        with ExitStack() as stack:
            for where, name, change in self.patches:
                stack.enter_context(mock.patch.object(where, name, change(getattr(where, name))))
            yield


class _Never(Exception):
    pass


def _only_uuid(shipped: Any) -> Any:
    return lambda self, head: (AssertTableUUID(uuid=self._metadata.table_uuid),)


def _change(**fields: Any) -> Callable[[Any], Any]:
    return lambda shipped: lambda *args, **more: replace(shipped(*args, **more), **fields)


def _from_latest(shipped: Any) -> Any:
    """PyIceberg's check for new deletes starts at the head's own sequence number (trap T6)."""

    def window(self: Any, base: Any, groups: Any) -> Any:
        found = shipped(self, base, groups)
        head = self.table.metadata.last_sequence_number
        return replace(found, new_deletes=tuple(d for d in found.new_deletes if d.sequence_number >= head))

    return window


def _first_window(shipped: Any) -> Any:
    def window(self: Any, base: Any, groups: Any) -> Any:
        if not hasattr(self, "first_window"):
            self.first_window = shipped(self, base, groups)
        return self.first_window

    return window


def _without_positions(shipped: Any) -> Any:
    def hits(delete: Any, path: str, window: Any) -> bool:
        return delete.content is not DeleteContent.POSITION and bool(shipped(delete, path, window))

    return hits


def _reachable_from_main(shipped: Any) -> Any:
    def reached(table: Any, reader: Any) -> Any:
        head = table.metadata.current_snapshot()
        cut = table.metadata.model_copy(update={"snapshots": [head] if head else []})
        return shipped(Table(table.name(), cut, table.metadata_location, table.io, table.catalog), reader)

    return reached


def _always(value: Any) -> Callable[[Any], Any]:
    return lambda shipped: lambda *args, **more: value


MUTATIONS: dict[str, Mutation] = {
    "no-compare-and-swap": Mutation(
        "1",
        "commits do not require the head that was judged",
        ((producer.SnapshotProducer, "_requirements", _only_uuid),),
    ),
    "no-replace": Mutation(
        "2", "a compaction is an `overwrite`", ((compact, "_replace", _change(operation="overwrite")),)
    ),
    "judges-from-latest": Mutation(
        "3", "new deletes are looked for from the head on (T6)", ((committer.IcebergCommitter, "window", _from_latest),)
    ),
    "judges-once": Mutation(
        "3", "a retry is not judged again", ((committer.IcebergCommitter, "window", _first_window),)
    ),
    "new-sequence-number": Mutation(
        "4", "outputs get the new sequence number", ((compact, "_replace", _change(data_sequence_number=None)),)
    ),
    "ignores-new-position-deletes": Mutation(
        "5", "new position deletes drop no group", ((conflict, "_hits", _without_positions),)
    ),
    "drops-deletes-too-soon": Mutation(
        "6",
        "every delete file that was applied leaves the metadata",
        (
            (
                compact,
                "dangling_after",
                lambda _: lambda tasks, *more: frozenset(d.path for t in tasks for d in t.deletes),
            ),
        ),
    ),
    "believes-the-engine": Mutation("7", "rewrites are not verified", ((compact, "verify_rewrite", _always(None)),)),
    "cleans-up-when-unknown": Mutation(
        "8",
        "outputs are deleted after COMMIT_STATE_UNKNOWN",
        ((compact, "CommitStateUnknown", lambda _: _Never), (write, "CommitStateUnknown", lambda _: _Never)),
    ),
    "never-looks": Mutation(
        "8", "an attempt without an answer is tried again unseen", ((attempt._Sent, "_landed", _always(None)),)
    ),
    "forgets-what-landed": Mutation(
        "8",
        "the manifests of a commit that landed under a 409 count as lost (T7)",
        (
            (
                committer.IcebergCommitter,
                "forget_lost",
                lambda shipped: lambda self, landed=None: shipped(self),
            ),
        ),
    ),
    "reachable-from-main": Mutation(
        "10",
        "files are kept for the head of main only",
        ((reclaim, "reached", _reachable_from_main),),
    ),
    "no-fixed-point": Mutation(
        "11",
        "groups that gain nothing are rewritten",
        ((plan, "_refusal", _always(None)), (plan, "_useless", _always(None))),
    ),
    "forgets-its-runs": Mutation("8", "a repeated event is not recognised", ((Head, "run", _always(None)),)),
    "believes-returned-columns": Mutation(
        "2",
        "columns that came back meanwhile are not noticed",
        (
            (
                committer.IcebergCommitter,
                "window",
                lambda shipped: (
                    lambda self, base, groups: replace(shipped(self, base, groups), returned_fields=frozenset())
                ),
            ),
        ),
    ),
}

KNOWN_SEEDS = {
    "no-compare-and-swap": 3,
    "judges-from-latest": 16,
    "judges-once": 16,
    "new-sequence-number": 9,
    "ignores-new-position-deletes": 16,
    "drops-deletes-too-soon": 16,
    "believes-the-engine": 22,
    "cleans-up-when-unknown": 10,
    "never-looks": 7,
    "forgets-what-landed": 7,
    "reachable-from-main": 39,
    "forgets-its-runs": 1,
    "believes-returned-columns": 357,
}
"""Seeds that noticed a mutation when it was last looked for: where a quick check begins. Others: seed 0."""
