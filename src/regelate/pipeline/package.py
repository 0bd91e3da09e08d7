"""Packs the pipeline for a cluster: one zip for `--py-files`, and the small programs that spark-submit starts."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path

import regelate

ZIP = "regelate.zip"
PACKED = ("__init__.py", "errors.py", "core", "pipeline")
PROGRAMS = {"compact_table.py": "regelate.pipeline.compact_table", "pipeline.py": "regelate.pipeline.__main__"}
_OLDEST_TIME = (1980, 1, 1, 0, 0, 0)
_PROGRAM = """\
\"\"\"Started by spark-submit, with regelate.zip as --py-files.\"\"\"

import sys

if sys.version_info < (3, 11):
    sys.exit(
        "error: Python %d.%d is too old, 3.11 is needed\\n"
        "help: set PYSPARK_PYTHON for the driver and the executors; on EMR Serverless\\n"
        "  --conf spark.emr-serverless.driverEnv.PYSPARK_PYTHON=/usr/bin/python3.11\\n"
        "  --conf spark.executorEnv.PYSPARK_PYTHON=/usr/bin/python3.11" % sys.version_info[:2]
    )

from {module} import main

if __name__ == "__main__":
    sys.exit(main())
"""


def pack(folder: Path) -> tuple[Path, ...]:
    """Write the zip and the programs into a folder and return their paths; the same source makes the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    archive = folder / ZIP
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as target:
        for path in sources():
            entry = zipfile.ZipInfo(f"regelate/{path.relative_to(_root()).as_posix()}", _OLDEST_TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            target.writestr(entry, path.read_bytes())
    for name, module in PROGRAMS.items():
        (folder / name).write_text(_PROGRAM.replace("{module}", module), encoding="utf-8")
    return (archive, *(folder / name for name in PROGRAMS))


def sources() -> Iterator[Path]:
    """Yield the files that a cluster needs, in the order of their names."""
    for name in PACKED:
        path = _root() / name
        yield from sorted(path.rglob("*.py")) if path.is_dir() else [path]


def _root() -> Path:
    return Path(regelate.__file__).parent
