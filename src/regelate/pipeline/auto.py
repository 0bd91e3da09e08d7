"""Automatic runs after Spark's own commits: the service is told of a commit or, without one, this driver compacts.

Nobody who writes waits for it, and nothing of it fails a write: one thread beside does all of it, and logs its faults.
"""

from __future__ import annotations

import atexit
import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.request import Request, urlopen

from regelate.core.policy.option_values import boolean
from regelate.core.policy.options import CheckPolicy, resolve_check
from regelate.core.values import dataclass
from regelate.errors import RegelateError
from regelate.pipeline.names import TableName
from regelate.pipeline.tables import SparkTable
from regelate.pipeline.tiered import NEVER, Looked, compact_tiers, head_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)
PREFIX = "spark.regelate.auto."
SEND_SECONDS = 10.0
EXIT_SECONDS = 5.0
"""What is still to be done when the program ends has so long."""
POOL = "regelate"
"""Of Spark's scheduler, where that is fair; otherwise it is a name and no more."""
_NOTICE_PATH = "/events/commit"

WriteBatch = Callable[["DataFrame", int], object]
Tell = Callable[[Mapping[str, str]], object]
"""Takes NOTIFY_COMMIT to the service by a way of the caller's: a queue, a function."""


def after_commit(spark: SparkSession, table: str, *, tell: Tell | None = None) -> None:
    """Say that this program has committed to `catalog.namespace.table`. It returns at once and raises nothing.

    `tell` is called by another thread, in the place of what Spark's configuration says.
    """
    try:
        _BESIDE.add(TableName.parse(str(table)), spark, tell)
    except Exception as fault:  # noqa: BLE001  the commit has landed: its writer must not fail for what comes after
        log.warning("no automatic run of %s: %s", table, fault)


def each_batch(table: str, write: WriteBatch, *, tell: Tell | None = None) -> WriteBatch:
    """Return `write` for `foreachBatch`, with `after_commit` behind it: a batch that was written stays written."""

    def written(frame: DataFrame, batch_id: int) -> None:
        write(frame, batch_id)
        after_commit(frame.sparkSession, table, tell=tell)

    return written


def drain(seconds: float | None = None) -> bool:
    """Wait until what was begun is done, for so long at most; false where it is not. For the end of a batch job."""
    return _BESIDE.wait(seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoConf:
    """What `spark.regelate.auto.*` says: where notices go, and what they name beside the table. `enabled`: for tables
    that do not say so themselves, where no service decides."""

    url: str | None = None
    token: str | None = None
    tenant: str | None = None
    catalog: str | None = None
    enabled: bool = False

    @classmethod
    def of(cls, spark: SparkSession) -> AutoConf:
        """Errors: InvalidRequest INVALID_OPTION."""

        def told(name: str) -> str | None:
            return spark.conf.get(PREFIX + name, None) or None

        return cls(
            url=told("url"),
            token=told("token"),
            tenant=told("tenant"),
            catalog=told("catalog"),
            enabled=boolean(f"{PREFIX}enabled", told("enabled") or "false"),
        )

    def notice(self, name: TableName) -> Mapping[str, str]:
        """Return the fields of NOTIFY_COMMIT. The service may call a catalog otherwise than Spark does."""
        named = {"tenant_id": self.tenant, "catalog": self.catalog}
        table = {"namespace": ".".join(name.namespace), "table": name.table}
        return {**{key: value for key, value in named.items() if value is not None}, **table}


class _Beside:
    """One thread for all tables of this program. A table that waits already waits once, however often it is added."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: dict[TableName, tuple[SparkSession, Tell | None]] = {}
        self._busy = False
        self._looked: dict[TableName, Looked] = {}
        self._thread: threading.Thread | None = None

    def add(self, name: TableName, spark: SparkSession, tell: Tell | None) -> None:
        with self._changed:
            self._waiting[name] = (spark, tell)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="regelate-auto", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def wait(self, seconds: float | None) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: not self._busy and not self._waiting, seconds)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._busy = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: bool(self._waiting))
                name, (spark, tell) = next(iter(self._waiting.items()))
                del self._waiting[name]
                self._busy = True
            began = time.monotonic()
            try:
                told = self._followed(name, spark, tell)
            except RegelateError as fault:
                log.warning("no automatic run of %s: %s: %s", name, fault.code, fault.message)
            except Exception as fault:  # noqa: BLE001  the thread must live, and nobody is there to hear of it
                log.warning("no automatic run of %s: %s: %s", name, type(fault).__name__, fault)
            else:
                log.info("%s: %s in %.1f s", name, told, time.monotonic() - began)

    def _followed(self, name: TableName, spark: SparkSession, tell: Tell | None) -> str:
        conf = AutoConf.of(spark)
        if tell is not None:
            tell({"operation": "NOTIFY_COMMIT", **conf.notice(name)})
            return "told"
        if conf.url is not None:
            return _posted(conf.url, conf.token, conf.notice(name))
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", POOL)
        head, before = head_of(spark, name), self._looked.get(name, NEVER)
        if not resolve_check(table_properties=head.switch, config=CheckPolicy(automatic=conf.enabled)).automatic:
            return "automatic runs are off"
        if not before.is_due(head.files):
            return "not due"
        done = compact_tiers(SparkTable(spark, name))
        self._looked[name] = done.looked
        return done.told


_BESIDE = _Beside()
atexit.register(drain, EXIT_SECONDS)


def _posted(url: str, token: str | None, notice: Mapping[str, str]) -> str:
    """POST a notice to the service, and return what it answers."""
    place = url if url.rstrip("/").endswith(_NOTICE_PATH) else url.rstrip("/") + _NOTICE_PATH
    headers = {"Content-Type": "application/json"} | ({} if token is None else {"Authorization": f"Bearer {token}"})
    asked = Request(place, data=json.dumps(notice).encode(), headers=headers, method="POST")
    with urlopen(asked, timeout=SEND_SECONDS) as answer:
        told: Any = json.loads(answer.read())
    return f"the service says {told.get('status')}"
