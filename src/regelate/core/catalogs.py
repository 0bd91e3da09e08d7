"""The kinds of catalogs, one row each: what config.json must say, how PyIceberg opens it, how Spark is told of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum

from regelate.core.values import dataclass


class CatalogKind(StrEnum):
    SQL = "sql"
    REST = "rest"
    GLUE = "glue"
    NESSIE = "nessie"
    """Nessie's Iceberg REST endpoint."""
    NESSIE_NATIVE = "nessie-native"
    """Iceberg's own NessieCatalog, which speaks Nessie's API."""
    CONFIGURED = "configured"
    """Spark's configuration names it: spark-defaults, `spark-submit --conf`, or a session of a notebook."""


class Commits(StrEnum):
    """Who checks the requirements of a commit, and whether its request may come a second time."""

    TRANSACTION = "transaction"
    """This process, and one transaction of a database swaps the metadata: nobody on the way sends it again."""
    REQUEST = "request"
    """This process, and a request over HTTP swaps the metadata: proxies, gateways and clients send those again."""
    SERVER = "server"
    """A server, which knows the requirements of the specification alone; over HTTP too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedHere:
    """How PyIceberg opens a catalog, under PyIceberg's name for its kind.

    `plain_properties`: PyIceberg 0.12.0's own names (catalog/), beside those that every kind has. `schemes`: of a URI
    that names such a catalog. `extra`: of this package, with its library. `in_s3`: its tables are on S3 as a rule.
    """

    commits: Commits
    plain_properties: tuple[str, ...] = ()
    schemes: tuple[str, ...] = ()
    extra: str | None = None
    in_s3: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldSpark:
    """How Spark is told of a catalog: the properties of Iceberg's SparkCatalog, none where its configuration has them.

    `name`: what the pipeline calls the kind. `uri`: with `{uri}` as given, `{endpoint}` without a slash at its end,
    `{branch}` (`/` and the ref, if there is one) and `{wait_ms}`. `ref`: the ref where none is given, as a property of
    its own. `packages`: jars beside Iceberg's; `in_s3`: and those of S3, whatever the warehouse is.
    """

    name: str
    properties: Mapping[str, str] = field(default_factory=dict)
    uri: str | None = None
    takes_ref: bool = False
    ref: str | None = None
    packages: tuple[str, ...] = ()
    in_s3: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogTraits:
    """`required`: of `uri` and `warehouse`. Without `here` config.json does not know the kind."""

    required: tuple[str, ...]
    here: OpenedHere | None
    spark: ToldSpark


CATALOGS: Mapping[CatalogKind, CatalogTraits] = {
    CatalogKind.SQL: CatalogTraits(
        required=("uri", "warehouse"),
        here=OpenedHere(
            commits=Commits.TRANSACTION,
            plain_properties=("echo", "init_catalog_tables", "pool_pre_ping", "schema_version"),
            schemes=("sqlite", "postgresql"),
            in_s3=False,
        ),
        spark=ToldSpark(
            name="sqlite",
            properties={"type": "jdbc", "jdbc.schema-version": "V1", "jdbc.init-catalog-tables": "false"},
            uri="jdbc:sqlite:{uri}?busy_timeout={wait_ms}",
            packages=("org.xerial:sqlite-jdbc:3.50.3.0",),
        ),
    ),
    CatalogKind.REST: CatalogTraits(
        required=("uri",),
        here=OpenedHere(
            commits=Commits.SERVER,
            plain_properties=(
                *("audience", "credential", "namespace-separator", "oauth2-server-uri", "prefix", "resource"),
                *("rest-page-size", "scan-planning-mode", "scope", "snapshot-loading-mode", "token"),
                "view-endpoints-supported",
            ),
            schemes=("http", "https"),
        ),
        spark=ToldSpark(name="rest", properties={"type": "rest"}, uri="{endpoint}"),
    ),
    CatalogKind.GLUE: CatalogTraits(
        required=("warehouse",),
        here=OpenedHere(commits=Commits.REQUEST, extra="aws"),
        spark=ToldSpark(
            name="glue",
            properties={"type": "glue", "io-impl": "org.apache.iceberg.aws.s3.S3FileIO"},
            in_s3=True,
        ),
    ),
    CatalogKind.NESSIE: CatalogTraits(
        required=("uri",),
        here=None,
        # Its endpoint names the FileIO by itself, and takes no warehouse on a disk.
        spark=ToldSpark(
            name="nessie", properties={"type": "rest"}, uri="{endpoint}{branch}", takes_ref=True, in_s3=True
        ),
    ),
    CatalogKind.NESSIE_NATIVE: CatalogTraits(
        required=("uri", "warehouse"),
        here=None,
        spark=ToldSpark(
            name="nessie-native",
            properties={"catalog-impl": "org.apache.iceberg.nessie.NessieCatalog"},
            uri="{uri}",
            takes_ref=True,
            ref="main",
        ),
    ),
    CatalogKind.CONFIGURED: CatalogTraits(required=(), here=None, spark=ToldSpark(name="configured")),
}
OPENED_HERE: Mapping[CatalogKind, OpenedHere] = {
    kind: traits.here for kind, traits in CATALOGS.items() if traits.here is not None
}
"""What config.json may name as a catalog's `type`."""
KIND_OF_SCHEME: Mapping[str, CatalogKind] = {
    scheme: kind for kind, here in OPENED_HERE.items() for scheme in here.schemes
}
KIND_IN_SPARK: Mapping[str, CatalogKind] = {traits.spark.name: kind for kind, traits in CATALOGS.items()}
