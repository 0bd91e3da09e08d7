"""The metadata files of one operation, each read and parsed once: they never change, and that of a long history is
megabytes. A catalog whose server sends metadata with its answer (REST) has nothing to read."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from pyiceberg.io import InputFile
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Identifier

KEPT = 2
"""Of an operation: the head that is judged, and the one after it."""
_loading: ContextVar[bool] = ContextVar("a catalog of ours loads a table", default=False)
_files: ContextVar[OrderedDict[str, TableMetadata] | None] = ContextVar("metadata files", default=None)


@contextmanager
def metadata_read_once() -> Iterator[None]:
    """Within the block, and in this thread, metadata that a catalog has read is not read again."""
    token = _files.set(OrderedDict())
    try:
        yield
    finally:
        _files.reset(token)


def let_remember(catalog: Any) -> None:
    """Let a catalog of PyIceberg that reads metadata files itself (SQL, Glue) look among the remembered ones first.

    Only this one: another client of the same kind in this thread reads for itself.
    """
    reading = [sys.modules[made.__module__] for made in type(catalog).__mro__]
    modules = [module for module in reading if getattr(module, "FromInputFile", None) in (FromInputFile, _Remembering)]
    if not modules:
        return
    for module in modules:
        module.FromInputFile = _Remembering  # type: ignore[attr-defined]
    load = catalog.load_table

    def load_table(identifier: str | Identifier) -> Table:
        token = _loading.set(True)
        try:
            found: Table = load(identifier)
            return found
        finally:
            _loading.reset(token)

    catalog.load_table = load_table


class _Remembering(FromInputFile):
    @staticmethod
    def table_metadata(input_file: InputFile, encoding: str = "UTF-8") -> TableMetadata:
        files = _files.get()
        if files is None or not _loading.get():
            return FromInputFile.table_metadata(input_file, encoding)
        if input_file.location not in files:
            files[input_file.location] = FromInputFile.table_metadata(input_file, encoding)
        files.move_to_end(input_file.location)
        while len(files) > KEPT:
            files.popitem(last=False)
        return files[input_file.location]
