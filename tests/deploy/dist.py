"""Builds the wheel and the sdist, and tries each as a stranger would: an empty environment, an empty HOME, no checkout.

`python -m tests.deploy.dist` (`make dist`) leaves both in dist/. Only base dependencies are installed: what needs more
must say which extra it wants.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
DIST = ROOT / "dist"
LISTS = ("base.txt", "build.txt")
WANTED_IN_THE_WHEEL = (
    "regelate/py.typed",
    "regelate/pipeline/__main__.py",
    "regelate/entrypoints/cli/__init__.py",
    "regelate/report/fleet/page.css",
    "regelate/report/fleet/page.js",
)
EXTRAS = {"aws", "mcp", "report", "spark", "all"}
GLUE = {"development": {"auth": "none", "tenants": "*", "catalogs": {"far": {"type": "glue", "warehouse": "s3://b/w"}}}}


def main() -> int:
    shutil.rmtree(DIST, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="regelate-dist-") as folder:
        built = _built(Path(folder))
        _check_contents(built[0])
        for file in built:
            _tried(file, Path(folder) / file.suffix.lstrip("."))
            sys.stdout.write(f"{file.name}: installed, created, written, compacted, queried; extras are named\n")
    return 0


def _built(folder: Path) -> tuple[Path, Path]:
    """Build from a copy of what git knows, so that nothing that lies about gets in."""
    source = folder / "source"
    known = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in known.splitlines():
        target = source / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target)
    build = (
        "from setuptools import build_meta as b; import sys; to = sys.argv[1]; "  # which setuptools writes anew
        "print(b.build_wheel(to)); print(b.build_sdist(to))"
    )
    DIST.mkdir(exist_ok=True)
    told = subprocess.run(
        [sys.executable, "-c", build, str(DIST)], cwd=source, check=True, capture_output=True, text=True
    ).stdout
    wheel = next(DIST / line for line in told.splitlines() if line.endswith(".whl"))
    sdist = next(DIST / line for line in told.splitlines() if line.endswith(".tar.gz"))
    return wheel, sdist


def _check_contents(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as found:
        names = found.namelist()
        metadata = next(found.read(n).decode() for n in names if n.endswith("/METADATA"))
    missing = [name for name in WANTED_IN_THE_WHEEL if name not in names]
    strangers = sorted({n.partition("/")[0] for n in names if not n.startswith(("regelate/", "regelate-"))})
    extras = {line.partition(": ")[2] for line in metadata.splitlines() if line.startswith("Provides-Extra")}
    assert not missing, f"not in the wheel: {missing}"
    assert not strangers, f"in the wheel, and not ours: {strangers}"
    assert extras >= EXTRAS, f"extras that are missing: {sorted(EXTRAS - extras)}"


def _tried(file: Path, folder: Path) -> None:
    environment, home = folder / "venv", folder / "home"
    home.mkdir(parents=True)
    venv.create(environment, with_pip=True)
    pip = [str(environment / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    for requirements in LISTS:
        _run([*pip, "--no-deps", "--require-hashes", "-r", str(ROOT / "requirements" / requirements)], folder)
    _run([*pip, "--no-deps", "--no-build-isolation", str(file)], folder)
    clean = {"PATH": os.environ["PATH"], "HOME": str(home), "REGELATE_HOME": str(home / "lake")}
    regelate = str(environment / "bin" / "regelate")

    def ask(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [regelate, *arguments], cwd=folder, env={**clean, **more}, capture_output=True, text=True, check=False
        )

    rows = folder / "rows.jsonl"
    _done(ask("create", "sales.orders", "--schema", "id:long!,word:string"))
    for number in range(3):
        rows.write_text(json.dumps({"id": number, "word": "x"}) + "\n")
        _done(ask("write", "sales.orders", str(rows)))
    compacted = json.loads(_done(ask("compact", "sales.orders", "--json")))
    assert compacted["stats"]["files_after"] == 1, compacted
    counted = json.loads(_done(ask("query", "sales.orders", "--sql", "SELECT count(*) AS n FROM t", "--json")))
    assert counted["rows"] == [{"n": 3}], counted
    _names_its_extra(ask("compact", "sales.orders", "--strategy", "zorder", "--sort", "id"), "regelate[spark]")
    _names_its_extra(ask("mcp"), "regelate[mcp]")
    config = folder / "glue.json"
    config.write_text(json.dumps({"environments": GLUE}))
    _names_its_extra(ask("list", "default", REGELATE_CONFIG=str(config)), "regelate[aws]")


def _names_its_extra(ended: subprocess.CompletedProcess[str], extra: str) -> None:
    told = ended.stdout + ended.stderr
    assert ended.returncode != 0, told
    assert extra in told, told
    assert "Traceback" not in told, told


def _done(ended: subprocess.CompletedProcess[str]) -> str:
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def _run(command: Sequence[str], folder: Path, environ: Mapping[str, str] | None = None) -> None:
    subprocess.run(command, cwd=folder, env=environ, check=True)


if __name__ == "__main__":
    sys.exit(main())
