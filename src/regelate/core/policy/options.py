"""Which option wins: request > table property > config.json > Iceberg's default, per key. Layers in, policies out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from enum import StrEnum
from typing import Any

from regelate.core.policy.option_retention import RetentionDefaults, resolve_retention
from regelate.core.policy.option_values import (
    MAX_INT,
    MAX_LONG,
    NO_PROPERTIES,
    boolean,
    choice,
    codec,
    parse_size,
    partition_filters,
    ratio,
    refused,
    sort_fields,
    whole,
)
from regelate.core.policy.policy import (
    MAX_TARGET_BYTES,
    MB,
    CompactionPolicy,
    JobOrder,
    Selection,
    SortField,
    Splice,
    Strategy,
    Verify,
    layered,
    sized,
)
from regelate.core.policy.targets import ADAPTIVE, LARGE_WHERE_TARGETS_GROW, adaptive_target
from regelate.core.requests import CompactRequest
from regelate.core.values import dataclass
from regelate.errors import InvalidRequest

__all__ = [
    "CheckPolicy",
    "CompactionDefaults",
    "RetentionDefaults",
    "parse_size",
    "resolve_check",
    "resolve_policy",
    "resolve_retention",
    "resolve_verify",
]

Reader = Callable[[str, object], object]

TABLE_PREFIX = "regelate.compaction."
AUTO_PREFIX = "regelate.auto."
AUTO_PROPERTY = "regelate.auto.enabled"
"""Turns automatic runs on for a table, whoever writes it. It shapes no policy."""
TARGET_PROPERTY = "write.target-file-size-bytes"
CODEC_PROPERTY = "write.parquet.compression-codec"
ROW_GROUP_PROPERTY = "write.parquet.row-group-size-bytes"


def _within(low: int, high: int) -> Reader:
    return lambda name, value: whole(name, value, low, high)


def _target(name: str, value: object) -> int | str:
    return ADAPTIVE if value == ADAPTIVE else whole(name, value, 1, MAX_TARGET_BYTES)


def _table_target(name: str, value: object) -> str:
    if value != ADAPTIVE:
        raise refused(name, value, f"must be {ADAPTIVE}; a size is what {TARGET_PROPERTY} is for", valid=[ADAPTIVE])
    return ADAPTIVE


def _table_selection(name: str, value: object) -> Selection:
    found = choice(name, value, Selection)
    if found is Selection.SIZE_TIERED:
        raise refused(
            name, value, "is for requests: a COMPACT by hand merges all; automatic runs take it by themselves"
        )
    return found


class Auto(StrEnum):
    """What a WRITE does that finds enough small files."""

    RECOMMEND = "recommend"
    ASYNC = "async"
    """Submit a job, where jobs are kept."""
    SYNC = "sync"
    """Compact within the same request."""


AUTOMATIC = CompactRequest(selection=Selection.SIZE_TIERED.value)
"""What is asked where nobody asks: by a WRITE to a table whose `auto` is async or sync."""

_TARGET_OPTION = "target-file-size-bytes"
SPLICE_OPTION = "splice"
# Names and ranges: Iceberg's SizeBasedFileRewritePlanner and BinPackRewriteFilePlanner 1.10; where CompactionPolicy is
# narrower (delete-file-threshold 0 would select every file), its range holds.
ICEBERG_OPTIONS: Mapping[str, tuple[str, Reader]] = {
    _TARGET_OPTION: ("target", _target),
    "min-file-size-bytes": ("min", _within(0, MAX_LONG)),
    "max-file-size-bytes": ("max", _within(1, MAX_LONG)),
    "min-input-files": ("min_input_files", _within(1, MAX_INT)),
    "max-file-group-size-bytes": ("max_file_group_size_bytes", _within(1, MAX_LONG)),
    "delete-file-threshold": ("delete_file_threshold", _within(1, MAX_INT)),
    "delete-ratio-threshold": ("delete_ratio_threshold", ratio),
    "rewrite-all": ("rewrite_all", boolean),
    "rewrite-job-order": ("job_order", lambda name, value: choice(name, value, JobOrder)),
    SPLICE_OPTION: ("splice", lambda name, value: choice(name, value, Splice)),
}
"""And one of ours."""
_NOT_ON_TABLES = ("rewrite-all", "rewrite-job-order")
TABLE_OPTIONS: Mapping[str, tuple[str, Reader]] = {
    **{name: option for name, option in ICEBERG_OPTIONS.items() if name not in _NOT_ON_TABLES},
    _TARGET_OPTION: ("target", _table_target),
    "selection": ("selection", _table_selection),
    "quiet-window-seconds": ("quiet_window_seconds", _within(0, MAX_INT)),
}
AUTO_OPTIONS: Mapping[str, tuple[str, Reader]] = {
    "min-num-files": ("min_input_files", _within(2, MAX_INT)),
    "max-file-size-bytes": ("target", _within(2, MAX_TARGET_BYTES)),
    "min-file-size-bytes": ("min", _within(1, MAX_LONG)),
}
"""Table properties of `selection: size-tiered`, under Delta's names, and the knobs that they are there."""
CHECK_OPTIONS: Mapping[str, Reader] = {
    "enabled": boolean,
    "auto": lambda name, value: choice(name, value, Auto),
    "verify": lambda name, value: choice(name, value, Verify),
}
"""Table properties that shape no policy, and so no plan id.
"""
_SIZES = ("target", "min", "max")


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoDefaults:
    """The config layer of `selection: size-tiered`. `max_file_size_bytes`: what files become, though never more than
    the target of the table; `min_file_size_bytes`: smaller ones count, None: those below half of that.
    """

    min_num_files: int = 50
    max_file_size_bytes: int = 128 * MB
    min_file_size_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionDefaults:
    """The config layer of a policy; None leaves a knob to Iceberg's default (no cap, for `max_files`)."""

    target_file_size_bytes: int | None = None
    min_file_size_bytes: int | None = None
    min_input_files: int | None = None
    max_files: int | None = None
    compression_codec: str | None = None
    auto: AutoDefaults = AutoDefaults()


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckPolicy:
    """Whether and how often a WRITE looks for small files: at every multiple of `interval` in the table's positions.

    `automatic`: commits of others set off automatic runs too. `auto`: what a WRITE does; None: `async` where they do.
    """

    enabled: bool = True
    interval: int = 5
    automatic: bool = False
    auto: Auto | None = None

    @property
    def after_write(self) -> Auto:
        return self.auto or (Auto.ASYNC if self.automatic else Auto.RECOMMEND)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layer:
    """One source of knobs: `values` by policy field (sizes as target / min / max), `names` as its author wrote them."""

    values: Mapping[str, Any] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)

    def adapted(self, table_bytes: int) -> _Layer:
        """Return the layer with a number where its target is the table's size to tell.

        Nobody wrote that number, so it keeps to the layer's own min and max, by Iceberg's ratios: a table must not grow
        into a refusal.
        """
        if self.values.get("target") != ADAPTIVE:
            return self
        low, high = self.values.get("min") or 0, min(self.values.get("max") or MAX_TARGET_BYTES, MAX_TARGET_BYTES)
        target = min(max(adaptive_target(table_bytes), -(-4 * low // 3)), 5 * high // 9)
        if low + 1 < high and not low < target < high:
            target = (low + high) // 2
        return replace(self, values={**self.values, "target": max(target, 1)})

    @property
    def sizes(self) -> dict[str, int]:
        return {key: self.values[key] for key in _SIZES if self.values.get(key) is not None}


def resolve_policy(
    *,
    request: CompactRequest,
    table_properties: Mapping[str, str] = NO_PROPERTIES,
    config: CompactionDefaults,
    now_ms: int,
    table_bytes: int,
    table_sort_order: tuple[SortField, ...] = (),
) -> CompactionPolicy:
    """Resolve every knob of one COMPACT. Every layer is read whole: a malformed property is refused though overruled.

    `table_bytes`: of the table's files, which an adaptive target goes by.
    `now_ms` enters the policy only where the selection reads it, or no plan id would be found again.
    Raises InvalidRequest: INVALID_OPTION for a knob, INVALID_FIELD for `partition_filter` and `where`.
    """
    read = (_request_layer(request), _table_layer(table_properties), _config_layer(config))
    layers = tuple(layer.adapted(table_bytes) for layer in read)
    grows = layered(*(layer.values for layer in read)).get("target") == ADAPTIVE
    knobs: dict[str, Any] = layered(*(layer.values for layer in layers))
    selection = Selection(knobs.get("selection", Selection.SMALL_FILES))
    if selection is Selection.SIZE_TIERED:
        layers = _size_tiered(layers, table_properties, config.auto)
        knobs = layered(*(layer.values for layer in layers))
    for size in _SIZES:
        knobs.pop(size, None)
    if selection.reads_time:
        knobs["now_ms"] = now_ms
    if knobs.get("strategy") is Strategy.SORT:
        knobs["sort_order"] = knobs.get("sort_order") or table_sort_order
        if not knobs["sort_order"]:
            raise refused("sort_order", None, "strategy sort needs it: this table has no sort order of its own")
    try:
        policy = sized(CompactionPolicy(**knobs), [layer.sizes for layer in layers])
    except InvalidRequest as fault:
        raise _with_sources(fault, layers) from fault
    if grows and not any(layer.sizes.get("max") for layer in read):
        policy = replace(policy, max_file_size_bytes=max(policy.max_file_size_bytes, LARGE_WHERE_TARGETS_GROW))
    _check_row_group(read[0], layers[0].values.get("target"), table_properties)
    return policy


def _request_layer(request: CompactRequest) -> _Layer:
    options = _asked_options(request.options)
    values = {key: read(name, value) for name, value in options.items() for key, read in [ICEBERG_OPTIONS[name]]}
    names = {ICEBERG_OPTIONS[name][0]: f"options.{name}" for name in options}
    if request.target_file_size_mb is not None:
        target = whole("target_file_size_mb", request.target_file_size_mb, 1, MAX_TARGET_BYTES // MB) * MB
        if values.get("target", target) != target:
            raise refused("target_file_size_mb", request.target_file_size_mb, "options.target-file-size-bytes differs")
        values["target"], names["target"] = target, "target_file_size_mb"
    if request.max_files is not None:
        values["max_files"] = whole("max_files", request.max_files, 1, MAX_INT)
    if request.strategy is not None:
        values["strategy"] = choice("strategy", request.strategy, Strategy)
    if request.selection is not None:
        values["selection"] = choice("selection", request.selection, Selection)
    if request.sort_order is not None:
        values["sort_order"] = sort_fields(request.sort_order)
    values["force"] = boolean("force", request.force)
    values["where"] = _where(request.where)
    values["partition_filters"] = partition_filters(request.partition_filter)
    return _Layer(values=values, names=names)


def _asked_options(options: Mapping[str, object] | None) -> Mapping[str, object]:
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise refused("options", options, "must be an object of Iceberg option names")
    for name, value in options.items():
        if name not in ICEBERG_OPTIONS:
            valid = sorted(ICEBERG_OPTIONS)
            raise refused(str(name)[:100], value, f"unknown option; valid are {', '.join(valid)}", valid=valid)
    return options


def _where(value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip():
        raise InvalidRequest("INVALID_FIELD", "where must be a row filter such as day >= '2025-01-17'", field="where")
    return value


def _table_layer(properties: Mapping[str, str]) -> _Layer:
    values: dict[str, Any] = {}
    names: dict[str, str] = {}
    for name, value in _own_properties(properties).items():
        if name not in CHECK_OPTIONS:
            key, read = TABLE_OPTIONS[name]
            values[key], names[key] = read(TABLE_PREFIX + name, value), TABLE_PREFIX + name
    if TARGET_PROPERTY in properties:
        target = whole(TARGET_PROPERTY, properties[TARGET_PROPERTY], 1, MAX_TARGET_BYTES)
        if "target" not in values:
            values["target"], names["target"] = target, TARGET_PROPERTY
    if CODEC_PROPERTY in properties:
        values["compression_codec"] = codec(CODEC_PROPERTY, properties[CODEC_PROPERTY])
    return _Layer(values=values, names=names)


def _own_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return `regelate.compaction.*` without the prefix; a name that nothing reads is refused, not passed over."""
    full = [name for name in properties if name.startswith(TABLE_PREFIX)]
    own = {name.removeprefix(TABLE_PREFIX): properties[name] for name in full}
    for name, value in own.items():
        if name not in TABLE_OPTIONS and name not in CHECK_OPTIONS:
            known = (*TABLE_OPTIONS, *CHECK_OPTIONS)
            raise _unknown(TABLE_PREFIX + name, value, [TABLE_PREFIX + one for one in known])
    return own


def _unknown(name: str, value: str, known: Sequence[str]) -> InvalidRequest:
    valid = sorted(known)
    return refused(name, value, f"unknown table property; valid are {', '.join(valid)}", valid=valid)


def _config_layer(config: CompactionDefaults) -> _Layer:
    values = {
        "target": config.target_file_size_bytes,
        "min": config.min_file_size_bytes,
        "min_input_files": config.min_input_files,
        "max_files": config.max_files,
        "compression_codec": config.compression_codec,
    }
    names = {"target": "write.target_file_size_mb of config.json", "min": "small_file_threshold_mb of config.json"}
    return _Layer(values=values, names=names)


def _size_tiered(layers: tuple[_Layer, ...], properties: Mapping[str, str], config: AutoDefaults) -> tuple[_Layer, ...]:
    """Return the layers with the sizes and the number of files of automatic runs in the place of COMPACT's own.

    Nothing but a request makes files larger than the table's target. What is large is what it is by hand. A target that
    grows with the table is what automatic runs go by too, unless the table names one of theirs.
    """
    asked, *others = layers
    own = next((layer for layer in others if layer.values.get("target") is not None), _Layer())
    defaults = {
        "target": config.max_file_size_bytes,
        "min": config.min_file_size_bytes,
        "min_input_files": config.min_num_files,
    }
    names = {"target": "auto_max_file_size_mb of config.json", "min": "auto_min_file_size_mb of config.json"}
    named = _auto_layer(properties)
    follows = _own_properties(properties).get(_TARGET_OPTION) == ADAPTIVE and "target" not in named.values
    if follows:
        named = _Layer(
            values={**named.values, "target": own.values["target"]},
            names={**named.names, "target": own.names["target"]},
        )
    found = [_capped(named, own), _capped(_Layer(values=defaults, names=names), own)]
    knobs: dict[str, Any] = layered(asked.values, *(layer.values for layer in found))
    target: int = knobs["target"]
    for index, overruled in enumerate((follows or asked.sizes.get("target") is not None, True)):
        if overruled and found[index].sizes.get("min", 0) >= target:
            found[index] = replace(found[index], values={**found[index].values, "min": None})
    sized_by = [
        _Layer(
            values={**{key: value for key, value in layer.values.items() if key not in defaults}, **auto.values},
            names={**layer.names, **auto.names},
        )
        for layer, auto in zip(others, found, strict=True)
    ]
    # Half of the target, where Iceberg has 0.75: a file that has come so far is not worth another rewrite.
    last = {"min": target // 2, "max": int(1.80 * max(target, own.sizes.get("target", 0)))}
    return (asked, *sized_by, _Layer(values=last, names={"min": "half of what is made", "max": "the table's target"}))


def _capped(layer: _Layer, own: _Layer) -> _Layer:
    """Return a layer with the target of `own` in the place of a larger one."""
    most = own.sizes.get("target", MAX_TARGET_BYTES)
    if layer.sizes.get("target", 0) <= most:
        return layer
    names = {**layer.names, "target": own.names["target"]}
    return _Layer(values={**layer.values, "target": most}, names=names)


def _auto_layer(properties: Mapping[str, str]) -> _Layer:
    own = {name.removeprefix(AUTO_PREFIX): value for name, value in properties.items() if name.startswith(AUTO_PREFIX)}
    own.pop(AUTO_PROPERTY.removeprefix(AUTO_PREFIX), None)
    for name, value in own.items():
        if name not in AUTO_OPTIONS:
            known = (AUTO_PROPERTY, *(AUTO_PREFIX + option for option in AUTO_OPTIONS))
            raise _unknown(AUTO_PREFIX + name, value, known)
    values = {key: read(AUTO_PREFIX + name, own[name]) for name in own for key, read in [AUTO_OPTIONS[name]]}
    return _Layer(values=values, names={AUTO_OPTIONS[name][0]: AUTO_PREFIX + name for name in own})


def _with_sources(fault: InvalidRequest, layers: tuple[_Layer, ...]) -> InvalidRequest:
    """Say where each of the clashing sizes was set: they may come from different layers."""
    sources = {
        size: layer.names[size] for size in _SIZES for layer in reversed(layers) if layer.values.get(size) is not None
    }
    if not str(fault.details.get("option")).endswith("-file-size-bytes"):
        return fault
    told = ", ".join(f"{size} from {name}" for size, name in sources.items())
    details: dict[str, Any] = {**fault.details, "sources": sources}
    return InvalidRequest(fault.code, f"{fault.message} ({told})", **details)


def _check_row_group(asked: _Layer, target: int | None, properties: Mapping[str, str]) -> None:
    """Refuse a REQUESTED target below the row group size that the table itself names; `target`: what it is in bytes."""
    if target is None or ROW_GROUP_PROPERTY not in properties:
        return
    row_group = whole(ROW_GROUP_PROPERTY, properties[ROW_GROUP_PROPERTY], 1, MAX_LONG)
    if target < row_group:
        rule = f"must not be below the table's {ROW_GROUP_PROPERTY} ({row_group})"
        if asked.values["target"] == ADAPTIVE:
            rule = f"is {target} bytes for a table of this size, and {rule}; name a size, or lower the table's"
        raise refused(asked.names["target"], asked.values["target"], rule, minimum=row_group)


def resolve_check(*, table_properties: Mapping[str, str] = NO_PROPERTIES, config: CheckPolicy) -> CheckPolicy:
    """Resolve the small-file check of WRITE, and whether commits of others set off runs; the table wins.

    A table that turns automatic runs on or off, and says nothing of WRITE, says it of WRITE too.
    """
    own = _own_properties(table_properties)
    read = {name: CHECK_OPTIONS[name](TABLE_PREFIX + name, own[name]) for name in CHECK_OPTIONS if name in own}
    automatic, auto = config.automatic, config.auto
    if AUTO_PROPERTY in table_properties:
        automatic, auto = boolean(AUTO_PROPERTY, table_properties[AUTO_PROPERTY]), None
    return CheckPolicy(
        enabled=bool(read.get("enabled", config.enabled)),
        interval=config.interval,
        automatic=automatic,
        auto=Auto(str(read["auto"])) if "auto" in read else auto,
    )


def resolve_verify(request: object, table_properties: Mapping[str, str], config: Verify) -> Verify:
    """Resolve how a COMPACT is proven: request, then `regelate.compaction.verify` of the table, then config.json."""
    name = TABLE_PREFIX + "verify"
    table = choice(name, table_properties[name], Verify) if name in table_properties else config
    return choice("verify", request, Verify) if request is not None else table
