"""One switch per law: what the shipped code would be without it. The simulator must notice each."""

from __future__ import annotations

from regelate.adapters.iceberg.cleanup import reach
from regelate.adapters.iceberg.commit import committer, head_contents, producer
from regelate.adapters.iceberg.files.ledger import RunLedger
from regelate.core.planning import plan
from regelate.core.running import conflict
from regelate.core.table.head import Head
from regelate.core.upkeep.ledger import LedgerEntry
from regelate.core.upkeep.quarantine import Quarantine
from regelate.operations import write
from regelate.operations.committing import sent
from regelate.operations.compacting import compact
from regelate.operations.jobs import leasing
from regelate.operations.upkeep import cleaning as upkeep_operations
from regelate.operations.upkeep import expire, reclaim, sweep
from regelate.operations.writing import replacement
from tests.system.simulation.undoing import (
    Mutation,
    always,
    but_for_conflicts,
    change,
    first_window,
    for_its_snapshot,
    for_main_only,
    from_latest,
    only_uuid,
    over_on_main,
    reachable_from_main,
    renumbered,
    requiring_main,
    without_deletes,
    without_positions,
    without_requirements,
    without_returned_fields,
)

MUTATIONS: dict[str, Mutation] = {
    "no-compare-and-swap": Mutation(
        "1",
        "commits do not require the head that was judged",
        ((producer.SnapshotProducer, "_requirements", only_uuid),),
    ),
    "no-replace": Mutation(
        "2", "a compaction is an `overwrite`", ((compact, "_replace", change(operation="overwrite")),)
    ),
    "judges-from-latest": Mutation(
        "3", "new deletes are looked for from the head on (T6)", ((committer.IcebergCommitter, "window", from_latest),)
    ),
    "judges-once": Mutation(
        "3", "a retry is not judged again", ((committer.IcebergCommitter, "window", first_window),)
    ),
    "new-sequence-number": Mutation(
        "4", "outputs get the new sequence number", ((compact, "_replace", change(data_sequence_number=None)),)
    ),
    "ignores-new-position-deletes": Mutation(
        "5", "new position deletes drop no group", ((conflict, "_hits", without_positions),)
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
    "believes-the-engine": Mutation("7", "rewrites are not verified", ((compact, "verify_rewrite", always(None)),)),
    "cleans-up-when-unknown": Mutation(
        "8",
        "outputs are deleted after COMMIT_STATE_UNKNOWN",
        ((compact, "keeps_files", always(False)), (write, "keeps_files", always(False))),
    ),
    "never-looks": Mutation(
        "8", "an attempt without an answer is tried again unseen", ((sent.Sent, "_landed", always(None)),)
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
    "believes-conflicts": Mutation(
        "8",
        "a conflict that the head does not show proves that no sending is under way (T39)",
        ((sent.SentAttempt, "is_in_doubt", but_for_conflicts),),
    ),
    "reachable-from-main": Mutation(
        "10",
        "files are kept for the head of main only",
        ((reach.Reach, "_reached", reachable_from_main),),
    ),
    "no-fixed-point": Mutation(
        "11",
        "groups that gain nothing are rewritten",
        ((plan, "_refusal", always(None)), (plan, "_useless", always(None))),
    ),
    "forgets-its-runs": Mutation("8", "a repeated event is not recognised", ((Head, "run", always(None)),)),
    "believes-silence": Mutation(
        "8",
        "a head that does not show a commit proves that it did not land (T16)",
        ((Head, "shows_next", always(True)),),
    ),
    "carries-old-columns": Mutation(
        "2",
        "rows that an upsert carries over are used again under another schema",
        ((replacement.Replacement, "is_for", lambda _: for_its_snapshot),),
    ),
    "renumbers-entries": Mutation(
        "4",
        "rewritten manifests give their entries a new sequence number",
        ((head_contents, "with_status", renumbered),),
    ),
    "no-ledger": Mutation("9", "names are not written down", ((RunLedger, "record", always(None)),)),
    "sweeps-the-living": Mutation("9", "every run counts as dead", ((LedgerEntry, "is_dead", always(True)),)),
    "sweeps-what-is-needed": Mutation(
        "9",
        "what snapshots name is swept as well",
        ((sweep, "judge_files", lambda shipped: lambda entry, existing, needed: shipped(entry, existing, ())),),
    ),
    "lives-for-ever": Mutation("9", "a run goes on however old it is", ((RunLedger, "keep_alive", always(None)),)),
    "no-grace": Mutation("10", "files are deleted before the grace is over", ((Quarantine, "is_due", always(True)),)),
    "ignores-younger-lists": Mutation(
        "10",
        "what an undo of another expiry needs is deleted",
        ((reclaim, "_needed", always(frozenset())),),
    ),
    "expires-over-refs": Mutation(
        "10",
        "an expiry requires nothing of the refs (T8)",
        ((committer, "expiry_updates", without_requirements),),
    ),
    "removes-young-files": Mutation(
        "10",
        "orphan files go whatever their age",
        ((upkeep_operations, "plan_orphans", lambda f: lambda *a, **m: f(*a, **{**m, "older_than_ms": 0})),),
    ),
    "requires-main": Mutation(
        "1",
        "a commit to a branch requires main where it was, not the branch",
        ((producer.SnapshotProducer, "_requirements", requiring_main),),
    ),
    "expires-branches": Mutation(
        "10",
        "an expiry keeps what main reaches, and nothing of other refs",
        ((expire, "plan_expiry", for_main_only),),
    ),
    "believes-rollbacks": Mutation(
        "8",
        "a request under way is ruled out by a rollback, which takes no sequence number",
        ((sent.SentAttempt, "is_over", over_on_main),),
    ),
    "believes-returned-columns": Mutation(
        "2",
        "columns that came back meanwhile are not noticed",
        (
            (
                committer.IcebergCommitter,
                "window",
                without_returned_fields,
            ),
        ),
    ),
}

MUTATIONS |= {
    "works-without-its-lease": Mutation(
        "9", "a worker goes on after another has its lease", ((leasing.Held, "check", always(None)),)
    ),
    "takes-files-with-new-deletes": Mutation(
        "5",
        "neighbours that an append takes along stand whatever was deleted of them meanwhile",
        ((replacement, "still_stands", without_deletes),),
    ),
    "sends-undos-late": Mutation(
        "10", "an undo is sent however late", ((Quarantine, "send_allowance_ms", always(2**62)),)
    ),
}

KNOWN_SEEDS = {
    "no-compare-and-swap": 3,
    "no-replace": 2,
    "judges-from-latest": 12,
    "judges-once": 62,
    "new-sequence-number": 47,
    "ignores-new-position-deletes": 12,
    "drops-deletes-too-soon": 473,
    "believes-the-engine": 76,
    "cleans-up-when-unknown": 6,
    "never-looks": 5,
    "forgets-what-landed": 18,
    "believes-conflicts": 198,
    "reachable-from-main": 135,
    "no-fixed-point": 0,
    "forgets-its-runs": 28,
    "believes-silence": 119,
    "carries-old-columns": 705,
    "renumbers-entries": 29,
    "no-ledger": 3,
    "sweeps-the-living": 58,
    "sweeps-what-is-needed": 13,
    "lives-for-ever": 100,
    "no-grace": 33,
    "ignores-younger-lists": 686,
    "expires-over-refs": 129,
    "removes-young-files": 175,
    "requires-main": 81,
    "expires-branches": 57,
    "believes-rollbacks": 139,
    "believes-returned-columns": 88,
    "works-without-its-lease": 31,
    "takes-files-with-new-deletes": 734,
    "sends-undos-late": 993,
}
"""A seed that noticed each when it was last looked for, by the law that it undoes: where a quick check begins."""
