"""Every run has a HOME of its own: no catalog configuration and no DuckDB extension of the user changes a test.

Hypothesis has one profile, for all tests. Catalogs in SQLite do not wait for the disk: no test cuts the power.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile

import pytest
from hypothesis import HealthCheck, settings
from sqlalchemy import event
from sqlalchemy.engine import Engine

settings.register_profile("regelate", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("regelate")  # property tests judge answers, never time: a busy machine turns none of them red

HOME_OF_THIS_RUN = pytest.StashKey[str]()
SETTINGS_OF_THE_USER = ("PYICEBERG_", "REGELATE_", "XDG_")


@event.listens_for(Engine, "connect")
def _write_to_the_cache_of_the_system(connection: object, _record: object) -> None:
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous = OFF")


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        return  # a worker of pytest-xdist inherits what is set here
    home = tempfile.mkdtemp(prefix="regelate-home-")
    config.stash[HOME_OF_THIS_RUN] = home
    os.environ["HOME"] = home
    for name in [name for name in os.environ if name.startswith(SETTINGS_OF_THE_USER)]:
        del os.environ[name]


def pytest_unconfigure(config: pytest.Config) -> None:
    if home := config.stash.get(HOME_OF_THIS_RUN, None):
        shutil.rmtree(home, ignore_errors=True)
