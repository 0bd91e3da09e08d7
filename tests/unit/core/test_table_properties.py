"""What a table's properties may say: the same at CREATE_TABLE, ALTER_TABLE, and before use."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regelate.core.policy.table_properties import (
    FAMILIES,
    KINDS,
    LEVEL_PROPERTY,
    MAPPING_PROPERTY,
    PAGE_ROWS_PROPERTY,
    Use,
    belongs_to_catalog,
    kind_of,
    refuse_malformed,
    refuse_unusable,
    settled,
    with_known_metrics,
)
from regelate.errors import InvalidRequest

NAMES = (*KINDS, *(f"{prefix}city" for prefix in FAMILIES))
ODD = (
    "",
    " ",
    "abc",
    "-5",
    "-1",
    "0",
    "1",
    "2",
    "99",
    "1e5",
    "1_000",
    "٣",
    "nan",
    "true",
    "maybe",
    "NONE",
    "\x00",
    "\ud800",
)
VALUES = st.one_of(
    st.sampled_from(ODD),
    st.integers(-(2**70), 2**70).map(str),
    st.text(max_size=20),
    st.text("truncae()0123456789", max_size=20),
    st.recursive(
        st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    ).map(json.dumps),
)
NUMBERS_ABOVE_0 = (
    *("write.parquet.page-row-limit", "write.parquet.page-size-bytes", "write.parquet.dict-size-bytes"),
    *("write.parquet.row-group-limit", "write.parquet.row-group-size-bytes", "write.target-file-size-bytes"),
    *("commit.manifest.target-size-bytes", "history.expire.min-snapshots-to-keep", "read.split.target-size"),
)


@given(st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=5), st.sets(st.sampled_from(Use)))
def test_no_value_of_any_property_makes_anything_but_a_refusal_that_names_it(
    properties: dict[str, str], uses: set[Use]
) -> None:
    with suppress(InvalidRequest):
        refuse_malformed(properties)
    with_known_metrics(properties)
    fault = refused(properties, uses)
    if fault is not None:
        assert (fault.code, fault.status) == ("INVALID_TABLE_PROPERTY", 422)
        assert any(name in fault.message for name in properties)
    elif Use.WRITE in uses:
        settled(properties)


def refused(properties: dict[str, str], uses: set[Use]) -> InvalidRequest | None:
    try:
        refuse_unusable(properties, *uses)
    except InvalidRequest as fault:
        return fault
    return None


@pytest.mark.parametrize("name", NUMBERS_ABOVE_0)
@pytest.mark.parametrize("value", ["-5", "-1", "0", "", "abc", "1.5", str(10**30)])
def test_what_is_counted_is_above_zero(name: str, value: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        refuse_malformed({name: value})
    assert (caught.value.status, caught.value.details["field"]) == (400, name)
    assert name in caught.value.message


@pytest.mark.parametrize("name", [n for n in NUMBERS_ABOVE_0 if n.startswith("write.")])
def test_whoever_set_a_number_that_ends_the_writer_it_is_refused_before_a_write(name: str) -> None:
    for value in ("-5", "0", "abc"):
        with pytest.raises(InvalidRequest, match=f"INVALID_TABLE_PROPERTY.*{name}"):
            refuse_unusable({name: value}, Use.WRITE, Use.COMPACT)


@pytest.mark.parametrize("number", ["-1", str(10**12), "abc"])
@pytest.mark.parametrize("name", [name for name in KINDS if name.startswith("commit.retry.")])
def test_retries_and_waits_are_whole_numbers_of_java(name: str, number: str) -> None:
    with pytest.raises(InvalidRequest, match=name):
        refuse_malformed({name: number})
    refuse_unusable({name: number}, *(use for use in Use if use is not Use.SPARK))  # nothing here reads it


@pytest.mark.parametrize(
    ("codec", "level", "good"),
    [
        ("zstd", "22", True),
        ("zstd", "99", False),
        ("ZSTD", "-5", True),
        ("gzip", "9", True),
        ("gzip", "12", False),
        ("gzip", "0", False),
        ("brotli", "11", True),
        ("brotli", "12", False),
        ("lz4", "13", False),
        ("snappy", "99", True),
        ("uncompressed", "3", True),
        ("snappy", "high", False),
    ],
)
def test_a_level_is_judged_by_its_codec(codec: str, level: str, good: bool) -> None:
    given_now = {"write.parquet.compression-codec": codec, LEVEL_PROPERTY: level}
    if good:
        refuse_malformed(given_now)
        refuse_malformed({LEVEL_PROPERTY: level}, {"write.parquet.compression-codec": codec})
        refuse_unusable(given_now, Use.WRITE)
    else:
        for one, beside in ((given_now, {}), ({LEVEL_PROPERTY: level}, given_now)):
            with pytest.raises(InvalidRequest, match=LEVEL_PROPERTY):
                refuse_malformed(one, beside)
        with pytest.raises(InvalidRequest, match="INVALID_TABLE_PROPERTY"):
            refuse_unusable(given_now, Use.WRITE)


def test_a_codec_without_levels_is_written_without_one_as_by_iceberg() -> None:
    assert settled({"write.parquet.compression-codec": "SNAPPY", LEVEL_PROPERTY: "3"}) == {
        "write.parquet.compression-codec": "snappy"
    }


def test_pages_are_not_made_of_a_few_rows() -> None:
    assert settled({PAGE_ROWS_PROPERTY: "1"}) == {PAGE_ROWS_PROPERTY: "100"}
    assert settled({PAGE_ROWS_PROPERTY: "5000"}) == {PAGE_ROWS_PROPERTY: "5000"}


@pytest.mark.parametrize("mode", ["truncate(-1)", "truncate(0)", "truncate(99999999999)", "truncate", "", "all"])
def test_a_metrics_mode_that_is_none_is_refused_where_it_is_set_and_falls_back_as_in_iceberg(mode: str) -> None:
    for name in ("write.metadata.metrics.default", "write.metadata.metrics.column.id"):
        with pytest.raises(InvalidRequest, match=name):
            refuse_malformed({name: mode})
        refuse_unusable({name: mode}, *Use)
        assert with_known_metrics({name: mode, "a": "b"}) == {"a": "b"}


@pytest.mark.parametrize("mode", ["none", "COUNTS", " full ", "truncate(16)", "truncate(1)"])
def test_a_metrics_mode_is_kept(mode: str) -> None:
    refuse_malformed({"write.metadata.metrics.default": mode})
    assert with_known_metrics({"write.metadata.metrics.default": mode})


def nested(depth: int) -> str:
    field: dict[str, object] = {"field-id": 1, "names": ["a"]}
    for _ in range(depth - 1):
        field = {"field-id": 1, "names": ["a"], "fields": [field]}
    return json.dumps([field])


@pytest.mark.parametrize(
    "mapping",
    [
        *("", "{", "null", "1", "{}", "[1]", '[{"names": "a"}]', '[{"names": [1]}]', "[[]]", "[" * 100_000),
        *('[{"field-id": "1", "names": ["a"]}]', '[{"field-id": 1}]', '[{"names": ["a"], "fields": "x"}]', nested(65)),
        '[{"field-id": true, "names": ["a"]}]',
    ],
)
def test_a_name_mapping_that_is_none_is_refused_where_it_is_set_and_before_files_are_read(mapping: str) -> None:
    with pytest.raises(InvalidRequest, match=MAPPING_PROPERTY):
        refuse_malformed({MAPPING_PROPERTY: mapping})
    for use in (Use.QUERY, Use.SPARK):
        with pytest.raises(InvalidRequest, match=f"INVALID_TABLE_PROPERTY.*{MAPPING_PROPERTY}"):
            refuse_unusable({MAPPING_PROPERTY: mapping}, use)


@pytest.mark.parametrize("mapping", ["[]", '[{"names": ["a"]}]', '[{"field-id": null, "names": []}]', nested(64)])
def test_a_name_mapping_is_taken(mapping: str) -> None:
    refuse_malformed({MAPPING_PROPERTY: mapping})


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if name.endswith("enabled") and not kind.uses])
def test_a_flag_that_is_neither_is_refused_where_it_is_set_and_is_false_before_use(name: str) -> None:
    with pytest.raises(InvalidRequest, match=name):
        refuse_malformed({name: "maybe"})
    refuse_unusable({name: "maybe"}, Use.WRITE, Use.COMPACT, Use.COMMIT, Use.QUERY, Use.SPARK)


@pytest.mark.parametrize("name", ["write.object-storage.enabled", "write.object-storage.partitioned-paths"])
def test_a_flag_at_which_pyiceberg_stops_is_refused_before_a_commit(name: str) -> None:
    for value in ("maybe", "yes", "1", ""):
        with pytest.raises(InvalidRequest, match=f"INVALID_TABLE_PROPERTY.*{name}"):
            refuse_unusable({name: value}, Use.COMMIT)


@pytest.mark.parametrize("path", ["data", "../x", "\x00", "file:x", "s3:bucket"])
def test_a_relative_place_is_refused_before_a_commit(path: str) -> None:
    with pytest.raises(InvalidRequest, match=r"INVALID_TABLE_PROPERTY.*write\.data\.path"):
        refuse_unusable({"write.data.path": path}, Use.COMMIT)


def test_code_that_a_table_names_is_never_loaded() -> None:
    with pytest.raises(InvalidRequest, match=r"write\.py-location-provider\.impl"):
        refuse_unusable({"write.py-location-provider.impl": "os.system"}, Use.COMMIT)


def test_sizes_of_a_table_that_clash_are_refused_before_a_compaction() -> None:
    clash = {"write.target-file-size-bytes": "1000", "regelate.compaction.min-file-size-bytes": "2000"}
    with pytest.raises(InvalidRequest, match=r"INVALID_TABLE_PROPERTY.*min-file-size-bytes"):
        refuse_unusable(clash, Use.COMPACT)
    refuse_unusable(clash, Use.WRITE, Use.COMMIT, Use.QUERY)


def test_a_property_of_ours_that_nobody_reads_is_refused_where_it_is_set() -> None:
    for name in ("regelate.compaction.min-files", "regelate.expiry.grace"):
        with pytest.raises(InvalidRequest, match=name):
            refuse_malformed({name: "1"})


def test_names_of_others_are_theirs() -> None:
    refuse_malformed({"owner": "me", "write.my.own": "x", "comment": "-5"})
    assert kind_of("owner") is None


@pytest.mark.parametrize(
    "name",
    [
        *("uri", "token", "warehouse", "credential", "py-io-impl", "io-impl", "catalog-impl", "encryption.kms-impl"),
        *("signer", "signer.uri", "s3.endpoint", "s3.signer", "gcs.oauth2.token", "adls.account-key", "hf.endpoint"),
        *("regelate.storage.connections", "regelate.network.read-seconds", "client.region", "glue.endpoint"),
        *("header.X-Evil", "rest.sigv4-enabled", "metadata_location", "previous_metadata_location", "table_type"),
        *("write.location-provider.impl", "write.py-location-provider.impl", "buffer-size", "DEFAULT_SCHEME"),
    ],
)
def test_what_configures_a_catalog_or_its_storage_is_no_property_of_a_table(name: str) -> None:
    assert belongs_to_catalog(name)


@pytest.mark.parametrize(
    "name", [n for n in NAMES if "impl" not in n and "metadata_location" not in n and n != "table_type"]
)
def test_no_property_of_tables_is_taken_for_a_catalogs(name: str) -> None:
    assert not belongs_to_catalog(name)
