"""What every section of config.json is: strict, frozen, and nothing that is not named."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import core_schema

Positive = Annotated[int, Field(ge=1, le=2**31 - 1)]


class OneOf:
    """Of a text in a model: one of these names, as a Literal would have it, but drawn from an enum."""

    def __init__(self, *names: str) -> None:
        self._names = [str(name) for name in names]

    def __get_pydantic_core_schema__(self, source: object, handler: object) -> Any:
        return core_schema.literal_schema(self._names)


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)
