"""What operations answer: one value per operation. openapi.json is made from these classes, and so is what leaves here.

An answer is written as JSON by `answer_fields`, once, where it leaves the house (or the record of a job keeps it).
"""

from typing import Any, ClassVar, Protocol

from regelate.core.answers.compaction import CompactAnswer, Status
from regelate.core.answers.fleet import (
    FleetApplyAnswer,
    FleetHistoryAnswer,
    FleetPlanAnswer,
    FleetScanAnswer,
    FleetStatusAnswer,
)
from regelate.core.answers.jobs import (
    ErrorOfTable,
    JobAnswer,
    JobProgress,
    ListedJob,
    ListJobsAnswer,
    RankedTableAnswer,
    SweepAnswer,
    SweptExpiry,
    SweptRun,
    SweptTable,
)
from regelate.core.answers.json import LEFT_OUT, answer_fields, is_left_out
from regelate.core.answers.step_answers import (
    DanglingDeletesAnswer,
    ExpireSnapshotsAnswer,
    MaintainAnswer,
    OrphanFile,
    ReclaimAnswer,
    RemoveOrphanFilesAnswer,
    RewriteManifestsAnswer,
    Step,
    StepAnswer,
    StepResultAnswer,
    StepStatus,
)
from regelate.core.answers.tables import (
    AlterTableAnswer,
    CreateTableAnswer,
    DescribeTableAnswer,
    DropTableAnswer,
    HealthCheckAnswer,
    ListNamespacesAnswer,
    ListTablesAnswer,
    QueryAnswer,
    ResultColumn,
    TableHealthAnswer,
    TableSchemaAnswer,
    WriteAnswer,
)

__all__ = [
    "LEFT_OUT",
    "AlterTableAnswer",
    "Answer",
    "CompactAnswer",
    "CreateTableAnswer",
    "DanglingDeletesAnswer",
    "DescribeTableAnswer",
    "DropTableAnswer",
    "ErrorOfTable",
    "ExpireSnapshotsAnswer",
    "FleetApplyAnswer",
    "FleetHistoryAnswer",
    "FleetPlanAnswer",
    "FleetScanAnswer",
    "FleetStatusAnswer",
    "HealthCheckAnswer",
    "JobAnswer",
    "JobProgress",
    "ListJobsAnswer",
    "ListNamespacesAnswer",
    "ListTablesAnswer",
    "ListedJob",
    "MaintainAnswer",
    "OrphanFile",
    "QueryAnswer",
    "RankedTableAnswer",
    "ReclaimAnswer",
    "RemoveOrphanFilesAnswer",
    "ResultColumn",
    "RewriteManifestsAnswer",
    "Status",
    "Step",
    "StepAnswer",
    "StepResultAnswer",
    "StepStatus",
    "SweepAnswer",
    "SweptExpiry",
    "SweptRun",
    "SweptTable",
    "TableHealthAnswer",
    "TableSchemaAnswer",
    "WriteAnswer",
    "answer_fields",
    "is_left_out",
]


class Answer(Protocol):
    """A dataclass of this package, or of the operation whose answer it is."""

    __dataclass_fields__: ClassVar[dict[str, Any]]
