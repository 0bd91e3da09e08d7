"""Files -> rows: JSON as records, JSON lines batch by batch; CSV and Parquet as one Arrow table."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, overload

from regelate.core.jobs.exit_codes import FAILED
from regelate.entrypoints.aws.body import parse_body
from regelate.entrypoints.cli.failures import Failed, usage
from regelate.errors import InvalidRequest

STANDARD_INPUT = "-"
FORMATS: Mapping[str, str] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".parquet": "parquet",
}
_MAX_NESTING = 64


class Lines(Sequence[Mapping[str, Any]]):
    """Records of one WRITE, one to a line, each read when it is asked for: as text they take a fifth of the memory.

    `read_bytes`: how far into the file it reaches. Errors when a record is read: InvalidRequest, with the line.
    """

    def __init__(self, name: str) -> None:
        self.read_bytes = 0
        self._name = name
        self._text = bytearray()
        self._ends = array("Q")
        self._numbers = array("Q")

    def add(self, line: bytes, number: int) -> int:
        """Take one more line, which has this number in its file; return the bytes of all."""
        self._text += line
        self._ends.append(len(self._text))
        self._numbers.append(number)
        return len(self._text)

    def __len__(self) -> int:
        return len(self._ends)

    @overload
    def __getitem__(self, index: int) -> Mapping[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> list[Mapping[str, Any]]: ...
    def __getitem__(self, index: int | slice) -> Mapping[str, Any] | list[Mapping[str, Any]]:
        asked = range(len(self))[index]
        return self._record(asked) if isinstance(asked, int) else [self._record(each) for each in asked]

    def _record(self, index: int) -> Mapping[str, Any]:
        line = bytes(self._text[self._ends[index - 1] if index else 0 : self._ends[index]])
        try:
            return parse_body(line, max_bytes=len(line), max_nesting=_MAX_NESTING)
        except InvalidRequest as fault:
            what, number = fault.message.replace("the body", "it"), self._numbers[index]
            raise InvalidRequest(fault.code, f"{self._name} line {number}: {what}", line=number) from None


def format_of(file: str, given: str | None) -> str:
    """Return jsonl, json, csv or parquet. Raises Failed for a name that says none of them."""
    if given is not None:
        return given
    found = "jsonl" if file == STANDARD_INPUT else FORMATS.get(Path(file).suffix.lower())
    if found is None:
        raise usage("FILE", f"the name {file!r} does not say what it holds", "add --format jsonl, json, csv or parquet")
    return found


@contextmanager
def opened(file: str) -> Iterator[IO[bytes]]:
    """Open a file, or standard input for `-`. Raises Failed."""
    if file == STANDARD_INPUT:
        yield sys.stdin.buffer
        return
    try:
        source = Path(file).open("rb")  # noqa: SIM115  closed below; faults of reading are not faults of opening
    except OSError as fault:
        raise usage("FILE", f"cannot read {file!r}: {fault.strerror}", "check the path and its permissions") from None
    with source:
        yield source


def size_of(file: str) -> int | None:
    """Return the bytes of a file, None where nobody can know."""
    return None if file == STANDARD_INPUT else Path(file).stat().st_size


def json_lines(source: IO[bytes], name: str, most_bytes: int) -> Iterator[Lines]:
    """Yield batches of lines that hold a record each, cut where one reaches `most_bytes`; empty lines are skipped."""
    lines, read_bytes = Lines(name), 0
    for number, line in enumerate(source, start=1):
        read_bytes += len(line)
        if line.isspace():
            continue
        held, lines.read_bytes = lines.add(line, number), read_bytes
        if held >= most_bytes:
            yield lines
            lines = Lines(name)
    if lines:
        yield lines


def json_array(source: IO[bytes], name: str) -> list[Mapping[str, Any]]:
    """Return the records of a file that holds one array of objects, or one object. Raises Failed."""
    data = source.read()
    try:
        if data.lstrip()[:1] == b"{":
            return [parse_body(data, max_bytes=len(data), max_nesting=_MAX_NESTING)]
        wrapped = parse_body(b'{"rows":' + data + b"}", max_bytes=len(data) + 16, max_nesting=_MAX_NESTING + 1)
    except InvalidRequest as fault:
        message = fault.message.replace("the body", "it")
        raise Failed(
            f"{fault.code}: {name}: {message}", "it must hold one array of objects; JSON lines end in .jsonl", FAILED
        ) from None
    rows = wrapped["rows"]
    if not isinstance(rows, list) or len(wrapped) != 1:
        raise Failed(f"{name} is no array of objects", "write [{...}, {...}], or JSON lines into a .jsonl file", FAILED)
    return rows


def parquet_table(source: IO[bytes], name: str) -> Any:
    """Return a Parquet file as an Arrow table. Raises Failed."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(pa.BufferReader(source.read())).read()
    except (pa.ArrowException, OSError) as fault:
        raise Failed(f"{name} cannot be read as Parquet: {_first_line(fault)}", "check the file", FAILED) from None


def csv_table(source: IO[bytes], name: str, fields: Mapping[str, Mapping[str, Any]], nulls: Sequence[str]) -> Any:
    """Return a CSV file as an Arrow table by the types of a table's `fields` (DESCRIBE_TABLE), so that 007 stays text.

    Where a value does not fit its type every column stays text: the row writer then names row and column.
    """
    import pyarrow as pa

    data = source.read()
    try:
        try:
            return _read_csv(data, _arrow_types(fields), nulls)
        except pa.ArrowInvalid:
            return _read_csv(data, {}, nulls)
    except (pa.ArrowException, UnicodeDecodeError) as fault:
        raise Failed(f"{name} cannot be read as CSV: {_first_line(fault)}", "check the file", FAILED) from None


def _read_csv(data: bytes, types: Mapping[str, Any], nulls: Sequence[str]) -> Any:
    import pyarrow as pa
    import pyarrow.csv as pv

    parse = pv.ParseOptions(newlines_in_values=True)
    names = pv.open_csv(pa.BufferReader(data), parse_options=parse).schema.names
    convert = pv.ConvertOptions(
        column_types={name: types.get(name, pa.string()) for name in names},
        null_values=list(nulls),
        true_values=["true", "True", "TRUE"],
        false_values=["false", "False", "FALSE"],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    return pv.read_csv(pa.BufferReader(data), parse_options=parse, convert_options=convert)


def _arrow_types(fields: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the types that Arrow reads as exactly as the row writer; it turns 1e400 into infinity, so no float."""
    import pyarrow as pa

    known = {
        "boolean": pa.bool_(),
        "int": pa.int32(),
        "long": pa.int64(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us"),
        "timestamptz": pa.timestamp("us", "UTC"),
    }
    return {name: known[field["type"]] for name, field in fields.items() if field["type"] in known}


def _first_line(fault: Exception) -> str:
    return (str(fault).splitlines() or [type(fault).__name__])[0][:300]
