"""Executes the notebook as it is shown, and keeps its outputs: `python notebooks/execute.py`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import nbformat
import papermill

NOTEBOOK = Path(__file__).with_name("file_compaction.ipynb")
JARS = Path(__file__).parents[1] / ".servers" / "ivy"
NOISY = "noisy"
"""Tag of the cells in which Spark speaks of this machine's folders: their output is not kept."""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / NOTEBOOK.name
        papermill.execute_notebook(
            str(NOTEBOOK), str(made), {"lake_home": f"{folder}/lake", "jars": str(JARS)}, progress_bar=False
        )
        notebook = nbformat.read(made, as_version=4)
    NOTEBOOK.write_text(nbformat.writes(shown(notebook)) + "\n", encoding="utf-8")


def shown(notebook: Any) -> Any:
    """Return the notebook without what belongs to this run alone: its parameters, times and paths."""
    notebook.cells = [c for c in notebook.cells if "injected-parameters" not in c.metadata.get("tags", [])]
    notebook.metadata.pop("papermill", None)
    for number, cell in enumerate(notebook.cells):
        cell.metadata = {"tags": cell.metadata["tags"]} if cell.metadata.get("tags") else {}
        cell.id = f"cell-{number}"
        if cell.cell_type == "code":
            quiet = NOISY in cell.metadata.get("tags", [])
            cell.outputs = [] if quiet else joined([o for o in cell.outputs if o.get("name") != "stderr"])
    return notebook


def joined(outputs: list[Any]) -> list[Any]:
    """Return the outputs with the lines of one stream in one piece."""
    found: list[Any] = []
    for output in outputs:
        if found and output.output_type == found[-1].output_type == "stream":
            found[-1].text += output.text
        else:
            found.append(output)
    return found


if __name__ == "__main__":
    main()
