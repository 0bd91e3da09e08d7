"""Files of a table, brought to this machine whole."""

from __future__ import annotations

import shutil
from pathlib import Path

from pyiceberg.io import FileIO

from regelate.adapters.iceberg.pyiceberg_errors import storage_faults
from regelate.adapters.iceberg.s3.file_io import S3FileIO
from regelate.adapters.iceberg.s3.settings import is_s3

PIECE_BYTES = 8 * 1024 * 1024


class TableInputs:
    """Fetches files of one table's storage; safe for several threads."""

    def __init__(self, io: FileIO) -> None:
        self._io = io

    def fetch(self, location: str, path: Path, size_bytes: int) -> None:
        """Copy a file to `path`, from S3 by one GET. A file of another size comes as it is; the caller has to look.

        Errors: FileNotFoundError; Unavailable STORAGE_AUTH, STORAGE_UNAVAILABLE; STORAGE_INCONSISTENT where the storage
        sends another number of bytes than it shows.
        """
        with path.open("wb") as sink:
            if isinstance(self._io, S3FileIO) and is_s3(location):
                self._io.store.download(location, sink, size_bytes=size_bytes)
                return
            try:
                source = self._io.new_input(location).open(seekable=False)
            except FileNotFoundError:
                raise
            except OSError:
                with storage_faults():
                    raise
            with storage_faults(), source:
                shutil.copyfileobj(source, sink, PIECE_BYTES)
