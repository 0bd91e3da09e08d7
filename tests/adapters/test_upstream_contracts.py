"""What PyIceberg 0.12.0 and DuckDB 1.5.5 do, as far as this project stands on it: docs/traps.md, one test or more each.

A red test here means that the ground has moved: read the trap's row before changing anything else.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from aws_lambda_powertools.utilities.data_classes import APIGatewayProxyEventV2
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    DataFile,
    FileFormat,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Summary, update_snapshot_summaries
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate, update_table_metadata
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import ListType, LongType, NestedField, StringType, StructType, UUIDType
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from regelate.adapters.iceberg.metadata.manifest_schema import avro_schema
from tests.support.deletes_writer import add_equality_deletes, add_position_deletes, remove_file, truncate_file
from tests.support.iceberg_tables import (
    add_data_files,
    append,
    arrow_rows,
    changed_file,
    duckdb_rows,
    duckdb_session,
    extension_path,
    live_data_paths,
    live_delete_files,
    live_entries,
    local_path,
    make_catalog,
    make_table,
    manifest_paths,
    multiply_file,
    rows,
    stored_files,
)

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "part", StringType()))
BY_PART = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part"))
TEN = [(i, "a") for i in range(10)]
NO_WAIT = {"commit.retry.min-wait-ms": "1", "commit.retry.max-wait-ms": "1"}
TOMORROW = datetime.now(UTC) + timedelta(days=1)

DUCKDB = """
import sys, duckdb
con = duckdb.connect(config={"autoinstall_known_extensions": False, "autoload_known_extensions": False,
                             "enable_external_file_cache": False, "threads": 2})
for extension in sys.argv[1:4]:
    con.execute(f"LOAD '{extension}'")
target = sys.argv[4]
"""
"""Start of a child process that uses DuckDB alone: PyIceberg, or a bound parameter (pandas), would cost seconds."""
RESIDENT_MEMORY = """
import json, resource
def resident():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * resource.getpagesize()
con.execute("SET threads = 1")
start = resident()
con.execute(f"PREPARE bound AS SELECT * FROM iceberg_scan('{target}')")
bound = resident()
con.execute(f"COPY (SELECT * FROM iceberg_scan('{target}')) TO '/dev/null' (FORMAT parquet)")
print(json.dumps([bound - start, resident() - bound]))
"""
"""Prints by how many bytes resident memory grew in the bind, and then in a COPY."""


@pytest.fixture
def catalog(tmp_path: Path) -> SqlCatalog:
    return make_catalog(tmp_path)


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    """Ten rows in one file, then two in another."""
    made = make_table(catalog, "ns.plain", SCHEMA, properties=NO_WAIT)
    append(made, TEN)
    append(made, [(20, "b"), (30, None)])
    return made


def first_file(table: Table) -> DataFile:
    """The file that came first into the table."""
    return min(live_entries(table), key=lambda entry: entry.sequence_number or 0).data_file


def run_python(code: str, *arguments: str, home: Path | None = None) -> subprocess.CompletedProcess[str]:
    home_is = {"HOME": str(home)} if home else {}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **home_is})


def run_duckdb(code: str, target: str, home: Path | None = None) -> subprocess.CompletedProcess[str]:
    extensions = [str(extension_path(name)) for name in ("avro", "httpfs", "iceberg")]
    return run_python(DUCKDB + code, *extensions, target, home=home)


def write_view(table: Table, folder: Path) -> str:
    """Write metadata, manifest list and manifest under fixed names into `folder`, for the table's live data files."""
    folder.mkdir(parents=True, exist_ok=True)
    head = table.current_snapshot()
    assert head is not None
    manifest_at, list_at = (folder / "m0.avro").as_uri(), (folder / "snap.avro").as_uri()
    with write_manifest(
        2, table.spec(), table.schema(), table.io.new_output(manifest_at), head.snapshot_id, "null"
    ) as manifest:
        for entry in live_entries(table):
            manifest.existing(entry)
    with write_manifest_list(
        2, table.io.new_output(list_at), head.snapshot_id, None, head.sequence_number, "null"
    ) as manifest_list:
        manifest_list.add_manifests([manifest.to_manifest_file()])
    metadata = json.loads(local_path(table.metadata_location).read_text())
    metadata["snapshots"] = [{**s, "manifest-list": list_at} for s in metadata["snapshots"][-1:]]
    (folder / "v1.metadata.json").write_text(json.dumps(metadata))
    return (folder / "v1.metadata.json").as_uri()


def swap_file(table: Table, old: DataFile, new_rows: pa.Table) -> None:
    """Replace one data file through PyIceberg's overwrite producer, as a compaction on PyIceberg alone would."""
    with table.transaction() as transaction, transaction.update_snapshot().overwrite() as producer:
        producer.delete_data_file(old)
        for file in _dataframe_to_data_files(table.metadata, new_rows, table.io, producer.commit_uuid):
            producer.append_data_file(file)


class LosesReply(SqlCatalog):
    """A catalog whose commits land, and whose answer is a conflict: a lost response that was sent again."""

    def commit_table(self, *arguments: Any, **named: Any) -> Any:
        super().commit_table(*arguments, **named)
        raise CommitFailedException("the branch has moved")


class NeverCommits(SqlCatalog):
    def commit_table(self, *arguments: Any, **named: Any) -> Any:
        raise CommitFailedException("the branch has moved")


def snapshot_isolated(table: Table) -> Table:
    """A second handle, which stays at this snapshot; the default isolation would refuse any append (trap T10)."""
    with table.transaction() as transaction:
        transaction.set_properties({"write.delete.isolation-level": "snapshot"})
    return table.catalog.load_table(table.name())


def through(kind: type[SqlCatalog], table: Table, retries: int = 0) -> Table:
    """The same table through another catalog client."""
    with table.transaction() as transaction:
        transaction.set_properties({"commit.retry.num-retries": str(retries)})
    return kind("default", **table.catalog.properties).load_table(table.name())


def test_t01_duckdb_loads_iceberg_from_the_wheels_with_an_empty_home(table: Table, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    read = """print(con.execute(f"SELECT count(*) FROM iceberg_scan('{target}')").fetchone()[0])"""
    assert run_duckdb(read, table.metadata_location, home=home).stdout.strip() == "12"
    assert list(home.iterdir()) == []


def test_t01_duckdb_has_no_iceberg_of_its_own(tmp_path: Path) -> None:
    code = "import duckdb; duckdb.connect(config={'autoinstall_known_extensions': False}).execute('LOAD iceberg')"
    asked = run_python(code, home=tmp_path)
    assert asked.returncode == 1
    assert 'Install it first using "INSTALL iceberg"' in asked.stderr


def test_t01_the_extension_wheels_have_exactly_duckdbs_version() -> None:
    names = ("duckdb", "duckdb-extension-avro", "duckdb-extension-httpfs", "duckdb-extension-iceberg")
    assert {importlib.metadata.version(name) for name in names} == {"1.5.5"}
    assert extension_path("iceberg").parent.name == f"v{duckdb.__version__}"


def test_t02_duckdb_applies_an_equality_delete_of_one_partition_to_all(catalog: SqlCatalog) -> None:
    table = make_table(catalog, "ns.parts", SCHEMA, BY_PART)
    append(table, [(1, "x"), (2, "x"), (1, "y"), (2, "y")])
    add_equality_deletes(table, ["id"], [(1,)], partition={"part": "x"})
    right = [(1, "y"), (2, "x"), (2, "y")]
    assert duckdb_rows(table) == [(2, "x"), (2, "y")] != right


def test_t03_a_filename_filter_still_opens_every_file(table: Table) -> None:
    wanted, other = live_data_paths(table)
    query = "SELECT count(*) FROM iceberg_scan(?) WHERE filename IN (?)"
    with duckdb_session() as connection:
        counted = connection.execute(query, [table.metadata_location, wanted]).fetchone()
        assert counted in {(10,), (2,)}
        remove_file(other)
        with pytest.raises(duckdb.IOException, match="Cannot open file"):
            connection.execute(query, [table.metadata_location, wanted])


@pytest.mark.parametrize("damage", ["missing", "truncated"])
def test_t04_a_bad_manifest_aborts_the_whole_process(table: Table, damage: str) -> None:
    manifest = manifest_paths(table)[0]
    if damage == "missing":
        remove_file(manifest)
    else:
        truncate_file(manifest, 200)
    code = """
import resource
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
try:
    con.execute(f"SELECT * FROM iceberg_scan('{target}')")
except BaseException:
    print("survived")
"""
    ended = run_duckdb(code, table.metadata_location)
    assert (ended.returncode, ended.stdout) == (-signal.SIGABRT, "")


def test_t05_inspect_files_raises_on_a_uuid_column(catalog: SqlCatalog) -> None:
    table = make_table(catalog, "ns.uuids", Schema(NestedField(1, "id", UUIDType())))
    append(table, [(b"0123456789abcdef",)])
    with pytest.raises(pa.ArrowNotImplementedError):
        table.inspect.files()


def test_t05_plan_files_raises_on_equality_deletes_and_returns_everything_at_once(table: Table) -> None:
    assert isinstance(table.scan().plan_files(), list)
    add_equality_deletes(table, ["id"], [(1,)])
    with pytest.raises(ValueError, match="does not yet support equality deletes"):
        table.scan().plan_files()


def test_t06_a_concurrent_delete_of_an_input_is_refused(table: Table) -> None:
    planned = snapshot_isolated(table)
    add_position_deletes(table, {first_file(table).file_path: [4]})
    with pytest.raises(ValidationException, match="found new delete for replace data file"):
        swap_file(planned, first_file(planned), arrow_rows(planned, TEN))


def test_t06_one_append_after_it_and_the_deleted_row_is_back(table: Table) -> None:
    planned = snapshot_isolated(table)
    add_position_deletes(table, {first_file(table).file_path: [4]})
    append(table, [(99, "new")])
    assert (4, "a") not in duckdb_rows(table)
    swap_file(planned, first_file(planned), arrow_rows(planned, TEN))
    assert (4, "a") in rows(table.refresh())
    assert (4, "a") in duckdb_rows(table)


def test_t07_a_lost_reply_on_the_last_attempt_destroys_the_live_snapshot(table: Table) -> None:
    writer = through(LosesReply, table)
    with pytest.raises(CommitFailedException):
        writer.append(arrow_rows(writer, [(99, "landed")]))
    after = table.refresh().current_snapshot()
    assert after is not None
    assert after.summary is not None
    assert after.summary["total-records"] == "13"
    assert not local_path(after.manifest_list).exists()
    with pytest.raises(FileNotFoundError):
        rows(table)


def test_t07_a_lost_reply_on_an_earlier_attempt_is_recognised(table: Table) -> None:
    writer = through(LosesReply, table, retries=1)
    writer.append(arrow_rows(writer, [(99, "landed")]))
    assert [row[0] for row in rows(table.refresh())].count(99) == 1


def test_t08_expiry_deletes_no_file(table: Table) -> None:
    table.overwrite(arrow_rows(table, [(1, "only")]))
    before = stored_files(table)
    table.maintenance.expire_snapshots().older_than(TOMORROW).commit()
    assert len(table.snapshots()) == 1
    assert stored_files(table) > before


def test_t08_expiry_ignores_the_number_of_snapshots_to_keep(table: Table) -> None:
    with table.transaction() as transaction:
        transaction.set_properties({"history.expire.min-snapshots-to-keep": "2"})
    with table.manage_snapshots() as change:
        change.create_branch(table.snapshots()[1].snapshot_id, "kept", min_snapshots_to_keep=2)
    table.maintenance.expire_snapshots().older_than(TOMORROW).commit()
    assert len(table.snapshots()) == 1


def test_t08_expiry_drops_a_tag_made_meanwhile(table: Table) -> None:
    stale = table.catalog.load_table(table.name())
    with table.manage_snapshots() as change:
        change.create_tag(table.snapshots()[0].snapshot_id, "audit")
    stale.maintenance.expire_snapshots().older_than(TOMORROW).commit()
    assert set(table.refresh().refs()) == {"main"}
    assert len(table.snapshots()) == 1


def test_t08_expiry_after_a_concurrent_rollback_removes_main(table: Table) -> None:
    stale = table.catalog.load_table(table.name())
    with table.manage_snapshots() as change:
        change.rollback_to_snapshot(table.snapshots()[0].snapshot_id)
    assert len(rows(table)) == 10
    stale.maintenance.expire_snapshots().older_than(TOMORROW).commit()
    assert table.refresh().refs() == {}
    assert rows(table) == []


def test_t10_any_concurrent_append_fails_an_overwrite(table: Table) -> None:
    stale = table.catalog.load_table(table.name())
    append(table, [(99, "new")])
    with pytest.raises(ValidationException, match="Added data files were found"):
        stale.overwrite(arrow_rows(stale, [(1, "only")]))


def test_t10_an_overwrite_makes_two_snapshots(table: Table) -> None:
    before = {snapshot.snapshot_id for snapshot in table.snapshots()}
    table.overwrite(arrow_rows(table, [(1, "only")]))
    added = [s.summary.operation for s in table.snapshots() if s.snapshot_id not in before and s.summary]
    assert added == [Operation.DELETE, Operation.APPEND]


def test_t11_the_summary_code_refuses_replace() -> None:
    with pytest.raises(ValueError, match=r"Operation not implemented: Operation\.REPLACE"):
        update_snapshot_summaries(Summary(Operation.REPLACE))


def test_t11_there_is_no_format_v3_manifest_writer(table: Table, tmp_path: Path) -> None:
    output = table.io.new_output((tmp_path / "m.avro").as_uri())
    with pytest.raises(ValueError, match="Cannot write manifest for table version: 3"):
        write_manifest(3, table.spec(), table.schema(), output, 1, "null")


def test_t11_a_rewritten_file_gets_the_new_sequence_number(table: Table) -> None:
    swap_file(table, first_file(table), arrow_rows(table, TEN))
    assert sorted(entry.sequence_number or 0 for entry in live_entries(table)) == [2, 3]


def test_t11_a_failed_commit_leaves_its_data_files_behind(table: Table) -> None:
    writer = through(NeverCommits, table)
    before = stored_files(table)
    with pytest.raises(CommitFailedException):
        writer.append(arrow_rows(writer, [(99, "lost")]))
    (left,) = stored_files(table) - before
    assert left.startswith("data/")


def test_t12_duckdb_hands_out_timestamptz_as_python_objects_only_with_pytz() -> None:
    code = """
import sys
sys.modules["pytz"] = None
import duckdb
found = duckdb.sql("SELECT TIMESTAMPTZ '2020-01-01 00:00:00+00' AS at")
print(found.to_arrow_table().num_rows)
found.fetchall()
"""
    asked = run_python(code)
    assert (asked.stdout.strip(), asked.returncode) == ("1", 1)
    assert "Required module 'pytz' failed to import" in asked.stderr


def test_t13_memory_grows_with_every_file_at_bind_and_more_in_a_copy(catalog: SqlCatalog) -> None:
    columns, few, many = 50, 20, 220
    schema = Schema(*(NestedField(i + 1, f"c{i}", LongType()) for i in range(columns)))
    grown = []
    for count in (few, many):
        table = make_table(catalog, f"ns.files_{count}", schema)
        (path,) = append(table, [tuple(range(columns)) for _ in range(100)])
        multiply_file(table, path, count - 1)
        grown.append(json.loads(run_duckdb(RESIDENT_MEMORY, table.metadata_location).stdout.splitlines()[-1]))
    at_bind, in_copy = ((after - before) / (many - few) for before, after in zip(*grown, strict=True))
    assert 10_000 < at_bind < 120_000
    assert 50_000 < in_copy < 1_000_000


def test_t15_a_locked_sandbox_still_lets_copy_overwrite_an_allowed_file(tmp_path: Path) -> None:
    allowed, other = tmp_path / "allowed.parquet", tmp_path / "other.parquet"
    for path in (allowed, other):
        pq.write_table(pa.table({"id": [1, 2, 3]}), path)
    with duckdb.connect() as connection:
        connection.execute(f"SET allowed_paths = ['{allowed}']")
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        with pytest.raises(duckdb.PermissionException):
            connection.execute("SELECT * FROM read_parquet(?)", [str(other)])
        connection.execute(f"COPY (SELECT 0 AS id) TO '{allowed}' (FORMAT parquet, USE_TMP_FILE false)")
    assert pq.read_table(allowed).to_pylist() == [{"id": 0}]


def test_t15_statements_parse_as_other_kinds_than_they_look() -> None:
    kind = duckdb.StatementType
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t (a INTEGER, b INTEGER)")

        def kinds(sql: str) -> list[duckdb.StatementType]:
            return [statement.type for statement in connection.extract_statements(sql)]

        assert kinds("PRAGMA threads = 2") == [kind.SET]
        assert kinds("PRAGMA enable_object_cache") == [kind.PRAGMA]
        assert kinds("PRAGMA table_info('t')") == [kind.SELECT]
        assert kinds("PIVOT t ON a USING sum(b)") == [kind.CREATE, kind.SELECT]
        assert kinds("WITH x AS (SELECT 1) FROM x") == kinds("DESCRIBE t") == kinds("VALUES (1)") == [kind.SELECT]
        assert kinds("SELECT 1; SELECT 2") == [kind.SELECT, kind.SELECT]
        assert kinds("COPY t TO 'x'") == [kind.COPY]


def test_t15_parsing_alone_opens_the_files_of_an_import_unless_the_guard_is_closed_too(tmp_path: Path) -> None:
    statement = f"IMPORT DATABASE '{tmp_path}'"
    with duckdb.connect() as connection:
        with pytest.raises(duckdb.IOException, match=r"Cannot open file .*schema\.sql"):
            connection.extract_statements(statement)
        connection.execute("SET enable_external_access = false")
        with pytest.raises(duckdb.PermissionException, match=r"Cannot access file .*schema\.sql"):
            connection.extract_statements(statement)


@pytest.mark.parametrize(("cached", "second"), [(True, 12), (False, 1)])
def test_t17_a_view_written_again_at_one_path_is_read_from_the_file_cache(
    table: Table, catalog: SqlCatalog, tmp_path: Path, cached: bool, second: int
) -> None:
    other = make_table(catalog, "ns.other", SCHEMA)
    append(other, [(1, "other")])
    found = []
    with duckdb_session(enable_external_file_cache=cached) as connection:
        for source in (table, other):
            view = write_view(source, tmp_path / "view")
            found += connection.execute("SELECT count(*) FROM iceberg_scan(?)", [view]).fetchall()
    assert found == [(12,), (second,)]


def test_t18_v1_metadata_has_no_last_sequence_number_and_its_files_have_zero(catalog: SqlCatalog) -> None:
    append(make_table(catalog, "ns.v1", SCHEMA, format_version=1), [(1, "a")])
    table = catalog.load_table("ns.v1")
    with pytest.raises(AttributeError, match="last_sequence_number"):
        table.last_sequence_number  # noqa: B018
    assert [entry.sequence_number for entry in live_entries(table)] == [0]


def test_t18_a_global_equality_delete_applies_to_files_of_every_spec(catalog: SqlCatalog) -> None:
    table = make_table(catalog, "ns.evolved", SCHEMA)
    append(table, [(1, "x"), (2, "x")])
    with table.update_spec() as change:
        change.add_identity("part")
    append(table, [(1, "x"), (2, "x"), (1, "y"), (2, "y")])
    add_equality_deletes(table, ["id"], [(1,)])
    assert [f.spec_id for f in live_delete_files(table)] == [0]
    assert duckdb_rows(table) == [(2, "x"), (2, "x"), (2, "y")]


@pytest.mark.parametrize("file_format", [FileFormat.ORC, FileFormat.AVRO])
def test_t18_duckdb_refuses_orc_and_avro_data_files(table: Table, catalog: SqlCatalog, file_format: FileFormat) -> None:
    strange = make_table(catalog, "ns.strange", SCHEMA)
    add_data_files(strange, [changed_file(first_file(table), file_format=file_format)])
    with pytest.raises(duckdb.NotImplementedException, match=f"File format '{file_format.value}' not supported"):
        duckdb_rows(strange)


@pytest.mark.parametrize(("scheme", "left"), [("file://", 7), ("", 10)])
def test_t19_a_position_delete_needs_the_exact_path_string(
    table: Table, catalog: SqlCatalog, scheme: str, left: int
) -> None:
    file = first_file(table)
    view = make_table(catalog, "ns.view", SCHEMA)
    add_data_files(view, [changed_file(file, file_path=f"{scheme}{local_path(file.file_path)}")])
    add_position_deletes(view, {file.file_path: [1, 2, 3]})
    assert len(duckdb_rows(view)) == left


def test_t20_copy_with_file_size_bytes_loses_the_order(tmp_path: Path) -> None:
    with duckdb.connect(config={"threads": 4}) as connection:
        connection.execute("CREATE TABLE s AS SELECT hash(i) AS k, hash(i)::VARCHAR AS v FROM range(300000) t(i)")
        order = "COPY (SELECT * FROM s ORDER BY k) TO '{}' (FORMAT parquet, ROW_GROUP_SIZE 20000{})"
        connection.execute(order.format(tmp_path / "one.parquet", ""))
        assert not out_of_order(tmp_path / "one.parquet")
        # Threads race for the files, so one COPY may by luck be in order; ten in a row never were.
        for attempt in range(10):
            connection.execute(order.format(tmp_path / str(attempt), ", FILE_SIZE_BYTES 1000000"))
            if any(out_of_order(path) for path in (tmp_path / str(attempt)).glob("*.parquet")):
                return
    pytest.fail("every file of ten COPYs with FILE_SIZE_BYTES was in order")


def out_of_order(path: Path) -> bool:
    keys = pq.read_table(path, columns=["k"])["k"].to_numpy()
    return bool((keys[1:] < keys[:-1]).any())


def test_t21_powertools_idempotency_needs_boto3_at_import() -> None:
    code = "import sys; sys.modules['boto3'] = None; import aws_lambda_powertools.utilities.idempotency"
    asked = run_python(code)
    assert asked.returncode == 1
    assert "import of boto3 halted" in asked.stderr


def test_t21_powertools_json_body_accepts_nan_and_keeps_the_last_duplicate() -> None:
    event = APIGatewayProxyEventV2({"body": '{"a": 1, "a": NaN, "b": Infinity}', "isBase64Encoded": False})
    body = event.json_body
    assert body["a"] != body["a"]
    assert body["b"] == float("inf")
    assert json.loads('{"a": 1, "a": 2}') == {"a": 2}


def test_t30_metadata_whose_time_a_commit_does_not_move_gets_the_clocks_though_the_clock_is_behind(
    catalog: SqlCatalog,
) -> None:
    """Our answer: every snapshot is at least a millisecond younger than the metadata that it is made on."""
    table = make_table(catalog, "ns.clock", Schema(NestedField(1, "id", LongType())))
    append(table, [(1,)])
    ahead = table.metadata.last_updated_ms + 3_600_000
    base = table.metadata.model_copy(update={"last_updated_ms": ahead})
    parent = base.snapshots[-1]
    for later, expected in ((0, False), (1, True)):
        snapshot = parent.model_copy(
            update={
                "snapshot_id": base.new_snapshot_id(),
                "parent_snapshot_id": parent.snapshot_id,
                "sequence_number": 2,
                "timestamp_ms": ahead + later,
            }
        )
        moved = SetSnapshotRefUpdate(ref_name="main", type=SnapshotRefType.BRANCH, snapshot_id=snapshot.snapshot_id)
        made = update_table_metadata(base, (AddSnapshotUpdate(snapshot=snapshot), moved))
        assert (made.last_updated_ms >= made.snapshot_log[-1].timestamp_ms) == expected


def test_t33_the_manifest_schema_has_equality_ids_as_longs() -> None:
    kind = next(f for f in DATA_FILE_TYPE[2].fields if f.name == "equality_ids").field_type
    assert isinstance(kind, ListType)
    assert isinstance(kind.element_type, LongType)


TWO_UUIDS = StructType(NestedField(1000, "a", UUIDType()), NestedField(1001, "x²", UUIDType()))


def test_t33_a_type_of_two_partition_fields_is_defined_twice_and_odd_letters_stay() -> None:
    avro = json.dumps(AvroSchemaConversion().iceberg_to_avro(Schema(*TWO_UUIDS.fields)), ensure_ascii=False)
    assert avro.count('{"type": "fixed", "size": 16, "logicalType": "uuid", "name": "uuid_fixed"}') == 2
    assert '"name": "x²"' in avro


def test_t33_a_type_that_is_named_the_second_time_cannot_be_read() -> None:
    """Our answer: we write it again under another name, which both read, and read Java's by what it names."""
    avro = avro_schema(Schema(*TWO_UUIDS.fields), "r")
    assert AvroSchemaConversion().avro_to_iceberg(avro).fields[1].field_type == UUIDType()
    avro["fields"][1]["type"] = ["null", "uuid_fixed"]
    with pytest.raises(TypeError, match="uuid_fixed"):
        AvroSchemaConversion().avro_to_iceberg(avro)
