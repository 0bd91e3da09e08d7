"""How long a fresh process takes until it could serve: the API's function and the worker's, beside bare imports; and
what a short command of the command line costs.

Every measurement is a process of its own with warm file caches and byte code, as an image has it. Lambda's first read
of an image is slower and is not measured here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from benchmarks.lake import open_catalog

ROOT = Path(__file__).parent.parent
API = "import regelate.handler"
WORKER = "import regelate.worker"
LIST = """
from regelate.entrypoints.cli import main
main(["list", "bench"])
"""
"""Opens a catalog in SQLite and asks it for names: what every command does at least."""
BARE = """
from importlib import import_module
for name in {names!r}:
    import_module(name)
"""
MEASURED = """
import json, re, sys, time
before, worked = time.perf_counter(), time.process_time()
{program}
seconds, processor_seconds = time.perf_counter() - before, time.process_time() - worked
peak = int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])  # ru_maxrss begins at the parent's
print(json.dumps(dict(seconds=seconds, processor_seconds=processor_seconds, peak_mb=peak / 1024,
    modules=[name for name, module in sys.modules.items() if getattr(module, "__file__", None)])))
"""
OURS = ("regelate", "benchmarks", "__main__", "__editable__")


def fresh(program: str, lake: Path | None = None) -> dict[str, Any]:
    """Run a program in a process of its own; the time is from its first line, without the interpreter's own start.

    Byte code is kept, so that from the second run on nothing is compiled. `lake`: its REGELATE_HOME, else an empty one.
    """
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryDirectory(prefix="regelate-bench-cold-") as folder:
        done = subprocess.run(
            [sys.executable, "-c", MEASURED.format(program=program)],
            capture_output=True,
            text=True,
            check=True,
            cwd=folder,
            env={**kept, "PYTHONPATH": str(ROOT / "src"), "REGELATE_HOME": str(lake or folder), "HOME": folder},
        )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def bare_imports() -> str:
    """Return a program that imports exactly the libraries' modules that the worker loads, in its order."""
    modules = fresh(WORKER)["modules"]
    names = [name for name in modules if name.partition(".")[0] not in (*OURS, *sys.stdlib_module_names)]
    return BARE.format(names=[name for name in names if _importable(name)])


def _importable(name: str) -> bool:
    """Leave out what a library makes up as it runs: only what an import statement finds is imported barely."""
    from importlib.util import find_spec

    try:
        return find_spec(name) is not None
    except (ImportError, AttributeError, ValueError):
        return False


def make_lake(home: Path) -> Path:
    """Make a lake with one table in a catalog of SQLite."""
    catalog = open_catalog(home)
    catalog.create_namespace_if_not_exists("bench")
    catalog.create_table("bench.events", Schema(NestedField(1, "id", LongType())))
    catalog.close()
    return home


def measurements(work: Path) -> dict[str, Any]:
    """Return what is measured, by name; each call is one fresh process."""
    bare, lake = bare_imports(), make_lake(work)

    def of(program: str) -> dict[str, Any]:
        return {key: value for key, value in fresh(program, lake).items() if key != "modules"}

    return {
        "API init": lambda: of(API),
        "worker init": lambda: of(WORKER),
        "bare imports of the worker's libraries": lambda: of(bare),
        "regelate list": lambda: of(LIST),
    }
