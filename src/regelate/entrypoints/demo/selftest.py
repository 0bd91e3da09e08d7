"""`python -m regelate.entrypoints.demo.selftest`: can this installation compact? Run when the image is built.

Through the real handler, on a table in a folder that is gone afterwards: no network, no HOME, no account.
"""

from __future__ import annotations

import json
import sys
import tempfile
from typing import Any

from regelate.entrypoints.dispatch import dispatch
from regelate.entrypoints.log import logger
from regelate.service.facade import Service
from regelate.settings import load_settings
from regelate.settings.builtin import ENVIRONMENTS

TABLE = {"tenant_id": "selftest", "namespace": "selftest", "table": "events"}


class Broken(Exception):
    """What did not work; the message is for whoever builds the image."""


def main() -> int:
    """Return 0 when a table of five files became one with the same rows, else 1, saying on standard error why not."""
    logger.setLevel("CRITICAL")
    with tempfile.TemporaryDirectory(prefix="regelate-selftest-") as home:
        try:
            _load_extensions()
            _compact(home)
        except Exception as fault:  # noqa: BLE001  whatever it is, the image must not be
            sys.stderr.write(f"selftest failed: {type(fault).__name__}: {fault}\n")
            return 1
    sys.stdout.write("selftest: extensions load, five files became one, the rows are the same\n")
    return 0


def _load_extensions() -> None:
    """Load every extension that any store needs; the table below is on a local disk and needs fewer."""
    from pathlib import Path

    from regelate.adapters.duckdb.session import EXTENSIONS, open_session

    with tempfile.TemporaryDirectory(prefix="regelate-selftest-") as folder:
        open_session(memory_bytes=256 * 1024 * 1024, threads=1, folder=Path(folder), extensions=EXTENSIONS).close()


def _compact(home: str) -> None:
    from regelate.service.build import build

    config = json.dumps({"environments": {"development": ENVIRONMENTS["development"]}})
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        file.write(config)
        file.flush()
        service = build(load_settings({"REGELATE_HOME": home, "REGELATE_CONFIG": file.name}))
    _asked(service, operation="CREATE_TABLE", schema={"fields": {"id": {"type": "long"}}})
    for number in range(5):
        _asked(service, operation="WRITE", records=[{"id": number}])
    stats = _asked(service, operation="COMPACT", force=True)["stats"]
    if (stats["files_before"], stats["files_after"]) != (5, 1):
        raise Broken(f"five files became {stats['files_after']}")
    rows = _asked(service, operation="QUERY")["rows"]
    if sorted(row["id"] for row in rows) != list(range(5)):
        raise Broken(f"the rows are not the same: {rows}")


def _asked(service: Service, **request: object) -> dict[str, Any]:
    answer = dispatch({**TABLE, **request}, None, lambda: service)
    if answer["success"] is not True:
        raise Broken(f"{request['operation']}: {answer['error']['message']}")
    return answer


if __name__ == "__main__":
    raise SystemExit(main())
