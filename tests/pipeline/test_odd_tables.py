"""Row 33 of the fault catalogue on Spark: what this Spark cannot maintain is refused by its reason, and untouched."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from regelate.core.policy.table_properties import kind_of
from regelate.errors import DataUnavailable, InvalidRequest, RegelateError, Unsupported
from regelate.pipeline.maintain import Job, maintain
from regelate.pipeline.names import TableName
from regelate.pipeline.options import Rewrite
from regelate.pipeline.result import exit_code
from regelate.pipeline.spark_errors import error_of, error_of_opening
from regelate.pipeline.tables import SparkTable
from regelate.pipeline.terminal import Terminal
from tests.support.iceberg_tables import local_path
from tests.support.lake import Lake
from tests.system.faults.stack import Edit, edit_metadata
from tests.system.faults.test_odd_tables import version, with_transform

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def with_column(kind: str) -> Edit:
    column = {"id": 99, "name": "odd", "required": False, "type": kind}
    return lambda m: (m["schemas"][0]["fields"].append(column), m.update({"last-column-id": 99}))


FOREIGN: dict[str, tuple[Edit, str]] = {
    "v4": (version(4), "format version 4"),
    "a type that Spark has not": (version(3, with_column("variant")), "variant"),
    "a transform of the future": (with_transform(**{"source-id": 1, "transform": "wibble[8]"}), "wibble[8]"),
    "encryption": (lambda m: m["properties"].update({"encryption.key-id": "k"}), "encryption.key-id"),
}
ICEBERG = "org.apache.iceberg.exceptions"
TOLD: dict[str, tuple[list[tuple[str, str]], type[RegelateError]]] = {
    "a type of the future": (
        [("java.lang.IllegalArgumentException", "Cannot parse type string to primitive: quaternion")],
        Unsupported,
    ),
    "a version of the future": (
        [("java.lang.IllegalArgumentException", "Cannot read unsupported version 9")],
        Unsupported,
    ),
    "no version": ([("java.lang.IllegalArgumentException", "Cannot parse to an integer value")], DataUnavailable),
    "no file": ([(f"{ICEBERG}.NotFoundException", "File does not exist: x.metadata.json")], DataUnavailable),
    "half a file": (
        [(f"{ICEBERG}.RuntimeIOException", "Failed to read file: x"), ("x.core.JsonEOFException", "Unexpected end")],
        DataUnavailable,
    ),
}


def maintained(spark: SparkSession, name: TableName) -> object:
    return maintain(
        SparkTable(spark, name), Job(rewrite=Rewrite(options={"rewrite-all": "true"})), Terminal(quiet=True)
    )


def edited(lake: Lake, name: TableName, change: Edit) -> Path:
    """Change the table's metadata file, with the checksum that Hadoop keeps beside it; return the warehouse."""
    table = lake.other_client().load_table((*name.namespace, name.table))
    edit_metadata(table, change)
    path = local_path(table.metadata_location)
    path.with_name(f".{path.name}.crc").unlink()
    return lake.folder / "warehouse"


@pytest.mark.spark
@pytest.mark.parametrize("kind", FOREIGN)
def test_row_33_a_table_that_is_not_for_this_spark_is_refused_by_its_reason_and_untouched(
    spark: SparkSession, lake: Lake, name: TableName, make_events: Callable[..., None], kind: str
) -> None:
    make_events(name, rounds=2)
    change, word = FOREIGN[kind]
    warehouse = edited(lake, name, change)
    before = sorted(warehouse.rglob("*"))
    with pytest.raises(Unsupported, match="UNSUPPORTED_TABLE") as refused:
        maintained(spark, name)
    assert word in refused.value.message
    assert exit_code(refused.value) == 1
    assert sorted(warehouse.rglob("*")) == before


@pytest.mark.parametrize("what", TOLD)
def test_rows_27_and_33_metadata_that_cannot_be_read_is_not_taken_for_a_wrong_option(what: str) -> None:
    """By what Iceberg says: it tries to read such a file twenty times over, a minute and more."""
    chain, kind = TOLD[what]
    assert type(error_of(chain, "local.ns.t", None, loading=True)) is kind


def test_without_icebergs_jars_no_later_try_is_promised() -> None:
    plugin = ("org.apache.spark.SparkException", "Cannot find catalog plugin class for catalog 'local'")
    missing = error_of_opening([plugin, ("java.lang.ClassNotFoundException", "x.SparkCatalog")], "local.ns.t")
    assert (missing.code, missing.retryable) == ("SPARK_UNAVAILABLE", False)
    assert "spark.jars=/usr/share/aws/iceberg" in missing.message
    no_bundle = "Missing org.apache.iceberg.aws.s3.S3FileIO [java.lang.NoClassDefFoundError: software/amazon/awssdk]"
    bundle = error_of_opening([("java.lang.IllegalArgumentException", no_bundle)], "local.ns.t")
    assert (bundle.code, bundle.retryable) == ("SPARK_UNAVAILABLE", False)
    assert "--catalog-property io-impl=" in bundle.message
    away = error_of_opening([plugin, ("java.net.ConnectException", "Connection refused")], "local.ns.t")
    assert (away.code, away.retryable) == ("CATALOG_UNAVAILABLE", True)


def test_a_filter_is_refused_by_what_is_wrong_with_it_and_not_by_sparks_plan() -> None:
    said = "[UNRESOLVED_COLUMN] `odd` cannot be resolved.; line 1 pos 0;\n'Filter ('odd = 1)\n+- DummyRelation [id#0]"
    refused = error_of([("org.apache.spark.sql.AnalysisException", said)], "local.ns.t", "odd = 1", loading=False)
    assert refused.code == "INVALID_FIELD"
    assert "`odd` cannot be resolved" in refused.message
    assert "DummyRelation" not in refused.message


@pytest.mark.spark
@pytest.mark.parametrize(
    ("property_name", "value"),
    [
        ("write.parquet.page-row-limit", "-5"),
        ("write.parquet.row-group-size-bytes", "abc"),
        ("read.split.target-size", "0"),
        ("schema.name-mapping.default", "nothing"),
    ],
)
def test_a_property_that_spark_set_badly_is_named_before_a_rewrite_and_nothing_is_begun(
    property_name: str,
    value: str,
    name: TableName,
    make_events: Callable[..., None],
    spark: SparkSession,
    lake: Lake,
) -> None:
    make_events(name, rounds=2)
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('{property_name}' = '{value}')")
    table = lake.other_client().load_table((*name.namespace, name.table))
    assert table.properties[property_name] == value
    before = table.metadata_location
    with pytest.raises(InvalidRequest, match=f"INVALID_TABLE_PROPERTY.*{property_name}"):
        maintained(spark, name)
    assert table.refresh().metadata_location == before
    spark.sql(f"ALTER TABLE {name} UNSET TBLPROPERTIES ('{property_name}')")
    maintained(spark, name)


@pytest.mark.spark
def test_every_property_of_icebergs_own_has_its_kind(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    found = loader.loadClass("org.apache.iceberg.TableProperties").getFields()
    texts = {str(field.get(None)) for field in found if field.getType().getSimpleName() == "String"}
    names = {text for text in texts if text.count(".") > 1 and " " not in text} | {"gc.enabled"}
    assert len(names) > 80
    assert {
        name for name in names if kind_of(name.removesuffix(".") + (".x" if name.endswith(".") else "")) is None
    } <= {
        "write.location-provider.impl",
        "write.orc.bloom.filter.columns",
        "write.delete.orc.bloom.filter.columns",
    }
