"""Run the collection by newman against a `regelate serve` of its own: an empty lake, a free port.

`make postman`, or `python postman/run.py [newman options]`. The server is stopped whatever happens; the exit code is
newman's.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
NEWMAN = HERE / "node_modules" / ".bin" / "newman"
COLLECTION = HERE / "S3_ACID_Database.postman_collection.json"
ENVIRONMENT = HERE / "environments" / "Development.postman_environment.json"


def main(options: list[str]) -> int:
    with tempfile.TemporaryDirectory(prefix="regelate-postman-") as home:
        server = subprocess.Popen(
            [Path(sys.executable).with_name("regelate"), "serve", "--port", "0"],
            env={
                **os.environ,
                "REGELATE_HOME": home,
                "REGELATE_CONFIG": str(ROOT / "config.json"),
                "REGELATE_ENVIRONMENT": "development",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            url = _url_of(server)
            run = ["run", COLLECTION, "--environment", ENVIRONMENT, "--env-var", f"baseUrl={url}", *options]
            return subprocess.run([NEWMAN, *run], check=False).returncode
        finally:
            server.terminate()
            server.wait(timeout=30)


def _url_of(server: subprocess.Popen[str]) -> str:
    told = server.stdout.readline() if server.stdout else ""
    found = re.search(r"http://\S+:\d+", told)
    if found is None:
        raise SystemExit(f"the server did not start: {told!r}")
    return found[0]


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
