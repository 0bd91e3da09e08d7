"""How long a fresh process takes until it could serve: the API's function and the worker's, beside bare imports.

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

ROOT = Path(__file__).parent.parent
API = "import regelate.handler"
WORKER = "import regelate.worker"
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


def fresh(program: str) -> dict[str, Any]:
    """Run a program in a process of its own; the time is from its first line, without the interpreter's own start."""
    with tempfile.TemporaryDirectory(prefix="regelate-bench-cold-") as folder:
        done = subprocess.run(
            [sys.executable, "-c", MEASURED.format(program=program)],
            capture_output=True,
            text=True,
            check=True,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "REGELATE_HOME": folder, "HOME": folder},
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


def measurements() -> dict[str, Any]:
    """Return what is measured, by name; each call is one fresh process."""
    bare = bare_imports()

    def of(program: str) -> dict[str, Any]:
        return {key: value for key, value in fresh(program).items() if key != "modules"}

    return {
        "API init": lambda: of(API),
        "worker init": lambda: of(WORKER),
        "bare imports of the worker's libraries": lambda: of(bare),
    }
