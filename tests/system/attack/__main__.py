"""`python -m tests.system.attack`: hostile requests against a server and a handler of its own; prints a table."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.system.attack import report
from tests.system.attack.run import Wanted, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.system.attack", description=__doc__)
    parser.add_argument("--part", action="append", help="only parts whose name begins so")
    parser.add_argument("--name", action="append", help="only attacks whose name holds this")
    parser.add_argument("--clients", type=int, default=2, help="hostile requests at a time")
    parser.add_argument("--write", type=Path, help="where the table is kept")
    chosen = parser.parse_args()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="regelate-attack-") as name:
        wanted = Wanted(parts=tuple(chosen.part or ("",)), names=tuple(chosen.name or ("",)))
        found = run(Path(name), wanted, clients=chosen.clients, say=lambda line: print(line, flush=True))
    text = report.document(found, time.monotonic() - begun)
    print(report.verdicts(found))
    if chosen.write is not None:
        chosen.write.write_text(text)
    return 0 if all(promise.is_met for promise in report.promises(found)) else 1


if __name__ == "__main__":
    sys.exit(main())
