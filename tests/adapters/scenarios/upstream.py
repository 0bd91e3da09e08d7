"""The scenarios of other projects that a rewrite can meet, by the names that they have there."""

from __future__ import annotations

import re
from collections.abc import Mapping

SCENARIOS: Mapping[str, tuple[str, ...]] = {
    "TestRewriteFiles": (
        "testEmptyTable",
        "testAddOnly",
        "testDeleteOnly",
        "testDeleteWithDuplicateEntriesInManifest",
        "testAddAndDelete",
        "testRewriteDataAndDeleteFiles",
        "testRewriteDataAndAssignOldSequenceNumber",
        "testFailure",
        "testFailureWhenRewriteBothDataAndDeleteFiles",
        "testRecovery",
        "testRecoverWhenRewriteBothDataAndDeleteFiles",
        "testReplaceEqualityDeletesWithPositionDeletes",
        "testRemoveAllDeletes",
        "testDeleteNonExistentFile",
        "testAlreadyDeletedFile",
        "testNewDeleteFile",
        "removingDataFileAlsoRemovesDV",
    ),
    "TestRowDelta": (
        "testValidateDataFilesExistRewrite",
        "testConcurrentNonConflictingRowDeltaAndRewriteFilesWithSequenceNumber",
        "testRowDeltaAndRewriteFilesMergeManifestsWithSequenceNumber",
        "testConcurrentConflictingRowDeltaAndRewriteFilesWithSequenceNumber",
        "testConcurrentDeletesRewriteSameRemoveRows",
        "testConcurrentManifestRewriteWithRemoveRowsRemoval",
        "testConcurrentMergeRewriteSameRemoveRows",
        "testConcurrentDVsForSameDataFile",
        "testManifestMergingAfterUpgradeToV3",
        "testFastAppendDoesNotRemoveStaleDeleteFiles",
    ),
    "TestOverwriteWithValidation": (
        "testConcurrentConflictingPositionDeletes",
        "testConcurrentConflictingEqualityDeletes",
        "testOverwriteCompatibleRewriteAllowed",
        "testOverwriteCompatibleExpirationAdditionValidated",
    ),
    "TestRewriteDataFilesAction": (
        "testBinPackUnpartitionedTable",
        "testBinPackPartitionedTable",
        "testBinPackAfterPartitionChange",
        "testBinPackWithV2PositionDeletes",
        "testBinPackWithDVs",
        "removeDanglingDVsFromDeleteManifest",
        "testRemoveDangledEqualityDeletesPartitionEvolution",
        "testRemoveDangledPositionDeletesPartitionEvolution",
        "testBinPackWithDeleteAllData",
        "testBinPackWithStartingSequenceNumber",
        "testBinPackWithStartingSequenceNumberV1Compatibility",
        "testDataFilesRewrittenWithHighDeleteRatio",
        "testDataFilesNotRewrittenWithLowDeleteRatio",
        "testBinPackSplitLargeFile",
        "testBinPackCombineMixedFiles",
        "testPartialProgressEnabled",
        "testSingleCommitWithRewriteFailure",
        "testSingleCommitWithCommitFailure",
        "testCommitFailsWithUncleanableFailure",
        "testParallelPartialProgressWithRewriteFailure",
        "testParallelPartialProgressWithCommitFailure",
        "testParallelPartialProgressWithMaxFailedCommits",
        "testCommitStateUnknownException",
        "testMaxFileGroupInputFilesOption",
        "testRewriteDataFilesPreservesLineage",
        "testUpgradePreservesDataSequence",
        "testRewriteLargeTableHasResiduals",
        "testInvalidOptions",
    ),
    "TestSnapshotProducer": ("manifestNotCleanedUpWhenSnapshotNotLoadableAfterCommit",),
    "StaleBaseLostUpdateTest": (
        "testExpireSnapshotsDropsConcurrentDataCommit",
        "testStaleInsertDropsConcurrentDataCommitOnFreshTable",
        "testConcurrentInsertOnPopulatedTableIsRejected",
        "testStaleMetadataUpdateDropsConcurrentDataCommit",
    ),
    "Trino": ("testConcurrentOptimize", "testOptimizeDuringWriteOperations"),
}


def test_name(upstream: str) -> str:
    """Return how a scenario is called here: `testBinPackWithDVs` -> `test_bin_pack_with_dvs`."""
    words = re.sub(r"DV(?=s?(?:[A-Z]|$))", "Dv", upstream)
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", words).lower()
    return snake if snake.startswith("test_") else f"test_{snake}"


test_name.__test__ = False  # type: ignore[attr-defined]  # it is no test, though its name begins like one
