"""Jobs in a SQLite file beside the embedded lake; several processes may share it. It is its own queue."""

from __future__ import annotations

import sqlite3
import threading
from itertools import islice
from pathlib import Path

from regelate.adapters.records.faults import of_jobs
from regelate.adapters.records.record_json import from_json, to_json
from regelate.adapters.records.sqlite_file import NOW_MS, SqliteFile
from regelate.core.jobs.job import LIVE, JobRecord, JobState, Lease
from regelate.core.jobs.listing import JobFilter, split_place

_LIVE = ", ".join(f"'{state.value}'" for state in LIVE)
_TABLES = f"""
CREATE TABLE IF NOT EXISTS jobs (
  job_id TEXT PRIMARY KEY, lock TEXT NOT NULL, state TEXT NOT NULL, version INTEGER NOT NULL,
  created_ms INTEGER NOT NULL, updated_ms INTEGER NOT NULL, not_before_ms INTEGER NOT NULL, body TEXT NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS one_live_job_per_table ON jobs (lock) WHERE state IN ({_LIVE});
CREATE TABLE IF NOT EXISTS leases (
  lock TEXT PRIMARY KEY, holder TEXT NOT NULL, fence INTEGER NOT NULL, until_ms INTEGER NOT NULL
);
"""


class SqliteJobs:
    """Implements JobStore and JobQueue. Threads and processes may share the file."""

    def __init__(self, path: Path, *, retention_seconds: float) -> None:
        self._file = SqliteFile(path, _TABLES, "the job store", of_jobs)
        self._retention_ms = int(retention_seconds * 1000)
        self.woken = threading.Event()
        """Set when a job of this process was queued: a worker thread need not wait for its next look."""

    def now_ms(self) -> int:
        return self._file.now_ms()

    def add(self, record: JobRecord) -> JobRecord:
        with self._file.writing() as db:
            db.execute(
                f"DELETE FROM jobs WHERE state NOT IN ({_LIVE}) AND updated_ms < {NOW_MS} - ?", (self._retention_ms,)
            )
            known = _one(db, "SELECT body FROM jobs WHERE job_id = ?", record.job_id)
            holding = known or _one(db, f"SELECT body FROM jobs WHERE lock = ? AND state IN ({_LIVE})", record.lock)
            if holding is None:
                db.execute("INSERT INTO jobs VALUES (?, ?, ?, ?, ?, ?, ?, ?)", _row(record))
            return holding or record

    def get(self, job_id: str) -> JobRecord | None:
        with self._file.connected() as db:
            return _one(db, "SELECT body FROM jobs WHERE job_id = ?", job_id)

    def live(self, lock: str) -> JobRecord | None:
        if not self._file.exists():  # most lakes never have a job: a COMPACT that only asks leaves no file behind
            return None
        with self._file.connected() as db:
            return _one(db, f"SELECT body FROM jobs WHERE lock = ? AND state IN ({_LIVE})", lock)

    def save(self, before: JobRecord, after: JobRecord) -> bool:
        with self._file.writing() as db:
            changed = db.execute(
                "UPDATE jobs SET state = ?, version = ?, updated_ms = ?, not_before_ms = ?, body = ?"
                " WHERE job_id = ? AND version = ?",
                (
                    after.state.value,
                    after.version,
                    after.updated_ms,
                    after.not_before_ms,
                    to_json(after),
                    before.job_id,
                    before.version,
                ),
            )
            return changed.rowcount == 1

    def acquire(self, lock: str, holder: str, seconds: float) -> Lease | None:
        with self._file.writing() as db:
            found = db.execute(
                f"INSERT INTO leases VALUES (?, ?, 1, {NOW_MS} + ?) ON CONFLICT (lock) DO UPDATE SET"
                " holder = excluded.holder, fence = leases.fence + 1, until_ms = excluded.until_ms"
                f" WHERE leases.until_ms <= {NOW_MS} RETURNING fence",
                (lock, holder, int(seconds * 1000)),
            ).fetchone()
            return None if found is None else Lease(lock=lock, holder=holder, fence=int(found[0]))

    def held(self, lock: str) -> bool:
        with self._file.connected() as db:
            query = f"SELECT 1 FROM leases WHERE lock = ? AND until_ms > {NOW_MS}"
            return db.execute(query, (lock,)).fetchone() is not None

    def renew(self, lease: Lease, seconds: float) -> bool:
        with self._file.writing() as db:
            changed = db.execute(
                f"UPDATE leases SET until_ms = {NOW_MS} + ? WHERE lock = ? AND fence = ? AND holder = ?",
                (int(seconds * 1000), lease.lock, lease.fence, lease.holder),
            )
            return changed.rowcount == 1

    def release(self, lease: Lease) -> None:
        with self._file.writing() as db:
            db.execute("UPDATE leases SET until_ms = 0 WHERE lock = ? AND fence = ?", (lease.lock, lease.fence))

    def due(self, limit: int) -> tuple[str, ...]:
        if not self._file.exists():
            return ()
        with self._file.connected() as db:
            found = db.execute(
                f"SELECT job_id FROM jobs LEFT JOIN leases USING (lock) WHERE state IN ({_LIVE})"
                f" AND not_before_ms <= {NOW_MS} AND COALESCE(until_ms, 0) <= {NOW_MS}"
                " ORDER BY not_before_ms, created_ms, job_id LIMIT ?",
                (limit,),
            )
            return tuple(str(row[0]) for row in found)

    def waiting(self) -> int:
        if not self._file.exists():
            return 0
        with self._file.connected() as db:
            query = "SELECT count(*) FROM jobs WHERE state = ?"
            return int(db.execute(query, (JobState.QUEUED.value,)).fetchone()[0])

    def listed(self, wanted: JobFilter, limit: int, *, after: str | None = None) -> tuple[JobRecord, ...]:
        if not self._file.exists():
            return ()
        asked = {
            "lock = ?": (wanted.lock,) if wanted.lock is not None else None,
            "state = ?": (wanted.state.value,) if wanted.state is not None else None,
            "(created_ms, job_id) < (?, ?)": split_place(after) if after is not None else None,
        }
        given = {condition: values for condition, values in asked.items() if values is not None}
        where = f"WHERE {' AND '.join(given)}" if given else ""
        with self._file.connected() as db:
            query = f"SELECT body FROM jobs {where} ORDER BY created_ms DESC, job_id DESC"
            rows = db.execute(query, [value for values in given.values() for value in values])
            records = (from_json(row[0]) for row in rows)
            return tuple(islice((record for record in records if wanted.shows(record)), limit))

    def send(self, record: JobRecord) -> None:
        self.woken.set()

    def postpone(self, receipt: str, seconds: float) -> None:
        """The record itself says when its job is due again."""


def _row(record: JobRecord) -> tuple[object, ...]:
    return (
        record.job_id,
        record.lock,
        record.state.value,
        record.version,
        record.created_ms,
        record.updated_ms,
        record.not_before_ms,
        to_json(record),
    )


def _one(db: sqlite3.Connection, query: str, value: str) -> JobRecord | None:
    found = db.execute(query, (value,)).fetchone()
    return None if found is None else from_json(found[0])
