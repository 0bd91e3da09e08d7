"""The column statistics of a manifest entry, kept as the bytes in which the manifest holds them.

Decoded, the maps of one entry of 200 columns take about 50 KB (trap T50: statistics unpacked in memory); as Avro has
them, 6. Most entries are only counted, or written again as they are: then nothing is decoded at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyiceberg.avro.decoder import BinaryDecoder, new_decoder
from pyiceberg.avro.encoder import BinaryEncoder
from pyiceberg.avro.reader import BinaryReader, IntegerReader, MapReader, OptionReader, Reader, StructReader
from pyiceberg.avro.writer import MapWriter, OptionWriter, StructWriter, Writer

OBJECT_BYTES = 88
"""What a packed map takes besides its bytes: itself and the header of a bytes object, rounded up as malloc does."""


class PackedMap(Mapping[int, Any]):
    """A map by field id as Avro encodes it. Every look decodes anew: take `unpacked` to look twice."""

    __slots__ = ("_holds_bytes", "raw")

    def __init__(self, raw: bytes, holds_bytes: bool) -> None:
        self.raw = raw
        self._holds_bytes = holds_bytes

    def unpacked(self) -> dict[int, Any]:
        decoder = new_decoder(self.raw)
        found: dict[int, Any] = {}
        for count in _blocks(decoder):
            if self._holds_bytes:
                decoder.read_int_bytes_dict(count, found)
            else:
                numbers = decoder.read_ints(count * 2)
                signed = numbers if max(numbers) < 2**63 else [n - 2**64 if n >= 2**63 else n for n in numbers]
                found.update(zip(signed[::2], signed[1::2], strict=True))
        return found

    def __getitem__(self, key: int) -> Any:
        return self.unpacked()[key]

    def __iter__(self) -> Iterator[int]:
        return iter(self.unpacked())

    def __len__(self) -> int:
        return len(self.unpacked())

    def __repr__(self) -> str:
        return repr(self.unpacked())


def unpacked(found: Mapping[int, Any] | None) -> dict[int, Any]:
    """Return a map of an entry as a dict, empty where there is none."""
    if isinstance(found, PackedMap):
        return found.unpacked()
    return dict(found) if found else {}


def _blocks(decoder: BinaryDecoder) -> Iterator[int]:
    """Yield the number of pairs of each block; a negative one is followed by the block's length."""
    count = decoder.read_int()
    while count != 0:
        if count < 0:
            decoder.skip_int()
        yield abs(count)
        count = decoder.read_int()


class _Span(Reader):
    """Reads where in its block a map lies, for `cut`: a reader never sees the block itself."""

    def __init__(self, *, holds_bytes: bool, optional: bool) -> None:
        self._holds_bytes = holds_bytes
        self._optional = optional

    def read(self, decoder: BinaryDecoder) -> tuple[int, int, bool] | None:
        if self._optional and decoder.read_int() == 0:
            return None
        start = decoder.tell()
        count = decoder.read_int()
        while count != 0:
            if count < 0:
                count = -count
                decoder.skip_int()
            if self._holds_bytes:
                decoder.read_int_bytes_dict(count, {})
            else:
                decoder.read_ints(count + count)
            count = decoder.read_int()
        return start, decoder.tell(), self._holds_bytes

    def skip(self, decoder: BinaryDecoder) -> None:
        self.read(decoder)


def cut(values: list[Any], block: bytes) -> None:
    """Put packed maps in the place of spans, in the values of a record that was just read from a block."""
    for position, value in enumerate(values):
        if type(value) is tuple:
            values[position] = PackedMap(block[value[0] : value[1]], value[2])


class _Struct(Reader):
    """Reads a record as PyIceberg's own reader does, but gives it its values at once, which is faster."""

    def __init__(self, reader: StructReader) -> None:
        self._create = reader.create_struct
        found = [(position, spanning(field)) for position, field in reader.field_readers]
        self._readers = tuple((p, field.skip if p is None else field.read) for p, field in found)
        self._width = 1 + max((p for p, _ in found if p is not None), default=-1)

    def read(self, decoder: BinaryDecoder) -> Any:
        values: list[Any] = [None] * self._width
        for position, read in self._readers:
            if position is None:
                read(decoder)
            else:
                values[position] = read(decoder)
        return self._create(*values)

    def skip(self, decoder: BinaryDecoder) -> None:
        self.read(decoder)


def spanning(reader: Reader) -> Reader:
    """Return a reader of the same records that leaves spans in the place of maps by field id."""
    inner = reader.option if isinstance(reader, OptionReader) else reader
    if isinstance(reader, StructReader):
        return _Struct(reader)
    if not isinstance(inner, MapReader) or not isinstance(inner.key, IntegerReader):
        return reader
    if not isinstance(inner.value, BinaryReader | IntegerReader):
        return reader
    return _Span(holds_bytes=isinstance(inner.value, BinaryReader), optional=inner is not reader)


@dataclass(frozen=True)
class _CopyingMapWriter(MapWriter):
    """Writes a packed map by its bytes: whole numbers of every width, and texts and bytes, are encoded alike."""

    def write(self, encoder: BinaryEncoder, val: Mapping[int, Any]) -> None:
        if isinstance(val, PackedMap):
            encoder.write(val.raw)
        else:
            super().write(encoder, dict(val))


def copying(writer: Writer) -> Writer:
    """Return a writer of the same records that copies packed maps."""
    if isinstance(writer, OptionWriter):
        return OptionWriter(copying(writer.option))
    if isinstance(writer, StructWriter):
        return StructWriter(tuple((position, copying(field)) for position, field in writer.field_writers))
    if isinstance(writer, MapWriter) and not isinstance(writer.value_writer, OptionWriter):
        return _CopyingMapWriter(writer.key_writer, writer.value_writer)
    return writer
