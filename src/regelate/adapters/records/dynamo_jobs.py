"""Jobs and leases in one DynamoDB table, by conditional writes.

| pk | holds |
| --- | --- |
| `job#<id>` | one job: `body` (its JSON), `version`, what lists ask for, and, once ended, `expires`, the table's TTL |
| `table#<catalog>/<ident>` | `job_id` of the table's live job, and its lease: `holder`, `fence`, `until_ms` |

The index `newest` has all jobs by their age, for lists. It is one partition, because a list may be about many
tenants at once: what is not asked for is left out by DynamoDB, but read, and the TTL keeps it small. The index
`waiting` has the keys of those that are QUEUED, so that to count them costs next to nothing.

Its times are to the second (dynamo_table.py), and a lease is longer than that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

from botocore.exceptions import ClientError

from regelate.adapters.records.dynamo_table import INDEX, DynamoTable, Item, key_of
from regelate.adapters.records.faults import of_jobs
from regelate.adapters.records.record_json import from_json, to_json
from regelate.core.jobs.job import JobRecord, JobState, Lease
from regelate.core.jobs.listing import JobFilter, place_of
from regelate.core.policy.timeouts import Timeouts
from regelate.errors import Unavailable

TRIES = 8
WAITING = "waiting"
_AS_JOB = "job"
_Conditions = Mapping[str, Mapping[str, str | None]]


class DynamoJobs:
    """Implements JobStore. `client` is for tests."""

    def __init__(
        self, table: str, *, retention_seconds: float, client: Any = None, timeouts: Timeouts | None = None
    ) -> None:
        self._table = DynamoTable(table, "the job store", of_jobs, client=client, timeouts=timeouts)
        self._retention_seconds = retention_seconds

    def now_ms(self) -> int:
        return self._table.now_ms()

    def add(self, record: JobRecord) -> JobRecord:
        """Store the job first and then name it as the table's: one that is named exists, or did.

        boto3 repeats a request whose reply was lost, and is told then that its own condition fails: so what is stored
        already is named as well. A job that another one was faster than is never announced, and goes by its age.
        """
        for _ in range(TRIES):
            known = self.get(record.job_id)
            if known is not None and known.state.is_final:
                return known
            item, _now = self._table.read(_lock_key(record.lock))
            named = item.get("job_id", {}).get("S")
            holding = None if named is None else self.get(named)
            if holding is not None and not holding.state.is_final:
                return holding
            if known is None and not self._put(record, "attribute_not_exists(pk)"):
                continue
            free = "attribute_not_exists(job_id)" if named is None else "job_id = :before"
            before = {} if named is None else {":before": {"S": named}}
            if self._update(_lock_key(record.lock), "SET job_id = :id", free, {":id": {"S": record.job_id}, **before}):
                return known or record
        raise Unavailable("JOBS_UNAVAILABLE", f"{TRIES} other requests came first with a job for {record.ident}")

    def get(self, job_id: str) -> JobRecord | None:
        item, _ = self._table.read(_job_key(job_id))
        return from_json(item["body"]["S"]) if item else None

    def live(self, lock: str) -> JobRecord | None:
        item, _ = self._table.read(_lock_key(lock))
        found = self.get(item["job_id"]["S"]) if "job_id" in item else None
        return None if found is None or found.state.is_final else found

    def save(self, before: JobRecord, after: JobRecord) -> bool:
        return self._put(after, "version = :before", {":before": {"N": str(before.version)}})

    def acquire(self, lock: str, holder: str, seconds: float) -> Lease | None:
        item, now_ms = self._table.read(_lock_key(lock))
        if int(item.get("until_ms", {"N": "0"})["N"]) > now_ms:
            return None
        seen = int(item.get("fence", {"N": "0"})["N"])
        same = "fence = :seen" if "fence" in item else "attribute_not_exists(fence)"
        taken = self._update(
            _lock_key(lock),
            "SET holder = :holder, fence = :fence, until_ms = :until",
            same,
            {
                ":holder": {"S": holder},
                ":fence": {"N": str(seen + 1)},
                ":until": {"N": str(now_ms + int(seconds * 1000))},
                **({":seen": {"N": str(seen)}} if "fence" in item else {}),
            },
        )
        return Lease(lock=lock, holder=holder, fence=seen + 1) if taken else None

    def held(self, lock: str) -> bool:
        item, now_ms = self._table.read(_lock_key(lock))
        return int(item.get("until_ms", {"N": "0"})["N"]) > now_ms

    def renew(self, lease: Lease, seconds: float) -> bool:
        return self._until(lease, self.now_ms() + int(seconds * 1000))

    def release(self, lease: Lease) -> None:
        self._until(lease, 0)

    def due(self, limit: int) -> tuple[str, ...]:
        """The queue names them."""
        return ()

    def waiting(self) -> int:
        with self._table.faults():
            pages = self._table.client.get_paginator("query").paginate(
                TableName=self._table.name,
                IndexName=WAITING,
                KeyConditionExpression="waits_as = :as",
                ExpressionAttributeValues={":as": {"S": _AS_JOB}},
                Select="COUNT",
            )
            return sum(int(page["Count"]) for page in pages)

    def listed(self, wanted: JobFilter, limit: int, *, after: str | None = None) -> tuple[JobRecord, ...]:
        keys: _Conditions = {"listed_as = :as": {":as": _AS_JOB}, "listed_at < :after": {":after": after}}
        shared = {f":shared{number}": name for number, name in enumerate(wanted.shared)}
        also = f" OR of_catalog IN ({', '.join(shared)})" if shared else ""
        rules: _Conditions = {
            f"(of_tenant = :tenant{also})": {":tenant": wanted.tenant_id, **shared},
            "of_table = :table": {":table": wanted.lock},
            "in_state = :state": {":state": wanted.state},
        }
        of_index, values = _asked(keys)
        of_list, more = _asked(rules)
        with self._table.faults():
            pages = self._table.client.get_paginator("query").paginate(
                TableName=self._table.name,
                IndexName=INDEX,
                KeyConditionExpression=of_index,
                ExpressionAttributeValues={**values, **more},
                ScanIndexForward=False,
                **({"FilterExpression": of_list} if of_list else {}),
            )
            items = (item for page in pages for item in page["Items"])
            return tuple(from_json(item["body"]["S"]) for item in islice(items, limit))

    def _until(self, lease: Lease, until_ms: int) -> bool:
        return self._update(
            _lock_key(lease.lock),
            "SET until_ms = :until",
            "fence = :fence AND holder = :holder",
            {
                ":until": {"N": str(until_ms)},
                ":fence": {"N": str(lease.fence)},
                ":holder": {"S": lease.holder},
            },
        )

    def _put(self, record: JobRecord, condition: str, values: Item | None = None) -> bool:
        """Store a record. Only one that has ended expires: a live one is somebody's to bring to its end."""
        expires = str(record.updated_ms // 1000 + int(self._retention_seconds))
        item = {
            **key_of(_job_key(record.job_id)),
            "body": {"S": to_json(record)},
            "version": {"N": str(record.version)},
            "listed_as": {"S": _AS_JOB},
            "listed_at": {"S": place_of(record)},
            "of_tenant": {"S": record.tenant_id},
            "of_catalog": {"S": record.catalog},
            "of_table": {"S": record.lock},
            "in_state": {"S": record.state.value},
            **({"waits_as": {"S": _AS_JOB}} if record.state is JobState.QUEUED else {}),
            **({"expires": {"N": expires}} if record.state.is_final else {}),
        }
        more = {} if values is None else {"ExpressionAttributeValues": values}
        with self._table.faults():
            return _held(
                lambda: self._table.client.put_item(
                    TableName=self._table.name, Item=item, ConditionExpression=condition, **more
                )
            )

    def _update(self, key: str, update: str, condition: str, values: Item) -> bool:
        with self._table.faults():
            return _held(
                lambda: self._table.client.update_item(
                    TableName=self._table.name,
                    Key=key_of(key),
                    UpdateExpression=update,
                    ConditionExpression=condition,
                    ExpressionAttributeValues=values,
                )
            )


def _asked(conditions: _Conditions) -> tuple[str, Item]:
    """Join the conditions whose values are all known; return their text, and the values as DynamoDB takes them."""
    known = {text: values for text, values in conditions.items() if None not in values.values()}
    return " AND ".join(known), {name: {"S": value} for values in known.values() for name, value in values.items()}


def _job_key(job_id: str) -> str:
    return f"job#{job_id}"


def _lock_key(lock: str) -> str:
    return f"table#{lock}"


def _held(write: Callable[[], object]) -> bool:
    """Write, and say whether the condition held."""
    try:
        write()
    except ClientError as error:
        if error.response["Error"]["Code"] != "ConditionalCheckFailedException":
            raise
        return False
    return True
