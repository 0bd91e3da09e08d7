"""PyIceberg's FileIO over our S3 store; every other scheme is PyArrow's, as before."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from pyiceberg.io import InputFile, InputStream, OutputFile, OutputStream
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
from pyiceberg.typedef import EMPTY_DICT, Properties

from regelate.adapters.iceberg.s3.settings import is_s3

if TYPE_CHECKING:
    from regelate.adapters.iceberg.s3.store import S3Store


class S3FileIO(PyArrowFileIO):
    """Needs the extra `aws`. `renew`, when set, returns the table's properties as the catalog hands them out now.

    Errors, for S3: FileNotFoundError, FileExistsError; Unavailable STORAGE_AUTH, STORAGE_UNAVAILABLE,
    STORAGE_INCONSISTENT. Unlike PyArrow's, `delete` does not say whether the object was there.
    """

    renew: Callable[[], Mapping[str, str]] | None = None

    def __init__(self, properties: Properties = EMPTY_DICT) -> None:
        super().__init__(properties=properties)
        self._opening = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.properties,)

    @cached_property
    def _opened(self) -> S3Store:
        from regelate.adapters.iceberg.s3.store import S3Store

        asked = False

        def properties() -> Mapping[str, str]:
            nonlocal asked
            first, asked = not asked, True
            return self.properties if first or self.renew is None else self.renew()

        return S3Store(properties)

    @property
    def store(self) -> S3Store:
        with self._opening:
            return self._opened

    def new_input(self, location: str) -> PyArrowFile:
        return cast(PyArrowFile, S3File(self.store, location)) if is_s3(location) else super().new_input(location)

    def new_output(self, location: str) -> PyArrowFile:
        return cast(PyArrowFile, S3File(self.store, location)) if is_s3(location) else super().new_output(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        name = location if isinstance(location, str) else location.location
        if is_s3(name):
            self.store.delete(name)
        else:
            super().delete(location)

    def abort_uploads(self, location: str) -> None:
        """End every upload to exactly this location that nobody has completed."""
        from regelate.adapters.iceberg.s3.streams import abort_upload, incomplete_uploads

        for upload_id in incomplete_uploads(self.store, location):
            abort_upload(self.store, location, upload_id)

    def confirm(self, location: str, size_bytes: int) -> None:
        """Look at an object that was just stored, until it is shown with this size."""
        self.store.head(location, size_bytes=size_bytes)


class S3File(InputFile, OutputFile):
    """One object, for reading or writing."""

    def __init__(self, store: S3Store, location: str) -> None:
        super().__init__(location=location)
        self._store = store

    def __len__(self) -> int:
        return self._store.head(self.location).size_bytes

    def exists(self) -> bool:
        try:
            self._store.head(self.location)
        except FileNotFoundError:
            return False
        return True

    def open(self, seekable: bool = True) -> InputStream:
        from regelate.adapters.iceberg.s3.streams import S3Reader

        return S3Reader(self._store, self.location)

    def create(self, overwrite: bool = False) -> OutputStream:
        from regelate.adapters.iceberg.s3.streams import S3Writer

        if not overwrite and self.exists():
            raise FileExistsError(f"Cannot create file, already exists: {self.location}")
        return S3Writer(self._store, self.location)

    def to_input_file(self) -> S3File:
        return self
