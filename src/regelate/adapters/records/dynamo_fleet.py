"""A fleet's memory in DynamoDB, in the table that has the jobs or in one with the same keys, by conditional writes.

| pk | holds |
| --- | --- |
| `fleet#<table UUID>` | one table's state: `body` (its JSON), `version` |
| `fleet-run#<run id>` | one run that ended: `body`, `of_table`, `expires` |
| `fleet-plan#<plan id>#<number>` | a piece of a plan: `body`, how many `pieces` there are, `made_ms`, `expires` |
| `fleet-backlog#<hour>` | what was left to do in an hour, when it was last seen: `body`, `expires` |

The index `newest` has the states, the runs of each catalog by their age, and the backlogs. It lags behind, so a state
that it names is read again from the table. Times are those of DynamoDB's answers, to the second.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import islice, takewhile
from typing import Any

from botocore.exceptions import ClientError

from regelate.adapters.records.dynamo_table import INDEX, DynamoTable, Item, key_of
from regelate.adapters.records.faults import of_fleet
from regelate.core.fleet.backlog import BacklogAt, backlog_json, backlog_of_json
from regelate.core.fleet.operation import BACKLOG_DAYS
from regelate.core.fleet.state import FleetRun, TableState
from regelate.core.fleet.state_json import run_json, run_of_json, state_json, state_of_json
from regelate.core.policy.timeouts import Timeouts
from regelate.core.table.time_ranges import DAY_MS, HOUR_MS
from regelate.errors import Unavailable
from regelate.ports.fleet_store import Change

TRIES = 8
READ_AT_ONCE = 100
"""Keys of one BatchGetItem, by DynamoDB's own limit."""
PIECE_CHARACTERS = 90_000
"""A character takes up to four bytes."""
PLANS_KEPT_MS = 7 * 24 * 3_600_000
RUNS_KEPT_SECONDS = 400 * 24 * 3_600
_STATE, _RUN, _BACKLOG = "fleet", "fleet-run", "fleet-backlog"


class DynamoFleet:
    """Implements FleetStore. `client` is for tests."""

    def __init__(self, table: str, *, client: Any = None, timeouts: Timeouts | None = None) -> None:
        self._table = DynamoTable(table, "the fleet's memory", of_fleet, client=client, timeouts=timeouts)

    def now_ms(self) -> int:
        return self._table.now_ms()

    def states(self) -> tuple[TableState, ...]:
        named = [item["pk"] for item in self._listed(_STATE, newest_first=False)]
        found: list[TableState] = []
        for start in range(0, len(named), READ_AT_ONCE):
            found += (_state_of(item) for item in self._all(named[start : start + READ_AT_ONCE]))
        return tuple(sorted(found, key=lambda state: state.table_uuid))

    def change(self, table_uuid: str, change: Change) -> TableState:
        for _ in range(TRIES):
            item, now_ms = self._table.read(f"{_STATE}#{table_uuid}")
            before = _state_of(item) if item else None
            after = change(before)
            if after == before or self._stored(item, before, after, now_ms):
                return after
        raise Unavailable("FLEET_UNAVAILABLE", f"{TRIES} others changed this table's state first; repeat")

    def forget(self, table_uuid: str) -> None:
        with self._table.faults():
            self._table.client.delete_item(TableName=self._table.name, Key=key_of(f"{_STATE}#{table_uuid}"))

    def history(self, catalog: str, table_uuid: str | None, limit: int) -> tuple[tuple[str, FleetRun], ...]:
        items = self._listed(f"{_RUN}#{catalog}", newest_first=True)
        wanted = (item for item in items if table_uuid in (None, item["of_table"]["S"]))
        read = ((item["of_table"]["S"], run_of_json(json.loads(item["body"]["S"]))) for item in wanted)
        return tuple(islice(read, limit))

    def remember(self, plan_id: str, body: str) -> None:
        """Store a plan in pieces, for an item holds 400 KB; the one that says how many there are comes last."""
        now_ms = self.now_ms()
        pieces = [body[start : start + PIECE_CHARACTERS] for start in range(0, len(body), PIECE_CHARACTERS)] or [""]
        more = {"made_ms": {"N": str(now_ms)}, "expires": {"N": str((now_ms + PLANS_KEPT_MS) // 1000)}}
        for number, piece in reversed(list(enumerate(pieces))):
            item = {**key_of(_piece(plan_id, number)), "body": {"S": piece}, "pieces": {"N": str(len(pieces))}, **more}
            with self._table.faults():
                self._table.client.put_item(TableName=self._table.name, Item=item)

    def recall(self, plan_id: str) -> str | None:
        first, now_ms = self._table.read(_piece(plan_id, 0))
        if not first or int(first["made_ms"]["N"]) < now_ms - PLANS_KEPT_MS:
            return None
        rest = (self._table.read(_piece(plan_id, number))[0] for number in range(1, int(first["pieces"]["N"])))
        return "".join(str(item["body"]["S"]) for item in (first, *rest))

    def note_backlog(self, found: BacklogAt) -> None:
        hour = found.at_ms // HOUR_MS
        item = {
            **key_of(f"{_BACKLOG}#{hour}"),
            "body": {"S": backlog_json(found)},
            "listed_as": {"S": _BACKLOG},
            "listed_at": {"S": f"{hour:012d}"},
            "expires": {"N": str((found.at_ms + BACKLOG_DAYS * DAY_MS) // 1000)},
        }
        with self._table.faults():
            self._table.client.put_item(TableName=self._table.name, Item=item)

    def backlogs(self, since_ms: int) -> tuple[BacklogAt, ...]:
        newest = (backlog_of_json(item["body"]["S"]) for item in self._listed(_BACKLOG, newest_first=True))
        return tuple(reversed(list(takewhile(lambda found: found.at_ms >= since_ms, newest))))

    def _listed(self, listed_as: str, *, newest_first: bool) -> Iterator[Item]:
        with self._table.faults():
            pages = self._table.client.get_paginator("query").paginate(
                TableName=self._table.name,
                IndexName=INDEX,
                KeyConditionExpression="listed_as = :as",
                ExpressionAttributeValues={":as": {"S": listed_as}},
                ScanIndexForward=not newest_first,
            )
            for page in pages:
                yield from page["Items"]

    def _all(self, keys: Sequence[Item]) -> Iterator[Item]:
        """Read items by their keys; one that was forgotten meanwhile is left out."""
        asked: dict[str, Any] = {self._table.name: {"Keys": [{"pk": key} for key in keys], "ConsistentRead": True}}
        with self._table.faults():
            while asked:
                found = self._table.client.batch_get_item(RequestItems=asked)
                yield from found["Responses"].get(self._table.name, ())
                asked = found.get("UnprocessedKeys") or {}

    def _stored(self, item: Item, before: TableState | None, after: TableState, now_ms: int) -> bool:
        """Store a state and the runs that it ended, all or nothing; false where somebody else changed it first.

        boto3 sends one token with every try of a request, so one that landed unanswered is not taken for another's.
        """
        version = int(item["version"]["N"]) if item else 0
        state = {
            **key_of(f"{_STATE}#{after.table_uuid}"),
            "body": {"S": _text(state_json(after))},
            "version": {"N": str(version + 1)},
            "listed_as": {"S": _STATE},
            "listed_at": {"S": after.table_uuid},
        }
        held: dict[str, Any] = {"ConditionExpression": "attribute_not_exists(pk)"}
        if item:
            held = {
                "ConditionExpression": "version = :before",
                "ExpressionAttributeValues": {":before": {"N": str(version)}},
            }
        puts: list[dict[str, Any]] = [{"TableName": self._table.name, "Item": state, **held}]
        puts += (
            {"TableName": self._table.name, "Item": _run_item(run, after, now_ms)} for run in after.ended_since(before)
        )
        try:
            with self._table.faults(but="TransactionCanceledException"):
                self._table.client.transact_write_items(TransactItems=[{"Put": put} for put in puts])
        except ClientError as error:
            reasons = {reason.get("Code") for reason in error.response.get("CancellationReasons", ())}
            if reasons & {"ConditionalCheckFailed", "TransactionConflict"}:
                return False
            raise Unavailable("FLEET_UNAVAILABLE", f"the fleet's memory failed: {sorted(map(str, reasons))}") from error
        return True


def _run_item(run: FleetRun, state: TableState, now_ms: int) -> dict[str, Any]:
    return {
        **key_of(f"{_RUN}#{run.run_id}"),
        "body": {"S": _text(run_json(run))},
        "of_table": {"S": state.table_uuid},
        "listed_as": {"S": f"{_RUN}#{state.catalog}"},
        "listed_at": {"S": f"{run.ended_ms or now_ms:015d}#{run.run_id}"},
        "expires": {"N": str(now_ms // 1000 + RUNS_KEPT_SECONDS)},
    }


def _state_of(item: Item) -> TableState:
    return state_of_json(json.loads(item["body"]["S"]))


def _piece(plan_id: str, number: int) -> str:
    return f"fleet-plan#{plan_id}#{number}"


def _text(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
