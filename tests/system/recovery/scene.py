"""A table, a child that dies on it, and what must hold afterwards."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table

from regelate.adapters.iceberg.files.ledger import FOLDER
from regelate.adapters.iceberg.files.store import OWN_FOLDER
from regelate.entrypoints.cli.program import main
from tests.support.answers import check_answer
from tests.support.iceberg_tables import local_path
from tests.support.table_model import model_rows
from tests.system.faults.stack import Stack

ROOT = Path(__file__).parents[3]
Answer = dict[str, Any]
ROWS = [(i, f"p{i % 2}") for i in range(12)]


class Scene:
    """A table `default.t` of two partitions and six data files, and the rows that it must hold."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "lake"
        self.stack = Stack(self.folder)
        columns = {"id": "long!", "p": "string"}
        self.stack.create("t", columns, partition_spec=[{"source": "p", "transform": "identity"}])
        for start in range(0, len(ROWS), 4):
            self.write(ROWS[start : start + 4])
        self.expected = sorted(ROWS)
        self.more = folder / "more.jsonl"

    @property
    def table(self) -> Table:
        return self.stack.table("default.t")

    def write(self, rows: Sequence[tuple[int, str]], **fields: object) -> Answer:
        return self.stack.ok("WRITE", "t", records=[{"id": i, "p": p} for i, p in rows], **fields)

    def command(self, rows: Sequence[tuple[int, str]] | None, *flags: str) -> list[str]:
        """Return the command line that compacts the table, or that writes these rows into it."""
        if rows is None:
            return ["compact", "default.t", "--force", "--json", *flags]
        self.more.write_text("".join(json.dumps({"id": i, "p": p}) + "\n" for i, p in rows))
        return ["write", "default.t", str(self.more), "--json", *flags]

    def child(self, *command: str, point: str, blow: str = "SIGKILL", hours_later: int = 0) -> subprocess.Popen[str]:
        line = [sys.executable, "-m", "tests.system.recovery.child", point, blow, *command]
        environ = {"REGELATE_HOME": str(self.folder), "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT}/src"}
        environ = {**os.environ, **environ, "HOURS_LATER": str(hours_later)}
        pipe = subprocess.PIPE
        return subprocess.Popen(line, cwd=ROOT, env=environ, stdout=pipe, stderr=pipe, text=True)

    def again(self, *command: str) -> Answer:
        """Run a command in this process, as another client would, and return its answer."""
        output = io.StringIO()
        with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(output):
            patch.setenv("REGELATE_HOME", str(self.folder))
            assert main(command) == 0, output.getvalue()
        answer: Answer = json.loads(output.getvalue())
        return answer

    def killed(self, *command: str, point: str, hours_later: int = 0) -> None:
        """Run a command that must die at this point."""
        process = self.child(*command, point=point, hours_later=hours_later)
        output, errors = process.communicate(timeout=120)
        assert process.returncode == -signal.SIGKILL, (process.returncode, output, errors)

    def an_hour_later(self) -> None:
        """Let the store's clock say that everything in the ledger is older than the longest run."""
        for entry in self.ledger():
            os.utime(entry, (time.time() - 3601,) * 2)

    def a_day_later(self) -> None:
        """Let it say that the grace of every expiry is over, too."""
        for entry in (local_path(self.table.location()) / "metadata" / OWN_FOLDER).rglob("*.json"):
            if "recorded_ms" in entry.read_text():
                entry.write_text(json.dumps({**json.loads(entry.read_text()), "recorded_ms": 0}))
            os.utime(entry, (time.time() - 30 * 3600,) * 2)

    def ledger(self) -> list[Path]:
        return sorted((local_path(self.table.location()) / "metadata" / FOLDER).glob("*"))

    def sweep(self) -> Answer:
        answer = self.stack.ok("SWEEP")
        check_answer("SWEEP", answer)
        assert answer["errors"] == 0, answer
        return answer

    def stored(self) -> set[Path]:
        return {path for path in local_path(self.table.location()).rglob("*") if path.is_file()}

    def referenced(self) -> set[Path]:
        """What the metadata and every snapshot of it name, read by PyIceberg."""
        table = self.table
        named = {table.metadata_location, *(entry.metadata_file for entry in table.metadata.metadata_log)}
        for snapshot in table.metadata.snapshots:
            named.add(snapshot.manifest_list)
            for manifest in snapshot.manifests(table.io):
                named.add(manifest.manifest_path)
                named |= {e.data_file.file_path for e in manifest.fetch_manifest_entry(table.io)}
        return {local_path(path) for path in named}

    def left_behind(self) -> set[Path]:
        return self.stored() - self.referenced()

    def assert_whole(self) -> None:
        """Nothing that is referenced is missing, and the rows are those of the model."""
        assert self.referenced() - self.stored() == set()
        assert model_rows(self.table) == sorted(repr(row) for row in self.expected)

    def assert_clean(self) -> None:
        self.assert_whole()
        assert self.left_behind() == set()

    def snapshots(self) -> list[int]:
        return [snapshot.snapshot_id for snapshot in self.table.snapshots()]
