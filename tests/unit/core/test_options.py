"""Options as requests, tables and config.json write them, and which of them wins."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regelate.core.policy.options import (
    Auto,
    AutoDefaults,
    CheckPolicy,
    CompactionDefaults,
    RetentionDefaults,
    parse_size,
    resolve_check,
    resolve_policy,
    resolve_retention,
    resolve_verify,
)
from regelate.core.policy.policy import (
    GB,
    MAX_TARGET_BYTES,
    MB,
    CompactionPolicy,
    JobOrder,
    RetentionPolicy,
    Selection,
    SortField,
    Strategy,
    Verify,
)
from regelate.core.requests import CompactRequest
from regelate.errors import InvalidRequest

SHIPPED = CompactionDefaults(
    target_file_size_bytes=128 * MB, min_file_size_bytes=64 * MB, min_input_files=3, compression_codec="zstd"
)
NOTHING = CompactionDefaults()
HOUR_MS = 3_600_000
A_WEEK = RetentionDefaults()


def resolve(
    request: Mapping[str, object] | None = None,
    table: Mapping[str, str] | None = None,
    config: CompactionDefaults = SHIPPED,
    *,
    now_ms: int = 0,
    table_sort_order: tuple[SortField, ...] = (),
) -> CompactionPolicy:
    return resolve_policy(
        request=CompactRequest(**(request or {})),
        table_properties=table or {},
        config=config,
        now_ms=now_ms,
        table_bytes=0,
        table_sort_order=table_sort_order,
    )


def refusal(request: Mapping[str, object] | None = None, table: Mapping[str, str] | None = None) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        resolve(request, table)
    assert caught.value.status == 400
    return caught.value


def asked(**options: object) -> dict[str, object]:
    return {"options": {name.replace("_", "-"): value for name, value in options.items()}}


# Who wins


def test_without_any_layer_the_policy_is_icebergs_default() -> None:
    assert resolve(config=NOTHING) == CompactionPolicy()


def test_the_shipped_config_alone_gives_its_own_sizes_and_icebergs_maximum() -> None:
    policy = resolve()
    assert (policy.target_file_size_bytes, policy.min_file_size_bytes) == (128 * MB, 64 * MB)
    assert policy.max_file_size_bytes == int(1.8 * 128 * MB)
    assert (policy.min_input_files, policy.max_files) == (3, None)


@pytest.mark.parametrize(
    ("request_value", "table_value", "config_value", "winner"),
    [(32, 256, 128, 32), (None, 256, 128, 256), (None, None, 128, 128), (None, None, None, 512), (32, None, None, 32)],
)
def test_target_size_comes_from_request_then_table_then_config_then_iceberg(
    request_value: int | None, table_value: int | None, config_value: int | None, winner: int
) -> None:
    table = {} if table_value is None else {"write.target-file-size-bytes": str(table_value * MB)}
    config = CompactionDefaults(target_file_size_bytes=None if config_value is None else config_value * MB)
    assert resolve({"target_file_size_mb": request_value}, table, config).target_file_size_bytes == winner * MB


@pytest.mark.parametrize(
    ("option", "values", "knob"),
    [
        ("min-input-files", (7, 8), "min_input_files"),
        ("min-file-size-bytes", (7, 8), "min_file_size_bytes"),
        ("max-file-size-bytes", (GB, 2 * GB), "max_file_size_bytes"),
        ("max-file-group-size-bytes", (GB, 2 * GB), "max_file_group_size_bytes"),
        ("delete-file-threshold", (7, 8), "delete_file_threshold"),
        ("delete-ratio-threshold", (0.125, 0.5), "delete_ratio_threshold"),
    ],
)
def test_every_shared_option_is_read_from_the_table_and_the_request_wins(
    option: str, values: tuple[float, float], knob: str
) -> None:
    request, table = {"options": {option: str(values[0])}}, {f"regelate.compaction.{option}": str(values[1])}
    assert getattr(resolve(None, table), knob) == values[1]
    assert getattr(resolve(request, table), knob) == values[0]
    assert getattr(resolve({"options": {option: values[0]}}, table), knob) == values[0]


def test_keys_are_resolved_one_by_one_and_not_layer_by_layer() -> None:
    table = {"write.target-file-size-bytes": str(256 * MB), "regelate.compaction.min-input-files": "9"}
    policy = resolve(asked(delete_file_threshold="2"), table)
    assert (policy.delete_file_threshold, policy.min_input_files, policy.target_file_size_bytes) == (2, 9, 256 * MB)
    assert policy.min_file_size_bytes == 64 * MB


def test_only_a_request_can_ask_for_rewrite_all_and_job_order() -> None:
    policy = resolve(asked(rewrite_all="true", rewrite_job_order="bytes-desc"))
    assert (policy.rewrite_all, policy.job_order) == (True, JobOrder.BYTES_DESC)
    assert refusal(None, {"regelate.compaction.rewrite-all": "true"}).code == "INVALID_OPTION"


def test_selection_and_quiet_window_may_stand_on_the_table() -> None:
    table = {"regelate.compaction.selection": "time-series", "regelate.compaction.quiet-window-seconds": "60"}
    policy = resolve(None, table, now_ms=5)
    assert (policy.selection, policy.quiet_window_seconds, policy.now_ms) == (Selection.TIME_SERIES, 60, 5)
    assert resolve({"selection": "partition"}, table).selection is Selection.PARTITION


def test_codec_comes_from_the_table_before_the_config() -> None:
    config = CompactionDefaults(compression_codec="gzip")
    assert resolve(config=config).compression_codec == "gzip"
    assert resolve(None, {"write.parquet.compression-codec": "SNAPPY"}, config).compression_codec == "snappy"


def test_the_cap_on_files_comes_from_the_request_before_the_config() -> None:
    config = CompactionDefaults(max_files=100)
    assert resolve(config=config).max_files == 100
    assert resolve({"max_files": 4}, config=config).max_files == 4


# Sizes that clash


def test_a_small_requested_target_takes_icebergs_ratio_where_the_configured_minimum_no_longer_fits() -> None:
    policy = resolve({"target_file_size_mb": 32})
    assert (policy.min_file_size_bytes, policy.max_file_size_bytes) == (24 * MB, int(1.8 * 32 * MB))


def test_a_requested_minimum_above_the_configured_target_is_refused_and_told_where_both_were_set() -> None:
    fault = refusal(asked(min_file_size_bytes=str(128 * MB)))
    assert fault.code == "INVALID_OPTION"
    assert fault.details["option"] == "min-file-size-bytes"
    assert fault.details["sources"] == {
        "target": "write.target_file_size_mb of config.json",
        "min": "options.min-file-size-bytes",
    }


@pytest.mark.parametrize(
    "options",
    [
        {"target-file-size-bytes": 100, "min-file-size-bytes": 100},
        {"target-file-size-bytes": 100, "max-file-size-bytes": 100},
        {"min-file-size-bytes": 200 * MB, "max-file-size-bytes": 100 * MB},
    ],
)
def test_sizes_that_clash_inside_one_request_are_refused(options: dict[str, object]) -> None:
    assert refusal({"options": options}).code == "INVALID_OPTION"


def test_two_ways_to_ask_for_a_target_must_agree() -> None:
    assert resolve({"target_file_size_mb": 1, **asked(target_file_size_bytes=MB)}).target_file_size_bytes == MB
    assert refusal({"target_file_size_mb": 2, **asked(target_file_size_bytes=MB)}).code == "INVALID_OPTION"


def test_a_requested_target_below_the_row_group_size_of_the_table_is_refused() -> None:
    table = {"write.parquet.row-group-size-bytes": str(64 * MB)}
    fault = refusal({"target_file_size_mb": 32}, table)
    assert fault.code == "INVALID_OPTION"
    assert fault.details["minimum"] == 64 * MB
    assert resolve({"target_file_size_mb": 64}, table).target_file_size_bytes == 64 * MB


def test_a_refused_adaptive_target_is_named_as_it_was_sent_and_in_bytes() -> None:
    table = {"write.parquet.row-group-size-bytes": str(256 * MB)}
    fault = refusal(asked(target_file_size_bytes="adaptive"), table)
    assert fault.message.startswith(
        f"options.target-file-size-bytes = 'adaptive': is {128 * MB} bytes for a table of this size, and must not be "
        f"below the table's write.parquet.row-group-size-bytes ({256 * MB})"
    )


def test_a_table_whose_own_target_is_below_its_row_group_size_is_still_compacted() -> None:
    table = {"write.parquet.row-group-size-bytes": str(128 * MB), "write.target-file-size-bytes": str(32 * MB)}
    assert resolve(None, table).target_file_size_bytes == 32 * MB


SIZES = st.dictionaries(st.sampled_from(["target", "min", "max"]), st.integers(2, 64 * MB), max_size=3)


def sized_by(
    request: dict[str, int], table: dict[str, int], config: dict[str, int]
) -> CompactionPolicy | InvalidRequest:
    properties = {f"regelate.compaction.{size}-file-size-bytes": str(table[size]) for size in table if size != "target"}
    if "target" in table:
        properties["write.target-file-size-bytes"] = str(table["target"])
    defaults = CompactionDefaults(target_file_size_bytes=config.get("target"), min_file_size_bytes=config.get("min"))
    try:
        return resolve({"options": {f"{k}-file-size-bytes": v for k, v in request.items()}}, properties, defaults)
    except InvalidRequest as fault:
        return fault


@given(request=SIZES, table=SIZES, config=SIZES)
def test_the_sizes_of_a_request_are_taken_exactly_and_in_order_or_refused(
    request: dict[str, int], table: dict[str, int], config: dict[str, int]
) -> None:
    policy = sized_by(request, table, config)
    if isinstance(policy, InvalidRequest):
        assert policy.code == "INVALID_OPTION"
    else:
        assert policy.min_file_size_bytes < policy.target_file_size_bytes < policy.max_file_size_bytes
        for size, value in request.items():
            assert getattr(policy, f"{size}_file_size_bytes") == value


@given(target=st.integers(2, 64 * MB), table=SIZES, config=SIZES)
def test_a_requested_target_alone_is_never_refused_for_what_lower_layers_say(
    target: int, table: dict[str, int], config: dict[str, int]
) -> None:
    policy = sized_by({"target": target}, table, config)
    assert isinstance(policy, CompactionPolicy)
    assert policy.target_file_size_bytes == target


# What is refused (row 62)


NO_TARGETS = [0, -1, 10 * 1024 * 1024, 1.5, 128.0, "many", "1.5", "", "1e3", " 5", True, [], "9" * 400]


@pytest.mark.parametrize("value", NO_TARGETS)
def test_a_target_in_megabytes_out_of_range_or_no_whole_number_is_refused_with_the_range(value: object) -> None:
    fault = refusal({"target_file_size_mb": value})
    assert fault.code == "INVALID_OPTION"
    assert (fault.details["minimum"], fault.details["maximum"]) == (1, MAX_TARGET_BYTES // MB)
    assert len(fault.message) < 300


@pytest.mark.parametrize("value", [0, -1, 2**31, 2.0, "x", True])
def test_a_cap_on_files_that_is_no_positive_number_is_refused(value: object) -> None:
    assert refusal({"max_files": value}).details["option"] == "max_files"


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("target-file-size-bytes", "0"),
        ("target-file-size-bytes", str(10 * 1024 * GB)),
        ("min-file-size-bytes", "-1"),
        ("max-file-size-bytes", str(2**63)),
        ("min-input-files", "0"),
        ("min-input-files", "2147483648"),
        ("min-input-files", "٣"),
        ("min-input-files", None),
        ("max-file-group-size-bytes", "0"),
        ("delete-file-threshold", "0"),
        ("delete-ratio-threshold", "0"),
        ("delete-ratio-threshold", "1.01"),
        ("delete-ratio-threshold", "NaN"),
        ("delete-ratio-threshold", math.nan),
        ("delete-ratio-threshold", "0.3.1"),
        ("delete-ratio-threshold", "0.300000000000000000001"),
        ("delete-ratio-threshold", Decimal("0.300000000000000000001")),
        ("rewrite-all", "yes"),
        ("rewrite-all", 1),
        ("rewrite-job-order", "sideways"),
    ],
)
def test_a_malformed_option_is_refused_by_its_name(option: str, value: object) -> None:
    fault = refusal({"options": {option: value}})
    assert (fault.code, fault.details["option"]) == ("INVALID_OPTION", option)


@pytest.mark.parametrize("name", ["target-file-size", "min_input_files", "partial-progress.enabled", "zorder"])
def test_an_unknown_option_is_refused_and_the_valid_ones_are_listed(name: str) -> None:
    fault = refusal({"options": {name: "1"}})
    assert (fault.code, fault.details["option"]) == ("INVALID_OPTION", name)
    assert fault.details["valid"] == [
        "delete-file-threshold",
        "delete-ratio-threshold",
        "max-file-group-size-bytes",
        "max-file-size-bytes",
        "min-file-size-bytes",
        "min-input-files",
        "rewrite-all",
        "rewrite-job-order",
        "splice",
        "target-file-size-bytes",
    ]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("write.target-file-size-bytes", "128MB"),
        ("write.parquet.compression-codec", "lzo"),
        ("regelate.compaction.min-input-files", "some"),
        ("regelate.compaction.delete-ratio-threshold", "30%"),
        ("regelate.compaction.selection", "newest"),
        ("regelate.compaction.min-input-file", "3"),
    ],
)
def test_a_malformed_or_misspelt_table_property_is_refused_by_its_full_name(name: str, value: str) -> None:
    fault = refusal(asked(min_input_files=3, target_file_size_bytes=MB), {name: value})
    assert (fault.code, fault.details["option"]) == ("INVALID_OPTION", name)


def test_properties_of_others_are_left_alone() -> None:
    table = {"owner": "someone", "write.format.default": "orc", "history.expire.max-snapshot-age-ms": "broken"}
    assert resolve(None, table) == resolve()


@pytest.mark.parametrize("field", ["strategy", "selection"])
def test_a_word_that_names_no_strategy_or_selection_is_refused_and_the_valid_ones_are_listed(field: str) -> None:
    fault = refusal({field: "zorder"})
    assert fault.code == "INVALID_OPTION"
    assert "binpack" in fault.message or "small-files" in fault.message


# Sort order, filters, time


def test_a_sort_takes_the_requested_order_before_the_tables_own() -> None:
    own = (SortField(column="a"),)
    assert resolve({"strategy": "sort"}, table_sort_order=own).sort_order == own
    request = {
        "strategy": "sort",
        "sort_order": [{"column": "b", "direction": "desc"}, {"column": "c", "nulls": "last"}],
    }
    assert resolve(request, table_sort_order=own).sort_order == (
        SortField(column="b", descending=True, nulls_first=False),
        SortField(column="c", descending=False, nulls_first=False),
    )


def test_a_sort_without_any_order_is_refused() -> None:
    assert refusal({"strategy": "sort"}).details["option"] == "sort_order"


def test_a_sort_by_more_columns_than_a_tables_order_may_have_is_refused() -> None:
    columns = [{"column": f"c{n}"} for n in range(65)]
    assert len(resolve({"strategy": "sort", "sort_order": columns[:64]}).sort_order) == 64
    assert "at most 64" in refusal({"strategy": "sort", "sort_order": columns}).message


def test_binpack_ignores_the_tables_order_and_refuses_a_requested_one() -> None:
    assert resolve(table_sort_order=(SortField(column="a"),)).sort_order == ()
    assert refusal({"sort_order": [{"column": "a"}]}).details["option"] == "sort_order"


@pytest.mark.parametrize(
    "order",
    [
        [],
        "a",
        [{}],
        ["a"],
        [{"column": ""}],
        [{"column": "a"}, {"column": "a", "direction": "desc"}],
        [{"column": "a", "direction": "down"}],
        [{"column": "a", "nulls": "middle"}],
        [{"column": "a", "order": "asc"}],
    ],
)
def test_a_malformed_sort_order_is_refused(order: object) -> None:
    assert str(refusal({"strategy": "sort", "sort_order": order}).details["option"]).startswith("sort_order")


def test_partition_filters_become_text_as_partitions_are_compared() -> None:
    one = {"month": "2013-01", "bucket": 3, "flag": True, "ratio": 1.5, "none": None}
    assert resolve({"partition_filter": one}).partition_filters == (
        (("bucket", "3"), ("flag", "true"), ("month", "2013-01"), ("none", "null"), ("ratio", "1.5")),
    )
    assert resolve({"partition_filter": [{"a": 1}, {"a": 2}]}).partition_filters == ((("a", "1"),), (("a", "2"),))


@pytest.mark.parametrize("value", [{}, [], [{}], "month=1", 3, {"a": [1]}, {"a": {}}, {"": 1}, [None], {"a": math.inf}])
def test_a_partition_filter_that_names_nothing_or_no_value_is_refused(value: object) -> None:
    fault = refusal({"partition_filter": value})
    assert fault.code == "INVALID_FIELD"
    assert str(fault.details["field"]).startswith("partition_filter")


def test_where_is_passed_through_and_an_empty_one_is_refused() -> None:
    assert resolve({"where": "a > 1"}).where == "a > 1"
    for value in ("", "  ", 5):
        assert refusal({"where": value}).details["field"] == "where"


def test_time_is_part_of_the_policy_only_for_time_series_selection() -> None:
    assert resolve(now_ms=1).fingerprint() == resolve(now_ms=2).fingerprint()
    series = {"selection": "time-series"}
    assert resolve(series, now_ms=1).fingerprint() != resolve(series, now_ms=2).fingerprint()


def test_force_and_strategy_are_the_requests() -> None:
    policy = resolve({"force": True, "strategy": "sort", "sort_order": [{"column": "a"}], "dry_run": True})
    assert (policy.force, policy.strategy) == (True, Strategy.SORT)


# Sizes as people write them


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1GB", GB),
        ("512 MB", 512 * MB),
        ("128MiB", 128 * MB),
        ("1.5gb", GB + GB // 2),
        ("2g", 2 * GB),
        ("64K", 64 * 1024),
        ("1TB", 1024 * GB),
        ("10B", 10),
        (" 1048576 ", MB),
        (4096, 4096),
        ("0.1GB", 107374182),
    ],
)
def test_a_size_is_read_as_people_write_it(text: object, size: int) -> None:
    assert parse_size(text) == size


NO_SIZES = ["", "GB", "-1GB", "1e3", "1 G B", "1PB", "1,5GB", "5ib", "1GB;", "٣GB", 1.5, None, True, "9999999TB"]


@pytest.mark.parametrize("text", NO_SIZES)
def test_a_text_that_is_no_size_is_refused_under_the_name_of_its_option(text: object) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_size(text, option="target_file_size")
    assert (caught.value.code, caught.value.details["option"]) == ("INVALID_OPTION", "target_file_size")


@given(st.integers(0, 2**40), st.sampled_from(["", "B", "KB", "MiB", "g"]))
def test_a_whole_size_survives_being_written_with_any_unit(number: int, unit: str) -> None:
    power = {"": 0, "B": 0, "KB": 1, "MiB": 2, "g": 3}[unit]
    wanted = number * 1024**power
    if wanted < 2**63:
        assert parse_size(f"{number}{unit}") == wanted


# Retention (row 51) and the check of WRITE


def retention(
    hours: object = None,
    keep: object = None,
    table: Mapping[str, str] | None = None,
    config: RetentionDefaults = A_WEEK,
) -> RetentionPolicy:
    return resolve_retention(request_hours=hours, request_min=keep, table_properties=table or {}, config=config)


def test_retention_comes_from_request_then_table_then_config() -> None:
    table = {"history.expire.max-snapshot-age-ms": str(5 * HOUR_MS), "history.expire.min-snapshots-to-keep": "4"}
    assert retention() == RetentionPolicy(max_snapshot_age_ms=168 * HOUR_MS, min_snapshots_to_keep=1)
    assert retention(table=table) == RetentionPolicy(max_snapshot_age_ms=5 * HOUR_MS, min_snapshots_to_keep=4)
    assert retention(2.5, 7, table) == RetentionPolicy(max_snapshot_age_ms=int(2.5 * HOUR_MS), min_snapshots_to_keep=7)


def test_the_age_of_refs_comes_from_the_table_only() -> None:
    table = {"history.expire.max-ref-age-ms": "86400000"}
    assert retention(24, table=table).max_ref_age_ms == 86_400_000
    assert retention(24).max_ref_age_ms == 2**63 - 1


@pytest.mark.parametrize("hours", [0, -1, 0.5, 876_001, math.nan, math.inf, "24", True, []])
def test_a_requested_age_of_zero_negative_too_short_or_no_number_is_refused_with_the_minimum(hours: object) -> None:
    with pytest.raises(InvalidRequest) as caught:
        retention(hours)
    assert (caught.value.code, caught.value.status) == ("INVALID_RETENTION", 400)
    assert caught.value.details["minimum_hours"] == 1
    assert "between 1 and" in caught.value.message


@pytest.mark.parametrize("keep", [0, -1, 1.5, True, "x"])
def test_keeping_no_snapshot_is_refused_with_the_minimum(keep: object) -> None:
    with pytest.raises(InvalidRequest) as caught:
        retention(None, keep)
    assert (caught.value.code, caught.value.details["minimum_snapshots"]) == ("INVALID_RETENTION", 1)


@pytest.mark.parametrize("name", ["max-snapshot-age-ms", "min-snapshots-to-keep", "max-ref-age-ms"])
@pytest.mark.parametrize("value", ["0", "-5", "soon", ""])
def test_a_malformed_history_property_is_refused_by_name_though_overruled(name: str, value: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        retention(24, 3, {f"history.expire.{name}": value})
    assert (caught.value.code, caught.value.details["option"]) == ("INVALID_RETENTION", f"history.expire.{name}")


def test_a_shorter_age_of_the_table_is_raised_to_the_minimum() -> None:
    config = replace(A_WEEK, minimum_age_ms=6 * HOUR_MS)
    assert (
        retention(table={"history.expire.max-snapshot-age-ms": "1"}, config=config).max_snapshot_age_ms == 6 * HOUR_MS
    )
    with pytest.raises(InvalidRequest):
        retention(5, config=config)


def test_a_table_can_switch_the_check_of_its_writes_off_or_on() -> None:
    off, on = {"regelate.compaction.enabled": "false"}, {"regelate.compaction.enabled": "true"}
    assert resolve_check(table_properties=off, config=CheckPolicy(interval=75)) == CheckPolicy(
        enabled=False, interval=75
    )
    assert resolve_check(table_properties=on, config=CheckPolicy(enabled=False)).enabled
    assert resolve_check(config=CheckPolicy(enabled=False, interval=9)) == CheckPolicy(enabled=False, interval=9)


@pytest.mark.parametrize(
    ("name", "value"), [("enabled", "maybe"), ("auto", "later"), ("automatic", "true"), ("verify", "loose")]
)
def test_a_check_property_that_nothing_reads_is_refused(name: str, value: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        resolve_check(table_properties={f"regelate.compaction.{name}": value}, config=CheckPolicy())
    assert caught.value.details["option"] == f"regelate.compaction.{name}"


def test_the_proof_is_the_requests_then_the_tables_then_the_configurations() -> None:
    strict = {"regelate.compaction.verify": "strict"}
    assert resolve_verify(None, {}, Verify.FAST) is Verify.FAST
    assert resolve_verify(None, {}, Verify.STRICT) is Verify.STRICT
    assert resolve_verify(None, strict, Verify.FAST) is Verify.STRICT
    assert resolve_verify("fast", strict, Verify.STRICT) is Verify.FAST
    for asked, properties in (("loose", {}), (None, {"regelate.compaction.verify": "Strict"})):
        with pytest.raises(InvalidRequest, match=r"must be one of fast, strict"):
            resolve_verify(asked, properties, Verify.FAST)


def test_what_a_write_does_is_the_tables_then_the_configurations() -> None:
    table = {"regelate.compaction.auto": "sync"}
    assert resolve_check(config=CheckPolicy()).after_write is Auto.RECOMMEND
    assert resolve_check(config=CheckPolicy(auto=Auto.ASYNC)).after_write is Auto.ASYNC
    assert resolve_check(table_properties=table, config=CheckPolicy(auto=Auto.ASYNC)).after_write is Auto.SYNC


@pytest.mark.parametrize(
    ("table", "config", "wanted"),
    [
        ({}, CheckPolicy(), (False, Auto.RECOMMEND)),
        ({}, CheckPolicy(automatic=True), (True, Auto.ASYNC)),
        ({}, CheckPolicy(automatic=True, auto=Auto.RECOMMEND), (True, Auto.RECOMMEND)),
        ({}, CheckPolicy(auto=Auto.SYNC), (False, Auto.SYNC)),
        ({"auto.enabled": "true"}, CheckPolicy(), (True, Auto.ASYNC)),
        ({"auto.enabled": "true"}, CheckPolicy(auto=Auto.RECOMMEND), (True, Auto.ASYNC)),
        ({"auto.enabled": "false"}, CheckPolicy(automatic=True), (False, Auto.RECOMMEND)),
        ({"auto.enabled": "false"}, CheckPolicy(auto=Auto.ASYNC), (False, Auto.RECOMMEND)),
        ({"auto.enabled": "true", "compaction.auto": "sync"}, CheckPolicy(), (True, Auto.SYNC)),
        ({"auto.enabled": "true", "compaction.auto": "recommend"}, CheckPolicy(), (True, Auto.RECOMMEND)),
        ({"compaction.auto": "async"}, CheckPolicy(), (False, Auto.ASYNC)),
    ],
)
def test_a_table_turns_automatic_runs_on_or_off_for_every_writer_and_a_write_obeys_unless_told_otherwise(
    table: dict[str, str], config: CheckPolicy, wanted: tuple[bool, Auto]
) -> None:
    found = resolve_check(table_properties={f"regelate.{name}": text for name, text in table.items()}, config=config)
    assert (found.automatic, found.after_write) == wanted


@pytest.mark.parametrize("value", ["yes", "1", "", "on"])
def test_what_turns_automatic_runs_on_is_true_or_false(value: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        resolve_check(table_properties={AUTO + "enabled": value}, config=CheckPolicy())
    assert caught.value.details["option"] == AUTO + "enabled"
    assert resolve(TIERED, {AUTO + "enabled": value}) == resolve(TIERED)


TIERED = {"selection": "size-tiered"}
AUTO = "regelate.auto."
TARGET, LARGE = "write.target-file-size-bytes", "regelate.compaction.max-file-size-bytes"


def sizes(policy: CompactionPolicy) -> tuple[int, int, int]:
    return policy.min_input_files, policy.target_file_size_bytes // MB, policy.min_file_size_bytes // MB


@pytest.mark.parametrize(
    ("request_fields", "table", "auto", "wanted"),
    [
        ({}, {}, AutoDefaults(), (50, 128, 64)),
        ({}, {"write.target-file-size-bytes": str(512 * MB)}, AutoDefaults(), (50, 128, 64)),
        ({}, {"write.target-file-size-bytes": str(32 * MB)}, AutoDefaults(), (50, 32, 16)),
        ({}, {"regelate.compaction.min-input-files": "7"}, AutoDefaults(), (50, 128, 64)),
        ({}, {}, AutoDefaults(min_num_files=9, max_file_size_bytes=64 * MB), (9, 64, 32)),
        ({}, {}, AutoDefaults(min_file_size_bytes=100 * MB), (50, 128, 100)),
        ({}, {AUTO + "min-num-files": "20", AUTO + "max-file-size-bytes": str(64 * MB)}, AutoDefaults(), (20, 64, 32)),
        ({}, {AUTO + "min-file-size-bytes": str(8 * MB)}, AutoDefaults(min_num_files=9), (9, 128, 8)),
        ({"options": {"min-input-files": 4, "target-file-size-bytes": 16 * MB}}, {}, AutoDefaults(), (4, 16, 8)),
        ({"target_file_size_mb": 16}, {AUTO + "min-num-files": "20"}, AutoDefaults(), (20, 16, 8)),
        ({}, {AUTO + "max-file-size-bytes": str(512 * MB)}, AutoDefaults(), (50, 128, 64)),
        ({}, {AUTO + "max-file-size-bytes": str(512 * MB), TARGET: str(256 * MB)}, AutoDefaults(), (50, 256, 128)),
        ({}, {TARGET: str(16 * MB)}, AutoDefaults(min_file_size_bytes=32 * MB), (50, 16, 8)),
        ({"target_file_size_mb": 16}, {}, AutoDefaults(min_file_size_bytes=32 * MB), (50, 16, 8)),
        ({}, {LARGE: str(100 * MB), TARGET: str(64 * MB)}, AutoDefaults(), (50, 64, 32)),
    ],
)
def test_an_automatic_run_has_thresholds_of_its_own_request_before_table_before_configuration(
    request_fields: dict[str, object], table: dict[str, str], auto: AutoDefaults, wanted: tuple[int, int, int]
) -> None:
    config = replace(SHIPPED, auto=auto)
    assert sizes(resolve({**TIERED, **request_fields}, table, config)) == wanted
    by_hand = {name: value for name, value in table.items() if not name.startswith(AUTO)}
    assert resolve(request_fields, table, config) == resolve(request_fields, by_hand, config)


@pytest.mark.parametrize(
    ("properties", "option"),
    [
        ({"min-num-files": "-1"}, AUTO + "min-num-files"),
        ({"min-num-files": "many"}, AUTO + "min-num-files"),
        ({"max-file-size-bytes": "128MB"}, AUTO + "max-file-size-bytes"),
        ({"min-file-size-bytes": str(64 * MB), "max-file-size-bytes": str(32 * MB)}, "min-file-size-bytes"),
    ],
)
def test_a_property_of_automatic_runs_that_cannot_be_is_refused_by_name_and_stops_no_compaction_by_hand(
    properties: dict[str, str], option: str
) -> None:
    table = {AUTO + name: value for name, value in properties.items()}
    with pytest.raises(InvalidRequest) as caught:
        resolve(TIERED, table)
    assert caught.value.details["option"] == option
    assert all(name in caught.value.message for name in table) or len(table) == 1
    assert resolve({}, table) == resolve({})


@pytest.mark.parametrize(
    ("table", "named"),
    [
        ({AUTO + "min-file-size-bytes": str(64 * MB), TARGET: str(32 * MB)}, TARGET),
        ({AUTO + "min-file-size-bytes": str(200 * MB)}, "auto_max_file_size_mb of config.json"),
        ({AUTO + "min-num-file": "4"}, "unknown table property; valid are regelate.auto.enabled"),
    ],
)
def test_what_clashes_with_a_property_of_automatic_runs_is_named_where_it_was_set(
    table: dict[str, str], named: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        resolve(TIERED, table)
    assert named in caught.value.message
    assert next(iter(table)) in caught.value.message


def test_a_file_as_large_as_its_table_wants_it_is_not_too_large_for_an_automatic_run() -> None:
    table = {TARGET: str(512 * MB)}
    assert resolve(TIERED, table).max_file_size_bytes == resolve({}, table).max_file_size_bytes


def test_a_table_has_no_automatic_selection_for_a_compaction_by_hand() -> None:
    with pytest.raises(InvalidRequest, match="a COMPACT by hand merges all"):
        resolve({}, {"regelate.compaction.selection": "size-tiered"})
