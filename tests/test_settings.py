"""config.json: what ships, which file and environment is chosen, what is refused and how it is said."""

from __future__ import annotations

import copy
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from regelate.core.policy.options import (
    AUTO_OPTIONS,
    AUTO_PROPERTY,
    CHECK_OPTIONS,
    ICEBERG_OPTIONS,
    TABLE_OPTIONS,
    CheckPolicy,
    CompactionDefaults,
    RetentionDefaults,
    resolve_policy,
)
from regelate.core.policy.policy import MB, PlacementPolicy
from regelate.core.requests import CompactRequest
from regelate.errors import NotFound
from regelate.settings import LimitSettings, Settings, SettingsError, load_settings
from regelate.settings.load import _merged
from regelate.settings.machine import available_memory_bytes, available_processors
from regelate.settings.models import Configuration

ROOT = Path(__file__).parents[1]
SHIPPED = json.loads((ROOT / "config.json").read_text(encoding="utf-8"))
SECRET = "swordfish"
LOCAL = {"type": "sql", "uri": "sqlite:///catalog.db", "warehouse": "/warehouse"}

TEMPLATE = "catalogs.local.namespace_template"

Load = Callable[..., Settings]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Load a document as config.json; `defaults` alone stands in for a whole document."""

    def loaded(
        document: Mapping[str, Any] | None = None, environ: Mapping[str, str] | None = None, **defaults: Any
    ) -> Settings:
        path = tmp_path / "chosen.json"
        plain = {"auth": "none", "tenants": "*", "catalogs": {"local": LOCAL}}
        path.write_text(json.dumps({"defaults": {**plain, **defaults}} if document is None else document))
        return load_settings({"REGELATE_CONFIG": str(path), **(environ or {})})

    return loaded


def refused(load: Load, *arguments: Any, **defaults: Any) -> SettingsError:
    with pytest.raises(SettingsError) as caught:
        load(*arguments, **defaults)
    assert caught.value.code == "INVALID_CONFIG"
    assert "\n" not in caught.value.message
    return caught.value


# What ships


@pytest.mark.parametrize("environment", ["development", "staging", "production"])
def test_without_a_file_the_built_in_configuration_is_that_of_the_shipped_file(
    environment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    environ = {"REGELATE_ENVIRONMENT": environment, "REGELATE_WAREHOUSE": "s3://bucket/w"}
    built_in = load_settings(environ)
    shipped = load_settings({**environ, "REGELATE_CONFIG": str(ROOT / "config.json")})
    assert built_in.source is None
    assert shipped.source == ROOT / "config.json"
    assert built_in.model_copy(update={"source": shipped.source}) == shipped


def test_the_shipped_file_names_every_key_with_its_default() -> None:
    assert json.loads(Configuration().model_dump_json()) == SHIPPED["defaults"]


@pytest.mark.parametrize(
    ("environment", "interval", "min_files"), [("development", 5, 3), ("staging", 75, 15), ("production", 100, 20)]
)
def test_each_environment_checks_and_compacts_at_its_own_thresholds(
    environment: str, interval: int, min_files: int
) -> None:
    settings = load_settings({"REGELATE_ENVIRONMENT": environment, "REGELATE_WAREHOUSE": "s3://bucket/w"})
    assert settings.environment == environment
    assert settings.check_policy == CheckPolicy(enabled=True, interval=interval)
    assert settings.compaction_defaults == CompactionDefaults(
        target_file_size_bytes=128 * MB,
        min_file_size_bytes=64 * MB,
        min_input_files=min_files,
        max_files=None,
        compression_codec="zstd",
    )
    assert settings.retention_defaults == RetentionDefaults(
        max_snapshot_age_ms=168 * 3_600_000,
        min_snapshots_to_keep=1,
        minimum_age_ms=0 if environment == "development" else 3_600_000,
    )


def test_outside_development_callers_need_claims_and_no_tenant_is_let_in_unnamed() -> None:
    for environment in ("staging", "production"):
        settings = load_settings({"REGELATE_ENVIRONMENT": environment, "REGELATE_WAREHOUSE": "s3://bucket/w"})
        assert (settings.auth, settings.tenants) == ("claims", ())
        assert all(catalog.multi_tenant for catalog in settings.catalogs.values())


def test_development_lives_below_home_by_absolute_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for environ, home in [({}, tmp_path / "lake"), ({"REGELATE_HOME": "here"}, tmp_path / "here")]:
        _, catalog = load_settings(environ).catalog()
        assert catalog.properties["uri"] == f"sqlite:///{home}/catalog.db?timeout=30"
        assert catalog.properties["warehouse"] == f"{home}/warehouse"
        assert catalog.local_folders() == (home, home / "warehouse")
    assert list(tmp_path.iterdir()) == []


def test_a_writer_of_the_development_catalog_waits_half_a_minute_for_the_lock_of_another(tmp_path: Path) -> None:
    from pyiceberg.catalog.sql import SqlCatalog

    _, catalog = load_settings({"REGELATE_HOME": str(tmp_path / "a lake")}).catalog()
    for folder in catalog.local_folders():
        folder.mkdir(parents=True)
    one, two = (SqlCatalog("local", **catalog.properties) for _ in range(2))
    one.create_namespace("ns")
    assert two.list_namespaces() == [("ns",)]
    assert (tmp_path / "a lake" / "catalog.db").is_file()
    with one.engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA busy_timeout").scalar() == 30_000


def test_tables_of_ours_are_created_with_the_configured_write_properties(load: Load) -> None:
    assert load().table_defaults == {
        "write.target-file-size-bytes": str(128 * MB),
        "write.parquet.compression-codec": "zstd",
    }
    write = {"target_file_size_mb": 96, "parquet_row_group_size": 8192, "compression_codec": "snappy"}
    assert load(iceberg={"write": write}).table_defaults == {
        "write.target-file-size-bytes": str(96 * MB),
        "write.parquet.compression-codec": "snappy",
        "write.parquet.row-group-limit": "8192",
    }


def test_a_table_of_ours_is_compacted_to_the_sizes_of_the_config(load: Load) -> None:
    settings = load(iceberg={"write": {"target_file_size_mb": 256}})
    policy = resolve_policy(
        request=CompactRequest(),
        table_properties=settings.table_defaults,
        config=settings.compaction_defaults,
        now_ms=0,
        table_bytes=0,
    )
    assert (policy.target_file_size_bytes, policy.min_file_size_bytes) == (256 * MB, 64 * MB)


# Another catalog in the place of the default one


def uri(text: str) -> dict[str, str]:
    return {"REGELATE_CATALOG_URI": text}


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("http://localhost:1", "rest"),
        ("https://catalog", "rest"),
        ("sqlite:////x/c.db", "sql"),
        ("postgresql+psycopg2://db/c", "sql"),
    ],
)
def test_the_uri_of_the_environment_takes_the_place_of_the_default_catalog(load: Load, text: str, kind: str) -> None:
    name, catalog = load(None, uri(text)).catalog()
    assert (name, catalog.type, catalog.properties["uri"]) == ("local", kind, text)


def test_a_catalog_of_the_same_type_keeps_what_the_file_says_of_it_and_another_only_the_namespaces(load: Load) -> None:
    rest = {"type": "rest", "uri": "http://old", "token": SECRET, "namespace_template": "{tenant_id}__{namespace}"}
    same = load(None, uri("http://new"), catalogs={"a": rest}).catalog()[1]
    assert same.properties == {"type": "rest", "uri": "http://new", "token": SECRET}
    other = load(None, uri("sqlite:////c.db") | {"REGELATE_HOME": "/h"}, catalogs={"a": rest}).catalog()[1]
    assert other.properties == {"type": "sql", "uri": "sqlite:////c.db", "warehouse": "/h/warehouse"}
    assert same.multi_tenant
    assert other.multi_tenant


def test_only_the_default_catalog_gives_way_to_the_uri(load: Load) -> None:
    settings = load(None, uri("http://new"), catalogs={"a": LOCAL, "b": LOCAL}, default_catalog="b")
    assert (settings.catalog("a")[1].type, settings.catalog()[1].type) == ("sql", "rest")


def test_a_uri_of_no_known_kind_stops_the_start_without_being_told(load: Load) -> None:
    with pytest.raises(SettingsError, match="REGELATE_CATALOG_URI") as caught:
        load(None, uri(f"ftp://{SECRET}"))
    assert SECRET not in str(caught.value)


# Which file, which environment


def test_the_file_is_the_named_one_then_the_working_directorys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    document = {"defaults": {"auth": "none", "catalogs": {"beside": LOCAL}, "tenants": "*"}}
    (tmp_path / "config.json").write_text(json.dumps(document))
    assert load_settings({}).catalog()[0] == "beside"
    assert load_settings({"REGELATE_CONFIG": str(ROOT / "config.json")}).catalog()[0] == "local"


def test_a_named_file_that_does_not_exist_stops_the_start() -> None:
    with pytest.raises(SettingsError, match="REGELATE_CONFIG"):
        load_settings({"REGELATE_CONFIG": "/no/such/file.json"})


def test_an_unknown_environment_stops_the_start() -> None:
    with pytest.raises(SettingsError, match="REGELATE_ENVIRONMENT: must be one of development, staging, production"):
        load_settings({"REGELATE_ENVIRONMENT": "prod"})


def test_an_overlay_changes_its_keys_and_leaves_their_neighbours(load: Load) -> None:
    document = {
        "defaults": {
            "auth": "none",
            "tenants": "*",
            "catalogs": {"local": {**LOCAL, "s3.region": "eu-west-1"}},
            "limits": {"max_records": 7, "max_nesting": 9},
        },
        "environments": {
            "development": {"limits": {"max_records": 8}, "catalogs": {"local": {"s3.region": "us-east-1"}, "b": LOCAL}}
        },
    }
    document["defaults"]["default_catalog"] = "b"
    settings = load(document)
    assert (settings.limits.max_records, settings.limits.max_nesting, settings.limits.query_seconds) == (8, 9, 25)
    assert settings.catalogs["local"].properties == {**LOCAL, "s3.region": "us-east-1"}
    assert settings.catalog()[0] == "b"


OBJECTS = st.recursive(
    st.integers(0, 3), lambda below: st.dictionaries(st.sampled_from("abc"), below, max_size=3), max_leaves=8
)


@given(st.dictionaries(st.sampled_from("abc"), OBJECTS), st.dictionaries(st.sampled_from("abc"), OBJECTS))
def test_merging_keeps_every_key_changes_neither_side_and_is_stable(
    below: dict[str, Any], above: dict[str, Any]
) -> None:
    before = copy.deepcopy((below, above))
    merged = _merged(below, above)
    assert (below, above) == before
    assert set(merged) == set(below) | set(above)
    assert _merged(merged, above) == merged
    assert _merged(below, {}) == below
    for key, value in above.items():
        if not isinstance(value, dict):
            assert merged[key] == value


# Placeholders


def test_a_placeholder_takes_the_variable_and_its_default_where_that_is_unset_or_empty(load: Load) -> None:
    catalog = {**LOCAL, "s3.endpoint": "http://${HOST:-localhost}:${PORT}/", "s3.region": "${EMPTY:-}"}
    properties = load(environ={"PORT": "9", "HOST": ""}, catalogs={"local": catalog}).catalog()[1].properties
    assert (properties["s3.endpoint"], properties["s3.region"]) == ("http://localhost:9/", "")


def test_a_value_that_looks_like_a_placeholder_is_not_expanded_again(load: Load) -> None:
    catalog = {**LOCAL, "s3.secret-access-key": "${KEY}", "s3.region": "$5 {a}"}
    properties = load(environ={"KEY": "${HOME}$1"}, catalogs={"local": catalog}).catalog()[1].properties
    assert (properties["s3.secret-access-key"], properties["s3.region"]) == ("${HOME}$1", "$5 {a}")


def test_an_unset_variable_is_named_with_the_key_that_needs_it(load: Load) -> None:
    fault = refused(load, catalogs={"local": {**LOCAL, "s3.endpoint": "${NOWHERE}"}})
    assert "defaults.catalogs.local.s3.endpoint: needs the environment variable NOWHERE" in fault.message


@pytest.mark.parametrize("text", ["${", "${}", "${A", "${1A}", "${A B}", "${A-b}"])
def test_a_malformed_placeholder_is_refused_by_key(load: Load, text: str) -> None:
    fault = refused(load, environ={"A": "a"}, catalogs={"local": {**LOCAL, "s3.endpoint": text}})
    assert fault.details["keys"] == ["defaults.catalogs.local.s3.endpoint"]


def test_a_variable_that_only_another_environment_needs_may_be_missing() -> None:
    assert load_settings({"REGELATE_CONFIG": str(ROOT / "config.json")}).environment == "development"
    with pytest.raises(
        SettingsError, match=r"environments\.production\.catalogs\.glue\.warehouse: .*REGELATE_WAREHOUSE"
    ):
        load_settings({"REGELATE_CONFIG": str(ROOT / "config.json"), "REGELATE_ENVIRONMENT": "production"})


# What is refused


@pytest.mark.parametrize(
    ("section", "key"),
    [
        ({"icebergs": {}}, "icebergs"),
        ({"iceberg": {"compaction": {"min_file_to_compact": 3}}}, "iceberg.compaction.min_file_to_compact"),
        ({"iceberg": {"write": {"codec": "zstd"}}}, "iceberg.write.codec"),
        ({"limits": {"max_rows": 1}}, "limits.max_rows"),
        ({"environment": "development"}, "environment"),
        ({"source": "/etc/passwd"}, "source"),
        ({"catalogs": {"local": {**LOCAL, "namespace_templat": "{namespace}"}}}, "catalogs.local.namespace_templat"),
        ({"catalogs": {"local": {**LOCAL, "py-catalog-impl": "os.system"}}}, "catalogs.local.py-catalog-impl"),
        ({"catalogs": {"local": {**LOCAL, "credential": "a:b"}}}, "catalogs.local.credential"),
    ],
)
def test_an_unknown_key_is_refused_by_its_path(load: Load, section: dict[str, Any], key: str) -> None:
    fault = refused(load, **section)
    assert fault.details["keys"] == [f"defaults.{key}"]
    assert f"defaults.{key}: unknown key" in fault.message


@pytest.mark.parametrize("environment", ["development", ""])
def test_development_on_lambda_must_be_said(environment: str) -> None:
    environ = {"AWS_LAMBDA_FUNCTION_NAME": "regelate", "REGELATE_ENVIRONMENT": environment}
    with pytest.raises(SettingsError, match="REGELATE_DEVELOPMENT_ON_LAMBDA=yes"):
        load_settings(environ)
    with pytest.raises(SettingsError):
        load_settings({**environ, "REGELATE_DEVELOPMENT_ON_LAMBDA": "no"})
    assert load_settings({**environ, "REGELATE_DEVELOPMENT_ON_LAMBDA": "yes"}).environment == "development"
    production = {**environ, "REGELATE_ENVIRONMENT": "production", "REGELATE_WAREHOUSE": "s3://bucket/w"}
    assert load_settings(production).environment == "production"


def test_a_misspelt_key_is_answered_with_the_right_one(load: Load) -> None:
    fault = refused(load, iceberg={"compaction": {"min_file_to_compact": 3}})
    assert "did you mean min_files_to_compact?" in fault.message


def test_an_unknown_key_of_an_environment_that_was_not_chosen_is_refused_too(load: Load) -> None:
    document = {**SHIPPED, "environments": {**SHIPPED["environments"], "production": {"retention": {"hours": 1}}}}
    assert refused(load, document).details["keys"] == ["environments.production.retention.hours"]


@pytest.mark.parametrize(
    ("section", "key"),
    [
        ({"iceberg": {"compaction": {"min_files_to_compact": "3"}}}, "iceberg.compaction.min_files_to_compact"),
        ({"iceberg": {"compaction": {"min_files_to_compact": 3.0}}}, "iceberg.compaction.min_files_to_compact"),
        ({"iceberg": {"compaction": {"min_files_to_compact": True}}}, "iceberg.compaction.min_files_to_compact"),
        ({"iceberg": {"compaction": {"min_files_to_compact": 0}}}, "iceberg.compaction.min_files_to_compact"),
        ({"iceberg": {"compaction": {"enabled": 1}}}, "iceberg.compaction.enabled"),
        ({"iceberg": {"compaction": {"auto": "async"}}}, "iceberg.compaction.auto"),
        ({"iceberg": {"compaction": {"verify": "loose"}}}, "iceberg.compaction.verify"),
        ({"iceberg": {"write": {"target_file_size_mb": 10 * 1024 * 1024}}}, "iceberg.write.target_file_size_mb"),
        ({"iceberg": {"write": {"compression_codec": "lzo"}}}, "iceberg.write.compression_codec"),
        ({"iceberg": []}, "iceberg"),
        ({"iceberg": None}, "iceberg"),
        ({"tenants": "acme"}, "tenants"),
        ({"tenants": ["acme", 5]}, "tenants[1]"),
        ({"tenants": ["acme", "../b"]}, "tenants[1]"),
        ({"auth": "jwt"}, "auth"),
        ({"engines": ["flink"]}, "engines[0]"),
        ({"engines": []}, "engines"),
        ({"limits": {"query_seconds": 0}}, "limits.query_seconds"),
        ({"placement": {"memory_mb": 64}}, "placement.memory_mb"),
        ({"retention": {"minimum_retention_hours": -0.5}}, "retention.minimum_retention_hours"),
        ({"retention": {"snapshot_retention_hours": 0}}, "retention.snapshot_retention_hours"),
        ({"catalogs": {"local": {**LOCAL, "uri": 5}}}, "catalogs.local.uri"),
        ({"catalogs": {"local": {**LOCAL, "type": "hive"}}}, "catalogs.local.type"),
        ({"catalogs": {"local": {"uri": "sqlite://", "warehouse": "/w"}}}, "catalogs.local.type"),
        ({"catalogs": {"local": {**LOCAL, "namespace_template": "{tenant_id}-{namespace}"}}}, TEMPLATE),
        ({"catalogs": {"a b": LOCAL}}, "catalogs.a b"),
    ],
)
def test_a_wrong_type_or_range_is_refused_by_its_path(load: Load, section: dict[str, Any], key: str) -> None:
    assert refused(load, **section).details["keys"] == [f"defaults.{key}"]


@pytest.mark.parametrize(
    ("section", "key"),
    [
        (
            {"iceberg": {"compaction": {"small_file_threshold_mb": 128}}},
            "iceberg.compaction.small_file_threshold_mb",
        ),
        (
            {"iceberg": {"compaction": {"auto_min_file_size_mb": 128}}},
            "iceberg.compaction.auto_min_file_size_mb",
        ),
        (
            {"iceberg": {"compaction": {"auto_min_file_size_mb": 128, "auto_max_file_size_mb": 512}}},
            "iceberg.compaction.auto_min_file_size_mb",
        ),
        (
            {"iceberg": {"compaction": {"min_files_to_compact": 5, "max_files_per_compaction": 4}}},
            "iceberg.compaction.max_files_per_compaction",
        ),
        (
            {"retention": {"snapshot_retention_hours": 2, "minimum_retention_hours": 3}},
            "retention.snapshot_retention_hours",
        ),
        ({"serve": {"threads": 64}}, "serve.threads"),
        ({"default_catalog": "other"}, "default_catalog"),
        ({"catalogs": {"a": LOCAL, "b": LOCAL}}, "default_catalog"),
        ({"catalogs": {}}, "catalogs"),
        ({"catalogs": {"local": {"type": "sql", "uri": "sqlite://"}}}, "catalogs.local.warehouse"),
        ({"catalogs": {"local": {"type": "rest"}}}, "catalogs.local.uri"),
        (
            {"jobs": {"store": "dynamodb", "table": "t", "queue_url": "q", "max_attempts": 7}},
            "jobs.max_attempts",
        ),
        ({"auth": "claims"}, TEMPLATE),
        ({"auth": "claims", "tenants": ["a", "b"]}, TEMPLATE),
        ({"engines": ["spark"]}, "engines"),
        ({"spark": {"run": "local"}, "jobs": {"store": "sqlite", "path": "/j"}}, "spark.folder"),
        ({"spark": {"run": "local", "folder": "/s"}}, "spark.run"),
    ],
)
def test_values_that_clash_are_refused_by_the_path_of_one_of_them(
    load: Load, section: dict[str, Any], key: str
) -> None:
    assert refused(load, **section).details["keys"] == [f"defaults.{key}"]


@pytest.mark.parametrize("warehouse", ["/lake", "s3a://lake/warehouse", f"s3://lake/{'long/' * 80}warehouse"])
def test_tenants_whose_runs_of_spark_could_have_no_policy_cannot_be_configured(load: Load, warehouse: str) -> None:
    emr = {"run": "emr-serverless", "application_id": "00a", "role_arn": "arn:r", "location": "s3://results/spark"}
    section: dict[str, Any] = {"spark": emr, "jobs": {"store": "sqlite", "path": "/j"}, "tenants": ["a", "b"]}
    one = {**LOCAL, "warehouse": warehouse}
    shared = {**one, "namespace_template": "{tenant_id}__{namespace}"}
    fault = refused(load, **section, catalogs={"local": shared})
    assert fault.details["keys"] == ["defaults.catalogs.local.warehouse"]
    assert load(**section, catalogs={"local": one}).spark.run == "emr-serverless"
    assert load(**section, catalogs={"local": {**shared, "warehouse": "s3://lake/warehouse"}}).tenants == ("a", "b")


def test_a_tenant_whose_name_would_break_the_template_cannot_be_configured(load: Load) -> None:
    shared = {"catalogs": {"local": {**LOCAL, "namespace_template": "{tenant_id}__{namespace}"}}}
    assert refused(load, tenants=["a__b"], **shared).details["keys"] == ["defaults.tenants[0]"]
    assert load(tenants=["a__b"]).tenants == ("a__b",)


def test_claims_with_one_tenant_may_use_an_existing_catalog_under_its_own_names(load: Load) -> None:
    assert load(auth="claims", tenants=["acme"]).catalog()[1].namespace_template == "{namespace}"


@pytest.mark.parametrize("environment", ["staging", "production"])
def test_being_any_tenant_without_claims_is_refused_outside_development(load: Load, environment: str) -> None:
    fault = refused(load, environ={"REGELATE_ENVIRONMENT": environment})
    assert fault.details["keys"] == ["defaults.auth"]


@pytest.mark.parametrize("environment", ["staging", "production"])
def test_expiry_at_any_age_is_for_development_only_and_fractions_are_for_all(load: Load, environment: str) -> None:
    environ = {"REGELATE_ENVIRONMENT": environment}
    fault = refused(load, environ=environ, auth="claims", tenants=["acme"], retention={"minimum_retention_hours": 0})
    assert fault.details["keys"] == ["defaults.retention.minimum_retention_hours"]
    part = {"minimum_retention_hours": 0.25, "snapshot_retention_hours": 1.5}
    found = load(environ=environ, auth="claims", tenants=["acme"], retention=part).retention_defaults
    assert (found.minimum_age_ms, found.max_snapshot_age_ms) == (900_000, 5_400_000)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"defaults": {}', "is not valid JSON"),
        ('{"defaults": {"limits": {"max_records": 1, "max_records": 2}}}', "'max_records' appears twice"),
        ('{"defaults": {"limits": {"query_seconds": NaN}}}', "NaN is not JSON"),
        ("[]", "must hold an object"),
        ('{"default": {}}', "default: unknown key"),
        ('{"defaults": []}', "defaults: must be an object"),
        ('{"environments": {"prod": {}}}', "environments.prod: unknown key"),
        ('{"environments": {"staging": null}}', "environments.staging: must be an object"),
        ("[" * 100_000, "is not valid JSON"),
    ],
)
def test_a_file_that_is_no_configuration_is_refused_with_what_is_wrong(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(SettingsError) as caught:
        load_settings({"REGELATE_CONFIG": str(path)})
    assert told in caught.value.message
    assert str(path) in caught.value.message


def test_a_file_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes('{"defaults": {}}'.encode("utf-16"))
    with pytest.raises(SettingsError, match="is not valid JSON"):
        load_settings({"REGELATE_CONFIG": str(path)})


def test_all_faults_come_in_one_message_and_a_long_list_is_cut(load: Load) -> None:
    fault = refused(load, **{f"key{n}": 1 for n in range(9)})
    assert "key0" in fault.message
    assert fault.message.endswith("and 4 more")
    assert len(fault.details["keys"]) == 9  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "catalog",
    [
        {**LOCAL, "s3.secret-access-key": [SECRET]},
        {**LOCAL, "passwort": SECRET},
        {**LOCAL, "type": SECRET},
        {**LOCAL, "namespace_template": SECRET},
        {**LOCAL, "s3.secret-access-key": f"${{{SECRET} {SECRET}}}"},
    ],
)
def test_a_refusal_never_shows_a_value(load: Load, catalog: dict[str, Any]) -> None:
    fault = refused(load, catalogs={"local": catalog})
    assert SECRET not in json.dumps(fault.as_error().as_dict())


def test_a_printed_configuration_shows_no_property_of_a_catalog(load: Load) -> None:
    settings = load(catalogs={"local": {**LOCAL, "s3.secret-access-key": SECRET}})
    assert SECRET not in f"{settings!r} {settings}"
    assert settings.catalog()[1].properties["s3.secret-access-key"] == SECRET


def test_an_unknown_catalog_is_not_found(load: Load) -> None:
    with pytest.raises(NotFound) as caught:
        load().catalog("other\n")
    assert (caught.value.code, caught.value.status) == ("CATALOG_NOT_FOUND", 404)
    assert "\n" not in caught.value.message


# The page that explains it

PAGE = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")


def _keys(model: type[BaseModel]) -> Iterator[str]:
    for name, field in model.model_fields.items():
        below = field.annotation
        nested = isinstance(below, type) and issubclass(below, BaseModel)
        yield from _keys(below) if nested else [name]  # type: ignore[arg-type]


def test_the_page_names_every_key_option_and_table_property() -> None:
    wanted = [*_keys(Configuration), *(f"options.{name}" for name in ICEBERG_OPTIONS)]
    wanted += [f"regelate.compaction.{name}" for name in (*TABLE_OPTIONS, *CHECK_OPTIONS)]
    wanted += [AUTO_PROPERTY, *(f"regelate.auto.{name}" for name in AUTO_OPTIONS)]
    assert [name for name in wanted if f"`{name}`" not in PAGE] == []


@pytest.mark.parametrize("example", re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL))
def test_every_example_of_the_page_is_a_right_configuration(load: Load, example: str) -> None:
    document = json.loads(example)
    laid = _merged({"defaults": {"auth": "none", "tenants": "*", "catalogs": {"local": LOCAL}}}, document)
    assert load(laid, environ={"MINIO_SECRET": SECRET}).environment == "development"


# The machine


def test_what_the_file_says_of_memory_and_threads_is_taken_as_it_is(load: Load) -> None:
    placement = {"memory_mb": 512, "threads": 3, "max_in_process_gb": 0.5, "max_in_process_seconds": 10}
    assert load(placement=placement).placement_policy({}) == PlacementPolicy(
        memory_bytes=512 * MB, threads=3, max_in_process_bytes=512 * MB, max_in_process_seconds=10.0
    )


def test_on_lambda_a_share_of_the_configured_memory_is_used(load: Load) -> None:
    policy = load().placement_policy({"AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "256"})
    assert policy.memory_bytes == 192 * MB
    assert policy.threads >= 1


@pytest.mark.parametrize("name", ["memory.max", "memory/memory.limit_in_bytes"])
def test_the_limit_of_a_container_counts_in_both_versions_of_cgroups(tmp_path: Path, name: str) -> None:
    machine = available_memory_bytes({}, cgroups=tmp_path)
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("134217728\n")
    assert available_memory_bytes({}, cgroups=tmp_path) == 128 * MB
    path.write_text("max\n")
    assert available_memory_bytes({}, cgroups=tmp_path) == machine
    path.write_text("9223372036854771712\n")
    assert available_memory_bytes({}, cgroups=tmp_path) == machine


def test_a_quota_of_processors_is_rounded_up_and_never_below_one(tmp_path: Path) -> None:
    machine = available_processors(cgroups=tmp_path)
    for text, count in [("50000 100000", 1), ("100000 100000", 1), ("max 100000", machine), ("99900000 1000", machine)]:
        (tmp_path / "cpu.max").write_text(f"{text}\n")
        assert available_processors(cgroups=tmp_path) == count


def test_loading_settings_imports_no_engine() -> None:
    script = (
        "import sys; from regelate.settings import load_settings; import regelate.tenancy; load_settings({})\n"
        "heavy = {'pyiceberg', 'pyarrow', 'duckdb', 'boto3', 'sqlalchemy', 'aws_lambda_powertools'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    environ = {"PYTHONPATH": str(ROOT / "src"), "PATH": ""}
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environ, check=True)
    assert run.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("given", "seconds"), [(None, 840.0), ("20", 20.0), ("9000", 840.0), ("", 840.0), ("-1", 840.0)]
)
def test_a_function_that_ends_sooner_lowers_the_seconds_of_a_compaction_and_never_raises_them(
    given: str | None, seconds: float
) -> None:
    environ = {} if given is None else {"REGELATE_MAX_IN_PROCESS_SECONDS": given}
    assert load_settings({}).placement_policy(environ).max_in_process_seconds == seconds


@pytest.mark.parametrize(("given", "auth"), [({}, "claims"), ({"REGELATE_AUTH": "iam"}, "iam")])
@pytest.mark.parametrize("environment", ["staging", "production"])
def test_the_deployment_says_by_which_proof_callers_come_and_it_is_never_none(
    environment: str, given: dict[str, str], auth: str
) -> None:
    environ = {"REGELATE_ENVIRONMENT": environment, "REGELATE_WAREHOUSE": "s3://w/x"}
    assert load_settings({**environ, **given}).auth == auth
    with pytest.raises(SettingsError):
        load_settings({**environ, "REGELATE_AUTH": "none"})


@pytest.mark.parametrize(
    ("limits", "environ", "processors", "processes"),
    [
        ({}, {}, 1, 2),
        ({}, {}, 4, 4),
        ({}, {}, 64, 8),
        ({}, {"AWS_LAMBDA_FUNCTION_NAME": "api"}, 4, 1),
        ({"query_processes": 3}, {"AWS_LAMBDA_FUNCTION_NAME": "api"}, 4, 3),
    ],
)
def test_queries_have_a_process_for_each_processor_and_one_on_lambda(
    limits: dict[str, int], environ: dict[str, str], processors: int, processes: int
) -> None:
    assert LimitSettings(**limits).query_process_count(environ, processors) == processes


@pytest.mark.parametrize(
    ("limits", "memory_mb", "each_mb"),
    [({}, 2048, 512), ({}, 512, 256), ({"query_memory_mb": 300}, 2048, 300)],
)
def test_the_processes_for_queries_share_the_memory_of_the_engine(
    limits: dict[str, int], memory_mb: int, each_mb: int
) -> None:
    assert LimitSettings(**limits).query_memory_bytes(memory_mb * MB, 4) == each_mb * MB


def test_a_process_for_queries_is_given_what_it_needs_at_least() -> None:
    with pytest.raises(ValidationError):
        LimitSettings(query_memory_mb=128)
