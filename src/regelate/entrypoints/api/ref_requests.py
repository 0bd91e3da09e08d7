"""The requests about tags, and the way back."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from regelate.entrypoints.api.fields import Long, Name
from regelate.entrypoints.api.request_base import TableRequest
from regelate.errors import InvalidRequest


class CreateTag(TableRequest):
    """`snapshot_id` unset: the head of `main`. The tag goes when its snapshot is `retention_hours` old, or never."""

    operation: Literal["CREATE_TAG"]
    tag: Name
    snapshot_id: Long | None = None
    retention_hours: float | None = Field(default=None, gt=0, le=10_000_000)


class DropTag(TableRequest):
    operation: Literal["DROP_TAG"]
    tag: Name


class Rollback(TableRequest):
    """Either `snapshot_id` or `as_of`. `keep_tag` is a new tag for the head that is left."""

    operation: Literal["ROLLBACK"]
    snapshot_id: Long | None = None
    as_of: str | int | None = Field(default=None, description="ISO timestamp, or milliseconds since the epoch.")
    keep_tag: Name | None = None

    @model_validator(mode="after")
    def _says_where_to(self) -> Rollback:
        if self.snapshot_id is None and self.as_of is None:
            message = "snapshot_id: say where to go back to, by snapshot_id or as_of"
            raise InvalidRequest("MISSING_FIELD", message, field="snapshot_id")
        if self.snapshot_id is not None and self.as_of is not None:
            raise InvalidRequest("INVALID_FIELD", "as_of: cannot be combined with snapshot_id", field="as_of")
        return self
