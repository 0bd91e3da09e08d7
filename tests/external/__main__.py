"""Runs the corpus: `python -m tests.external [NAME ...]`. One line a table; the exit code is 1 if one deviates."""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
import traceback
from pathlib import Path

from regelate.pipeline.session import embedded_lake, open_session
from tests.external.bench import Bench
from tests.external.tables import TABLES
from tests.external.trial import Outcome, run
from tests.pipeline.conftest import LAUNCH
from tests.system.faults.stack import Stack


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.external", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="tables; all of them where none is named")
    names = parser.parse_args().names or list(TABLES)
    failed = []
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="regelate-corpus-") as folder:
        spark = open_session(embedded_lake(Path(folder)), LAUNCH, app_name="corpus")
        spark.sparkContext.setLogLevel("OFF")
        try:
            bench = Bench(spark=spark, stack=Stack(Path(folder)), catalog="local")
            for name in names:
                started = time.monotonic()
                outcome = _run(bench, name)
                told = "; ".join(dict.fromkeys(outcome.notes)) or "ok"
                print(f"{name:58} {time.monotonic() - started:5.1f} s  {told if not outcome.faults else 'DEVIATES'}")
                for fault in outcome.faults:
                    print(f"    {fault}")
                sys.stdout.flush()
                failed += [name] if outcome.faults else []
        finally:
            spark.stop()
    print(f"{len(names)} tables, {len(failed)} deviate{': ' + ', '.join(failed) if failed else ''}")
    return 1 if failed else 0


def _run(bench: Bench, name: str) -> Outcome:
    try:
        return run(bench, TABLES[name])
    except Exception as error:  # noqa: BLE001  the next table is still of interest
        text = "".join(traceback.format_exception_only(error))
        return Outcome(table=name, faults=[f"{text[:600]} ({traceback.extract_tb(error.__traceback__)[-1]})"])


if __name__ == "__main__":
    sys.exit(main())
