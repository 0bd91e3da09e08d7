"""The layouts of a table's files, from their footers: one small read per file, and a schema is parsed once."""

from __future__ import annotations

import json
import os
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from urllib.parse import unquote

from pyiceberg.io import FileIO

from regelate.adapters.iceberg.files.layouts import Layout, layout_of
from regelate.adapters.iceberg.files.outputs import local_path
from regelate.adapters.iceberg.files.parquet_schema import MAGIC, TRAILER_BYTES, parse_schema
from regelate.adapters.iceberg.metadata.tasks import unsupported
from regelate.adapters.iceberg.pyiceberg_errors import storage_faults
from regelate.adapters.iceberg.s3.file_io import S3FileIO
from regelate.adapters.iceberg.s3.settings import is_s3
from regelate.core.table.schema import Column
from regelate.core.table.table import DataFile, DeleteFile
from regelate.errors import DataUnavailable, Unsupported

TAIL_BYTES = 16 * 1024
"""What is read of a file first: the footers of most."""
CONNECTIONS = 16
SCHEMAS_KEPT = 64


Constants = frozenset[int]
NONE: Constants = frozenset()


class _NoFooter(Exception):
    """What ends like this is no Parquet file that can be read."""


class FileLayouts:
    """How the files of one table are read, by path. Safe for several threads.

    Local files are read where they lie. A remote one costs a GET of its last bytes, and is asked for once.
    """

    def __init__(self, io: FileIO, columns: Sequence[Column], mapping: str | None) -> None:
        self._io = io
        self._columns = columns
        self._mapping = None if mapping is None else json.loads(mapping)
        self._of_path: dict[tuple[str, Constants], Layout] = {}
        self._of_schema: OrderedDict[tuple[bytes, Constants], Layout] = OrderedDict()

    def by_mapping(self, files: Sequence[DataFile], constants: Constants = NONE) -> Mapping[str | None, list[DataFile]]:
        """Group data files by the name mapping that they need; those that need none (None) can be read with any.

        The fields `constants` are not read from them. Errors: Unsupported UNSUPPORTED_TABLE for a file that cannot be
        read rightly; DataUnavailable DATA_FILE_MISSING, DATA_FILE_CORRUPT; Unavailable of the storage.
        """
        found: dict[str | None, list[DataFile]] = defaultdict(list)
        for file, layout in zip(files, self._of(files, constants), strict=True):
            if layout.fault is not None:
                which = "a data file" if layout.has_ids else "a data file without field ids"
                raise unsupported(f"{which}, with {layout.fault} ({file.path})")
            found[layout.mapping].append(file)
        if None in found and len(found) == 2:
            (mapping,) = found.keys() - {None}
            return {mapping: list(files)}
        return found or {None: []}

    def check_deletes(self, deletes: Sequence[DeleteFile]) -> None:
        """Refuse equality deletes whose columns do not say which fields they are.

        Errors: Unsupported UNSUPPORTED_DELETES; DataUnavailable DELETE_FILE_CORRUPT; Unavailable of the storage.
        """
        for delete, layout in zip(deletes, self._of(deletes), strict=True):
            if layout.mapping is not None or layout.fault is not None:
                raise Unsupported(
                    "UNSUPPORTED_DELETES",
                    f"equality delete {delete.path} has {layout.fault or 'columns without field ids'}; "
                    "compact with Spark's rewrite_data_files",
                    path=delete.path,
                )

    def _of(self, files: Sequence[DataFile | DeleteFile], constants: Constants = NONE) -> list[Layout]:
        remote: list[DataFile | DeleteFile] = []
        for file in files:
            if (file.path, constants) in self._of_path:
                continue
            local = local_path(file.path)
            if local is None:
                remote.append(file)
            else:
                self._learn(file, constants, partial(_local_footer, local))
        if remote:
            with ThreadPoolExecutor(min(CONNECTIONS, len(remote)), thread_name_prefix="footers") as pool:
                asked = [pool.submit(self._remote_footer, file.path, file.size_bytes) for file in remote]
                for file, footer in zip(remote, asked, strict=True):
                    self._learn(file, constants, footer.result)
        return [self._of_path[file.path, constants] for file in files]

    def _learn(self, file: DataFile | DeleteFile, constants: Constants, footer: Callable[[], bytes]) -> None:
        missing, corrupt = ("DATA_FILE_MISSING", "DATA_FILE_CORRUPT")
        if isinstance(file, DeleteFile):
            missing = corrupt = "DELETE_FILE_CORRUPT"
        try:
            self._of_path[file.path, constants] = self._parsed(footer(), constants)
        except FileNotFoundError as error:
            raise DataUnavailable(missing, f"{file.path} is missing", path=file.path) from error
        except (_NoFooter, ValueError) as error:
            raise DataUnavailable(corrupt, f"cannot read {file.path}: {error}", path=file.path) from error

    def _parsed(self, footer: bytes, constants: Constants) -> Layout:
        for (start, given), layout in list(self._of_schema.items()):
            if given == constants and footer.startswith(start):
                return layout
        root, used = parse_schema(footer)
        layout = layout_of(root, self._columns, self._mapping, constants)
        self._of_schema[footer[:used], constants] = layout
        if len(self._of_schema) > SCHEMAS_KEPT:
            self._of_schema.popitem(last=False)
        return layout

    def _remote_footer(self, path: str, size: int) -> bytes:
        first = max(size - TAIL_BYTES, 0)
        tail = self._remote(path, first, size)
        length = _length(tail)
        if length + TRAILER_BYTES > len(tail):
            if length + TRAILER_BYTES > size:
                raise _NoFooter(f"its footer is said to have {length} bytes")
            tail = self._remote(path, size - length - TRAILER_BYTES, size)
        return tail[-TRAILER_BYTES - length : -TRAILER_BYTES]

    def _remote(self, path: str, first: int, end: int) -> bytes:
        if isinstance(self._io, S3FileIO) and is_s3(path):
            return self._io.store.read(path, first, end)
        with storage_faults(), self._io.new_input(path).open() as source:
            source.seek(first)
            return source.read(end - first)


def _local_footer(local: Path) -> bytes:
    try:
        handle = os.open(local, os.O_RDONLY)
    except FileNotFoundError:
        handle = os.open(unquote(str(local)), os.O_RDONLY)
    try:
        size = os.fstat(handle).st_size
        tail = os.pread(handle, TAIL_BYTES, max(size - TAIL_BYTES, 0))
        length = _length(tail)
        if length + TRAILER_BYTES > len(tail):
            tail = os.pread(handle, length + TRAILER_BYTES, max(size - length - TRAILER_BYTES, 0))
        if length + TRAILER_BYTES > len(tail):
            raise _NoFooter(f"its footer is said to have {length} bytes")
        return tail[-TRAILER_BYTES - length : -TRAILER_BYTES]
    finally:
        os.close(handle)


def _length(tail: bytes) -> int:
    if len(tail) < TRAILER_BYTES or not tail.endswith(MAGIC):
        raise _NoFooter("it does not end with Parquet's magic number")
    return int.from_bytes(tail[-TRAILER_BYTES : -len(MAGIC)], "little")
