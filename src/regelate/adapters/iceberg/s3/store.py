"""Objects of one S3 store: every request is tried again while that may help, and every answer is held to its word."""

from __future__ import annotations

import hashlib
import logging
import random
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO, TypeVar

from regelate.adapters.iceberg.s3.clients import S3Client, client_of, renewed
from regelate.adapters.iceberg.s3.s3_errors import Failure, Inconsistent, TooSlow, as_error, kind_of
from regelate.adapters.iceberg.s3.settings import S3Settings
from regelate.core.policy.timeouts import pause_seconds
from regelate.core.values import dataclass

log = logging.getLogger(__name__)
SLOWEST_BYTES_PER_SECOND = 64 * 1024
"""Below this, once `request_seconds` are over, an answer counts as dripping."""
PIECE_BYTES = 1024 * 1024
_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")
_MD5 = re.compile(r'"[0-9a-f]{32}"')
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectInfo:
    size_bytes: int
    etag: str
    modified_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Bucket and key of a location such as `s3://bucket/key`."""

    bucket: str
    key: str

    @classmethod
    def of(cls, location: str) -> Place:
        bucket, _, key = location.partition("://")[2].partition("/")
        return cls(bucket=bucket, key=key)

    @property
    def parameters(self) -> dict[str, str]:
        return {"Bucket": self.bucket, "Key": self.key}


class S3Store:
    """Safe for several threads. One lives as long as one loaded table.

    A request is sent again with growing pauses until `retry_seconds` are over; after one that failed for good, others
    get one try each until one succeeds. Refused credentials are renewed once.

    Errors: FileNotFoundError; Unavailable STORAGE_AUTH (502), STORAGE_UNAVAILABLE (503), STORAGE_INCONSISTENT (502).
    """

    def __init__(
        self,
        properties: Callable[[], Mapping[str, str]],
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`properties` returns those of now: a catalog may hand out new credentials when it is asked again."""
        self._properties = properties
        self._sleep = sleep
        self._clock = clock
        self._client = client_of(S3Settings.of(properties()))
        self._renewing = threading.Lock()
        self._renewed = False
        self._down = False

    @property
    def connections(self) -> int:
        return self._client.settings.connections

    def client(self) -> S3Client:
        """Return the client of now: with other credentials since they were renewed."""
        return self._client

    def renew(self) -> bool:
        """Ask for credentials anew because another client was refused; say whether there are others now."""
        return self._renew(self._client)

    def head(self, location: str, *, size_bytes: int | None = None) -> ObjectInfo:
        """Look at one object; with `size_bytes`, look again while the store shows another size, or nothing."""

        def look(api: Any) -> ObjectInfo:
            try:
                answer = api.head_object(**Place.of(location).parameters)
            except Exception as error:
                if size_bytes is not None and kind_of(error) is Failure.MISSING:
                    raise Inconsistent(f"an object of {size_bytes} bytes was stored and is not shown") from error
                raise
            found = ObjectInfo(
                size_bytes=answer["ContentLength"],
                etag=answer.get("ETag", ""),
                modified_ms=int(answer["LastModified"].timestamp() * 1000),
            )
            if size_bytes is not None and found.size_bytes != size_bytes:
                raise Inconsistent(f"{found.size_bytes} bytes are shown where {size_bytes} were stored")
            return found

        return self.call(f"HEAD {location}", look)

    def read(self, location: str, first: int = 0, end: int | None = None, *, info: ObjectInfo | None = None) -> bytes:
        """Return an object, or its bytes from `first` until before `end`, held to length, range and ETag."""

        def get(api: Any) -> bytes:
            received = bytearray()
            etag = self._receive(api, location, first, end, info, received.extend)
            if (first, end) == (0, None):
                self._check_whole(api, location, bytes(received), etag)
            return bytes(received)

        return self.call(f"GET {location}", get)

    def download(self, location: str, sink: BinaryIO, *, size_bytes: int | None = None) -> int:
        """Write a whole object to a file that can be rewound, in one GET, and return its size in bytes.

        Where that is not `size_bytes`, the store is asked: an object that really has another size is no fault of its.
        """

        def get(api: Any) -> int:
            sink.seek(0)
            sink.truncate()
            self._receive(api, location, 0, None, None, sink.write)
            received = sink.tell()
            if size_bytes not in (None, received):
                _check_shown(api, location, received)
            return received

        return self.call(f"GET {location}", get)

    def _receive(
        self,
        api: Any,
        location: str,
        first: int,
        end: int | None,
        info: ObjectInfo | None,
        take: Callable[[bytes], object],
    ) -> str:
        """Hand over what comes, hold it to what was promised, and return the object's ETag."""
        whole = first == 0 and end is None
        asked = {} if whole else {"Range": f"bytes={first}-{'' if end is None else end - 1}"}
        answer = api.get_object(**Place.of(location).parameters, **asked)
        body = answer["Body"]
        try:
            promised = answer["ContentLength"] if whole else _promised_range(answer, first, end)
            if info is not None and answer.get("ETag", "") != info.etag:
                raise Inconsistent("the object is another one than at the request before")
            received = 0
            started = self._clock()
            while piece := body._raw_stream.read1(PIECE_BYTES):  # read() would wait for a piece that drips
                received += len(piece)
                take(piece)
                self._check_speed(received, self._clock() - started)
            if received != promised:
                raise Inconsistent(f"{received} bytes came where {promised} were promised")
            return str(answer.get("ETag", ""))
        finally:
            body.close()

    def _check_whole(self, api: Any, location: str, content: bytes, etag: str) -> None:
        """Hold a whole object to its ETag, where that is the MD5 of its content: not so with some ways to store it.

        Where they differ, the size decides: an object that is shown with another one was not sent whole.
        """
        if _MD5.fullmatch(etag) and hashlib.md5(content, usedforsecurity=False).hexdigest() != etag.strip('"'):
            _check_shown(api, location, len(content))

    def _check_speed(self, received: int, seconds: float) -> None:
        if seconds > self._client.settings.request_seconds and received < seconds * SLOWEST_BYTES_PER_SECOND:
            raise TooSlow(f"{received} bytes in {seconds:.0f} seconds")

    def put(self, location: str, content: bytes) -> None:
        """Store one object whole; the store checks what arrives against a checksum."""
        parameters = {**Place.of(location).parameters, **self.encryption}
        self.call(f"PUT {location}", lambda api: api.put_object(**parameters, Body=content))

    def delete(self, location: str) -> None:
        """Delete one object; S3 does not say whether it was there."""
        self.call(f"DELETE {location}", lambda api: api.delete_object(**Place.of(location).parameters))

    def listed(self, root: str) -> Iterator[tuple[str, int, int]]:
        """Yield (location spelled as `root` is, bytes, milliseconds of the last change) of what lies under a folder."""
        place = Place.of(root)
        asked = {"Bucket": place.bucket, "Prefix": place.key}

        def page_of(api: Any) -> Any:
            return api.list_objects_v2(**asked)

        while True:
            page = self.call(f"LIST {root}", page_of)
            for item in page.get("Contents", ()):
                if not item["Key"].endswith("/"):  # a folder that some other client has made visible
                    changed = int(item["LastModified"].timestamp() * 1000)
                    yield root + item["Key"][len(place.key) :], item["Size"], changed
            if not page.get("IsTruncated"):
                return
            asked["ContinuationToken"] = page["NextContinuationToken"]

    @property
    def encryption(self) -> dict[str, str]:
        """What a request that creates an object says about its encryption at rest."""
        settings = self._client.settings
        found = {"ServerSideEncryption": settings.encryption, "SSEKMSKeyId": settings.kms_key_id}
        return {name: value for name, value in found.items() if value}

    def call(self, what: str, request: Callable[[Any], Found]) -> Found:
        """Send a request until it succeeds, or trying again is no use any more."""
        deadline = self._clock() + self._client.settings.retry_seconds
        tries = 0
        while True:
            client = self._client
            tries += 1
            try:
                found = request(client.api)
            except Exception as error:
                kind = kind_of(error)
                if kind is Failure.DENIED and self._renew(client):
                    continue
                pause = pause_seconds(tries - 1, random.random())
                worth_it = kind in (Failure.PASSING, Failure.INCONSISTENT) and not self._down
                if worth_it and self._clock() + pause < deadline:
                    log.info("%s failed (%s), tried again: try %d", what, type(error).__name__, tries)
                    self._sleep(pause)
                    continue
                self._down = self._down or kind is Failure.PASSING
                raise as_error(error, what, tries) from error
            self._down = False
            return found

    def _renew(self, refused: S3Client) -> bool:
        """Ask for credentials anew; say whether there is another client now to try with. Happens once."""
        with self._renewing:
            if self._client is not refused:
                return True
            if self._renewed or refused.settings.anonymous:
                return False
            self._renewed = True
            self._client = renewed(S3Settings.of(self._properties()), refused)
            return self._client is not refused


def _check_shown(api: Any, location: str, received: int) -> None:
    shown = api.head_object(**Place.of(location).parameters)["ContentLength"]
    if shown != received:
        raise Inconsistent(f"{received} bytes came of an object that is shown with {shown}")


def _promised_range(answer: Mapping[str, Any], first: int, end: int | None) -> int:
    """Return the length of the range in an answer, which must be the one asked for."""
    found = _RANGE.fullmatch(answer.get("ContentRange", ""))
    if found is None:
        raise Inconsistent("a range was asked for and the answer names none")
    low, high, total = map(int, found.groups())
    wanted_high = total - 1 if end is None else min(end, total) - 1
    if (low, high) != (first, wanted_high):
        raise Inconsistent(f"bytes {low}-{high} came where {first}-{wanted_high} were asked for")
    return high - low + 1
