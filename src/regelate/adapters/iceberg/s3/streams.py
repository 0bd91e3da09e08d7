"""Objects as files: read by ranges, written in parts."""

from __future__ import annotations

import io
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from regelate.adapters.iceberg.s3.store import ObjectInfo, Place, S3Store
from regelate.errors import RegelateError

PART_BYTES = 16 * 1024 * 1024
"""A larger object goes up in parts of so much; S3 takes 10,000 of them, hence 160 GB."""
PARTS_AT_ONCE = 4


class S3Reader(io.RawIOBase):
    """Reads one object. What is read whole costs one GET; whoever seeks is held to one state of the object."""

    def __init__(self, store: S3Store, location: str) -> None:
        self._store = store
        self._location = location
        self._position = 0
        self._known: ObjectInfo | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position}.get(whence)
        self._position = offset + (self._info.size_bytes if base is None else base)
        return self._position

    def size(self) -> int:
        return self._info.size_bytes

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or size < 0:
            return self.readall()
        end = min(self._position + size, self._info.size_bytes)
        return self._bytes(end)

    def readall(self) -> bytes:
        if self._position == 0 and self._known is None:
            found = self._store.read(self._location)
            self._position = len(found)
            return found
        return self._bytes(self._info.size_bytes)

    def readinto(self, buffer: Any, /) -> int:
        found = self.read(len(buffer))
        buffer[: len(found)] = found
        return len(found)

    def _bytes(self, end: int) -> bytes:
        if end <= self._position:
            return b""
        found = self._store.read(self._location, self._position, end, info=self._info)
        self._position = end
        return found

    @property
    def _info(self) -> ObjectInfo:
        if self._known is None:
            self._known = self._store.head(self._location)
        return self._known


class S3Writer(io.RawIOBase):
    """Writes one object, in parts when it is larger than one. Nothing is there before `close`, or after a failure."""

    def __init__(self, store: S3Store, location: str) -> None:
        self._store = store
        self._location = location
        self._buffer = bytearray()
        self._written = 0
        self._upload: _Upload | None = None

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._written

    def write(self, content: Any, /) -> int:
        view = memoryview(content).cast("B")
        self._buffer += view
        self._written += len(view)
        if len(self._buffer) > PART_BYTES:
            self._send(self._buffer)
        return len(view)

    def _send(self, waiting: bytearray) -> None:
        self._upload = self._upload or _Upload(self._store, self._location)
        with memoryview(waiting) as view:
            sent = len(waiting) // PART_BYTES * PART_BYTES
            parts = [bytes(view[low : low + PART_BYTES]) for low in range(0, sent, PART_BYTES)]
        self._buffer = waiting[sent:]
        try:
            for part in parts:
                self._upload.add(part)
        except BaseException:
            self.abandon()
            raise

    def close(self) -> None:
        """Make the object; called a second time, or after a failure, it does nothing."""
        if self.closed:
            return
        try:
            if self._upload is None:
                self._store.put(self._location, bytes(self._buffer))
            else:
                self._upload.complete(bytes(self._buffer), self._written)
        except BaseException:
            self.abandon()
            raise
        super().close()

    def abandon(self) -> None:
        """Leave nothing behind."""
        upload, self._upload = self._upload, None
        if not self.closed:
            super().close()
        if upload is not None:
            upload.abort()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if error is not None:
            self.abandon()
        self.close()

    def __del__(self) -> None:
        """A stream that was dropped half-way makes no object; Python would close it."""
        if not self.closed:
            self.abandon()


class _Upload:
    """One multipart upload. Parts go up side by side; at most so many wait in memory."""

    def __init__(self, store: S3Store, location: str) -> None:
        self._store = store
        self._location = location
        self._place = Place.of(location).parameters
        parameters = {**self._place, **store.encryption}
        started = store.call(f"POST {location}", lambda api: api.create_multipart_upload(**parameters))
        self._id: str = started["UploadId"]
        self._pool = ThreadPoolExecutor(PARTS_AT_ONCE, thread_name_prefix="upload")
        self._parts: list[Future[dict[str, Any]]] = []

    def add(self, content: bytes) -> None:
        if len(self._parts) >= PARTS_AT_ONCE:
            self._parts[-PARTS_AT_ONCE].result()
        number = len(self._parts) + 1
        self._parts.append(self._pool.submit(self._put, number, content))

    def _put(self, number: int, content: bytes) -> dict[str, Any]:
        answer = self._call(
            f"PUT part {number} of",
            lambda api: api.upload_part(**self._place, UploadId=self._id, PartNumber=number, Body=content),
        )
        checksums = {name: value for name, value in answer.items() if name.startswith("Checksum")}
        return {"PartNumber": number, "ETag": answer["ETag"], **checksums}

    def complete(self, rest: bytes, size_bytes: int) -> None:
        if rest:
            self.add(rest)
        parts = {"Parts": [part.result() for part in self._parts]}
        try:
            self._call(
                "POST parts of",
                lambda api: api.complete_multipart_upload(**self._place, UploadId=self._id, MultipartUpload=parts),
            )
        except (FileNotFoundError, RegelateError) as failed:
            if not self._is_there(size_bytes):
                raise failed
        self._pool.shutdown()

    def _is_there(self, size_bytes: int) -> bool:
        """Say whether only the reply was lost: then the upload is gone, because it is the object now."""
        try:
            return self._store.head(self._location).size_bytes == size_bytes
        except (FileNotFoundError, RegelateError):
            return False

    def abort(self) -> None:
        self._pool.shutdown(cancel_futures=True)
        abort_upload(self._store, self._location, self._id)

    def _call(self, what: str, request: Callable[[Any], Any]) -> Any:
        return self._store.call(f"{what} {self._location}", request)


def abort_upload(store: S3Store, location: str, upload_id: str) -> None:
    """Abort one upload; one that is gone is no fault."""
    try:
        store.call(
            f"DELETE upload {location}",
            lambda api: api.abort_multipart_upload(**Place.of(location).parameters, UploadId=upload_id),
        )
    except FileNotFoundError:
        return


def incomplete_uploads(store: S3Store, location: str) -> list[str]:
    """Return the ids of uploads to exactly this location that nobody has completed."""
    place = Place.of(location)
    asked = {"Bucket": place.bucket, "Prefix": place.key}
    found: list[str] = []

    def listed(api: Any) -> Any:
        return api.list_multipart_uploads(**asked)

    while True:
        page = store.call(f"LIST uploads {location}", listed)
        found += [upload["UploadId"] for upload in page.get("Uploads", ()) if upload["Key"] == place.key]
        if not page.get("IsTruncated"):
            return found
        asked |= {"KeyMarker": page["NextKeyMarker"], "UploadIdMarker": page["NextUploadIdMarker"]}
