"""Page checksums: every flipped byte of a page is found, no sound file is accused, and garbage ends nobody."""

from __future__ import annotations

import io
import tempfile
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regelate.adapters.duckdb.inputs import stored_columns
from regelate.adapters.parquet.damage import damaged_column
from regelate.adapters.parquet.footer import MAGIC
from regelate.adapters.parquet.thrift_reader import decode_from

LAYOUTS: dict[str, dict[str, Any]] = {
    "plain": {"use_dictionary": False, "compression": "none"},
    "dictionary, zstd": {"compression": "zstd"},
    "version 2 pages": {"data_page_version": "2.0", "compression": "snappy"},
    "many pages and row groups": {"data_page_size": 64, "write_batch_size": 8, "row_group_size": 40},
    "long statistics and an index": {"write_page_index": True, "use_dictionary": False},
}


def written(layout: str, *, with_checksums: bool = True) -> bytes:
    rows = 100
    table = pa.table(
        {
            "id": pa.array(range(rows)),
            "text": pa.array([None if i % 7 == 0 else "long text " * (i % 40) for i in range(rows)]),
            "list": pa.array([[float(i)] * (i % 3) for i in range(rows)]),
            "flag": pa.array([i % 2 == 0 for i in range(rows)]),
        }
    )
    sink = io.BytesIO()
    pq.write_table(table, sink, write_page_checksum=with_checksums, **LAYOUTS[layout])
    return sink.getvalue()


def chunks(content: bytes) -> list[tuple[int, int, str]]:
    footer = pq.read_metadata(io.BytesIO(content))
    found = []
    for group in (footer.row_group(i) for i in range(footer.num_row_groups)):
        for column in (group.column(i) for i in range(group.num_columns)):
            start = min(filter(None, (column.dictionary_page_offset, column.data_page_offset)))
            found.append((start, start + column.total_compressed_size, column.path_in_schema))
    return found


CONNECTION = duckdb.connect()


def damage(content: bytes) -> str | None:
    """Check a file as the rewrite does; a footer that nobody can read is left to the reader."""
    with tempfile.NamedTemporaryFile(suffix=".parquet") as file:
        file.write(content)
        file.flush()
        try:
            return damaged_column(io.BytesIO(content), lambda: stored_columns(CONNECTION.cursor(), file.name))
        except duckdb.Error:
            return None


@pytest.mark.parametrize("with_checksums", [True, False])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_sound_file_is_accused_of_nothing(layout: str, with_checksums: bool) -> None:
    assert damage(written(layout, with_checksums=with_checksums)) is None


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_bit_flipped_in_the_last_byte_of_any_column_chunk_is_found_in_its_column(layout: str) -> None:
    """The last byte of a chunk belongs to a page, not to a page's header."""
    content = written(layout)
    for _, end, column in chunks(content):
        damaged = bytearray(content)
        damaged[end - 1] ^= 0x10
        assert damage(bytes(damaged)) == column


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_header_that_makes_no_sense_is_damage_of_its_column(layout: str) -> None:
    """Not of the first page: it says whether the file has checksums at all."""
    content = written(layout)
    for start, _, column in chunks(content)[1:]:
        damaged = bytearray(content)
        damaged[start] = 0xFF
        assert damage(bytes(damaged)) == column


CONTENT = {layout: written(layout) for layout in LAYOUTS}


@settings(max_examples=150)
@given(layout=st.sampled_from(list(LAYOUTS)), at=st.floats(0, 1, exclude_max=True), mask=st.integers(1, 255))
def test_no_damage_ends_the_check_and_what_pyarrow_refuses_for_its_checksum_is_refused(
    layout: str, at: float, mask: int
) -> None:
    """But for the header of the very first page: damaged, it may say that the file has no checksums."""
    content = CONTENT[layout]
    place = int(at * len(content))
    damaged = bytearray(content)
    damaged[place] ^= mask
    found = damage(bytes(damaged))
    pages = chunks(content)
    if decode_from(content, len(MAGIC))[1] <= place < max(end for _, end, _ in pages):
        assert found is not None or "CRC checksum" not in fault_of_pyarrow(bytes(damaged))


def fault_of_pyarrow(content: bytes) -> str:
    try:
        pq.ParquetFile(io.BytesIO(content), page_checksum_verification=True).read()
    except (OSError, pa.ArrowException) as error:
        return str(error)
    return ""


@given(st.binary(max_size=300))
def test_garbage_is_left_to_the_reader(content: bytes) -> None:
    for text in (content, b"PAR1" + content, b"PAR1" + content + b"PAR1"):
        assert damage(text) is None
