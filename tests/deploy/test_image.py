"""The Dockerfile, without an engine to build it: what it copies is there, and what it runs is green here."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.deploy.cloudformation import ROOT, template

AL2023 = r"public\.ecr\.aws/lambda/python:3\.13@sha256:[0-9a-f]{64}"
LINES = re.sub(r"\\\n\s*", "", (ROOT / "Dockerfile").read_text()).splitlines()
ARGUMENTS = dict(line.removeprefix("ARG ").split("=") for line in LINES if line.startswith("ARG "))


def instructions(name: str) -> list[str]:
    found = [line.removeprefix(f"{name} ") for line in LINES if line.startswith(f"{name} ")]
    return [re.sub(r"\$\{(\w+)\}", lambda match: ARGUMENTS.get(match[1], match[0]), line) for line in found]


def stages() -> dict[str, str]:
    return dict(reversed(stage.split(" AS ")) for stage in instructions("FROM"))  # type: ignore[misc]


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run what a RUN line runs, with this Python, from a folder that is not the repository."""
    words = command.replace("python ", f"{sys.executable} ", 1)
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "src"), "HOME": "/nonexistent"}
    return subprocess.run(words, shell=True, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_every_stage_stands_on_amazon_linux_2023_or_on_another_stage() -> None:
    known = stages()
    (base,) = {base for base in known.values() if base not in known}
    assert re.fullmatch(AL2023, base), "by its digest: a tag is another image tomorrow"


@pytest.mark.parametrize("stage", ["base", "job", "function"])
def test_what_is_deployed_runs_as_nobody_and_was_tried_as_nobody(stage: str) -> None:
    names = [line.rpartition(" AS ")[2] for line in LINES if line.startswith("FROM ")]
    lines = "\n".join(LINES).split("\nFROM ")[1:][names.index(stage)].splitlines()
    user = lines.index("USER 65534:65534")
    assert not any(line.startswith("USER") for line in lines[user + 1 :])
    assert [line for line in lines[:user] if line.startswith("RUN --network=none")] == []


def test_the_function_is_no_development_unless_told_so() -> None:
    assert instructions("ENV")[1:] == ["REGELATE_ENVIRONMENT=production"]


def test_what_is_copied_from_the_repository_is_there_and_not_ignored() -> None:
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    copied = [word for line in instructions("COPY") if "--from" not in line for word in line.split()[:-1]]
    assert {"config.json", "src/regelate", "requirements/aws.txt"} <= set(copied)
    for path in copied:
        assert (ROOT / path).exists(), path
        assert any(fnmatch(path, pattern) for pattern in allowed), path


def test_the_other_list_that_the_build_argument_may_name_is_there() -> None:
    assert (ROOT / "requirements" / "otel.txt").exists()


def test_the_self_test_of_the_build_is_green_here_without_a_network_a_home_or_the_repository(tmp_path: Path) -> None:
    (command,) = [line for line in instructions("RUN") if "selftest" in line]
    options, _, words = command.partition(" HOME=/nonexistent ")
    assert options == "--network=none"
    done = run(words, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "five files became one" in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("broken", ["duckdb_extension_httpfs", "pyiceberg"])
def test_the_self_test_is_red_where_something_is_missing(broken: str, tmp_path: Path) -> None:
    (tmp_path / broken).mkdir()
    (tmp_path / broken / "__init__.py").write_text("raise ImportError('not in the image')")
    done = run("python -m regelate.entrypoints.demo.selftest", tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("selftest failed: ")


def test_both_functions_of_the_template_name_a_handler_that_can_be_called() -> None:
    named = [json.loads(instructions("CMD")[1])]
    for resource in template()["Resources"].values():
        named += [resource["Properties"]["ImageConfig"]["Command"]] if "ImageConfig" in resource["Properties"] else []
    assert named == [["regelate.handler.lambda_handler"], ["regelate.worker.lambda_handler"]]
    for (command,) in named:
        module, _, name = command.rpartition(".")
        assert callable(getattr(importlib.import_module(module), name))


def test_the_function_starts_the_handler_and_the_job_the_command_line(tmp_path: Path) -> None:
    command, entrypoint = json.loads(instructions("CMD")[1]), json.loads(instructions("ENTRYPOINT")[0])
    module, _, name = command[0].rpartition(".")
    assert callable(getattr(importlib.import_module(module), name))
    done = run(f"{' '.join(entrypoint)} --version", tmp_path)
    assert (done.returncode, done.stdout[:8]) == (0, "regelate")


def test_the_template_builds_the_last_stage_which_is_the_function() -> None:
    assert list(stages())[-1] == "function"
    functions = [r for r in template()["Resources"].values() if r["Type"] == "AWS::Serverless::Function"]
    assert [function["Metadata"]["DockerBuildTarget"] for function in functions] == ["function", "function"]


def test_everything_in_the_image_has_a_wheel_so_that_nothing_is_compiled() -> None:
    (install,) = [line for line in instructions("RUN") if "pip install" in line]
    assert "--only-binary :all:" in install
    assert "--require-hashes" in install
