"""What the service leaves to Spark arrives there as it was asked: same fields, same policy."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regelate.core.jobs.spark_job import SparkJobSpec, SparkRequest, in_spark_sql
from regelate.core.policy.option_retention import HOUR_MS
from regelate.core.policy.options import (
    CompactionDefaults,
    RetentionDefaults,
    resolve_policy,
    resolve_retention,
    resolve_verify,
)
from regelate.core.policy.policy import MB, Verify
from regelate.core.requests import CompactRequest
from regelate.errors import InvalidRequest
from regelate.pipeline.__main__ import make_parser
from regelate.pipeline.compact_job import job_of, rewrite_of
from regelate.pipeline.names import quoted
from regelate.pipeline.options import Layout, policy_of
from regelate.pipeline.sql import text
from regelate.pipeline.steps import StepName

NAMES = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), min_size=1, max_size=9)
OPTIONS: dict[str, st.SearchStrategy[object]] = {
    "min-input-files": st.integers(1, 99) | st.integers(1, 99).map(str),
    "delete-ratio-threshold": st.floats(0.01, 1) | st.just("0.5"),
    "rewrite-all": st.booleans() | st.sampled_from(["true", "FALSE"]),
    "max-file-group-size-bytes": st.integers(1, 2**40),
    "rewrite-job-order": st.sampled_from(["files-asc", "bytes-desc", "none"]),
}
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "force": st.booleans(),
        "target_file_size_mb": st.integers(64, 1024),
        "where": NAMES,
        "selection": st.sampled_from(["small-files", "time-series", "partition"]),
        "partition_filter": st.lists(
            st.dictionaries(NAMES, NAMES | st.integers() | st.none(), min_size=1), min_size=1, max_size=3
        ),
        "options": st.fixed_dictionaries({}, optional=OPTIONS),
    },
)
DEFAULTS = st.builds(
    CompactionDefaults,
    target_file_size_bytes=st.none() | st.just(512 * MB),
    min_file_size_bytes=st.none() | st.just(20 * MB),
    min_input_files=st.none() | st.integers(1, 20),
)
PROPERTIES = st.fixed_dictionaries({}, optional={"regelate.compaction.min-input-files": st.just("7")})


@given(fields=FIELDS, defaults=DEFAULTS, properties=PROPERTIES)
def test_spark_resolves_the_policy_that_the_service_would(
    fields: dict[str, Any], defaults: CompactionDefaults, properties: dict[str, str]
) -> None:
    sent = SparkRequest.of_json(SparkRequest(compact=CompactRequest(**fields), defaults=defaults).as_json())
    ours = resolve_policy(
        request=CompactRequest(**fields), table_properties=properties, config=defaults, now_ms=5, table_bytes=0
    )
    assert policy_of(rewrite_of(sent), properties, now_ms=5, table_bytes=0) == ours


@given(
    fields=FIELDS,
    verify=st.none() | st.sampled_from(["fast", "strict"]),
    configured=st.sampled_from(Verify),
    expires=st.booleans(),
    hours=st.none() | st.floats(1, 999),
    retention=st.builds(RetentionDefaults, max_snapshot_age_ms=st.integers(1), grace_ms=st.integers(0)),
)
def test_a_request_survives_the_command_line(
    fields: dict[str, Any],
    verify: str | None,
    configured: Verify,
    expires: bool,
    hours: float | None,
    retention: RetentionDefaults,
) -> None:
    compact = CompactRequest(**fields, verify=verify, expire_snapshots=expires, snapshot_retention_hours=hours)
    asked = SparkRequest(compact=compact, config_verify=configured, retention=retention)
    spec = SparkJobSpec(
        name="n", job_id="j", created_ms=0, table="cat.a b.t", request=asked.as_json(), conf={}, timeout_seconds=1.0
    )
    args = make_parser().parse_args([*spec.arguments, "--result", "r.json"])
    assert (args.request, str(args.table), args.quiet) == (asked, "cat.a b.t", True)


def test_layouts_and_their_columns_arrive() -> None:
    order = [{"column": "a", "direction": "desc"}, {"column": "b"}]
    by_sort = rewrite_of(SparkRequest(compact=CompactRequest(strategy="sort", sort_order=order)))
    assert (by_sort.layout, [f.column for f in by_sort.sort], by_sort.sort[0].descending) == (
        Layout.SORT, ["a", "b"], True,
    )  # fmt: skip
    by_curve = rewrite_of(SparkRequest(compact=CompactRequest(strategy="zorder", sort_order=order)))
    assert (by_curve.layout, by_curve.zorder, by_curve.sort) == (Layout.ZORDER, ("a", "b"), ())


@pytest.mark.parametrize("asked", [None, "fast", "strict"])
@pytest.mark.parametrize("tabled", [None, "fast", "strict"])
@pytest.mark.parametrize("configured", list(Verify))
def test_a_run_is_proven_where_a_compact_of_our_own_would_be_and_goes_back_where_it_is_not(
    asked: str | None, tabled: str | None, configured: Verify
) -> None:
    properties = {} if tabled is None else {"regelate.compaction.verify": tabled}
    proof = job_of(SparkRequest(compact=CompactRequest(verify=asked), config_verify=configured), 2, properties).proof
    ours = resolve_verify(asked, properties, configured)
    assert (proof is not None, proof is None or proof.rollback) == (ours is Verify.STRICT, True)


@pytest.mark.parametrize(("version", "expires", "there"), [(2, True, False), (3, True, True), (3, False, False)])
def test_snapshots_are_expired_by_the_job_where_the_service_cannot(version: int, expires: bool, there: bool) -> None:
    job = job_of(SparkRequest(compact=CompactRequest(expire_snapshots=expires)), version, {})
    assert (StepName.EXPIRE in job.steps, job.clears_only_after_a_rewrite) == (there, True)


def test_the_job_keeps_the_snapshots_that_the_configuration_keeps() -> None:
    config = RetentionDefaults(max_snapshot_age_ms=90 * 24 * HOUR_MS, minimum_age_ms=24 * HOUR_MS)
    knobs = job_of(SparkRequest(retention=config), 3, {}).knobs
    ours = resolve_retention(config=config)
    assert resolve_retention(request_hours=knobs.retention_hours, config=knobs.defaults) == ours


@pytest.mark.parametrize(("hours", "properties"), [(1, {}), (None, {"history.expire.max-snapshot-age-ms": "soon"})])
def test_a_retention_that_cannot_be_is_refused_before_anything_is_rewritten(
    hours: float | None, properties: dict[str, str]
) -> None:
    config = RetentionDefaults(minimum_age_ms=24 * HOUR_MS)
    with pytest.raises(InvalidRequest) as refused:
        job_of(SparkRequest(compact=CompactRequest(snapshot_retention_hours=hours), retention=config), 3, properties)
    assert refused.value.code == ("INVALID_TABLE_PROPERTY" if properties else "INVALID_RETENTION")


@given(value=st.text(), column=st.text(st.characters(exclude_characters='"\\')))
def test_a_filter_means_to_spark_what_it_means_here(value: str, column: str) -> None:
    ours = f""""{column}" = '{value.replace("'", "''")}' and day >= 3 or x in ('', 'b')"""
    assert in_spark_sql(ours) == f"{quoted(column)} = {text(value)} and day >= 3 or x in ('', 'b')"


@given(st.text(st.characters(exclude_characters="\"'")))
def test_what_is_no_text_and_no_quoted_name_stays_as_it_is(where: str) -> None:
    assert in_spark_sql(where) == where


@pytest.mark.parametrize("written", ["{", "[]", '{"fieldz": {}}', '{"defaults": {"x": 1}}', "1"])
def test_what_the_service_did_not_write_is_refused(written: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        make_parser().parse_args(["compact", "--table", "a.b.c", "--request", written])
    assert ended.value.code == 2
    assert "--request" in capsys.readouterr().err


def test_a_wrong_option_is_refused_by_its_name() -> None:
    with pytest.raises(InvalidRequest, match="no-such-option"):
        policy_of(
            rewrite_of(SparkRequest(compact=CompactRequest(options={"no-such-option": "1"}))),
            {},
            now_ms=0,
            table_bytes=0,
        )
