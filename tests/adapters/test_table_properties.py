"""Properties of tables that other engines set: what they cannot do to us, and how they are put right."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.schema import Schema
from pyiceberg.table import TableProperties
from pyiceberg.table.update import SetPropertiesUpdate
from pyiceberg.types import LongType, NestedField

from regelate.adapters.iceberg.catalogs import Catalogs, open_table
from regelate.adapters.iceberg.tables.properties import gc_enabled
from regelate.core.policy.table_properties import KINDS, LEVELS, kind_of
from regelate.operations.compacting.compact import CompactionTools
from tests.servers.rest_stub import rest_stub
from tests.support.iceberg_tables import live_data_paths, local_path, make_catalog, make_table
from tests.system.faults.stack import Edit, Stack, assert_nothing_left_behind, edit_metadata, request

SCHEMA = Schema(NestedField(1, "id", LongType()))
MAPPING = "schema.name-mapping.default"
OURS = "http://ours.example"
PAGES = ("page-row-limit", "page-size-bytes", "dict-size-bytes", "row-group-limit")
REDIRECTIONS = {
    "s3.endpoint": "http://evil.example",
    "s3.access-key-id": "x",
    "s3.proxy-uri": "http://evil.example",
    "py-io-impl": "antigravity.Nothing",
    "warehouse": "s3://evil",
    "uri": "http://evil.example",
    "token": "x",
    "regelate.storage.connections": "0",
    "buffer-size": "many",
}


@pytest.mark.parametrize("value", ["true", "True", "TRUE"])
def test_a_table_that_says_true_lets_its_files_be_deleted(value: str) -> None:
    assert gc_enabled({"gc.enabled": value})


def test_a_table_that_says_nothing_lets_its_files_be_deleted() -> None:
    assert gc_enabled({})


@pytest.mark.parametrize("value", ["false", "FALSE", "no", "0", "", "flase"])
def test_any_other_value_keeps_every_file_as_in_java(value: str) -> None:
    assert not gc_enabled({"gc.enabled": value})


def test_every_property_that_pyiceberg_reads_has_its_kind() -> None:
    constants = {name: value for name, value in vars(TableProperties).items() if name.isupper()}
    names = {
        v
        for n, v in constants.items()
        if isinstance(v, str) and not n.endswith("DEFAULT") and ("." in v or "format" in v)
    }
    assert len(names) > 30
    families = {constants["PARQUET_BLOOM_FILTER_COLUMN_ENABLED_PREFIX"], constants["METRICS_MODE_COLUMN_CONF_PREFIX"]}
    assert {name for name in names - families if name not in KINDS} == set()
    assert all(kind_of(f"{prefix}.x") for prefix in families)


@pytest.mark.parametrize("codec", LEVELS)
def test_levels_are_those_of_pyarrow(codec: str) -> None:
    found = (pa.Codec.minimum_compression_level(codec), pa.Codec.maximum_compression_level(codec))
    assert found == LEVELS[codec]


@pytest.mark.parametrize("rows", ["-5", "0"])
def test_t51_a_page_of_no_rows_ends_or_hangs_the_process(rows: str) -> None:
    code = (
        "import pyarrow as pa, pyarrow.parquet as pq, sys, faulthandler\n"
        "faulthandler.dump_traceback_later(5, exit=True)\n"
        "with pq.ParquetWriter(sys.argv[1], pa.schema({'a': 'int64'}), write_batch_size=int(sys.argv[2])) as w:\n"
        "    w.write_table(pa.table({'a': [1, 2]}))\n"
    )
    done = subprocess.run([sys.executable, "-c", code, "/dev/null", rows], capture_output=True, check=False)
    assert done.returncode != 0


def test_t52_pyiceberg_opens_storage_by_the_properties_of_a_table(tmp_path: Path) -> None:
    catalog = make_catalog(tmp_path)
    edit_metadata(make_table(catalog, "n.t", SCHEMA), with_properties({"s3.endpoint": "http://evil.example"}))
    assert catalog.load_table("n.t").io.properties["s3.endpoint"] == "http://evil.example"


def with_properties(properties: dict[str, str]) -> Edit:
    return lambda document: document["properties"].update(properties)


@pytest.fixture(params=["sql", "rest"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Catalog]:
    """A catalog as the service opens it; its table `n.t` says where our storage should be."""
    plain = make_catalog(tmp_path)
    edit_metadata(make_table(plain, "n.t", SCHEMA), with_properties(REDIRECTIONS))
    kept = {"type": "sql", "uri": plain.properties["uri"], "warehouse": plain.properties["warehouse"]}
    own = Catalogs().open("default", {**kept, "s3.endpoint": OURS})
    if request.param == "sql":
        yield own
        return
    with rest_stub(own) as stub:  # type: ignore[arg-type]  # it loads tables and commits, as any catalog does
        stub.config = {"s3.session-token": "vended"}
        yield Catalogs().open("rest", {"type": "rest", "uri": stub.uri, "s3.endpoint": OURS})


def test_storage_is_opened_by_the_catalog_whatever_a_table_says(opened: Catalog) -> None:
    table = open_table(opened, "n.t")
    assert {name: table.properties[name] for name in REDIRECTIONS} == REDIRECTIONS
    assert {name: value for name, value in table.io.properties.items() if REDIRECTIONS.get(name) == value} == {}
    assert table.io.properties["s3.endpoint"] == OURS
    assert type(table.io).__name__ in ("S3FileIO", "PyArrowFileIO")
    if isinstance(opened, RestCatalog):
        assert table.io.properties["s3.session-token"] == "vended"


def test_a_commit_opens_storage_by_the_catalog_too(opened: Catalog) -> None:
    table = open_table(opened, "n.t")
    table._do_commit((SetPropertiesUpdate(updates={"a": "b"}),), ())
    again = open_table(opened, "n.t")
    assert again.properties == {**table.properties, "a": "b"}
    assert again.io.properties["s3.endpoint"] == OURS


@pytest.fixture
def stack(tmp_path: Path) -> Stack:
    """A table `t` of two files with a row each."""
    made = Stack(tmp_path)
    made.create("t", {"id": "long", "v": "string"})
    for number in (1, 2):
        made.ok("WRITE", "t", records=[{"id": number, "v": "a"}])
    return made


OPERATIONS: dict[str, dict[str, object]] = {
    "WRITE": {"records": [{"id": 3, "v": "b"}]},
    "COMPACT": {"force": True},
    "QUERY": {},
    "EXPIRE_SNAPSHOTS": {},
    "TABLE_HEALTH": {},
    "REWRITE_MANIFESTS": {},
    "DESCRIBE_TABLE": {},
}
COMMITS = ("WRITE", "COMPACT", "EXPIRE_SNAPSHOTS", "REWRITE_MANIFESTS")
REFUSED: list[tuple[str, str, tuple[str, ...]]] = [
    *((f"write.parquet.{name}", value, ("WRITE",)) for name in PAGES for value in ("-5", "0", "abc", str(2**70))),
    ("write.parquet.compression-level", "99", ("WRITE",)),
    ("write.parquet.compression-level", str(10**12), ("WRITE",)),
    ("write.parquet.compression-codec", "lzo", ("WRITE", "COMPACT", "TABLE_HEALTH")),
    ("write.target-file-size-bytes", "0", ("WRITE", "COMPACT", "TABLE_HEALTH")),
    ("write.target-file-size-bytes", "1", ("COMPACT", "TABLE_HEALTH")),
    ("write.target-file-size-bytes", str(2**62), ("WRITE", "COMPACT", "TABLE_HEALTH")),
    ("write.format.default", "csv", ("WRITE",)),
    ("write.object-storage.enabled", "maybe", COMMITS),
    ("write.object-storage.partitioned-paths", "2", COMMITS),
    ("write.data.path", "nowhere", COMMITS),
    ("write.metadata.path", "nowhere", COMMITS),
    ("write.py-location-provider.impl", "antigravity.Nothing", COMMITS),
    ("write.metadata.previous-versions-max", "abc", COMMITS),
    ("commit.manifest.target-size-bytes", "abc", COMMITS),
    ("commit.manifest.min-count-to-merge", "abc", COMMITS),
    ("metadata_location", "s3://evil/00001.metadata.json", COMMITS),
    ("history.expire.max-snapshot-age-ms", "-1", ("EXPIRE_SNAPSHOTS", "COMPACT")),
    ("history.expire.min-snapshots-to-keep", "abc", ("EXPIRE_SNAPSHOTS", "COMPACT")),
    ("regelate.expiry.grace-hours", "soon", ("EXPIRE_SNAPSHOTS", "COMPACT")),
    ("regelate.compaction.min-input-files", "zero", ("COMPACT", "TABLE_HEALTH")),
    ("regelate.compaction.colour", "red", ("COMPACT", "TABLE_HEALTH")),
    *((MAPPING, mapping, ("QUERY", "COMPACT")) for mapping in ("nothing", "{}", "[" * 1_000)),
]
TAKEN: list[tuple[str, str]] = [
    *((f"write.parquet.{name}", "1") for name in PAGES),
    ("write.parquet.dict-size-bytes", str(2**31 - 1)),
    ("write.target-file-size-bytes", "2"),
    ("write.parquet.compression-codec", "UNCOMPRESSED"),
    ("write.parquet.bloom-filter-enabled.column.id", "maybe"),
    ("write.metadata.metrics.default", "truncate(-1)"),
    ("write.metadata.metrics.column.v", "half"),
    ("write.metadata.previous-versions-max", "-3"),
    ("write.metadata.delete-after-commit.enabled", "maybe"),
    ("commit.manifest-merge.enabled", "maybe"),
    ("commit.retry.num-retries", str(10**12)),
    ("commit.retry.max-wait-ms", "-1"),
    ("write.delete.mode", "sometimes"),
    ("read.split.target-size", "0"),
    ("write.summary.partition-limit", "abc"),
    ("write.avro.compression-codec", "rar"),
    ("gc.enabled", "maybe"),
    *REDIRECTIONS.items(),
]
MAY_BE_SET = {
    *((f"write.parquet.{name}", "1") for name in PAGES),
    ("write.parquet.dict-size-bytes", str(2**31 - 1)),
    ("write.target-file-size-bytes", "2"),
    ("write.parquet.compression-codec", "UNCOMPRESSED"),
}
REFUSALS = ((400, "INVALID_OPTION"), (400, "INVALID_RETENTION"), (400, "INVALID_LOCATION"))


def set_by_another_engine(stack: Stack, name: str, value: str) -> None:
    edit_metadata(stack.table("default.t"), with_properties({name: value}))


@pytest.mark.parametrize(("name", "value", "by"), REFUSED, ids=lambda found: str(found)[:40])
def test_what_another_engine_set_badly_is_refused_by_its_name_and_put_right_with_alter_table(
    name: str, value: str, by: tuple[str, ...], stack: Stack
) -> None:
    set_by_another_engine(stack, name, value)
    for operation, fields in OPERATIONS.items():
        if operation in by:
            with stack.untouched():
                error = stack.refused(422, "INVALID_TABLE_PROPERTY", ["ALTER_TABLE"], request(operation, "t", **fields))
            assert error["details"]["option"].startswith(name) or name in error["message"]
        elif operation not in COMMITS:
            stack.ok(operation, "t", **fields)
    stack.ok("ALTER_TABLE", "t", unset_properties=[name])
    for operation, fields in OPERATIONS.items():
        stack.ok(operation, "t", **fields)
    assert len(stack.rows("t")) == 3


@pytest.mark.parametrize(("name", "value"), TAKEN, ids=lambda found: str(found)[:40])
def test_what_is_odd_and_no_harm_is_worked_with(name: str, value: str, stack: Stack) -> None:
    set_by_another_engine(stack, name, value)
    for operation, fields in OPERATIONS.items():
        if (name, operation) != ("gc.enabled", "EXPIRE_SNAPSHOTS"):  # what does not say true keeps every file
            stack.ok(operation, "t", **fields)
    assert len(stack.rows("t")) == 3


@pytest.mark.parametrize(
    ("name", "value"), [*((n, v) for n, v, _ in REFUSED), *TAKEN], ids=lambda found: str(found)[:40]
)
def test_what_nobody_should_set_is_refused_where_it_is_set(name: str, value: str, stack: Stack) -> None:
    if (name, value) in MAY_BE_SET:
        stack.ok("ALTER_TABLE", "t", set_properties={name: value})
        return
    with stack.untouched():
        columns = {"fields": {"id": {"type": "long"}}}
        for body in (
            request("ALTER_TABLE", "t", set_properties={name: value}),
            request("CREATE_TABLE", "new", schema=columns, properties={name: value}),
        ):
            status, answer = stack.post(body)
            assert (status, answer["error"]["code"]) in REFUSALS, answer
            assert name in answer["error"]["message"]


LEAST = "regelate.compaction.min-file-size-bytes"
TARGET = "write.target-file-size-bytes"


def test_a_change_is_judged_by_the_table_that_results(stack: Stack) -> None:
    stack.ok("ALTER_TABLE", "t", set_properties={TARGET: "1000000"})
    with stack.untouched():
        above = request("ALTER_TABLE", "t", set_properties={LEAST: "2000000"})
        stack.refused(400, "INVALID_OPTION", [LEAST, TARGET], above)
    stack.ok("ALTER_TABLE", "t", set_properties={TARGET: "3000000000"})
    stack.ok("ALTER_TABLE", "t", set_properties={LEAST: "2000000000"})
    for change in ({"set_properties": {TARGET: "1000000"}}, {"unset_properties": [TARGET]}):
        with stack.untouched():
            stack.refused(400, "INVALID_OPTION", [LEAST], request("ALTER_TABLE", "t", **change))
    stack.ok("ALTER_TABLE", "t", unset_properties=[TARGET, LEAST])


def test_a_clash_of_others_keeps_nobody_from_changing_what_has_no_part_in_it(stack: Stack) -> None:
    edit_metadata(stack.table("default.t"), with_properties({TARGET: "1000000", LEAST: "2000000"}))
    stack.ok("ALTER_TABLE", "t", set_properties={"owner": "us"}, unset_properties=["comment"])
    with stack.untouched():
        stack.refused(400, "INVALID_OPTION", [LEAST], request("ALTER_TABLE", "t", set_properties={LEAST: "3000000"}))
    stack.ok("ALTER_TABLE", "t", set_properties={LEAST: "500000"})


def test_a_property_that_changes_under_a_run_is_refused_before_its_commit_and_nothing_stays(tmp_path: Path) -> None:
    def spoil(tools: CompactionTools) -> CompactionTools:
        stack.table("default.t").transaction().set_properties({spoilt: "abc"}).commit_transaction()
        return tools

    spoilt = "commit.manifest.target-size-bytes"
    stack = Stack(tmp_path, change=spoil)
    stack.create("t", {"id": "long"})
    for number in (1, 2):
        stack.ok("WRITE", "t", records=[{"id": number}])
    stack.refused(422, "INVALID_TABLE_PROPERTY", [spoilt], request("COMPACT", "t", force=True))
    assert_nothing_left_behind(stack.table("default.t"))


def test_small_pages_and_groups_are_bounded(tmp_path: Path, stack: Stack) -> None:
    small = {"write.parquet.row-group-limit": "1", "write.parquet.page-row-limit": "1"}
    stack.create("s", {"id": "long"}, properties=small)
    stack.ok("WRITE", "s", records=[{"id": i} for i in range(5_000)])
    (path,) = live_data_paths(stack.table("default.s"))
    assert pq.read_metadata(local_path(path)).num_row_groups <= 1_001
