"""The S3 store by itself: objects whole and in parts, listings, and what a broken upload leaves."""

from __future__ import annotations

import gc
import io
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from regelate.adapters.iceberg.catalogs import OUR_FILE_IO, with_storage
from regelate.adapters.iceberg.files.store import ObjectStore
from regelate.adapters.iceberg.s3.file_io import S3FileIO
from regelate.adapters.iceberg.s3.settings import S3Settings
from regelate.adapters.iceberg.s3.streams import PART_BYTES
from tests.aws.lake import BUCKET, SECRET
from tests.servers.moto_aws import KEYS, REGION, client

PLACE = f"s3://{BUCKET}/folder/object"


@pytest.fixture
def files(aws: str) -> S3FileIO:
    return S3FileIO(
        {
            "s3.endpoint": aws,
            "s3.region": REGION,
            "s3.access-key-id": KEYS["aws_access_key_id"],
            "s3.secret-access-key": SECRET,
        }
    )


@pytest.mark.parametrize("size", [0, 1, PART_BYTES - 1, PART_BYTES, PART_BYTES + 1, 2 * PART_BYTES, 5 * PART_BYTES + 7])
@pytest.mark.parametrize("piece", [PART_BYTES // 3 + 1, 100 * PART_BYTES])
def test_an_object_of_any_size_comes_back_as_it_was_written(files: S3FileIO, size: int, piece: int) -> None:
    content = os.urandom(size)
    with files.new_output(PLACE).create() as sink:
        for low in range(0, size, piece):
            assert sink.write(content[low : low + piece]) == len(content[low : low + piece])
    assert len(files.new_input(PLACE)) == size
    with files.new_input(PLACE).open() as source:
        assert source.read() == content
    copy = io.BytesIO()
    assert files.store.download(PLACE, copy) == size
    assert copy.getvalue() == content


def test_an_object_can_be_read_by_pieces_like_any_file(files: S3FileIO) -> None:
    table = pa.table({"a": list(range(50_000)), "b": [str(i) for i in range(50_000)]})
    with files.new_output(PLACE).create() as sink:
        pq.write_table(table, sink, row_group_size=10_000)
    with files.new_input(PLACE).open() as source:
        assert pq.read_table(source, columns=["a"])["a"].to_pylist() == list(range(50_000))
    with files.new_input(PLACE).open() as source:
        assert source.read(4) == b"PAR1"
        assert source.seek(-4, io.SEEK_END) == len(files.new_input(PLACE)) - 4
        assert (source.read(), source.read(), source.tell()) == (b"PAR1", b"", len(files.new_input(PLACE)))


@pytest.mark.parametrize("size", [10, 3 * PART_BYTES])
def test_a_writer_that_fails_or_is_dropped_makes_no_object_and_leaves_no_upload(files: S3FileIO, size: int) -> None:
    def breaks() -> None:
        with files.new_output(PLACE).create() as sink:
            sink.write(bytes(size))
            raise RuntimeError("the source broke")

    with pytest.raises(RuntimeError):
        breaks()
    dropped = files.new_output(PLACE).create()
    dropped.write(bytes(size))
    del dropped
    gc.collect()
    s3 = client("s3", str(files.properties["s3.endpoint"]))
    assert s3.list_objects_v2(Bucket=BUCKET)["KeyCount"] == 0
    assert s3.list_multipart_uploads(Bucket=BUCKET).get("Uploads", []) == []


def test_what_is_missing_or_there_already_is_said_as_pyiceberg_wants_it(files: S3FileIO) -> None:
    for fails in (lambda: len(files.new_input(PLACE)), lambda: files.new_input(PLACE).open().read()):
        with pytest.raises(FileNotFoundError, match="folder/object"):
            fails()
    assert not files.new_input(PLACE).exists()
    files.delete(PLACE)
    with files.new_output(PLACE).create() as sink:
        sink.write(b"1")
    with pytest.raises(FileExistsError):
        files.new_output(PLACE).create()
    with files.new_output(PLACE).create(overwrite=True) as sink:
        sink.write(b"22")
    files.delete(PLACE)
    assert not files.new_input(PLACE).exists()


def test_a_folder_is_listed_over_many_pages_and_spelled_as_asked(files: S3FileIO) -> None:
    s3 = client("s3", str(files.properties["s3.endpoint"]))
    for i in range(25):
        s3.put_object(Bucket=BUCKET, Key=f"folder/sub/{i:04}", Body=b"x" * (i % 3))
    s3.put_object(Bucket=BUCKET, Key="folder/", Body=b"")
    s3.put_object(Bucket=BUCKET, Key="folder2/x", Body=b"")
    events, name = files.store.client().api.meta.events, "before-parameter-build.s3.ListObjectsV2"
    small_pages = lambda params, **_: params.update(MaxKeys=10)  # noqa: E731
    events.register(name, small_pages)
    try:
        found = ObjectStore(files).files(f"s3a://{BUCKET}/folder")
    finally:
        events.unregister(name, small_pages)
    assert [f.path for f in found] == [f"s3a://{BUCKET}/folder/sub/{i:04}" for i in range(25)]
    assert [f.size_bytes for f in found] == [i % 3 for i in range(25)]


def test_the_stores_time_is_the_stores(files: S3FileIO) -> None:
    s3 = client("s3", str(files.properties["s3.endpoint"]))
    s3.put_object(Bucket=BUCKET, Key="folder/then", Body=b"")
    then = int(s3.head_object(Bucket=BUCKET, Key="folder/then")["LastModified"].timestamp() * 1000)
    assert then <= ObjectStore(files).now_ms(f"s3://{BUCKET}/folder") <= then + 60_000
    assert [f.path for f in ObjectStore(files).files(f"s3://{BUCKET}/folder")] == [f"s3://{BUCKET}/folder/then"]


def test_files_on_this_machine_are_pyarrows_as_before(tmp_path_factory: pytest.TempPathFactory) -> None:
    files, place = S3FileIO({}), (tmp_path_factory.mktemp("local") / "x").as_uri()
    with files.new_output(place).create() as sink:
        sink.write(b"abc")
    assert files.new_input(place).open().read() == b"abc"
    assert [f.size_bytes for f in ObjectStore(files).files(place.rpartition("/")[0])] == [3]
    files.delete(place)
    with pytest.raises(FileNotFoundError):
        len(files.new_input(place))


def test_properties_are_read_as_pyiceberg_reads_them_and_secrets_are_not_shown() -> None:
    found = S3Settings.of(
        {
            "s3.access-key-id": "key",
            "s3.secret-access-key": SECRET,
            "client.session-token": "a token",
            "client.region": "eu-west-1",
            "s3.endpoint": "http://minio:9000",
            "s3.connect-timeout": "2",
            "regelate.storage.connections": "8",
        }
    )
    assert (found.access_key_id, found.secret_access_key, found.session_token) == ("key", SECRET, "a token")
    assert (found.region, found.endpoint, found.connect_seconds, found.connections) == (
        "eu-west-1",
        "http://minio:9000",
        2.0,
        8,
    )
    assert SECRET not in repr(found)
    assert "a token" not in repr(found)


@pytest.mark.parametrize(
    ("properties", "path_style"),
    [
        ({}, False),
        ({"s3.endpoint": "http://minio:9000"}, True),
        ({"s3.endpoint": "http://minio:9000", "s3.force-virtual-addressing": "true"}, False),
        ({"s3.force-virtual-addressing": "false"}, True),
    ],
)
def test_a_bucket_stands_in_the_path_at_an_endpoint_of_its_own(properties: dict[str, str], path_style: bool) -> None:
    assert S3Settings.of(properties).path_style is path_style


def test_our_file_io_is_taken_unless_the_properties_ask_for_something_that_it_does_not_know() -> None:
    storage = {"regelate.storage.connections": "8"}
    assert with_storage({"s3.endpoint": "e"}, storage) == {"s3.endpoint": "e", **storage, "py-io-impl": OUR_FILE_IO}
    for other in ({"py-io-impl": "x.Y"}, {"adls.account-name": "a"}, {"s3.signer": "S3V4RestSigner"}):
        assert with_storage(other, storage) == other
