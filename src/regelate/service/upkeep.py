"""What keeps a table small beside compaction, and MAINTAIN, which does all of it in the safe order."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping

from regelate.core.answers import (
    DanglingDeletesAnswer,
    ExpireSnapshotsAnswer,
    MaintainAnswer,
    ReclaimAnswer,
    RemoveOrphanFilesAnswer,
    RewriteManifestsAnswer,
    Step,
    StepResultAnswer,
)
from regelate.core.requests import CompactRequest, MaintainRequest
from regelate.operations import answers
from regelate.operations.allowance import Allowance
from regelate.ports.clock import Clock
from regelate.service.compactions import Compactions
from regelate.service.knobs import Knobs
from regelate.service.open_tables import OpenTables
from regelate.service.table_sweeps import TableSweeps
from regelate.tenancy import Address


class Upkeep:
    """Expires, reclaims, and writes metadata anew; each operation loads the table for itself."""

    def __init__(
        self, tables: OpenTables, knobs: Knobs, sweeps: TableSweeps, compactions: Compactions, clock: Clock
    ) -> None:
        self._tables = tables
        self._knobs = knobs
        self._sweeps = sweeps
        self._compactions = compactions
        self._clock = clock

    def expire_snapshots(
        self,
        address: Address,
        *,
        retention_hours: float | None,
        min_snapshots_to_keep: int | None,
        grace_hours: float | None,
        dry_run: bool,
    ) -> ExpireSnapshotsAnswer:
        from regelate.operations.upkeep.expire import ExpiryTools, expire_snapshots

        with self._tables.open(address) as session:
            policy = self._knobs.retention(session, retention_hours, keep=min_snapshots_to_keep, grace=grace_hours)
            tools = ExpiryTools(committer=session.committer, reclaimer=session.reclaimer, clock=self._clock)
            found = expire_snapshots(tools, policy, dry_run=dry_run)
            return answers.expired(found)

    def undo_expiry(self, address: Address, undo_id: str) -> ExpireSnapshotsAnswer:
        from regelate.operations.upkeep.expire import ExpiryTools, undo_expiry

        with self._tables.open(address) as session:
            tools = ExpiryTools(committer=session.committer, reclaimer=session.reclaimer, clock=self._clock)
            return answers.undone(undo_expiry(tools, undo_id))

    def remove_orphan_files(
        self, address: Address, *, older_than_hours: float | None, dry_run: bool
    ) -> RemoveOrphanFilesAnswer:
        from regelate.operations.upkeep.cleaning import remove_orphan_files

        older_than_ms = self._knobs.orphan_age_ms(older_than_hours)
        with self._tables.open(address) as session:
            found = remove_orphan_files(session.orphans, older_than_ms=older_than_ms, dry_run=dry_run)
            return answers.orphans_removed(found)

    def rewrite_manifests(self, address: Address, *, dry_run: bool) -> RewriteManifestsAnswer:
        from regelate.operations.upkeep.cleaning import rewrite_manifests

        with self._tables.open(address) as session:
            found = rewrite_manifests(
                session.committer,
                self._clock,
                target_size_bytes=session.manifest_target_bytes,
                run_id=uuid.uuid4().hex,
                dry_run=dry_run,
            )
            return answers.manifests_rewritten(found)

    def remove_dangling_deletes(self, address: Address, *, dry_run: bool) -> DanglingDeletesAnswer:
        """Take delete files out of the table that apply to no data file any more."""
        from regelate.operations.upkeep.cleaning import remove_dangling_deletes

        with self._tables.open(address) as session:
            run_id = uuid.uuid4().hex
            found = remove_dangling_deletes(session.committer, self._clock, run_id=run_id, dry_run=dry_run)
            return answers.dangling_removed(found)

    def reclaim(self, address: Address, *, dry_run: bool) -> ReclaimAnswer:
        """Sweep this one table: what is left of expiries whose grace is over, and of runs that died."""
        with self._tables.open(address) as session:
            session.reclaimer.check_allowed()
            found = self._sweeps.sweep(session, Allowance(self._clock), address, dry_run=dry_run)
        if found.error is not None:
            raise found.error
        return answers.reclaimed(found)

    def maintain(self, address: Address, request: MaintainRequest) -> MaintainAnswer:
        """Run the wanted steps, all by default; each loads the table anew."""
        from regelate.operations.upkeep.maintain import Work, maintain

        self._knobs.orphan_age_ms(request.older_than_hours)  # refused before anything is done
        with self._tables.open(address) as session:
            self._knobs.retention(
                session, request.retention_hours, keep=request.min_snapshots_to_keep, grace=request.grace_hours
            )
        runs, wanted = self._steps(address, request), request.steps
        works = [Work(step=s, run=runs[s]) for s in Step if wanted is None or s.value in wanted]
        return answers.maintained(maintain(works, self._clock), dry_run=request.dry_run)

    def _steps(self, address: Address, request: MaintainRequest) -> Mapping[Step, Callable[[], StepResultAnswer]]:
        dry_run = request.dry_run
        compaction = CompactRequest(force=request.force, expire_snapshots=False, dry_run=dry_run)
        return {
            Step.COMPACT: lambda: self._compactions.compact(address, compaction, may_delegate=False),
            Step.DANGLING_DELETES: lambda: self.remove_dangling_deletes(address, dry_run=dry_run),
            Step.MANIFESTS: lambda: self.rewrite_manifests(address, dry_run=dry_run),
            Step.EXPIRE: lambda: self.expire_snapshots(
                address,
                retention_hours=request.retention_hours,
                min_snapshots_to_keep=request.min_snapshots_to_keep,
                grace_hours=request.grace_hours,
                dry_run=dry_run,
            ),
            Step.ORPHANS: lambda: self.remove_orphan_files(
                address, older_than_hours=request.older_than_hours, dry_run=dry_run
            ),
            Step.RECLAIM: lambda: self.reclaim(address, dry_run=dry_run),
        }
