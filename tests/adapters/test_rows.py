"""Rows in, data files out: what is written is what was sent, for every reader, and a failed write leaves no file."""

from __future__ import annotations

import base64
import json
import math
import random
import struct
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.types import StringType

from regelate.adapters.iceberg.commit.native import native_data_file
from regelate.adapters.iceberg.files.ledger import RunLedger
from regelate.adapters.iceberg.files.outputs import TableOutputs
from regelate.adapters.iceberg.metadata.partitions import partition_of
from regelate.adapters.iceberg.rows import IcebergRowWriter
from regelate.adapters.iceberg.tables.schema import schema_of
from regelate.adapters.iceberg.tables.spec import spec_of
from regelate.adapters.parquet.iceberg_footer import as_iceberg_writes
from regelate.core.running.rewrite import NewDataFile, OutputTarget
from regelate.core.table.schema import Column, PartitionField
from regelate.errors import InvalidRequest, Unavailable, Unsupported
from tests.support.iceberg_tables import (
    duckdb_rows,
    live_data_files,
    live_entries,
    local_path,
    make_catalog,
    make_table,
    row_texts,
    rows,
    stored_files,
)


def typed(name: str, kind: str, *children: Column, required: bool = False) -> Column:
    return Column(name=name, type=kind, required=required, children=children)


def table_of(
    folder: Path,
    columns: Sequence[Column],
    spec: Sequence[tuple[str, str]] = (),
    properties: dict[str, str] | None = None,
    format_version: int = 2,
) -> Table:
    schema = schema_of(columns)
    fields = [PartitionField(source=source, transform=transform) for source, transform in spec]
    return make_table(make_catalog(folder), "n.t", schema, spec_of(fields, schema), properties, format_version)


def writer_of(table: Table, run_id: str | None = None) -> IcebergRowWriter:
    folder = local_path(table.location()).parent
    run = run_id or uuid.uuid4().hex
    outputs = TableOutputs(
        table.metadata, table.io, ledger_of(table, run), run_id=run, folder=folder, annotate=as_iceberg_writes
    )
    return IcebergRowWriter(table.metadata, outputs)


def ledger_of(table: Table, run: str) -> RunLedger:
    metadata_folder = local_path(table.location()).parent / "ledgers"
    return RunLedger(table.io, metadata_folder.as_uri(), table_uuid=str(table.metadata.table_uuid), run=run)


def append_files(table: Table, files: Sequence[NewDataFile]) -> None:
    """Commit by PyIceberg's own producer: it judges our records as it judges its own."""
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as producer:
        for file in files:
            producer.append_data_file(native_data_file(file))


def send(table: Table, records: Sequence[dict[str, Any]]) -> tuple[NewDataFile, ...]:
    writer = writer_of(table)
    files = writer.write(writer.encode(json.loads(json.dumps(list(records)))))
    append_files(table, files)
    return files


def at(micros: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)


def nearest_float(value: float) -> float:
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


MICROS = st.integers(-62_135_510_400_000_000, 253_402_214_399_999_999)
"""A day inside the years 0001 to 9999, so that every offset stays inside as well."""
OFFSETS = st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def floats(width: int) -> st.SearchStrategy[tuple[object, object]]:
    finite = st.floats(allow_nan=False, allow_infinity=False, width=32 if width == 32 else 64)
    stored = nearest_float if width == 32 else float
    return st.one_of(
        finite.map(lambda v: (v, stored(v))),
        st.sampled_from(["NaN", "Infinity", "-Infinity"]).map(lambda t: (t, SPECIAL[t])),
    )


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def decimals(digits: int, places: int) -> st.SearchStrategy[tuple[object, object]]:
    limit = 10**digits - 1
    return st.integers(-limit, limit).map(lambda n: Decimal(n).scaleb(-places)).map(lambda d: (f"{d:f}", d))


PAIRS: dict[str, st.SearchStrategy[tuple[object, object]]] = {
    "boolean": st.booleans().map(lambda v: (v, v)),
    "int": st.integers(-(2**31), 2**31 - 1).map(lambda v: (v, v)),
    "long": st.integers(-(2**63), 2**63 - 1).flatmap(lambda v: st.sampled_from([(v, v), (str(v), v)])),
    "float": floats(32),
    "double": floats(64),
    "decimal(9,2)": decimals(9, 2),
    "decimal(18,0)": decimals(18, 0),
    "string": st.text(max_size=20).map(lambda v: (v, v)),
    "uuid": st.uuids().map(lambda v: (str(v), v)),
    "binary": st.binary(max_size=20).map(lambda v: (b64(v), v)),
    "fixed[3]": st.binary(min_size=3, max_size=3).map(lambda v: (b64(v), v)),
    "date": st.dates().map(lambda v: (v.isoformat(), v)),
    "time": st.times().map(lambda v: v.replace(fold=0)).map(lambda v: (v.isoformat(), v)),
    "timestamp": MICROS.map(at).map(lambda v: (v.replace(tzinfo=None).isoformat(), v.replace(tzinfo=None))),
    "timestamptz": st.tuples(MICROS, OFFSETS).map(lambda p: (at(p[0]).astimezone(p[1]).isoformat(), at(p[0]))),
}
"""Per type: what is sent as JSON, and the Python value that PyIceberg's reader must give back."""


def listed(pairs: list[tuple[object, object] | None]) -> tuple[object, object]:
    return [p and p[0] for p in pairs], [p and p[1] for p in pairs]


NESTED_PAIRS: dict[str, st.SearchStrategy[tuple[object, object]]] = {
    "numbers": st.lists(st.none() | PAIRS["long"], max_size=3).map(listed),
    "point": st.tuples(PAIRS["int"], st.none() | PAIRS["string"]).map(
        lambda p: ({"x": p[0][0], "label": p[1] and p[1][0]}, {"x": p[0][1], "label": p[1] and p[1][1]})
    ),
    "by_name": st.dictionaries(st.text(max_size=3), PAIRS["uuid"], max_size=3).map(
        lambda d: ({k: v[0] for k, v in d.items()}, [(k, v[1]) for k, v in d.items()])
    ),
    "by_day": st.dictionaries(st.dates(), PAIRS["decimal(9,2)"], max_size=3).map(
        lambda d: (
            [{"key": k.isoformat(), "value": v[0]} for k, v in d.items()],
            [(k, v[1]) for k, v in d.items()],
        )
    ),
}
NESTED_COLUMNS = [
    typed("numbers", "list", typed("element", "long")),
    typed("point", "struct", typed("x", "int", required=True), typed("label", "string")),
    typed("by_name", "map", typed("key", "string"), typed("value", "uuid")),
    typed("by_day", "map", typed("key", "date"), typed("value", "decimal(9,2)")),
]
EVERY_TYPE = [*(typed(kind, kind) for kind in PAIRS), *NESTED_COLUMNS]
RECORDS = st.lists(
    st.fixed_dictionaries({}, optional={name: st.none() | pair for name, pair in {**PAIRS, **NESTED_PAIRS}.items()}),
    min_size=1,
    max_size=6,
)


def comparable(value: object) -> object:
    """Moments by instant: the name of a reader's zone object says nothing."""
    return value.astimezone(UTC).isoformat() if isinstance(value, datetime) and value.tzinfo else value


@pytest.fixture(scope="module")
def every_type_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("every-type")


@settings(max_examples=30)
@given(RECORDS, st.sampled_from([(), (("string", "bucket[2]"), ("double", "identity")), (("timestamptz", "month"),)]))
def test_what_is_sent_as_json_is_what_pyiceberg_reads(
    every_type_folder: Path, records: list[dict[str, Any]], spec: tuple[tuple[str, str], ...]
) -> None:
    table = table_of(every_type_folder / uuid.uuid4().hex, EVERY_TYPE, spec)
    send(table, [{name: pair and pair[0] for name, pair in record.items()} for record in records])
    names = [c.name for c in EVERY_TYPE]
    expected = [tuple(comparable((r.get(n) or (None, None))[1]) for n in names) for r in records]
    found = [tuple(map(comparable, row)) for row in rows(table)]
    assert row_texts(found) == row_texts(expected)


ALL_ZEROS = [0.0, -0.0, "NaN", None, 1.5, "Infinity", "-Infinity"]


@pytest.mark.parametrize("kind", ["float", "double"])
def test_nan_and_both_zeros_have_partitions_of_their_own_and_no_row_is_lost_or_doubled(
    kind: str, tmp_path: Path
) -> None:
    table = table_of(tmp_path, [typed("id", "int"), typed("x", kind)], [("x", "identity")])
    files = send(table, [{"id": i, "x": ALL_ZEROS[i % 7]} for i in range(21)])
    assert sorted(f.record_count for f in files) == [3] * 7
    assert len({f.partition for f in files}) == 7
    expected = [(i, SPECIAL.get(v, v) if isinstance(v, str) else v) for i in range(21) for v in [ALL_ZEROS[i % 7]]]
    assert row_texts(rows(table)) == row_texts(expected)
    assert row_texts(duckdb_rows(table)) == row_texts(expected)


def test_bounds_leave_nan_out(tmp_path: Path) -> None:
    table = table_of(tmp_path, [typed("x", "double"), typed("y", "double")])
    (file,) = send(table, [{"x": "NaN", "y": "NaN"}, {"x": 1.5, "y": "NaN"}, {"x": -2.5, "y": None}])
    assert file.metrics.lower_bounds == {1: struct.pack("<d", -2.5)}
    assert file.metrics.upper_bounds == {1: struct.pack("<d", 1.5)}
    assert (file.metrics.value_counts, file.metrics.null_counts) == ({1: 3, 2: 3}, {1: 0, 2: 1})


NULLS_EVERYWHERE: list[dict[str, Any]] = [
    {"id": 1, "points": None, "tree": None, "named": None},
    {"id": 2, "points": [], "tree": {"leaf": None}, "named": {}},
    {"id": 3, "points": [None, {"x": 1}], "tree": {"leaf": {"n": 1}}, "named": {"a": None, "b": {"z": 1}}},
]
TREES = [
    typed("id", "int", required=True),
    typed("points", "list", typed("element", "struct", typed("x", "int", required=True))),
    typed("tree", "struct", typed("leaf", "struct", typed("n", "int", required=True))),
    typed("named", "map", typed("key", "string"), typed("value", "struct", typed("z", "long"))),
]


def test_nulls_at_every_depth_keep_their_place(tmp_path: Path) -> None:
    """Read by DuckDB: PyIceberg's reader turns a null list or map of structs into an empty one."""
    table = table_of(tmp_path, TREES)
    send(table, NULLS_EVERYWHERE)
    as_maps = [{**r, "named": None if r["named"] is None else list(r["named"].items())} for r in NULLS_EVERYWHERE]
    assert row_texts(duckdb_rows(table)) == row_texts([tuple(r.values()) for r in as_maps])


def test_arrow_rows_of_another_program_are_written_like_records(tmp_path: Path) -> None:
    table = table_of(tmp_path, TREES)
    writer = writer_of(table)
    named = pa.map_(pa.string(), pa.struct([("z", pa.int64())]))
    columns = {name: [r[name] for r in NULLS_EVERYWHERE] for name in ("id", "points", "tree")}
    foreign = pa.table(columns).append_column(
        "named", pa.array([None if r["named"] is None else list(r["named"].items()) for r in NULLS_EVERYWHERE], named)
    )
    assert writer.coerce(foreign).equals(writer.encode(NULLS_EVERYWHERE))


ODD = ["a b", "a.b", 'quo"te', "日本", "select", "x/y", "%2e", "a_x20b", "1st", "né", "x" * 255]


def test_any_column_name_is_written_and_read_back_by_both_readers(tmp_path: Path) -> None:
    table = table_of(tmp_path, [typed(name, "string") for name in ODD], [("x/y", "identity"), ("a.b", "truncate[1]")])
    send(table, [{name: f"{name}!" for name in ODD}])
    expected = [tuple(f"{name}!" for name in ODD)]
    assert rows(table) == expected
    assert duckdb_rows(table) == expected


@pytest.mark.parametrize("value", ["../../up", "a/b", "", "null", "%2F", "é" * 400, "a b+c", "x\0y", "#?&="])
def test_a_partition_value_never_leads_out_of_the_tables_folder(value: str, tmp_path: Path) -> None:
    table = table_of(tmp_path, [typed("p", "string")], [("p", "identity")])
    (file,) = send(table, [{"p": value}])
    data = f"{table.location()}/data/"
    assert file.path.startswith(data)
    stored = Path(file.path.removeprefix("file://"))
    assert stored.is_file()
    assert stored.resolve().is_relative_to(data.removeprefix("file://"))
    assert rows(table) == [(value,)]
    assert file.partition.source_values == {"p": value}


def test_files_carry_field_ids_at_every_depth(tmp_path: Path) -> None:
    table = table_of(tmp_path, TREES)
    (file,) = send(table, NULLS_EVERYWHERE)
    found: dict[str, bytes] = {}

    def walk(field: pa.Field, path: str) -> None:
        found[path] = (field.metadata or {}).get(b"PARQUET:field_id", b"")
        kind = field.type
        children = [kind.field(i) for i in range(kind.num_fields)] if pa.types.is_nested(kind) else []
        for child in children:
            walk(child, f"{path}.{child.name}")

    for field in pq.read_schema(local_path(file.path)):
        walk(field, field.name)
    known = {table.schema().find_column_name(i): str(i).encode() for i in table.schema().field_ids}
    assert {path.replace("named.named", "named"): i for path, i in found.items() if i} == known


@pytest.mark.parametrize("format_version", [1, 2])
def test_the_manifest_says_what_the_file_holds(format_version: int, tmp_path: Path) -> None:
    columns = [typed("id", "long"), typed("at", "timestamp"), typed("u", "uuid"), typed("d", "decimal(20,2)")]
    spec = [("at", "day"), ("u", "identity"), ("d", "identity")]
    table = table_of(tmp_path, columns, spec, format_version=format_version)
    record = {"id": 7, "at": "2025-01-17T05:00:00", "u": "0f8fad5b-d9cb-469f-a165-70867728950e", "d": "1.50"}
    (file,) = send(table, [record, {**record, "id": None}])
    (stored,) = live_data_files(table)
    footer = pq.read_metadata(local_path(file.path))
    assert (stored.record_count, stored.file_size_in_bytes) == (2, local_path(file.path).stat().st_size)
    assert stored.null_value_counts[1] == 1
    assert stored.lower_bounds[1] == struct.pack("<q", 7)
    assert stored.split_offsets == [footer.row_group(0).column(0).dictionary_page_offset or 4]
    assert sum(stored.column_sizes.values()) == sum(
        footer.row_group(0).column(i).total_compressed_size for i in range(footer.num_columns)
    )
    assert stored.spec_id == table.spec().spec_id


def test_a_record_carries_the_spec_that_its_file_was_written_under(tmp_path: Path) -> None:
    table = table_of(tmp_path, [typed("id", "int")])
    with table.update_spec() as update:
        update.add_identity("id")
    writer = writer_of(table)
    (file,) = writer.write(writer.encode([{"id": 7}]))
    native = native_data_file(file)
    assert (native.spec_id, list(native.partition._data)) == (1, [7])


def test_a_partition_read_from_a_manifest_is_the_one_that_was_written(tmp_path: Path) -> None:
    kinds = [k for k in PAIRS if k != "binary"]
    table = table_of(tmp_path, [typed(k, k) for k in kinds], [(k, "identity") for k in kinds])
    texts = {"decimal(9,2)": "1.50", "decimal(18,0)": "7", "uuid": "0f8fad5b-d9cb-469f-a165-70867728950e"}
    times = {"date": "2025-01-17", "time": "05:00", "timestamp": "2025-01-17T05:00", "timestamptz": "2025-01-17T05:00Z"}
    numbers = {"boolean": True, "int": 1, "long": 2, "float": 0.1, "double": -0.0}
    samples = {**numbers, **texts, **times, "string": "x", "fixed[3]": "Zm9v"}
    assert set(samples) == set(kinds)
    written = {f.partition.key for f in send(table, [samples, {}])}
    read = {partition_of(table.spec(), table.schema(), e.data_file.partition).key for e in live_entries(table)}
    assert read == written
    assert len(read) == 2


KEY_SAMPLES: dict[str, tuple[object, object]] = {
    "boolean": (True, False),
    "int": (1, 2),
    "long": (1, "2"),
    "decimal(9,2)": ("1", "1.01"),
    "string": ("x", "X"),
    "uuid": ("0f8fad5b-d9cb-469f-a165-70867728950e", "0f8fad5b-d9cb-469f-a165-70867728950f"),
    "binary": ("Zm9v", ""),
    "fixed[3]": ("Zm9v", "Zm9w"),
    "date": ("2025-01-17", "2025-01-18"),
    "time": ("05:00", "05:01"),
    "timestamp": ("2025-01-17T05:00", "2025-01-17T05:01"),
    "timestamptz": ("2025-01-17T05:00Z", "2025-01-17T05:00+01:00"),
}


@pytest.mark.parametrize("kind", KEY_SAMPLES)
def test_a_key_of_any_plain_type_must_be_there_once_in_every_row(kind: str, tmp_path: Path) -> None:
    writer = writer_of(table_of(tmp_path, [typed("part", "int"), typed("k", kind)]))
    one, other = KEY_SAMPLES[kind]
    writer.check_key(writer.encode([{"part": 1, "k": one}, {"part": 1, "k": other}]), ["k"])
    twice = writer.encode([{"part": 1, "k": one}, {"part": 2, "k": one}])
    writer.check_key(twice, ["part", "k"])
    for key in (["k"], ["k", "k"]):
        with pytest.raises(InvalidRequest, match="DUPLICATE_KEY: row 1, column 'k'") as caught:
            writer.check_key(twice, key)
        assert str(one).lower().rstrip("z") in caught.value.details["got"].lower()
    with pytest.raises(InvalidRequest, match="NULL_IN_KEY: row 0, column 'k'"):
        writer.check_key(writer.encode([{"part": 1}]), ["part", "k"])


def test_faults_of_keys_name_the_first_rows_by_row_column_and_value(tmp_path: Path) -> None:
    writer = writer_of(table_of(tmp_path, [typed("id", "int"), typed("k", "string")]))
    rows = [{"id": n % 7, "k": "a"} for n in range(20)]
    with pytest.raises(InvalidRequest) as caught:
        writer.check_key(writer.encode(rows), ["id", "k"])
    faults = caught.value.details["faults"]
    assert [(f["row"], f["column"]) for f in faults] == [(n, "id, k") for n in range(7, 12)]
    assert faults[0]["got"] == 'number 0, string "a", as in row 0'
    holes = [{"id": None if n % 2 else n, "k": None if n == 3 else "a"} for n in range(20)]
    with pytest.raises(InvalidRequest) as caught:
        writer.check_key(writer.encode(holes), ["id", "k"])
    assert [(f["row"], f["column"]) for f in caught.value.details["faults"]] == [
        (1, "id"),
        (3, "id"),
        (3, "k"),
        (5, "id"),
        (7, "id"),
    ]


@pytest.mark.parametrize("name", ["float", "double", "numbers", "point", "by_name", "nothing"])
def test_a_key_whose_equality_is_doubtful_or_that_is_no_column_is_refused(name: str, tmp_path: Path) -> None:
    writer = writer_of(table_of(tmp_path, EVERY_TYPE))
    with pytest.raises(InvalidRequest, match="INVALID_FIELD"):
        writer.check_key(writer.encode([]), [name])


def test_a_write_of_nothing_makes_no_file(tmp_path: Path) -> None:
    table = table_of(tmp_path, [typed("id", "int")], [("id", "identity")])
    before = stored_files(table)
    writer = writer_of(table)
    assert writer.write(writer.encode([])) == ()
    assert stored_files(table) == before


def test_nothing_is_written_before_every_record_is_known_to_fit(tmp_path: Path) -> None:
    table = table_of(tmp_path, [typed("id", "int")])
    before = stored_files(table)
    with pytest.raises(InvalidRequest):
        writer_of(table).encode([{"id": 1}, {"id": "x"}])
    assert stored_files(table) == before


class FailingOutputs(TableOutputs):
    """A storage that takes some files and then fails."""

    def __init__(self, table: Table, allowed: int) -> None:
        folder = local_path(table.location()).parent
        ledger = ledger_of(table, "failing")
        super().__init__(table.metadata, table.io, ledger, run_id="failing", folder=folder, annotate=as_iceberg_writes)
        self.allowed = allowed

    def publish(self, target: OutputTarget, *, sort_order_id: int | None) -> NewDataFile:
        self.allowed -= 1
        if self.allowed < 0:
            raise OSError("AWS Error SLOW_DOWN during PutObject")
        return super().publish(target, sort_order_id=sort_order_id)


def test_a_write_that_fails_half_way_leaves_no_file(tmp_path: Path) -> None:
    table = table_of(tmp_path, [typed("id", "int")], [("id", "identity")])
    before = stored_files(table)
    writer = IcebergRowWriter(table.metadata, FailingOutputs(table, allowed=3))
    with pytest.raises(Unavailable, match="STORAGE_UNAVAILABLE"):
        writer.write(writer.encode([{"id": i} for i in range(6)]))
    assert stored_files(table) == before


def test_discard_deletes_what_was_written(tmp_path: Path) -> None:
    table = table_of(tmp_path, [typed("id", "int")])
    before = stored_files(table)
    writer = writer_of(table)
    files = writer.write(writer.encode([{"id": 1}]))
    assert stored_files(table) != before
    writer.discard([f.path for f in files])
    assert stored_files(table) == before


def test_a_large_write_ends_a_file_at_the_target_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regelate.adapters.iceberg.rows.LEAST_BATCH_BYTES", 100_000)
    target = 200_000
    table = table_of(tmp_path, [typed("raw", "binary")], (), {"write.target-file-size-bytes": str(target)})
    noise = [random.Random(i).randbytes(512) for i in range(2_000)]
    files = send(table, [{"raw": b64(data)} for data in noise])
    assert len(files) > 2
    assert all(target <= f.size_bytes <= 2 * target for f in files[:-1])
    assert rows(table) == sorted((data,) for data in noise)


def test_writers_properties_of_the_table_are_obeyed(tmp_path: Path) -> None:
    properties = {"write.parquet.compression-codec": "gzip", "write.parquet.row-group-limit": "2"}
    table = table_of(tmp_path, [typed("id", "int")], (), properties)
    (file,) = send(table, [{"id": i} for i in range(5)])
    footer = pq.read_metadata(local_path(file.path))
    assert [footer.row_group(i).num_rows for i in range(footer.num_row_groups)] == [2, 2, 1]
    assert footer.row_group(0).column(0).compression == "GZIP"


@pytest.mark.parametrize("value", ["0", "-5", "big"])
def test_a_target_that_is_no_size_is_refused_by_name(value: str, tmp_path: Path) -> None:
    table = table_of(tmp_path, [typed("id", "int")], (), {"write.target-file-size-bytes": value})
    with pytest.raises(InvalidRequest, match=r"INVALID_TABLE_PROPERTY.*write.target-file-size-bytes"):
        writer_of(table)


def changed_metadata(table: Table, change: dict[str, Any]) -> TableMetadata:
    """Return the table's metadata as another program might have written it."""
    return TableMetadataUtil.parse_raw(json.dumps({**json.loads(table.metadata.model_dump_json()), **change}))


def test_a_table_of_version_3_is_refused(tmp_path: Path) -> None:
    table = table_of(tmp_path, [typed("id", "int")])
    modern = changed_metadata(table, {"format-version": 3, "next-row-id": 0})
    with pytest.raises(Unsupported, match=r"UNSUPPORTED_TABLE.*3"):
        IcebergRowWriter(modern, FailingOutputs(table, allowed=0))


def test_a_column_of_a_type_that_we_cannot_write_is_refused_by_name(tmp_path: Path) -> None:
    table = table_of(tmp_path, [typed("id", "int")])
    fields = [{"id": 1, "name": "precise", "required": False, "type": "timestamp_ns"}]
    nano = changed_metadata(table, {"schemas": [{"type": "struct", "schema-id": 0, "fields": fields}]})
    with pytest.raises(Unsupported, match=r"timestamp_ns.*precise"):
        IcebergRowWriter(nano, FailingOutputs(table, allowed=0))


def test_a_table_whose_files_are_not_parquet_is_refused(tmp_path: Path) -> None:
    table = table_of(tmp_path, [typed("id", "int")], (), {"write.format.default": "orc"})
    with pytest.raises(Unsupported, match=r"UNSUPPORTED_TABLE.*orc"):
        writer_of(table)


def test_rows_of_another_schema_are_not_written(tmp_path: Path) -> None:
    table = table_of(tmp_path, [typed("id", "int")])
    with pytest.raises(ValueError, match="encode or coerce first"):
        writer_of(table).write(pa.table({"id": [1]}))


def test_a_column_added_meanwhile_is_known_to_a_new_writer(tmp_path: Path) -> None:
    table = table_of(tmp_path, [typed("id", "int")])
    with table.update_schema() as update:
        update.add_column("note", StringType())
    send(table, [{"id": 1, "note": "x"}])
    assert rows(table) == [(1, "x")]


def test_a_partitioned_file_lies_in_a_folder_named_after_its_partition(tmp_path: Path) -> None:
    table = table_of(tmp_path, [typed("id", "int"), typed("at", "timestamp")], [("at", "month")])
    (file,) = send(table, [{"id": 1, "at": "2013-01-05T05:00:00"}])
    assert file.path.startswith(f"{table.location()}/data/at_month=2013-01/")
    assert (file.partition.path, file.partition.values) == ("at_month=2013-01", (43 * 12,))
