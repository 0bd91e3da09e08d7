"""Apache Iceberg's own REST catalog as a process on loopback: its test fixtures from Maven Central, no container.

Needs a JDK (11 or newer) and mvn. What is downloaded lands in `.servers` of the repository, nowhere else.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent
CACHE = HERE.parents[1] / ".servers"


def maven(pom: Path, goal: str, *properties: str) -> None:
    """Run one goal of Maven on a pom. Errors: FileNotFoundError without mvn."""
    CACHE.mkdir(exist_ok=True)
    found = shutil.which("mvn")
    if found is None:
        raise FileNotFoundError("mvn (Apache Maven) is needed to fetch the catalog server")
    subprocess.run(
        [found, "-B", "-q", "-f", str(pom), goal, *properties, f"-Dmaven.repo.local={CACHE / 'maven'}"], check=True
    )


def classpath(pom: Path) -> str:
    """Return the jars that a pom names, downloaded by Maven when the pom is new here."""
    found = CACHE / f"{pom.stem}.classpath"
    if not found.exists() or found.stat().st_mtime < pom.stat().st_mtime:
        maven(pom, "dependency:build-classpath", f"-Dmdep.outputFile={found}")
    return found.read_text().strip()


@contextmanager
def rest_catalog(folder: Path) -> Iterator[str]:
    """Run a catalog over `folder` (a SQLite file and a warehouse) and yield its URI; it is stopped at the end."""
    java = Path(os.environ["JAVA_HOME"], "bin", "java") if "JAVA_HOME" in os.environ else Path("java")
    warehouse = folder / "warehouse"
    warehouse.mkdir(parents=True, exist_ok=True)
    database = f"jdbc:sqlite:{folder}/rest.db?busy_timeout=30000&journal_mode=WAL"
    command = [str(java), "-cp", classpath(HERE / "rest-catalog.xml"), str(HERE / "RestCatalog.java")]
    command += [database, warehouse.as_uri()]
    with (folder / "rest-catalog.log").open("w") as log:
        server = subprocess.Popen(
            [*command, database, warehouse.as_uri()], stdout=subprocess.PIPE, stderr=log, text=True
        )
        try:
            assert server.stdout is not None
            port = next((line.split()[1] for line in server.stdout if line.startswith("port ")), None)
            if port is None:
                raise RuntimeError(f"the REST catalog did not start: see {log.name}")
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait()
