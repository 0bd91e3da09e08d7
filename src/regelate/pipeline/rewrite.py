"""The first step of maintenance: rewrite_data_files, as core chose it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from regelate.core.engines import Engine
from regelate.core.planning.plan import CompactionPlan, PlanReason
from regelate.core.policy.policy import CompactionPolicy
from regelate.core.policy.sizes import size_text
from regelate.core.running.stats import CompactionStats, PhaseSeconds
from regelate.core.table.table import SnapshotEntry, TableSnapshot
from regelate.core.values import dataclass
from regelate.errors import InvalidRequest, RegelateError
from regelate.pipeline.choose import Choice, choose
from regelate.pipeline.options import Rewrite, policy_of, procedure_options, sort_argument, strategy_argument
from regelate.pipeline.result import Status, Step
from regelate.pipeline.tables import SparkTable
from regelate.pipeline.terminal import Terminal

STEP = "rewrite_data_files"


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """What was read and chosen before anything was touched."""

    before: TableSnapshot
    policy: CompactionPolicy
    choice: Choice
    statements: tuple[str, ...]
    seconds: float

    @property
    def plan(self) -> CompactionPlan:
        return self.choice.plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """What the CALLs did: one commit each. `stopped`: the fault that ended them after some had landed."""

    step: Step
    stats: CompactionStats | None
    commits: tuple[int, ...] = ()
    stopped: RegelateError | None = None
    warnings: tuple[str, ...] = ()


def plan_rewrite(table: SparkTable, rewrite: Rewrite, *, now_ms: int) -> Planned:
    """Read the metadata and choose. Errors: InvalidRequest for a filter or an option that does not fit the table."""
    started = time.monotonic()
    policy = policy_of(rewrite, table.properties, now_ms=now_ms, table_bytes=table.stored_bytes)
    options = procedure_options(rewrite, policy, table.format_version)
    if policy.where is not None:
        table.matching(policy.where)  # judged alone, before it is joined with anything
    before = table.snapshot(policy)
    catalog = table.name.catalog
    choice = choose(before, table.metadata, policy, catalog=catalog, rule=rewrite.rule, now_ms=now_ms)
    statements = tuple(
        table.statement(
            STEP,
            {
                "strategy": strategy_argument(rewrite),
                "sort_order": sort_argument(rewrite),
                "where": where,
                "options": options,
            },
        )
        for where in choice.wheres
    )
    return Planned(
        before=before, policy=policy, choice=choice, statements=statements, seconds=time.monotonic() - started
    )


def tell_plan(planned: Planned, terminal: Terminal) -> None:
    """Say what core chose, and why the rest stays."""
    plan = planned.plan
    if not plan.groups:
        terminal.say(f"Nothing to rewrite: {WHY_NOTHING[plan.reason]}.")
    else:
        terminal.say(
            f"{plan.files} of {planned.before.file_count} data files ({size_text(plan.size_bytes)}) in "
            f"{len({g.partition for g in plan.groups})} partition(s) become about {plan.expected_output_files}."
        )
        rows = [
            (
                g.partition.path or "(whole table)",
                str(len(g.tasks)),
                size_text(g.size_bytes),
                str(g.expected_output_files),
                ", ".join(f"{count} {reason.value}" for reason, count in g.reasons),
            )
            for g in plan.groups[:MOST_LISTED]
        ]
        terminal.show(("partition", "files", "size", "become", "because"), rows)
    for skip in plan.skipped[:MOST_LISTED]:
        terminal.say(f"  left alone: {skip.files} file(s) of {skip.partition.path or 'the table'}: {skip.reason.value}")
    for note in planned.choice.notes:
        terminal.say(f"  note: {note}")


MOST_LISTED = 20
WHY_NOTHING: Mapping[PlanReason, str] = {
    PlanReason.NO_SNAPSHOT: "the table is empty",
    PlanReason.NO_PARTITION: "no partition matches the filter or the selection",
    PlanReason.NO_CANDIDATE: "no files could be merged, split or freed of deletes",
    PlanReason.NO_GROUPS: "rewriting the selected files would not leave fewer or better ones",
    PlanReason.BELOW_THRESHOLD: "too few files for the thresholds; --force merges them",
    PlanReason.BUDGET_CAPPED: "every group is left for another run",
    PlanReason.RECOMMENDED: "there are no groups",
}


def run_rewrite(table: SparkTable, planned: Planned, terminal: Terminal) -> Rewritten:
    """Carry the plan out, one CALL after the other, and count what became of it from the table itself.

    A fault of the first CALL is raised; later ones end the run, and what landed stays. Afterwards `table` stands at the
    new head.
    """
    if not planned.statements:
        return Rewritten(
            step=Step(step=STEP, status=Status.NOTHING_TO_DO, reason=planned.plan.reason.value), stats=None
        )
    started = time.monotonic()
    answers: list[Mapping[str, object]] = []
    stopped: RegelateError | None = None
    for number, statement in enumerate(planned.statements, start=1):
        terminal.say(f"Rewriting, call {number} of {len(planned.statements)} ...")
        try:
            answers += table.run(statement)
            table.refresh()  # each commit is seen once, also where the next one will hide it
        except InvalidRequest:
            raise
        except RegelateError as fault:
            if not answers:
                raise
            stopped = fault
            break
    seconds = time.monotonic() - started
    table.refresh()
    alive: set[str] = set()
    paths = frozenset(path for group in planned.plan.groups for path in group.paths)
    after = table.snapshot(replace(planned.policy, where=None), watch=paths, seen=alive)
    commits = table.own_commits({s.snapshot_id for s in planned.before.snapshots}, "replace")
    stats = stats_of(planned, after, answers, commits, alive, seconds)
    done = stopped is None and stats.dropped_groups == 0
    return Rewritten(
        step=Step(
            step=STEP,
            status=Status.COMPLETED if done else Status.PARTIAL,
            reason=planned.plan.reason.value if stopped is None else stopped.code,
            seconds=round(seconds, 3),
            found={name: _total(answers, name) for name in answers[0]} if answers else {},
            statements=planned.statements,
        ),
        stats=stats,
        commits=tuple(commit.snapshot_id for commit in sorted(commits, key=lambda c: c.sequence_number)),
        stopped=stopped,
        warnings=_warnings(planned, stats, stopped),
    )


def stats_of(
    planned: Planned,
    after: TableSnapshot,
    answers: Sequence[Mapping[str, object]],
    commits: Sequence[SnapshotEntry],
    alive: set[str],
    seconds: float,
) -> CompactionStats:
    """Return COMPACT's stats: the procedure's counts, the summaries of its commits, the table before and after.

    `alive`: planned files that are still in the table; a group that keeps one of them did not land. `commit_attempts`
    counts the commits: Spark does not say how often it tried.
    """
    plan, before = planned.plan, planned.before
    rewritten = _total(answers, "rewritten_data_files_count")
    added_bytes = sum(int(c.summary.get("added-files-size", "0")) for c in commits)
    return CompactionStats(
        files_before=before.file_count,
        files_after=after.file_count,
        files_compacted=rewritten,
        files_removed=rewritten,
        files_added=_total(answers, "added_data_files_count"),
        bytes_before=before.size_bytes,
        bytes_after=after.size_bytes,
        bytes_saved=_total(answers, "rewritten_bytes_count") - added_bytes,
        compaction_time_ms=round((planned.seconds + seconds) * 1000, 2),
        small_files_remaining=len(after.candidates),
        engine=Engine.SPARK.value,
        groups=sum(not (group.paths & alive) for group in plan.groups),
        groups_deferred=len(plan.deferred),
        rows=sum(int(c.summary.get("added-records", "0")) for c in commits),
        delete_files_removed=sum(int(c.summary.get("removed-delete-files", "0")) for c in commits),
        manifests_before=before.manifest_count,
        manifests_after=after.manifest_count,
        commit_attempts=len(commits),
        dropped_groups=sum(bool(group.paths & alive) for group in plan.groups),
        seconds=PhaseSeconds(plan=round(planned.seconds, 3), rewrite=round(seconds, 3)),
    )


def _total(answers: Sequence[Mapping[str, object]], name: str) -> int:
    return sum(int(str(answer.get(name) or 0)) for answer in answers)


def _warnings(planned: Planned, stats: CompactionStats, stopped: RegelateError | None) -> tuple[str, ...]:
    found = list(planned.choice.notes)
    if stopped is not None:
        found.append(f"stopped after some calls had landed: {stopped}")
    if stats.dropped_groups:
        found.append(f"{stats.dropped_groups} planned group(s) are still in the table as they were")
    if stats.files_compacted > planned.plan.files:
        found.append(f"Spark rewrote {stats.files_compacted} files where core chose {planned.plan.files}")
    return tuple(found)
