"""What the service leaves to Spark arrives there as it was asked: same fields, same policy."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regelate.core.options import CompactionDefaults, CompactOptions, resolve_policy
from regelate.core.policy import MB
from regelate.core.spark_job import SparkJobSpec, SparkRequest
from regelate.errors import InvalidRequest
from regelate.pipeline.__main__ import make_parser
from regelate.pipeline.compact_job import job_of, rewrite_of
from regelate.pipeline.options import Layout, policy_of
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
    sent = SparkRequest.of_json(SparkRequest(fields=fields, defaults=defaults).as_json())
    ours = resolve_policy(request=CompactOptions.of(fields), table_properties=properties, config=defaults, now_ms=5)
    assert policy_of(rewrite_of(sent), properties, now_ms=5) == ours


@given(fields=FIELDS, strict=st.booleans(), expires=st.booleans(), hours=st.none() | st.floats(1, 999))
def test_a_request_survives_the_command_line(
    fields: dict[str, Any], strict: bool, expires: bool, hours: float | None
) -> None:
    asked = SparkRequest(fields=fields, strict=strict, expires=expires, retention_hours=hours)
    spec = SparkJobSpec(
        name="n", job_id="j", created_ms=0, table="cat.a b.t", request=asked.as_json(), conf={}, timeout_seconds=1.0
    )
    args = make_parser().parse_args([*spec.arguments, "--result", "r.json"])
    assert (args.request, str(args.table), args.quiet) == (asked, "cat.a b.t", True)


def test_layouts_and_their_columns_arrive() -> None:
    order = [{"column": "a", "direction": "desc"}, {"column": "b"}]
    by_sort = rewrite_of(SparkRequest(fields={"strategy": "sort", "sort_order": order}))
    assert (by_sort.layout, [f.column for f in by_sort.sort], by_sort.sort[0].descending) == (
        Layout.SORT, ["a", "b"], True,
    )  # fmt: skip
    by_curve = rewrite_of(SparkRequest(fields={"strategy": "zorder", "sort_order": order}))
    assert (by_curve.layout, by_curve.zorder, by_curve.sort) == (Layout.ZORDER, ("a", "b"), ())


def test_a_strict_request_is_proven_and_goes_back_where_it_is_not() -> None:
    proof = job_of(SparkRequest(strict=True), 2).proof
    assert proof is not None
    assert proof.rollback
    assert job_of(SparkRequest(), 2).proof is None


@pytest.mark.parametrize(("version", "expires", "there"), [(2, True, False), (3, True, True), (3, False, False)])
def test_snapshots_are_expired_by_the_job_where_the_service_cannot(version: int, expires: bool, there: bool) -> None:
    assert (StepName.EXPIRE in job_of(SparkRequest(expires=expires), version).steps) is there


@pytest.mark.parametrize("text", ["{", "[]", '{"fieldz": {}}', '{"defaults": {"x": 1}}', "1"])
def test_what_the_service_did_not_write_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        make_parser().parse_args(["compact", "--table", "a.b.c", "--request", text])
    assert ended.value.code == 2
    assert "--request" in capsys.readouterr().err


def test_a_wrong_option_is_refused_by_its_name() -> None:
    with pytest.raises(InvalidRequest, match="no-such-option"):
        policy_of(rewrite_of(SparkRequest(fields={"options": {"no-such-option": "1"}})), {}, now_ms=0)
    assert json.loads(SparkRequest().as_json())["expires"] is True
