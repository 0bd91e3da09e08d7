"""The demo's own folder: made by it, marked by it, and nothing else is ever touched."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from regelate.entrypoints.cli.failures import usage

if TYPE_CHECKING:
    from regelate.service.facade import Service

MARK = ".regelate-demo"
CONFIG = "config.json"
PICTURE = "demo.png"
MORE = "more.jsonl"


def prepare(home: Path) -> Path:
    """Return the folder, empty but for its mark and its config.json. Raises Failed for a folder that is not the demo's.

    What an earlier demo left in it is deleted.
    """
    folder = home.expanduser().absolute()
    todo = "choose another folder with --home"
    if folder.exists() and not folder.is_dir():
        raise usage("--home", f"{folder} is a file", todo)
    if folder.is_dir() and any(folder.iterdir()) and not (folder / MARK).is_file():
        raise usage("--home", f"{folder} is not empty and not an earlier demo's; nothing was changed", todo)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.iterdir():
            _delete(old)
        (folder / MARK).write_text("This folder belongs to `regelate demo`, which deletes what is in it.\n")
        (folder / CONFIG).write_text(json.dumps(_configuration(folder), indent=2) + "\n")
    except OSError as fault:
        raise usage("--home", f"cannot make {folder}: {fault.strerror}", todo) from None
    return folder


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def _configuration(folder: Path) -> dict[str, object]:
    """Return a config.json with the embedded catalog and this folder's own path, whatever the environment says."""
    from regelate.settings.builtin import ENVIRONMENTS

    text = json.dumps(ENVIRONMENTS["development"]).replace("${REGELATE_HOME}", json.dumps(str(folder))[1:-1])
    return {"environments": {"development": json.loads(text)}}


def service_of(folder: Path) -> Service:
    """Return a service of this folder's config.json alone: no other lake is within its reach."""
    from regelate.service.build import build_service

    return build_service({"REGELATE_CONFIG": str(folder / CONFIG), "REGELATE_ENVIRONMENT": "development"})


def leave_more(folder: Path, records: Sequence[Mapping[str, object]]) -> None:
    """Leave a file of records that can be written again."""
    (folder / MORE).write_text("".join(f"{json.dumps(record)}\n" for record in records))
