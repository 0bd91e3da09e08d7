"""Every table property that something reads: what it may say, and who reads it.

The names are Iceberg's (`org.apache.iceberg.TableProperties`, 1.10, and PyIceberg's, 0.12) and our own. They are judged
where we set them, and again before each use: other engines set them too, and PyArrow ends the process for a page of
-5 rows and writes for ever for one of 0 (trap T51: properties that end the writer).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from regelate.core.policy.fleet_properties import FLEET_PROPERTIES
from regelate.core.policy.option_retention import (
    GRACE_PROPERTY,
    MAX_AGE_PROPERTY,
    MAX_REF_AGE_PROPERTY,
    MIN_KEEP_PROPERTY,
    RetentionDefaults,
    resolve_retention,
)
from regelate.core.policy.option_values import MAX_INT, MAX_LONG, boolean, codec, ratio, refused, whole
from regelate.core.policy.options import (
    AUTO_OPTIONS,
    AUTO_PREFIX,
    AUTO_PROPERTY,
    AUTOMATIC,
    CHECK_OPTIONS,
    CODEC_PROPERTY,
    TABLE_OPTIONS,
    TABLE_PREFIX,
    TARGET_PROPERTY,
    CompactionDefaults,
    resolve_policy,
)
from regelate.core.policy.policy import MAX_TARGET_BYTES
from regelate.core.policy.write_options import OPTIMIZED_BYTES_PROPERTY, OPTIMIZED_PROPERTY, taken_bytes
from regelate.core.requests import CompactRequest
from regelate.core.table.names import LOCATION_PROPERTIES
from regelate.core.table.schema import MAX_DEPTH
from regelate.core.values import dataclass
from regelate.errors import InvalidRequest

Reader = Callable[[str, object], object]
MAPPING_PROPERTY = "schema.name-mapping.default"
LEVEL_PROPERTY = "write.parquet.compression-level"
METRICS_PROPERTY = "write.metadata.metrics.default"
METRICS_PREFIX = "write.metadata.metrics.column."
PROVIDER_PROPERTY = "write.py-location-provider.impl"
PAGE_ROWS_PROPERTY = "write.parquet.page-row-limit"
LEAST_PAGE_ROWS = 100
"""Smaller pages are written with as many: a million rows in pages of one take 18 s and 135 MB, not 1 s and 9 MB."""
LEVELS: Mapping[str, tuple[int, int]] = {
    "zstd": (-131072, 22),
    "gzip": (1, 9),
    "brotli": (0, 11),
    "lz4": (1, 12),
}
"""Levels by codec, as PyArrow's libraries have them; the other codecs have none."""
_METRICS = re.compile(r"none|counts|full|truncate\(0{0,9}[1-9][0-9]{0,9}\)", re.ASCII)
_LOCATION = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:/")
_POINTERS = frozenset({"metadata_location", "previous_metadata_location", "table_type"})
"""PyIceberg's Glue catalog lays the properties over the table's own parameters, which say where its metadata is."""
_CATALOG_NAMES = frozenset(
    {"uri", "warehouse", "token", "credential", "scope", "audience", "resource", "prefix", "oauth2-server-uri", "auth"}
    | {"namespace-separator", "rest-page-size", "scan-planning-mode", "snapshot-loading-mode", "cabundle", "ssl"}
    | {"view-endpoints-supported", "echo", "init_catalog_tables", "pool_pre_ping", "schema_version", "buffer-size"}
    | {"DEFAULT_SCHEME", "DEFAULT_NETLOC", "botocore_session", "downcast-ns-timestamp-to-us-on-write"}
)
_CATALOG_PREFIXES = (
    *("s3.", "s3tables.", "client.", "glue.", "gcs.", "gs.", "adls.", "adlfs.", "hdfs.", "hf.", "oss.", "rest."),
    *("header.", "hive.", "dynamodb.", "jdbc.", "pyarrow.", "signer", "auth.", "ssl.", "table-default."),
    *("table-override.", "regelate.storage.", "regelate.network."),
)
"""PyIceberg lays table properties over the catalog's when it opens storage: with these, a table could name code to
load, or an endpoint that our credentials are sent to."""
_CATALOG_SUFFIXES = ("-impl", ".impl")


class Use(StrEnum):
    """What is about to be done with a table, and so with its properties."""

    QUERY = "query"
    """Read its files, here."""
    WRITE = "write"
    """Write rows to Parquet, here."""
    COMPACT = "compact"
    AUTO = "auto"
    """Choose and size files as an automatic run does."""
    LOOK = "look"
    """Ask whether a commit sets off an automatic run."""
    COMMIT = "commit"
    """Write metadata and name files, here."""
    EXPIRE = "expire"
    SPARK = "spark"
    """Whatever Iceberg's own writers and planner do, on Spark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PropertyKind:
    """One property. `read` returns its value or refuses it (InvalidRequest); `uses`: by whom else a bad one is met.

    A bad value of one that nothing here uses, or for which Iceberg itself takes its default, is refused only where it
    is set.
    """

    read: Reader
    uses: frozenset[Use] = frozenset()
    before: Reader | None = None
    """Before use, where Iceberg takes more than we let anybody set."""


def _kind(read: Reader, *uses: Use, before: Reader | None = None) -> PropertyKind:
    return PropertyKind(read=read, uses=frozenset(uses), before=before)


def _number(low: int, high: int) -> Reader:
    return lambda name, value: whole(name, value, low, high)


def _one_of(*valid: str) -> Reader:
    """Read one of these words, in any case."""

    def read(name: str, value: object) -> str:
        text = value.lower() if isinstance(value, str) else ""
        if text not in valid:
            raise refused(name, value, f"must be one of {', '.join(valid)}", valid=list(valid))
        return text

    return read


def _metrics(name: str, value: object) -> str:
    """Read a metrics mode as Iceberg does: spaces and case aside."""
    text = value.strip().lower() if isinstance(value, str) else ""
    if _METRICS.fullmatch(text) is None or (text.startswith("truncate") and int(text[9:-1]) > MAX_INT):
        raise refused(name, value, f"must be none, counts, full or truncate(n) with n from 1 to {MAX_INT}")
    return text


def _location(name: str, value: object) -> str:
    """Read a place in storage by its form alone; where it may lie is for the catalog to say."""
    if not isinstance(value, str) or not value.isprintable() or (value and _LOCATION.match(value) is None):
        raise refused(name, value, "must be an absolute location such as s3://bucket/folder or file:///folder")
    return value


def _no_code(name: str, value: object) -> str:
    raise refused(name, value, "names code to load, which is not done here; unset it, or use the engine that has it")


def _pointer(name: str, value: object) -> str:
    raise refused(name, value, "is the catalog's own word for where the table is; unset it")


def _mapping(name: str, value: object) -> object:
    """Read a name mapping: Iceberg's JSON, a list of {"field-id", "names", "fields"}."""
    try:
        found = json.loads(value if isinstance(value, str) else "")
    except (ValueError, RecursionError):
        raise refused(name, value, "must be the JSON of a name mapping") from None
    level, depth = [found], 0
    while level:
        depth += 1
        if depth > MAX_DEPTH or not all(map(_is_mapped, level)):
            entry = '{"field-id": number, "names": [texts], "fields": [more]}'
            raise refused(name, value, f"must be a list of {entry}, at most {MAX_DEPTH} deep")
        level = [field["fields"] for fields in level for field in fields if field.get("fields")]
    return found


def _is_mapped(fields: object) -> bool:
    return isinstance(fields, list) and all(
        isinstance(field, dict)
        and type(field.get("field-id", 0)) in (int, type(None))
        and isinstance(field.get("names"), list)
        and all(isinstance(name, str) for name in field["names"])
        for field in fields
    )


def _grace(name: str, value: object) -> int:
    found = {name: value if isinstance(value, str) else ""}
    return resolve_retention(table_properties=found, config=RetentionDefaults()).grace_ms


_INT = _number(0, MAX_INT)
_POSITIVE_INT = _number(1, MAX_INT)
_LONG = _number(0, MAX_LONG)
_POSITIVE_LONG = _number(1, MAX_LONG)
_ANY_INT = _number(-MAX_INT - 1, MAX_INT)
_FORMAT = _one_of("parquet", "avro", "orc")
_MODE = _kind(_one_of("copy-on-write", "merge-on-read"), Use.SPARK)
_ISOLATION = _kind(_one_of("serializable", "snapshot"), Use.SPARK)
_DISTRIBUTION = _kind(_one_of("none", "hash", "range"), Use.SPARK)
_PLANNING = _kind(_one_of("auto", "local", "distributed"), Use.SPARK)
_FLAG = _kind(boolean)
"""Iceberg reads any text but `true` as false."""
_HERE = (Use.WRITE, Use.SPARK)

_PARQUET: Mapping[str, PropertyKind] = {
    "row-group-size-bytes": _kind(_POSITIVE_INT, Use.COMPACT, Use.SPARK),
    "page-size-bytes": _kind(_POSITIVE_INT, *_HERE),
    "page-row-limit": _kind(_POSITIVE_INT, *_HERE),
    "dict-size-bytes": _kind(_POSITIVE_INT, *_HERE),
    "compression-codec": _kind(codec, Use.WRITE, Use.COMPACT, Use.SPARK),
    "compression-level": _kind(_number(LEVELS["zstd"][0], MAX_INT), *_HERE),
    "bloom-filter-max-bytes": _kind(_POSITIVE_INT, Use.SPARK),
    "row-group-check-min-record-count": _kind(_POSITIVE_INT, Use.SPARK),
    "row-group-check-max-record-count": _kind(_POSITIVE_INT, Use.SPARK),
}
_ORC: Mapping[str, PropertyKind] = {
    "stripe-size-bytes": _kind(_POSITIVE_LONG, Use.SPARK),
    "block-size-bytes": _kind(_POSITIVE_LONG, Use.SPARK),
    "vectorized.batch-size": _kind(_POSITIVE_INT, Use.SPARK),
    "compression-codec": _kind(_one_of("none", "zlib", "snappy", "lzo", "lz4", "zstd", "brotli"), Use.SPARK),
    "compression-strategy": _kind(_one_of("speed", "compression"), Use.SPARK),
    "bloom.filter.fpp": _kind(ratio, Use.SPARK),
}
_AVRO: Mapping[str, PropertyKind] = {
    "compression-codec": _kind(_one_of("gzip", "zstd", "snappy", "uncompressed"), Use.SPARK),
    "compression-level": _kind(_ANY_INT, Use.SPARK),
}


def _of_writer(of_rows: str, kinds: Mapping[str, PropertyKind]) -> dict[str, PropertyKind]:
    """Return the kinds of a file format's writer, and of its writer of delete files, which works on Spark alone."""
    deletes = {f"write.delete.{of_rows}.{name}": _kind(kind.read, Use.SPARK) for name, kind in kinds.items()}
    return {**{f"write.{of_rows}.{name}": kind for name, kind in kinds.items()}, **deletes}


KINDS: Mapping[str, PropertyKind] = {
    "format-version": _kind(_one_of("1", "2", "3")),
    **_of_writer("parquet", _PARQUET),
    **_of_writer("orc", _ORC),
    **_of_writer("avro", _AVRO),
    "write.parquet.row-group-limit": _kind(_POSITIVE_INT, Use.WRITE),
    TARGET_PROPERTY: _kind(_number(1, MAX_TARGET_BYTES), Use.WRITE, Use.COMPACT, Use.SPARK),
    "write.delete.target-file-size-bytes": _kind(_POSITIVE_LONG, Use.SPARK),
    "write.format.default": _kind(_FORMAT, *_HERE),
    "write.delete.format.default": _kind(_FORMAT, Use.SPARK),
    **{f"write.{verb}.mode": _MODE for verb in ("delete", "update", "merge")},
    **{f"write.{verb}.isolation-level": _ISOLATION for verb in ("delete", "update", "merge")},
    **{f"write.{verb}distribution-mode": _DISTRIBUTION for verb in ("", "delete.", "update.", "merge.")},
    "write.delete.granularity": _kind(_one_of("file", "partition"), Use.SPARK),
    "write.summary.partition-limit": _kind(_INT, Use.SPARK, before=_ANY_INT),
    "write.spark.advisory-partition-size-bytes": _kind(_POSITIVE_LONG, Use.SPARK),
    **dict.fromkeys(("write.spark.fanout.enabled", "write.spark.accept-any-schema", "write.wap.enabled"), _FLAG),
    **dict.fromkeys(("write.manifest-lists.enabled", "write.upsert.enabled", "write.parquet.shred-variants"), _FLAG),
    **dict.fromkeys(("engine.hive.enabled", "engine.hive.lock-enabled"), _FLAG),
    "compatibility.snapshot-id-inheritance.enabled": _FLAG,
    "gc.enabled": _FLAG,
    # PyIceberg stops at a text that Iceberg reads as false, and asks for it at every commit.
    "write.object-storage.enabled": _kind(boolean, Use.COMMIT),
    "write.object-storage.partitioned-paths": _kind(boolean, Use.COMMIT),
    **{name: _kind(_location, Use.COMMIT) for name in LOCATION_PROPERTIES},
    PROVIDER_PROPERTY: _kind(_no_code, Use.COMMIT),
    **{name: _kind(_pointer, Use.COMMIT) for name in sorted(_POINTERS)},
    "write.metadata.compression-codec": _kind(_one_of("none", "gzip", "zstd"), Use.SPARK),
    "write.metadata.previous-versions-max": _kind(_POSITIVE_INT, Use.COMMIT, Use.SPARK, before=_ANY_INT),
    "write.metadata.delete-after-commit.enabled": _FLAG,
    METRICS_PROPERTY: _kind(_metrics),
    "write.metadata.metrics.max-inferred-column-defaults": _kind(_INT, Use.SPARK),
    MAPPING_PROPERTY: _kind(_mapping, Use.QUERY, Use.SPARK),
    "commit.manifest.target-size-bytes": _kind(_POSITIVE_LONG, Use.COMMIT, Use.SPARK),
    "commit.manifest.min-count-to-merge": _kind(_POSITIVE_INT, Use.COMMIT, Use.SPARK, before=_ANY_INT),
    "commit.manifest-merge.enabled": _FLAG,
    **{f"commit.retry.{name}": _kind(_INT, Use.SPARK) for name in ("num-retries", "min-wait-ms", "max-wait-ms")},
    "commit.retry.total-timeout-ms": _kind(_INT, Use.SPARK),
    "commit.status-check.num-retries": _kind(_INT, Use.SPARK),
    **{
        f"commit.status-check.{name}": _kind(_LONG, Use.SPARK)
        for name in ("min-wait-ms", "max-wait-ms", "total-timeout-ms")
    },
    MAX_AGE_PROPERTY: _kind(_POSITIVE_LONG, Use.EXPIRE),
    MIN_KEEP_PROPERTY: _kind(_POSITIVE_INT, Use.EXPIRE),
    MAX_REF_AGE_PROPERTY: _kind(_POSITIVE_LONG, Use.EXPIRE),
    "read.split.target-size": _kind(_POSITIVE_LONG, Use.SPARK),
    "read.split.metadata-target-size": _kind(_POSITIVE_LONG, Use.SPARK),
    "read.split.planning-lookback": _kind(_POSITIVE_INT, Use.SPARK),
    "read.split.open-file-cost": _kind(_LONG, Use.SPARK),
    "read.split.adaptive-size.enabled": _FLAG,
    **{f"read.{of}.vectorization.enabled": _FLAG for of in ("parquet", "orc")},
    **{f"read.{of}.vectorization.batch-size": _kind(_POSITIVE_INT, Use.SPARK) for of in ("parquet", "orc")},
    "read.data-planning-mode": _PLANNING,
    "read.delete-planning-mode": _PLANNING,
    "encryption.data-key-length": _kind(_POSITIVE_INT, Use.SPARK),
    **{
        TABLE_PREFIX + name: _kind(read, Use.COMPACT)
        for name, read in {**{n: option[1] for n, option in TABLE_OPTIONS.items()}, **CHECK_OPTIONS}.items()
    },
    **{AUTO_PREFIX + name: _kind(read, Use.AUTO) for name, (_, read) in AUTO_OPTIONS.items()},
    AUTO_PROPERTY: _kind(boolean, Use.LOOK),
    # Wrong ones are told by the fleet, which then does as its policy says.
    **{name: _kind(read) for name, read in FLEET_PROPERTIES.items()},
    GRACE_PROPERTY: _kind(_grace, Use.EXPIRE),
    # Wrong ones are told by each WRITE, and fail none: it then writes as without them.
    OPTIMIZED_PROPERTY: _FLAG,
    OPTIMIZED_BYTES_PROPERTY: _kind(taken_bytes),
}
"""By name. A bad value of a kind without uses falls back before use, as in Iceberg: a flag to false, a metrics mode to
the default."""
FAMILIES: Mapping[str, PropertyKind] = {
    METRICS_PREFIX: _kind(_metrics),
    "write.parquet.bloom-filter-enabled.column.": _FLAG,
    "write.parquet.bloom-filter-fpp.column.": _kind(ratio, Use.SPARK),
    "write.parquet.bloom-filter-ndv.column.": _kind(_POSITIVE_LONG, Use.SPARK),
    "write.parquet.stats-enabled.column.": _FLAG,
}
"""By the beginning of a name, which a column's name ends."""


def kind_of(name: str) -> PropertyKind | None:
    """Return the kind of a property, None for one that nobody reads."""
    if name in KINDS:
        return KINDS[name]
    return next((kind for prefix, kind in FAMILIES.items() if name.startswith(prefix)), None)


def belongs_to_catalog(name: str) -> bool:
    """Say whether a name is one of a catalog's configuration, of its storage, or of code to load."""
    named = name in _CATALOG_NAMES or name in _POINTERS
    return named or name.startswith(_CATALOG_PREFIXES) or name.endswith(_CATALOG_SUFFIXES)


def refuse_malformed(properties: Mapping[str, str], beside: Mapping[str, str] | None = None) -> None:
    """Refuse what a table may not be given. `beside`: those that it has or gets beside them.

    Errors: InvalidRequest INVALID_OPTION, and INVALID_RETENTION for the grace of an expiry.
    """
    for name, value in properties.items():
        kind = kind_of(name)
        try:
            if kind is not None:
                kind.read(name, value)
            elif name.startswith("regelate."):
                raise refused(name, value, "nothing reads a property of this name")
            if name in (LEVEL_PROPERTY, CODEC_PROPERTY):
                _check_level({**(beside or {}), **properties})
        except InvalidRequest as fault:
            raise _again(fault, f"property {fault.message}", field=name) from fault


def refuse_unusable(properties: Mapping[str, str], *uses: Use) -> None:
    """Refuse a table whose properties, whoever set them, cannot be used so. Errors: InvalidRequest
    INVALID_TABLE_PROPERTY, 422."""
    try:
        for name, value in properties.items():
            kind = kind_of(name)
            if kind is not None and not kind.uses.isdisjoint(uses):
                (kind.before or kind.read)(name, value)
        if Use.WRITE in uses:
            _check_level(properties)
        for use, request in ((Use.COMPACT, CompactRequest()), (Use.AUTO, AUTOMATIC)):
            if use in uses:
                config = CompactionDefaults()
                resolve_policy(request=request, table_properties=properties, config=config, now_ms=0, table_bytes=0)
        if Use.EXPIRE in uses:
            resolve_retention(table_properties=properties, config=RetentionDefaults())
    except InvalidRequest as fault:
        message = f"this table has a property that cannot be used: {fault.message}; correct it with ALTER_TABLE"
        details: dict[str, Any] = dict(fault.details)
        raise InvalidRequest("INVALID_TABLE_PROPERTY", message, status=422, **details) from fault


def settled(properties: Mapping[str, str]) -> dict[str, str]:
    """Return properties that a WRITE may use as PyArrow can take them literally.

    A codec is in lower case, the level of one that has none is left out, and pages have `LEAST_PAGE_ROWS` rows or more.
    """
    found = dict(properties)
    if CODEC_PROPERTY in found:
        found[CODEC_PROPERTY] = codec(CODEC_PROPERTY, found[CODEC_PROPERTY])
        if found[CODEC_PROPERTY] not in LEVELS:
            found.pop(LEVEL_PROPERTY, None)
    if PAGE_ROWS_PROPERTY in found:
        found[PAGE_ROWS_PROPERTY] = str(max(LEAST_PAGE_ROWS, int(found[PAGE_ROWS_PROPERTY])))
    return found


def with_known_metrics(properties: Mapping[str, str]) -> dict[str, str]:
    """Return properties without the metrics modes that nobody knows: as Iceberg, which then takes its default."""
    return {name: value for name, value in properties.items() if not _is_unknown_metrics(name, value)}


def _is_unknown_metrics(name: str, value: str) -> bool:
    if name != METRICS_PROPERTY and not name.startswith(METRICS_PREFIX):
        return False
    try:
        _metrics(name, value)
    except InvalidRequest:
        return True
    return False


def _check_level(properties: Mapping[str, str]) -> None:
    if LEVEL_PROPERTY not in properties:
        return
    chosen = codec(CODEC_PROPERTY, properties.get(CODEC_PROPERTY, "zstd"))
    low, high = LEVELS.get(chosen, (LEVELS["zstd"][0], MAX_INT))
    try:
        whole(LEVEL_PROPERTY, properties[LEVEL_PROPERTY], low, high)
    except InvalidRequest as fault:
        raise _again(fault, f"{fault.message} for the codec {chosen}") from fault


def _again(fault: InvalidRequest, message: str, **more: Any) -> InvalidRequest:
    details: dict[str, Any] = {**more, **fault.details}
    return InvalidRequest(fault.code, message, **details)
