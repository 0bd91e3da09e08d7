"""The small fixed trial: two appenders, two deleters and two compactors as real processes on one SQLite catalog."""

from __future__ import annotations

from pathlib import Path

from tests.system.concurrency.__main__ import catalog_of
from tests.system.concurrency.trial import Trial, run


def test_two_of_each_on_sqlite_lose_no_write_and_no_row(tmp_path: Path) -> None:
    trial = Trial(catalog="sqlite", appenders=2, writes=5, deletes=3, deleters_pause_seconds=0.0)
    with catalog_of("sqlite", tmp_path) as catalog:
        report = run(trial, catalog, tmp_path)
    assert (report.lost, report.doubled, report.returned) == ((), (), ())
    assert report.writes == (10, 10), [d.faults for d in report.of("appender")]
    assert report.deletes == (6, 6)
    assert report.rows == 10 * 4 - len(set().union(*(d.deleted for d in report.deeds)))
    assert report.groups[0] > 0
    assert report.unnamed_files == 0
