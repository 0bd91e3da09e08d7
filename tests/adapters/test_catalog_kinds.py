"""The table of catalog kinds against what PyIceberg has."""

from __future__ import annotations

from importlib import import_module

import pytest
from pyiceberg.catalog import Catalog, CatalogType
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.catalog.noop import NoopCatalog

from regelate.adapters.iceberg.catalogs import commits_of
from regelate.core.catalogs import CATALOGS, KIND_IN_SPARK, OPENED_HERE, CatalogKind, Commits


def test_every_kind_that_config_json_names_is_one_of_pyicebergs() -> None:
    assert {kind.value for kind in OPENED_HERE} <= {kind.value for kind in CatalogType}


def test_no_two_kinds_have_one_name_in_spark() -> None:
    assert set(KIND_IN_SPARK.values()) == set(CatalogKind)


def test_every_kind_whose_uri_spark_is_told_requires_one() -> None:
    told = {kind for kind, row in CATALOGS.items() if row.spark.uri is not None}
    assert told == {kind for kind, row in CATALOGS.items() if "uri" in row.required}


@pytest.mark.parametrize(
    ("module", "name", "commits"),
    [
        ("sql", "SqlCatalog", Commits.TRANSACTION),
        ("rest", "RestCatalog", Commits.SERVER),
        ("glue", "GlueCatalog", Commits.REQUEST),
    ],
)
def test_a_commit_is_checked_by_whom_the_table_says(module: str, name: str, commits: Commits) -> None:
    made: type[Catalog] = getattr(import_module(f"pyiceberg.catalog.{module}"), name)
    derived = type("Derived", (made,), {})
    for kind in (made, derived):
        assert commits_of(kind.__new__(kind)) is commits


def test_a_kind_without_a_row_checks_in_this_process_and_may_be_sent_again() -> None:
    assert commits_of(NoopCatalog("noop")) is Commits.REQUEST
    assert commits_of(InMemoryCatalog("memory")) is Commits.TRANSACTION, "it is PyIceberg's SQL catalog on SQLite"
