"""What all requests have in common."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from regelate.entrypoints.api.fields import Identifier


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False, defer_build=True)


class Request(Strict):
    """What every request may carry. `request_id` comes back in the answer and stands in the logs."""

    request_id: Identifier | None = None


class NamespaceRequest(Request):
    """`catalog` is a name in config.json; the default one if unset."""

    tenant_id: str
    namespace: str = "default"
    catalog: str | None = None


class TableRequest(NamespaceRequest):
    table: str
