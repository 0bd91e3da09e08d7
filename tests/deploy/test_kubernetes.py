"""The CronJob: what the schemas of Kubernetes do not say, and its container's command as a process."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from regelate.core.jobs.exit_codes import EXIT_CODES, USAGE
from regelate.settings import load_settings
from tests.deploy.cloudformation import ROOT
from tests.deploy.test_image import LINES
from tests.system.faults.stack import Stack

FILE = ROOT / "integrations" / "kubernetes" / "cronjob.yaml"
CRONJOB: dict[str, Any] = yaml.safe_load(FILE.read_text())
JOB = CRONJOB["spec"]["jobTemplate"]["spec"]
POD = JOB["template"]["spec"]
(CONTAINER,) = POD["containers"]


def command(environment: dict[str, str]) -> list[str]:
    """Return the image's entry point and the container's arguments, `$(NAME)` replaced as the kubelet does it."""
    stage = LINES[next(i for i, line in enumerate(LINES) if line.endswith(" AS job")) :]
    entrypoint = next(line for line in stage if line.startswith("ENTRYPOINT "))
    words = [*json.loads(entrypoint.removeprefix("ENTRYPOINT ")), *CONTAINER["args"]]
    return [re.sub(r"\$\((\w+)\)", lambda match: environment[match[1]], word) for word in words]


def run(folder: Path, uri: str) -> subprocess.CompletedProcess[str]:
    scratch = folder / "scratch"
    scratch.mkdir(exist_ok=True)
    named = {e["name"]: str(e.get("value", "")).replace("/scratch", str(scratch)) for e in CONTAINER["env"]}
    environment = {**named, "CATALOG_URI": uri, "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "src")}
    words = command(environment)
    assert words[0] == "python"
    return subprocess.run(
        [sys.executable, *words[1:]], cwd=scratch, env=environment, capture_output=True, text=True, check=False
    )


def test_the_values_that_the_schemas_do_not_check_are_ones_that_kubernetes_knows() -> None:
    assert re.fullmatch(r"[\d*/,-]+( [\d*/,-]+){4}", CRONJOB["spec"]["schedule"])
    assert CRONJOB["spec"]["concurrencyPolicy"] in {"Allow", "Forbid", "Replace"}
    assert POD["restartPolicy"] == "Never", "podFailurePolicy allows no other"
    (rule,) = JOB["podFailurePolicy"]["rules"]
    assert (rule["action"], rule["onExitCodes"]["operator"]) == ("FailJob", "In")
    assert rule["onExitCodes"]["containerName"] == CONTAINER["name"]


def test_only_exit_codes_that_another_try_would_repeat_end_the_job() -> None:
    told = dict(re.findall(r"^  (\d+) +(.*)$", EXIT_CODES, re.MULTILINE))
    assert "fail again" in told["1"]
    assert "again later" in told["3"]
    assert JOB["podFailurePolicy"]["rules"][0]["onExitCodes"]["values"] == [1, USAGE]


def test_a_run_ends_before_a_sweep_may_take_it_for_dead() -> None:
    assert JOB["activeDeadlineSeconds"] < load_settings({}).sweep.longest_run_seconds


def test_the_uri_is_a_secret_and_stands_nowhere_else() -> None:
    (uri,) = [e for e in CONTAINER["env"] if e["name"] == "CATALOG_URI"]
    assert set(uri["valueFrom"]) == {"secretKeyRef"}
    assert "://" not in FILE.read_text()


def test_every_mount_is_a_volume_and_the_container_writes_nowhere_else() -> None:
    assert {m["name"] for m in CONTAINER["volumeMounts"]} == {v["name"] for v in POD["volumes"]}
    assert CONTAINER["securityContext"]["readOnlyRootFilesystem"] is True
    assert (CONTAINER["resources"]["limits"]["cpu"], CONTAINER["resources"]["limits"]["memory"]) == ("2", "4Gi")


def test_the_containers_command_compacts_the_table(tmp_path: Path) -> None:
    stack = Stack(tmp_path / "lake")
    stack.create("events", {"id": "long"})
    for number in range(5):
        stack.ok("WRITE", "events", records=[{"id": number}])
    rows = stack.rows("events")
    done = run(tmp_path, f"sqlite:///{tmp_path}/lake/catalog.db")
    assert done.returncode == 0, done.stderr
    stats = json.loads(done.stdout)["stats"]
    assert (stats["files_before"], stats["files_after"]) == (5, 1)
    assert stack.rows("events") == rows


def test_a_table_that_is_not_there_ends_with_the_code_that_is_not_repeated(tmp_path: Path) -> None:
    done = run(tmp_path, f"sqlite:///{tmp_path}/empty.db")
    assert (done.returncode, json.loads(done.stdout)["error"]["code"]) == (1, "NAMESPACE_NOT_FOUND")
