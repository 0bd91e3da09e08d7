"""Which option wins, which are refused, and what Spark is told."""

from __future__ import annotations

import pytest

from regelate.core.policy.policy import MB, Selection, SortField
from regelate.errors import InvalidRequest
from regelate.pipeline.compact_table import DEFAULTS, job_of, make_parser
from regelate.pipeline.maintain_job import sort_field
from regelate.pipeline.options import Layout, Rewrite, policy_of, procedure_options, sort_argument, strategy_argument


def asked(**given: str) -> Rewrite:
    return Rewrite(options={name.replace("_", "-"): value for name, value in given.items()})


def test_without_a_flag_or_a_property_icebergs_defaults_hold() -> None:
    policy = policy_of(Rewrite(), {}, now_ms=0, table_bytes=0)
    assert procedure_options(Rewrite(), policy, 2) == {
        "target-file-size-bytes": str(512 * MB),
        "min-file-size-bytes": str(384 * MB),
        "max-file-size-bytes": str(int(1.8 * 512 * MB)),
        "min-input-files": "5",
        "use-starting-sequence-number": "false",
    }


def test_a_flag_wins_over_the_table_and_the_table_over_the_jobs_defaults() -> None:
    cdc = {"write.target-file-size-bytes": str(256 * MB), "regelate.compaction.min-input-files": "7"}
    job = Rewrite(defaults=DEFAULTS)
    assert policy_of(job, {}, now_ms=0, table_bytes=0).target_file_size_bytes == 128 * MB
    assert policy_of(job, cdc, now_ms=0, table_bytes=0).target_file_size_bytes == 256 * MB
    assert policy_of(job, cdc, now_ms=0, table_bytes=0).min_input_files == 7
    flagged = Rewrite(options={"target-file-size-bytes": str(64 * MB)}, defaults=DEFAULTS)
    assert policy_of(flagged, cdc, now_ms=0, table_bytes=0).target_file_size_bytes == 64 * MB


def test_the_flags_of_compact_table_become_icebergs_options() -> None:
    flags = [
        "--table",
        "a.b.c",
        "--partition",
        "d = DATE '2025-01-16'",
        "--target-size-mb",
        "256",
        "--min-size-mb",
        "0",
    ]
    job = job_of(make_parser().parse_args(flags))
    assert job.rewrite.where == "d = DATE '2025-01-16'"
    policy = policy_of(job.rewrite, {}, now_ms=0, table_bytes=0)
    assert (policy.target_file_size_bytes, policy.min_file_size_bytes, policy.min_input_files) == (256 * MB, 0, 2)


@pytest.mark.parametrize("version", [2, 3])
def test_the_sequence_number_that_loses_equality_deletes_is_never_used(version: int) -> None:
    policy = policy_of(Rewrite(), {}, now_ms=0, table_bytes=0)
    assert procedure_options(Rewrite(), policy, version)["use-starting-sequence-number"] == "false"
    with pytest.raises(InvalidRequest, match="deleted rows come back"):
        procedure_options(asked(use_starting_sequence_number="true"), policy, version)
    assert "use-starting-sequence-number" not in procedure_options(Rewrite(), policy, 1)


def test_force_and_selection_reach_spark_and_the_policy() -> None:
    job = Rewrite(force=True, selection="time-series")
    policy = policy_of(job, {}, now_ms=1_700_000_000_000, table_bytes=0)
    assert policy.selection is Selection.TIME_SERIES
    assert policy.now_ms == 1_700_000_000_000
    assert procedure_options(job, policy, 2)["min-input-files"] == "2"


def test_options_of_spark_are_passed_on_by_icebergs_names() -> None:
    given = {
        "max-concurrent-file-group-rewrites": "2",
        "partial-progress.enabled": "TRUE",
        "remove-dangling-deletes": "true",
        "delete-file-threshold": "1",
        "compression-factor": "0.5",
    }
    job = Rewrite(options=given)
    found = procedure_options(job, policy_of(job, {}, now_ms=0, table_bytes=0), 2)
    assert {name: found[name] for name in given} == {**given, "partial-progress.enabled": "true"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("no-such-option", "1"),
        ("target-file-size-bytes", "-1"),
        ("target-file-size-bytes", "1.5"),
        ("max-concurrent-file-group-rewrites", "0"),
        ("partial-progress.enabled", "perhaps"),
        ("compression-factor", "nan"),
        ("compression-factor", "x"),
        ("min-file-size-bytes", str(600 * MB)),
        ("output-spec-id", "'); DROP TABLE t"),
    ],
)
def test_an_option_that_is_unknown_or_out_of_range_is_refused(name: str, value: str) -> None:
    job = Rewrite(options={name: value})
    with pytest.raises(InvalidRequest, match="INVALID_OPTION"):
        procedure_options(job, policy_of(job, {}, now_ms=0, table_bytes=0), 2)


def test_an_empty_filter_is_refused_because_it_could_mean_all_or_nothing() -> None:
    with pytest.raises(InvalidRequest, match="INVALID_FIELD"):
        policy_of(Rewrite(where=" "), {}, now_ms=0, table_bytes=0)


def test_sort_and_zorder_name_columns_and_nothing_else() -> None:
    by = (SortField(column="a b"), SortField(column="x`.y", descending=True, nulls_first=False))
    assert sort_argument(Rewrite(layout=Layout.SORT, sort=by)) == ("`a b` ASC NULLS FIRST, `x```.`y` DESC NULLS LAST")
    zorder = Rewrite(layout=Layout.ZORDER, zorder=("a", "b"))
    assert (sort_argument(zorder), strategy_argument(zorder)) == ("zorder(`a`,`b`)", "sort")
    assert sort_argument(Rewrite(layout=Layout.SORT)) is None


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("a", SortField(column="a")),
        ("a desc", SortField(column="a", descending=True, nulls_first=False)),
        ("a ASC NULLS LAST", SortField(column="a", nulls_first=False)),
    ],
)
def test_a_sort_order_reads_as_people_write_it(text: str, field: SortField) -> None:
    assert sort_field(text) == field


def test_columns_without_their_strategy_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="zorder"):
        Rewrite(zorder=("a",))
    with pytest.raises(InvalidRequest, match="strategy sort"):
        Rewrite(sort=(SortField(column="a"),))
