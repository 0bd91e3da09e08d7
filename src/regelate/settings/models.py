"""Every key of config.json: its type, its range and its default. What is not here is refused by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import ConfigDict, Field, StringConstraints

from regelate.core.catalogs import CATALOGS, OPENED_HERE, CatalogKind
from regelate.core.engines import Engine
from regelate.core.policy.options import Auto, AutoDefaults, CheckPolicy, CompactionDefaults, RetentionDefaults
from regelate.core.policy.policy import GB, MAX_TARGET_BYTES, MB, PlacementPolicy, Verify
from regelate.core.policy.timeouts import Timeouts
from regelate.errors import NotFound, RegelateError
from regelate.settings.machine import available_memory_bytes, available_processors
from regelate.settings.section import OneOf, Positive, Section
from regelate.settings.serving import ServeSettings
from regelate.settings.tenants import LimitSettings, ResultSettings, TenancySettings

HOUR_MS = 3_600_000
Minutes = Annotated[float, Field(gt=0, le=7 * 24 * 60)]
SINGLE_TENANT = "{namespace}"
MULTI_TENANT = "{tenant_id}__{namespace}"
ANY_TENANT = "*"
_LONGEST_NAME = 64
_SHARE_OF_MEMORY = 0.75
"""DuckDB's own default is 0.8 of all memory; the interpreter, PyArrow and uploads live beside it in this process."""
_SHARE_OF_DISK = 0.25
"""Outputs before their upload and what the engine spills want the rest."""

Environment = Literal["development", "staging", "production"]
Codec = Literal["zstd", "snappy", "gzip", "lz4", "brotli", "uncompressed"]
Megabytes = Annotated[int, Field(ge=1, le=MAX_TARGET_BYTES // MB)]
Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]*$", max_length=_LONGEST_NAME)]

HttpsAddress = Annotated[str, StringConstraints(pattern=r"^(https://[!-~]+)?$")]
"""Empty where a variable of the environment is not set: none."""

_COMMON_PROPERTIES = ("py-io-impl", "uri", "warehouse")
_PROPERTY_FAMILIES = ("adls.", "client.", "gcs.", "glue.", "hdfs.", "header.", "hf.", "pyarrow.", "rest.", "s3.")
"""Names of PyIceberg 0.12.0 (catalog/, io/__init__.py); what follows the dot of a family is PyIceberg's to judge."""


class SettingsError(RegelateError):
    """Correct config.json or the environment; nothing was started. The message names the key path, never a value."""


class WriteSettings(Section):
    """Properties of the tables that we create, and the config layer of COMPACT's target and codec."""

    target_file_size_mb: Megabytes = 128
    compression_codec: Codec = "zstd"
    parquet_row_group_size: Positive | None = None


class CompactionSettings(Section):
    enabled: bool = True
    small_file_threshold_mb: Megabytes | None = 64
    min_files_to_compact: Positive = 3
    opportunistic_check_interval: Positive = 5
    max_files_per_compaction: Positive | None = None
    auto: Annotated[str, OneOf(*Auto)] | None = None
    auto_enabled: bool = False
    auto_min_num_files: Annotated[int, Field(ge=2)] = 50
    auto_max_file_size_mb: Megabytes = 128
    auto_min_file_size_mb: Megabytes | None = None
    verify: Annotated[str, OneOf(*Verify)] = Verify.FAST.value


class IcebergSettings(Section):
    write: WriteSettings = WriteSettings()
    compaction: CompactionSettings = CompactionSettings()


class CatalogSettings(Section):
    """One catalog: `type`, `namespace_template`, and PyIceberg's own properties under PyIceberg's own names."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, str] = Field(init=False)

    type: Annotated[str, OneOf(*OPENED_HERE)]
    namespace_template: Literal["{namespace}", "{tenant_id}__{namespace}"] = "{namespace}"

    @property
    def kind(self) -> CatalogKind:
        return CatalogKind(self.type)

    @property
    def multi_tenant(self) -> bool:
        return self.namespace_template == MULTI_TENANT

    @property
    def properties(self) -> dict[str, str]:
        """Return what `pyiceberg.catalog.load_catalog` takes."""
        return {"type": self.type, **self.__pydantic_extra__}

    def local_folders(self) -> tuple[Path, ...]:
        """Return the folders that must exist before the catalog opens: SQLite creates a file, never a folder."""
        uri, warehouse = self.__pydantic_extra__.get("uri", ""), self.__pydantic_extra__.get("warehouse", "")
        database = uri.removeprefix("sqlite:///").partition("?")[0] if uri.startswith("sqlite:///") else ""
        parts = urlsplit(warehouse)
        local = parts.path if parts.scheme == "file" else "" if parts.scheme else warehouse
        return (*([Path(database).parent] if database else []), *([Path(local)] if local else []))

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield (key, rule) for a missing property and for a name that PyIceberg does not know."""
        for name in CATALOGS[self.kind].required:
            if not self.__pydantic_extra__.get(name):
                yield name, f"missing; a catalog of type {self.type} needs it"
        plain = (*_COMMON_PROPERTIES, *OPENED_HERE[self.kind].plain_properties)
        for name in self.__pydantic_extra__:
            if name not in plain and not name.startswith(_PROPERTY_FAMILIES):
                known = ", ".join(sorted((*plain, *(f"{family}*" for family in _PROPERTY_FAMILIES))))
                yield name, f"unknown key; PyIceberg's for a catalog of type {self.type} are {known}"

    def __repr_args__(self) -> Iterator[tuple[str | None, object]]:
        """Show names only: the values may be credentials."""
        yield "type", self.type
        yield "namespace_template", self.namespace_template
        yield "properties", sorted(self.__pydantic_extra__)


class PlacementSettings(Section):
    max_in_process_gb: Annotated[float, Field(gt=0, le=1024)] = 10.0
    max_in_process_seconds: Annotated[float, Field(gt=0)] = 840.0
    memory_mb: Annotated[int, Field(ge=128)] | None = None
    threads: Annotated[int, Field(ge=1, le=1024)] | None = None


class RetentionSettings(Section):
    snapshot_retention_hours: Annotated[float, Field(gt=0, le=876_000)] = 168
    min_snapshots_to_keep: Positive = 1
    minimum_retention_hours: Annotated[float, Field(ge=0, le=876_000)] = 1
    expiry_grace_hours: Annotated[float, Field(ge=0, le=876_000)] = 24
    minimum_orphan_age_hours: Annotated[float, Field(ge=0, le=876_000)] = 72


class SweepSettings(Section):
    """What a run may take at most before a sweep calls it dead, and what one SWEEP may take on."""

    longest_run_hours: Annotated[float, Field(ge=0.25, le=168)] = 1.0
    max_seconds: Annotated[float, Field(gt=0, le=86_400)] = 60.0
    max_tables: Positive = 1_000
    health_below: Annotated[float, Field(ge=0, le=100)] = 80.0
    max_jobs: Annotated[int, Field(ge=0, le=10_000)] = 10

    @property
    def longest_run_seconds(self) -> float:
        return self.longest_run_hours * 3600


class FleetSettings(Section):
    """Where a fleet is remembered (`none`: it is not), the file of its policy, and what one FLEET_SCAN may take on.

    `apply_seconds`: of one FLEET_APPLY; what it has not begun by then stays with the next. `every_minutes`: how often
    `regelate serve` scans and applies by itself; None: never. `slack_webhook`: where it tells what became of that; a
    secret.
    """

    store: Literal["none", "sqlite", "dynamodb"] = "none"
    path: str | None = None
    table: str | None = None
    policy: str | None = None
    scan_seconds: Annotated[float, Field(gt=0, le=86_400)] = 60.0
    scan_tables: Positive = 10_000
    apply_seconds: Annotated[float, Field(gt=0, le=86_400)] = 60.0
    every_minutes: Minutes | None = None
    slack_webhook: HttpsAddress | None = Field(default=None, repr=False)

    def missing(self) -> Iterator[str]:
        """Yield the keys that the chosen store needs and that are not set."""
        needed = {"none": (), "sqlite": ("path",), "dynamodb": ("table",)}[self.store]
        yield from (name for name in needed if not getattr(self, name))


class StorageSettings(Section):
    """How requests to an object store are sent. The seconds are of one request, all its tries together."""

    retry_seconds: Annotated[float, Field(ge=0, le=600)] = 15.0
    request_seconds: Annotated[float, Field(gt=0, le=600)] = 10.0
    connections: Annotated[int, Field(ge=1, le=64)] = 32
    fetch_ahead_mb: Annotated[int, Field(ge=0, le=1024 * 1024)] | None = None

    @property
    def properties(self) -> dict[str, str]:
        """Return these as properties of a FileIO."""
        told = self.model_dump(exclude={"fetch_ahead_mb"})
        return {f"regelate.storage.{name.replace('_', '-')}": str(value) for name, value in told.items()}

    def fetch_ahead_bytes(self, free_bytes: int) -> int:
        """Return how much of the inputs may lie on a local disk at once, which has so much room."""
        return int(free_bytes * _SHARE_OF_DISK) if self.fetch_ahead_mb is None else self.fetch_ahead_mb * MB


class NetworkSettings(Section):
    """How long a request to a catalog or an AWS service may be silent; what storage has of its own wins for data."""

    connect_seconds: Annotated[float, Field(gt=0, le=60)] = 5.0
    read_seconds: Annotated[float, Field(gt=0, le=600)] = 30.0

    @property
    def timeouts(self) -> Timeouts:
        return Timeouts(connect_seconds=self.connect_seconds, read_seconds=self.read_seconds)


class JobSettings(Section):
    """Where jobs are kept (`none`: there are none), and how they are worked on."""

    store: Literal["none", "sqlite", "dynamodb"] = "none"
    path: str | None = None
    table: str | None = None
    queue_url: str | None = None
    workers: Annotated[int, Field(ge=0, le=16)] = 1
    max_attempts: Annotated[int, Field(ge=1, le=20)] = 3
    max_deliveries: Annotated[int, Field(ge=1, le=1_000)] = 20
    lease_seconds: Annotated[float, Field(ge=5, le=900)] = 60.0
    seconds_between_looks: Annotated[float, Field(ge=0, le=300)] = 5.0
    retention_hours: Annotated[float, Field(gt=0, le=8_760)] = 168.0

    def missing(self) -> Iterator[str]:
        """Yield the keys that the chosen store needs and that are not set."""
        needed = {"none": (), "sqlite": ("path",), "dynamodb": ("table", "queue_url")}[self.store]
        yield from (name for name in needed if not getattr(self, name))


class SparkSettings(Section):
    """`run`: by spark-submit on this machine, on EMR Serverless, or nowhere. `conf`: Spark's own keys, which win.

    `start_minutes`: until a run that waits is given up; `timeout_minutes`: until one that runs is. `location`:
    `s3://bucket/prefix` for the program and the results of EMR; `python`: of EMR's image, 3.11 or newer.
    """

    run: Literal["none", "local", "emr-serverless"] = "none"
    folder: str | None = None
    application_id: str | None = None
    role_arn: str | None = None
    location: Annotated[str, StringConstraints(pattern=r"^$|^s3://[a-z0-9][a-z0-9.-]*[a-z0-9](/.*)?$")] | None = None
    python: str = "/usr/bin/python3.11"
    conf: Mapping[str, str] = Field(default_factory=dict)
    start_minutes: Minutes = 15.0
    timeout_minutes: Minutes = 360.0
    seconds_between_looks: Annotated[float, Field(ge=0.05, le=3600)] = 2.0

    def missing(self) -> Iterator[str]:
        """Yield the keys that the chosen place needs and that are not set."""
        needed: Mapping[str, tuple[str, ...]] = {
            "none": (),
            "local": ("folder",),
            "emr-serverless": ("application_id", "role_arn", "location"),
        }
        yield from (name for name in needed[self.run] if not getattr(self, name))


class Configuration(Section):
    """What `defaults` and an overlay of config.json make together."""

    iceberg: IcebergSettings = IcebergSettings()
    catalogs: Mapping[Name, CatalogSettings] = Field(default_factory=dict)
    default_catalog: str | None = None
    tenants: Literal["*"] | tuple[str, ...] = ()
    auth: Literal["none", "claims", "iam"] = "claims"
    tenancy: TenancySettings = TenancySettings()
    limits: LimitSettings = LimitSettings()
    results: ResultSettings = ResultSettings()
    placement: PlacementSettings = PlacementSettings()
    retention: RetentionSettings = RetentionSettings()
    sweep: SweepSettings = SweepSettings()
    fleet: FleetSettings = FleetSettings()
    storage: StorageSettings = StorageSettings()
    network: NetworkSettings = NetworkSettings()
    jobs: JobSettings = JobSettings()
    spark: SparkSettings = SparkSettings()
    serve: ServeSettings = ServeSettings()
    engines: tuple[Annotated[str, OneOf(*Engine)], ...] = tuple(engine.value for engine in Engine)


class Settings(Configuration):
    """One environment's configuration, judged. `source` is the file it came from, None for what is built in."""

    environment: Environment
    source: Path | None = None

    def catalog(self, name: str | None = None) -> tuple[str, CatalogSettings]:
        """Return a catalog by name, or the default one. An unknown name is 404 CATALOG_NOT_FOUND."""
        wanted = name if name is not None else self.default_catalog or next(iter(self.catalogs))
        if wanted not in self.catalogs:
            shown = repr(wanted[:_LONGEST_NAME])
            raise NotFound("CATALOG_NOT_FOUND", f"no catalog is configured under the name {shown}", catalog=shown)
        return wanted, self.catalogs[wanted]

    @property
    def compaction_defaults(self) -> CompactionDefaults:
        """Return the config layer of every CompactionPolicy."""
        compaction, write = self.iceberg.compaction, self.iceberg.write
        small, least = compaction.small_file_threshold_mb, compaction.auto_min_file_size_mb
        return CompactionDefaults(
            target_file_size_bytes=write.target_file_size_mb * MB,
            min_file_size_bytes=None if small is None else small * MB,
            min_input_files=compaction.min_files_to_compact,
            max_files=compaction.max_files_per_compaction,
            compression_codec=write.compression_codec,
            auto=AutoDefaults(
                min_num_files=compaction.auto_min_num_files,
                max_file_size_bytes=compaction.auto_max_file_size_mb * MB,
                min_file_size_bytes=None if least is None else least * MB,
            ),
        )

    @property
    def verify(self) -> Verify:
        """Return the config layer of how a COMPACT is proven."""
        return Verify(self.iceberg.compaction.verify)

    @property
    def retention_defaults(self) -> RetentionDefaults:
        """Return the config layer of every RetentionPolicy."""
        return RetentionDefaults(
            max_snapshot_age_ms=int(self.retention.snapshot_retention_hours * HOUR_MS),
            min_snapshots_to_keep=self.retention.min_snapshots_to_keep,
            minimum_age_ms=int(self.retention.minimum_retention_hours * HOUR_MS),
            grace_ms=int(self.retention.expiry_grace_hours * HOUR_MS),
            minimum_orphan_age_ms=int(self.retention.minimum_orphan_age_hours * HOUR_MS),
        )

    @property
    def check_policy(self) -> CheckPolicy:
        """Return the config layer of WRITE's small-file check."""
        compaction = self.iceberg.compaction
        return CheckPolicy(
            enabled=compaction.enabled,
            interval=compaction.opportunistic_check_interval,
            automatic=compaction.auto_enabled,
            auto=None if compaction.auto is None else Auto(compaction.auto),
        )

    @property
    def table_defaults(self) -> dict[str, str]:
        """Return the properties that a table of ours is created with, unless the request names them."""
        write = self.iceberg.write
        rows = write.parquet_row_group_size
        return {
            "write.target-file-size-bytes": str(write.target_file_size_mb * MB),
            "write.parquet.compression-codec": write.compression_codec,
            **({} if rows is None else {"write.parquet.row-group-limit": str(rows)}),
        }

    def placement_policy(self, environ: Mapping[str, str]) -> PlacementPolicy:
        """Return how much this process may take on; what the file leaves null is read from the machine now.

        REGELATE_MAX_IN_PROCESS_SECONDS lowers the seconds, for a function that ends sooner than the file assumes.
        """
        placement = self.placement
        memory, seconds = placement.memory_mb, placement.max_in_process_seconds
        given = environ.get("REGELATE_MAX_IN_PROCESS_SECONDS", "")
        return PlacementPolicy(
            memory_bytes=int(available_memory_bytes(environ) * _SHARE_OF_MEMORY) if memory is None else memory * MB,
            threads=placement.threads or available_processors(),
            max_in_process_bytes=int(placement.max_in_process_gb * GB),
            max_in_process_seconds=min(seconds, float(given)) if given.isdecimal() and int(given) > 0 else seconds,
        )
