"""A fleet's memory in a SQLite file beside the embedded lake; several processes may share it."""

from __future__ import annotations

import json
from pathlib import Path

from regelate.adapters.records.faults import of_fleet
from regelate.adapters.records.sqlite_file import NOW_MS, SqliteFile
from regelate.core.fleet.backlog import BacklogAt, backlog_json, backlog_of_json
from regelate.core.fleet.operation import BACKLOG_DAYS
from regelate.core.fleet.state import FleetRun, TableState
from regelate.core.fleet.state_json import run_json, run_of_json, state_json, state_of_json
from regelate.core.table.time_ranges import DAY_MS, HOUR_MS
from regelate.ports.fleet_store import Change

PLANS_KEPT_MS = 7 * 24 * 3_600_000
_TABLES = """
CREATE TABLE IF NOT EXISTS tables (table_uuid TEXT PRIMARY KEY, body TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS runs (
  number INTEGER PRIMARY KEY, run_id TEXT NOT NULL UNIQUE, table_uuid TEXT NOT NULL, catalog TEXT NOT NULL,
  body TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS runs_of_table ON runs (table_uuid, number);
CREATE INDEX IF NOT EXISTS runs_of_catalog ON runs (catalog, number);
CREATE TABLE IF NOT EXISTS plans (plan_id TEXT PRIMARY KEY, made_ms INTEGER NOT NULL, body TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS backlogs (hour INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL, body TEXT NOT NULL);
"""


class SqliteFleet:
    """Implements FleetStore. Threads and processes may share the file."""

    def __init__(self, path: Path) -> None:
        self._file = SqliteFile(path, _TABLES, "the fleet's memory", of_fleet)

    def now_ms(self) -> int:
        return self._file.now_ms()

    def states(self) -> tuple[TableState, ...]:
        with self._file.connected() as db:
            found = db.execute("SELECT body FROM tables ORDER BY table_uuid")
            return tuple(state_of_json(json.loads(row[0])) for row in found)

    def change(self, table_uuid: str, change: Change) -> TableState:
        with self._file.writing() as db:
            found = db.execute("SELECT body FROM tables WHERE table_uuid = ?", (table_uuid,)).fetchone()
            before = None if found is None else state_of_json(json.loads(found[0]))
            after = change(before)
            if after != before:
                db.execute(
                    "INSERT INTO tables VALUES (?, ?) ON CONFLICT (table_uuid) DO UPDATE SET body = excluded.body",
                    (table_uuid, _text(state_json(after))),
                )
            for run in after.ended_since(before):
                body = _text(run_json(run))
                db.execute(
                    "INSERT OR IGNORE INTO runs (run_id, table_uuid, catalog, body) VALUES (?, ?, ?, ?)",
                    (run.run_id, table_uuid, after.catalog, body),
                )
            return after

    def forget(self, table_uuid: str) -> None:
        with self._file.writing() as db:
            db.execute("DELETE FROM tables WHERE table_uuid = ?", (table_uuid,))

    def history(self, catalog: str, table_uuid: str | None, limit: int) -> tuple[tuple[str, FleetRun], ...]:
        where, value = ("catalog = ?", catalog) if table_uuid is None else ("table_uuid = ?", table_uuid)
        with self._file.connected() as db:
            query = f"SELECT table_uuid, body FROM runs WHERE {where} ORDER BY number DESC LIMIT ?"
            return tuple((row[0], run_of_json(json.loads(row[1]))) for row in db.execute(query, (value, limit)))

    def remember(self, plan_id: str, body: str) -> None:
        with self._file.writing() as db:
            db.execute(f"DELETE FROM plans WHERE made_ms < {NOW_MS} - ?", (PLANS_KEPT_MS,))
            db.execute(f"INSERT OR REPLACE INTO plans VALUES (?, {NOW_MS}, ?)", (plan_id, body))

    def recall(self, plan_id: str) -> str | None:
        with self._file.connected() as db:
            query = f"SELECT body FROM plans WHERE plan_id = ? AND made_ms >= {NOW_MS} - ?"
            found = db.execute(query, (plan_id, PLANS_KEPT_MS)).fetchone()
            return None if found is None else str(found[0])

    def note_backlog(self, found: BacklogAt) -> None:
        with self._file.writing() as db:
            db.execute(f"DELETE FROM backlogs WHERE at_ms < {NOW_MS} - ?", (BACKLOG_DAYS * DAY_MS,))
            row = (found.at_ms // HOUR_MS, found.at_ms, backlog_json(found))
            db.execute("INSERT OR REPLACE INTO backlogs VALUES (?, ?, ?)", row)

    def backlogs(self, since_ms: int) -> tuple[BacklogAt, ...]:
        with self._file.connected() as db:
            found = db.execute("SELECT body FROM backlogs WHERE at_ms >= ? ORDER BY hour", (since_ms,))
            return tuple(backlog_of_json(row[0]) for row in found)


def _text(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
