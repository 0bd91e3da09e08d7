"""A COMPACT that Spark does in place of this process: what it is asked, where it stands, and what it answered."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, field
from enum import StrEnum
from typing import Any

from regelate.core.policy.options import AutoDefaults, CompactionDefaults, RetentionDefaults
from regelate.core.policy.policy import Strategy, Verify
from regelate.core.requests import CompactRequest, fields_of, request_of
from regelate.core.values import dataclass

REMOTE_GRACE_SECONDS = 600.0
"""How long a run may still be looked for after its time is over: whoever runs it ends it itself, and then says so."""
MAX_RUN_NAME = 64
"""Characters of a client token of EMR Serverless."""
ZORDER = "zorder"
STRATEGIES = (*(s.value for s in Strategy), ZORDER)


class SparkState(StrEnum):
    WAITING = "WAITING"
    """Taken on, and not begun: Spark has no room for it, or is being started."""
    RUNNING = "RUNNING"
    ENDED = "ENDED"
    CANCELLED = "CANCELLED"


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkRun:
    """Where a run stands. `answer`: the result of one that ended, None where it left none; `detail` then says why."""

    state: SparkState
    detail: str = ""
    answer: Mapping[str, object] | None = None

    @property
    def is_over(self) -> bool:
        return self.state in (SparkState.ENDED, SparkState.CANCELLED)


def answered(result: bytes) -> SparkRun:
    """Return the run that has left this result; one that is no JSON object is none, and `detail` says so."""
    try:
        found = json.loads(result)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        return SparkRun(state=SparkState.ENDED, detail="its result is not a JSON object")
    return SparkRun(state=SparkState.ENDED, answer=found)


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkJobSpec:
    """One run of the pipeline's job `compact`.

    `name` is the run's own: starting it twice starts it once. `table` is `catalog.namespace.table`; `request` a
    SparkRequest in JSON; `conf` what Spark must know to find the catalog. `policy` narrows what the run may touch in
    the object store, None where nothing does.
    """

    name: str
    job_id: str
    created_ms: int
    table: str
    request: str
    conf: Mapping[str, str]
    timeout_seconds: float
    policy: str | None = None

    @property
    def arguments(self) -> tuple[str, ...]:
        return ("compact", "--table", self.table, "--request", self.request, "--quiet")


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkRequest:
    """What the pipeline is asked: a COMPACT, its `where` in Spark's SQL, and the config layers beneath it.

    What the request leaves open is for the job to resolve: only it sees the properties of a table that the service
    cannot read.
    """

    compact: CompactRequest = field(default_factory=CompactRequest)
    defaults: CompactionDefaults = field(default_factory=CompactionDefaults)
    config_verify: Verify = Verify.FAST
    retention: RetentionDefaults = field(default_factory=RetentionDefaults)

    def as_json(self) -> str:
        layers = {"defaults": asdict(self.defaults), "retention": asdict(self.retention)}
        found = {"compact": fields_of(self.compact), "config_verify": self.config_verify, **layers}
        return json.dumps(found, separators=(",", ":"))

    @classmethod
    def of_json(cls, text: str) -> SparkRequest:
        """Read what `as_json` wrote. Raises ValueError for anything else."""
        found = json.loads(text)
        if not isinstance(found, dict) or set(found) - set(cls.__dataclass_fields__):
            raise ValueError("is no request of the service")
        try:
            layers: dict[str, Any] = {
                "compact": request_of(CompactRequest, found.get("compact", {})),
                "defaults": _defaults_of(found.get("defaults", {})),
                "retention": RetentionDefaults(**found.get("retention", {})),
                "config_verify": Verify(found.get("config_verify", Verify.FAST)),
            }
            return cls(**layers)
        except (TypeError, ValueError) as error:
            raise ValueError(f"is no request of the service: {error}") from None


def _defaults_of(found: Mapping[str, Any]) -> CompactionDefaults:
    """Read the config layer; a job of an earlier form has no `auto`."""
    return CompactionDefaults(**{**found, "auto": AutoDefaults(**found.get("auto", {}))})


_TOKENS = re.compile(r"""'((?:[^']|'')*)'|"([^"\\]*)\"""")


def in_spark_sql(where: str) -> str:
    """Return a row filter of COMPACT as Spark SQL, where it would mean something else there.

    To Spark `"x"` is a text and no column, a backslash in a text escapes what follows, and `''` in it is nothing at all
    (two literals side by side are one). What is no text and no quoted name stays as it is.
    """

    def spelled(found: re.Match[str]) -> str:
        if found[2] is not None:
            return f"`{found[2].replace('`', '``')}`"
        return "'" + found[1].replace("\\", "\\\\").replace("''", "\\'") + "'"

    return _TOKENS.sub(spelled, where)
