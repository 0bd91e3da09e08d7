"""Each kind of catalog as both engines name it: the pipeline's Lake for Spark, PyIceberg's properties for COMPACT."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from regelate.core.catalogs import CatalogKind
from regelate.pipeline.session import Lake
from tests.servers.moto_aws import KEYS, REGION

GLUE_BUCKET = "glue"


@dataclass(frozen=True, kw_only=True)
class Shared:
    """One catalog that both engines work on. `service`: its properties for PyIceberg."""

    spark: Lake
    service: Mapping[str, str]


def s3_of_service(endpoint: str) -> dict[str, str]:
    return {
        "s3.endpoint": endpoint,
        "s3.region": REGION,
        "s3.access-key-id": KEYS["aws_access_key_id"],
        "s3.secret-access-key": KEYS["aws_secret_access_key"],
    }


def s3_of_spark(endpoint: str) -> dict[str, str]:
    return {
        "s3.endpoint": endpoint,
        "s3.path-style-access": "true",
        "client.region": REGION,
        "s3.access-key-id": KEYS["aws_access_key_id"],
        "s3.secret-access-key": KEYS["aws_secret_access_key"],
    }


def rest(name: str, uri: str) -> Shared:
    return Shared(spark=Lake(name=name, kind=CatalogKind.REST, uri=uri), service={"type": "rest", "uri": uri})


def nessie(name: str, uri: str, s3: str, *, ref: str | None = None, native: bool = False) -> Shared:
    """Return Nessie's REST catalog for the service, and for Spark the same or Iceberg's own NessieCatalog."""
    own = s3_of_spark(s3)
    spark = Lake(name=name, kind=CatalogKind.NESSIE, uri=uri, ref=ref, properties=own)
    if native:
        spark = Lake(
            name=name,
            kind=CatalogKind.NESSIE_NATIVE,
            uri=f"{uri.removesuffix('/iceberg')}/api/v2",
            warehouse="s3://nessie/native",
            ref=ref,
            properties={**own, "io-impl": "org.apache.iceberg.aws.s3.S3FileIO"},
        )
    branch = "" if ref is None else f"/{ref}"
    return Shared(spark=spark, service={"type": "rest", "uri": f"{uri}{branch}", **s3_of_service(s3)})


def glue_lake(name: str, endpoint: str) -> Lake:
    properties = {**s3_of_spark(endpoint), "glue.endpoint": endpoint}
    return Lake(name=name, kind=CatalogKind.GLUE, warehouse=f"s3://{GLUE_BUCKET}/wh", properties=properties)


def glue(name: str, endpoint: str) -> Shared:
    keys = {"glue.access-key-id": KEYS["aws_access_key_id"], "glue.secret-access-key": KEYS["aws_secret_access_key"]}
    service = {
        "type": "glue",
        "warehouse": f"s3://{GLUE_BUCKET}/wh",
        "glue.endpoint": endpoint,
        "glue.region": REGION,
        **keys,
        **s3_of_service(endpoint),
    }
    return Shared(spark=glue_lake(name, endpoint), service=service)
