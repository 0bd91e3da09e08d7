"""Is a merged configuration right? Its keys and types, and the values that are right alone and wrong together."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, cast, get_args, get_origin

from pydantic import BaseModel, ValidationError

from regelate.core.access import MAX_POLICY_CHARACTERS, Access, session_policy, spark_policy
from regelate.core.engines import HERE
from regelate.core.jobs.spark_job import MAX_RUN_NAME
from regelate.core.table import names
from regelate.errors import InvalidRequest
from regelate.settings.models import ANY_TENANT, Configuration

Fault = tuple[str, str]
"""Key path in the merged document, and the rule that its value breaks; never the value, it may be a secret."""
_UNKNOWN_KEY = "extra_forbidden"
DELIVERIES_PER_ATTEMPT = 3
"""Of a job's message: one that runs the part, one that meets the lease of a worker that died, one that is early."""
SESSION_MARGIN_SECONDS = 60
"""A session outlives the longest run of a process by so much: the clocks of two machines differ."""


def typed(document: Mapping[str, Any]) -> tuple[Configuration | None, list[Fault]]:
    """Read a merged, expanded document; without a Configuration there is at least one fault."""
    configuration, errors = _validated(document)
    return configuration, _described(errors, document)


def unknown_keys(document: Mapping[str, Any]) -> list[Fault]:
    """Find the keys that nothing reads, in a document whose placeholders may still stand."""
    _, errors = _validated(document)
    return _described([error for error in errors if error["type"] == _UNKNOWN_KEY], document)


def _validated(document: Mapping[str, Any]) -> tuple[Configuration | None, list[Any]]:
    try:
        # From JSON text: strict mode then takes an array for a tuple, and still no "5" for 5.
        return Configuration.model_validate_json(json.dumps(document)), []
    except ValidationError as fault:
        return None, list(fault.errors(include_url=False, include_input=False, include_context=False))


def _described(errors: Sequence[Any], document: Any) -> list[Fault]:
    """Turn pydantic's errors into faults; the branches of a union that all failed are one rule."""
    rules: dict[str, list[str]] = {}
    for error in errors:
        path = _path(error["loc"], document)
        rules.setdefault(path, []).append(_rule(error, path))
    deepest = [path for path in rules if not any(other.startswith(f"{path}[") for other in rules)]
    return [(path, " or ".join(rules[path])) for path in deepest]


def _path(loc: Sequence[str | int], document: Any) -> str:
    """Return the key path as the file has it: pydantic adds the names of union branches, the file does not."""
    path, here = "", document
    for part in loc:
        if isinstance(here, Mapping) and part in here:
            path, here = f"{path}.{part}" if path else str(part), here[cast(str, part)]
        elif isinstance(here, list) and isinstance(part, int) and part < len(here):
            path, here = f"{path}[{part}]", here[part]
        elif isinstance(here, Mapping) and part == loc[-1] and part != "[key]":
            return f"{path}.{part}" if path else str(part)
    return path


def _rule(error: Any, path: str) -> str:
    if error["type"] != _UNKNOWN_KEY:
        return str(error["msg"])
    known = _known_keys(path.split(".")[:-1])
    near = get_close_matches(path.rpartition(".")[2], known, n=1)
    return f"unknown key; did you mean {near[0]}?" if near else f"unknown key; valid are {', '.join(sorted(known))}"


def _known_keys(path: Sequence[str]) -> tuple[str, ...]:
    """Return the keys that may stand in an object; one of free names, such as a map by tenant, is passed through."""
    here: Any = Configuration
    for part in path:
        if isinstance(here, type) and issubclass(here, BaseModel):
            here = here.model_fields[part].annotation if part in here.model_fields else None
        else:
            here = (*get_args(here), None)[1] if get_origin(here) is Mapping else None
    return tuple(here.model_fields) if isinstance(here, type) and issubclass(here, BaseModel) else ()


def clashes(found: Configuration, environment: str) -> Iterator[Fault]:
    """Yield (key path, rule) for values that are right alone and wrong together."""
    write, compaction, retention = found.iceberg.write, found.iceberg.compaction, found.retention
    small, cap = compaction.small_file_threshold_mb, compaction.max_files_per_compaction
    if small is not None and small >= write.target_file_size_mb:
        rule = f"({small}) must be below iceberg.write.target_file_size_mb ({write.target_file_size_mb})"
        yield "iceberg.compaction.small_file_threshold_mb", rule
    if cap is not None and cap < max(compaction.min_files_to_compact, 2):
        rule = f"({cap}) must not be below min_files_to_compact ({compaction.min_files_to_compact}) nor below 2"
        yield "iceberg.compaction.max_files_per_compaction", rule
    least, most = compaction.auto_min_file_size_mb, compaction.auto_max_file_size_mb
    if least is not None and least >= most:
        rule = f"({least}) must be below auto_max_file_size_mb ({most})"
        yield "iceberg.compaction.auto_min_file_size_mb", rule
    elif least is not None and least >= write.target_file_size_mb:
        rule = f"({least}) must be below iceberg.write.target_file_size_mb ({write.target_file_size_mb})"
        yield "iceberg.compaction.auto_min_file_size_mb", rule
    if retention.snapshot_retention_hours < retention.minimum_retention_hours:
        rule = f"({retention.snapshot_retention_hours}) must not be below minimum_retention_hours"
        yield "retention.snapshot_retention_hours", f"{rule} ({retention.minimum_retention_hours})"
    if not retention.minimum_retention_hours and environment != "development":
        rule = "(0) is for development: elsewhere readers would lose the snapshot that they are at"
        yield "retention.minimum_retention_hours", rule
    if compaction.auto == "async" and found.jobs.store == "none":
        yield "iceberg.compaction.auto", "async needs jobs: set jobs.store"
    for key in found.jobs.missing():
        yield f"jobs.{key}", f"missing; jobs.store {found.jobs.store} needs it"
    for key in found.fleet.missing():
        yield f"fleet.{key}", f"missing; fleet.store {found.fleet.store} needs it"
    attempts, deliveries = found.jobs.max_attempts, found.jobs.max_deliveries
    if found.jobs.store == "dynamodb" and DELIVERIES_PER_ATTEMPT * attempts > deliveries:
        most = deliveries // DELIVERIES_PER_ATTEMPT
        yield "jobs.max_attempts", f"({attempts}) must be at most {most}: jobs.max_deliveries is {deliveries}"
    threads, most = found.serve.threads, found.limits.most_of_one_tenant
    if threads is not None and threads <= most:
        yield "serve.threads", f"({threads}) must be above limits.max_concurrent_operations ({most})"
    for key in found.spark.missing():
        yield f"spark.{key}", f"missing; spark.run {found.spark.run} needs it"
    if found.spark.run != "none" and found.jobs.store == "none":
        yield "spark.run", "Spark works on jobs only: set jobs.store"
    if found.engines.count(HERE) != 1 or len(set(found.engines)) != len(found.engines):
        yield "engines", "must be duckdb, and spark beside it or not"
    if found.auth == "none" and environment != "development":
        yield "auth", "none lets every caller be every tenant; it exists in development only"
    yield from _catalog_clashes(found)
    if found.tenancy.role_arn:
        yield from _session_clashes(found)
    if found.spark.run == "emr-serverless":
        yield from _spark_clashes(found)


def _catalog_clashes(found: Configuration) -> Iterator[Fault]:
    if not found.catalogs:
        yield "catalogs", "names no catalog"
    elif found.default_catalog is None and len(found.catalogs) > 1:
        yield "default_catalog", f"missing; choose one of {', '.join(found.catalogs)}"
    elif found.default_catalog is not None and found.default_catalog not in found.catalogs:
        yield "default_catalog", f"names no catalog; catalogs has {', '.join(found.catalogs)}"
    shared = any(catalog.multi_tenant for catalog in found.catalogs.values())
    listed = () if found.tenants == ANY_TENANT else found.tenants
    for index, tenant in enumerate(listed):
        try:
            names.check_tenant(tenant, strict=shared)
        except InvalidRequest as fault:
            yield f"tenants[{index}]", fault.message
    for tenant in found.limits.tenants:
        if found.tenants != ANY_TENANT and tenant not in listed:
            yield f"limits.tenants.{tenant}", "is none of tenants: a limit of nobody"
    single = len(set(listed)) == 1
    for name, catalog in found.catalogs.items():
        for key, rule in catalog.problems():
            yield f"catalogs.{name}.{key}", rule
        if found.auth != "none" and not catalog.multi_tenant and not single:
            rule = "{namespace} shows every table to every tenant: name exactly one in tenants"
            yield f"catalogs.{name}.namespace_template", f"{rule}, or use {{tenant_id}}__{{namespace}}"


def _spark_clashes(found: Configuration) -> Iterator[Fault]:
    """Yield the catalogs of tenants for whose runs there would be no policy."""
    for name, catalog in found.catalogs.items():
        if not catalog.multi_tenant:
            continue
        warehouse = catalog.properties.get("warehouse", "")
        if not warehouse.startswith("s3://"):
            yield f"catalogs.{name}.warehouse", "must be s3://bucket/prefix where Spark runs on EMR for many tenants"
            continue
        policy = spark_policy("x" * names.MAX_TENANT_BYTES, warehouse, found.spark.location or "", "x" * MAX_RUN_NAME)
        if len(policy) > MAX_POLICY_CHARACTERS:
            rule = f"is too long: the policy of a Spark run must fit into {MAX_POLICY_CHARACTERS} characters"
            yield f"catalogs.{name}.warehouse", rule


def _session_clashes(found: Configuration) -> Iterator[Fault]:
    """Yield what would leave a tenant without a session that fits, or with one that ends amid a run."""
    seconds, longest = found.tenancy.session_seconds, found.placement.max_in_process_seconds
    if seconds < longest + SESSION_MARGIN_SECONDS:
        rule = f"({seconds}) must be {SESSION_MARGIN_SECONDS} above placement.max_in_process_seconds ({longest:g})"
        yield "tenancy.session_seconds", rule
    for name, catalog in found.catalogs.items():
        warehouse = catalog.properties.get("warehouse", "")
        if not warehouse.startswith("s3://"):
            yield f"catalogs.{name}.warehouse", "must be s3://bucket/prefix where tenancy.role_arn is set"
            continue
        longest_name = "x" * names.MAX_TENANT_BYTES if catalog.multi_tenant else None
        policies = [session_policy(access, longest_name, warehouse) for access in Access]
        if max(map(len, policies)) > MAX_POLICY_CHARACTERS:
            rule = f"is too long: a session policy that names it must fit into {MAX_POLICY_CHARACTERS} characters"
            yield f"catalogs.{name}.warehouse", rule
