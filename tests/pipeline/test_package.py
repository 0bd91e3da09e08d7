"""What is packed for a cluster, and that it runs there with Spark alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from regelate.entrypoints.cli import main
from regelate.pipeline.names import TableName
from regelate.pipeline.package import pack
from tests.pipeline.conftest import JARS, QUICK_JAVA


def test_the_zip_holds_the_three_rooms_that_a_cluster_needs(tmp_path: Path) -> None:
    archive, *programs = pack(tmp_path)
    names = zipfile.ZipFile(archive).namelist()
    assert {name.split("/")[1] for name in names} == {"__init__.py", "errors.py", "core", "pipeline"}
    assert "regelate/pipeline/maintain.py" in names
    assert [program.name for program in programs] == ["compact_table.py", "pipeline.py"]


def test_the_same_source_makes_the_same_bytes(tmp_path: Path) -> None:
    first, second = pack(tmp_path / "a")[0], pack(tmp_path / "b")[0]
    assert first.read_bytes() == second.read_bytes()


def test_a_program_refuses_an_old_python_before_it_imports_anything(tmp_path: Path) -> None:
    program = pack(tmp_path)[1]
    old = f"import sys; sys.version_info = (3, 9, 25); exec(open({str(program)!r}).read())"
    done = subprocess.run([sys.executable, "-I", "-c", old], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("error: Python 3.9 is too old")
    assert "spark.emr-serverless.driverEnv.PYSPARK_PYTHON" in done.stderr


def test_the_command_line_writes_the_package(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "package", "--output", str(tmp_path / "dist")]) == 0
    assert "spark-submit --py-files" in capsys.readouterr().out
    assert (tmp_path / "dist" / "regelate.zip").is_file()


def test_a_folder_that_cannot_be_made_is_a_wrong_flag(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["pipeline", "package", "--output", str(tmp_path / "file")]) == 2
    assert "--output" in capsys.readouterr().err


@pytest.mark.spark
def test_the_package_runs_by_spark_submit_with_pyspark_alone(
    tmp_path: Path, make_events: object, name: TableName, lake_conf: dict[str, str]
) -> None:
    archive, program = pack(tmp_path / "dist")[:2]
    alone = tmp_path / "alone"
    alone.mkdir()
    import pyspark

    site = Path(pyspark.__file__).parents[1]
    for package in ("pyspark", "py4j"):
        (alone / package).symlink_to(site / package)
    make_events(name)  # type: ignore[operator]
    python = getattr(sys, "_base_executable", sys.executable)
    environment = {
        "PATH": os.environ["PATH"], "PYTHONPATH": str(alone), "PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python,
        "SPARK_HOME": str(alone / "pyspark"), "HOME": str(tmp_path), "JDK_JAVA_OPTIONS": QUICK_JAVA,
    }  # fmt: skip
    conf = [word for key, value in lake_conf.items() for word in ("--conf", f"{key}={value}")]
    submit = ["bash", str(alone / "pyspark" / "bin" / "spark-submit"), "--master", "local[1]", *conf]
    flags = ["--table", str(name), "--partition", "kind = 'click'", "--result", str(tmp_path / "result.json")]
    done = subprocess.run(
        [*submit, "--py-files", str(archive), str(program), *flags],
        env=environment, cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    # Spark puts both streams of a Python program on its standard output
    told = [line for line in done.stdout.splitlines() if line.startswith(("error", "help"))]
    assert done.returncode == 0, "\n".join(told)
    assert JARS["spark.jars.ivy"] in done.stderr
    answer = json.loads((tmp_path / "result.json").read_text())
    assert (answer["status"], answer["stats"]["files_compacted"]) == ("COMPLETED", 4)
