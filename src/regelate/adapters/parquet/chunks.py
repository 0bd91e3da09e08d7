"""Column chunks of other writers: where one lies, and what of its metadata goes into another file.

What a footer says of a chunk is taken field by field: readers trust it, and some end the process on nonsense (trap T31:
a garbled footer ends the process).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

from regelate.adapters.parquet.annotations import BOOLEAN, BYTE_ARRAY, DOUBLE, FIXED, FLOAT, INT32, INT64
from regelate.adapters.parquet.footer import MAGIC, META_DATA
from regelate.adapters.parquet.thrift import BINARY, I32, I64, LIST, STRUCT, TRUE, Items, Malformed, Struct
from regelate.core.values import dataclass

CHUNK_OFFSET = 2
"""Fields of a ColumnChunk (parquet.thrift); and of its metadata:"""
KIND, ENCODINGS, PATH, CODEC, VALUES, UNCOMPRESSED, COMPRESSED = range(1, 8)
KEY_VALUES, DATA_PAGE, INDEX_PAGE, DICTIONARY_PAGE, STATISTICS, ENCODING_STATS = 8, 9, 10, 11, 12, 13
BLOOM_FILTER, BLOOM_LENGTH = 14, 15
_KNOWN_META = frozenset(range(1, 18))
_PLACES_OF_INDEXES = frozenset(range(4, 8))
"""Page indexes of a ColumnChunk, which are left out."""
OLD_MAX, OLD_MIN, NULLS, DISTINCT, MAX, MIN, MAX_EXACT, MIN_EXACT = range(1, 9)
"""Fields of Statistics."""
_ENCODINGS = frozenset((0, *range(2, 11)))
CODECS = {0: "uncompressed", 1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd", 7: "lz4"}
"""By the names of Iceberg's properties. LZO (3) and the LZ4 of Hadoop (5) are not read everywhere."""
_WIDTHS = {BOOLEAN: 1, INT32: 4, INT64: 8, FLOAT: 4, DOUBLE: 8}
_NUMBERS = {INT32: "<i", INT64: "<q", FLOAT: "<f", DOUBLE: "<d"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """A column as the schema of a file has it; `length` of a FIXED, `repeated` where it lies in a list or a map."""

    kind: int
    length: int
    path: tuple[bytes, ...]
    repeated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Where the pages of one column of one row group lie, and what they are. `first_data`: of its data pages."""

    start: int
    size: int
    first_data: int
    values: int
    uncompressed: int
    codec: str
    encodings: frozenset[int]
    meta: Struct


def chunk_of(found: Struct, leaf: Leaf, rows: int, end: int, *, ordered: bool, own: bool) -> Chunk:
    """Read one ColumnChunk of a file whose footer begins at `end`. Errors: Malformed for nonsense and for doubts.

    `ordered`: the file says that its statistics are in the order of the types. `own`: we wrote it, and bloom filters
    come along.
    """
    meta = found.struct(META_DATA)
    unknown = found.keys() - {CHUNK_OFFSET, META_DATA, *_PLACES_OF_INDEXES}
    if meta is None or unknown:
        raise Malformed("a column lies in another file, or is encrypted")
    if meta.keys() - _KNOWN_META or meta.whole(INDEX_PAGE):
        raise Malformed("a column has metadata that nobody here knows")
    path = meta.get(PATH, (0, None))[1]
    if meta.whole(KIND) != leaf.kind or path != Items(BINARY, list(leaf.path)):
        raise Malformed("a row group's columns are not those of the schema")
    number = meta.whole(CODEC)
    if number is None or number not in CODECS:
        raise Malformed(f"codec {number} is not read everywhere")
    values, size = meta.whole(VALUES) or 0, meta.whole(COMPRESSED) or 0
    data, dictionary = meta.whole(DATA_PAGE) or 0, meta.whole(DICTIONARY_PAGE) or 0
    start = dictionary or data
    if start < len(MAGIC) or size <= 0 or start + size > end or not start <= data < start + size:
        raise Malformed(f"a column chunk at byte {start} does not lie within its file")
    if values < rows or (values != rows and not leaf.repeated):
        raise Malformed(f"a column has {values} values in {rows} rows")
    uncompressed = meta.whole(UNCOMPRESSED) or 0
    if uncompressed <= 0:
        raise Malformed("a column has no bytes")
    encodings = _encodings(meta)
    kept = Struct({
        KIND: (I32, leaf.kind),
        ENCODINGS: (LIST, Items(I32, list(encodings))),
        PATH: (LIST, Items(BINARY, list(leaf.path))),
        CODEC: (I32, number),
        VALUES: (I64, values),
        UNCOMPRESSED: (I64, uncompressed),
        COMPRESSED: (I64, size),
        DATA_PAGE: (I64, data),
    })  # fmt: skip
    if dictionary:
        kept[DICTIONARY_PAGE] = (I64, dictionary)
    statistics = _statistics(meta.struct(STATISTICS), leaf, values, ordered=ordered)
    if statistics:
        kept[STATISTICS] = (STRUCT, statistics)
    pages = _encoding_stats(meta)
    if pages:
        kept[ENCODING_STATS] = (LIST, Items(STRUCT, list(pages)))
    if own and meta.whole(BLOOM_FILTER):
        kept |= {number: meta[number] for number in (BLOOM_FILTER, BLOOM_LENGTH) if number in meta}
    return Chunk(
        start=start,
        size=size,
        first_data=data,
        values=values,
        uncompressed=uncompressed,
        codec=CODECS[number],
        encodings=frozenset(encodings),
        meta=kept,
    )


def placed(chunk: Chunk, at: int, path: Sequence[bytes]) -> Struct:
    """Return the ColumnChunk of a chunk that lies at another place, in a file that has another name for its column."""
    meta = Struct(chunk.meta)
    meta[PATH] = (LIST, Items(BINARY, list(path)))
    for number in (DATA_PAGE, DICTIONARY_PAGE, BLOOM_FILTER):
        if number in meta:
            meta[number] = (I64, (meta.whole(number) or 0) + at - chunk.start)
    return Struct({CHUNK_OFFSET: (I64, 0), META_DATA: (STRUCT, meta)})


def _encodings(meta: Struct) -> list[int]:
    found = meta.get(ENCODINGS, (0, None))[1]
    if not isinstance(found, Items) or found.kind != I32 or not found.values:
        raise Malformed("a column does not say how it is encoded")
    known = [number for number in found.values if isinstance(number, int) and number in _ENCODINGS]
    if len(known) != len(found.values):
        raise Malformed("a column has an encoding that nobody here knows")
    return known


def _encoding_stats(meta: Struct) -> list[Struct]:
    """Return how many pages there are of each kind; readers look there whether a chunk has a dictionary throughout."""
    found: list[Struct] = []
    for one in meta.structs(ENCODING_STATS):
        page, encoding, count = one.whole(1), one.whole(2), one.whole(3)
        if page not in (0, 2, 3) or encoding is None or encoding not in _ENCODINGS or not count or count < 0:
            raise Malformed("a column counts pages that nobody here knows")
        found.append(Struct({1: (I32, page), 2: (I32, encoding), 3: (I32, count)}))
    return found


def _statistics(found: Struct | None, leaf: Leaf, values: int, *, ordered: bool) -> Struct:
    """Return of a chunk's statistics what is sure: nulls, and bounds that are in the order of the type."""
    kept = Struct()
    if found is None:
        return kept
    nulls = found.whole(NULLS)
    if nulls is not None and not 0 <= nulls <= values:
        raise Malformed(f"a column has {nulls} nulls in {values} values")
    if nulls is not None:
        kept[NULLS] = (I64, nulls)
    high, low = found.binary(MAX), found.binary(MIN)
    if not ordered or high is None or low is None or not _in_order(leaf, low, high):
        return kept
    kept[MAX], kept[MIN] = (BINARY, high), (BINARY, low)
    for number in (MAX_EXACT, MIN_EXACT):
        if isinstance(said := found.get(number, (0, None))[1], bool):
            kept[number] = (TRUE, said)
    return kept


def _in_order(leaf: Leaf, low: bytes, high: bytes) -> bool:
    """Say whether these can be bounds of a column: of its width, no NaN, and the low one not above the high one."""
    width = leaf.length if leaf.kind == FIXED else _WIDTHS.get(leaf.kind)
    if width is not None and not len(low) == len(high) == width:
        return False
    if leaf.kind == BYTE_ARRAY:
        return low <= high
    if leaf.kind not in _NUMBERS:
        return leaf.kind == FIXED or low <= high
    (least,), (most,) = struct.unpack(_NUMBERS[leaf.kind], low), struct.unpack(_NUMBERS[leaf.kind], high)
    return not math.isnan(least) and not math.isnan(most) and least <= most
