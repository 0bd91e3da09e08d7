"""The keys of config.json about Spark: where its jobs run, and for how long."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from regelate.settings.section import Section

Minutes = Annotated[float, Field(gt=0, le=7 * 24 * 60)]


class SparkSettings(Section):
    """`run`: by spark-submit on this machine, on EMR Serverless, or nowhere. `conf`: Spark's own keys, which win.

    `start_minutes`: until a run that waits is given up; `timeout_minutes`: until one that runs is. `location`:
    `s3://bucket/prefix` for the program and the results of EMR; `python`: of EMR's image, 3.11 or newer.
    """

    run: Literal["none", "local", "emr-serverless"] = "none"
    folder: str | None = None
    application_id: str | None = None
    role_arn: str | None = None
    location: Annotated[str, StringConstraints(pattern=r"^$|^s3://[a-z0-9][a-z0-9.-]*[a-z0-9](/.*)?$")] | None = None
    python: str = "/usr/bin/python3.11"
    conf: Mapping[str, str] = Field(default_factory=dict)
    start_minutes: Minutes = 15.0
    timeout_minutes: Minutes = 360.0
    seconds_between_looks: Annotated[float, Field(ge=0.05, le=3600)] = 2.0

    def missing(self) -> Iterator[str]:
        """Yield the keys that the chosen place needs and that are not set."""
        needed: Mapping[str, tuple[str, ...]] = {
            "none": (),
            "local": ("folder",),
            "emr-serverless": ("application_id", "role_arn", "location"),
        }
        yield from (name for name in needed[self.run] if not getattr(self, name))
