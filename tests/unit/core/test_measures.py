from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regelate.core.measures.measures import (
    ACTIVE_COMPACTIONS,
    BYTES_READ,
    BYTES_WRITTEN,
    COMPACTION_CHECKS,
    COMPACTION_DURATION,
    COMPACTION_RECOMMENDED,
    COMPACTIONS_FAILED,
    COMPACTIONS_SUCCEEDED,
    COMPRESSION_RATIO,
    FILE_SIZES,
    FILES_COMPACTED,
    FILES_RATIO,
    FILES_TAKEN_ALONG,
    LAST_COMPACTION,
    METRICS,
    QUERY_TIME,
    SMALL_FILES,
    SWEEP_ERRORS,
    SWEEPS,
    WRITES,
    Assessed,
    Compacted,
    CompactionEnded,
    CompactionStarted,
    JobGivenUp,
    JobsCounted,
    Kind,
    Measurement,
    Metric,
    Occurrence,
    Queried,
    SweepEnded,
    Wrote,
    measurements,
)
from regelate.core.running.stats import CompactionStats, PhaseSeconds

STATS = CompactionStats(
    files_before=15,
    files_after=2,
    files_compacted=14,
    files_removed=14,
    files_added=1,
    bytes_before=5000,
    bytes_after=3000,
    bytes_saved=2000,
    compaction_time_ms=2500.0,
    small_files_remaining=1,
    engine="duckdb",
    groups=1,
    groups_deferred=0,
    rows=15,
    delete_files_removed=0,
    manifests_before=15,
    manifests_after=1,
    commit_attempts=1,
    dropped_groups=0,
    seconds=PhaseSeconds(plan=0.5, rewrite=1.5, commit=0.5),
)
COMPACTED = Compacted(
    table="default.users", stats=STATS, bytes_read=4000, output_bytes=(1500, 500), at_ms=1_737_090_000_500
)
GUIDES = {
    "files_compacted": Kind.COUNTER,
    "bytes_read": Kind.COUNTER,
    "bytes_written": Kind.COUNTER,
    "compactions_succeeded": Kind.COUNTER,
    "compactions_failed": Kind.COUNTER,
    "compaction_duration": Kind.HISTOGRAM,
    "file_size_distribution": Kind.HISTOGRAM,
    "compression_ratio": Kind.HISTOGRAM,
    "pending_compactions": Kind.GAUGE,
    "active_compactions": Kind.UP_DOWN,
    "last_compaction_timestamp": Kind.GAUGE,
}
texts = st.text(min_size=1, max_size=8)
counts = st.integers(0, 10_000)
occurrences: st.SearchStrategy[Occurrence] = st.one_of(
    st.builds(CompactionStarted, table=texts),
    st.builds(JobsCounted, pending=counts),
    st.builds(CompactionEnded, table=texts, failed_with=st.none() | texts),
    st.builds(
        lambda table, sizes, read, before, after: Compacted(
            table=table,
            stats=replace(STATS, files_before=before, files_after=after),
            bytes_read=read,
            output_bytes=tuple(sizes),
            at_ms=0,
        ),
        texts,
        st.lists(counts, max_size=300),
        counts,
        counts,
        counts,
    ),
    st.builds(Wrote, table=texts, compaction_recommended=st.booleans(), small_files=st.none() | counts),
    st.builds(Queried, table=texts, seconds=st.floats(0, 100)),
    st.builds(Assessed, table=texts, small_files=counts),
    st.builds(SweepEnded, faults=counts),
    st.builds(JobGivenUp, table=texts, code=texts),
)


def told(occurrence: Occurrence) -> dict[Metric, list[float]]:
    found: dict[Metric, list[float]] = {}
    for measurement in measurements(occurrence):
        found.setdefault(measurement.metric, []).append(measurement.value)
    return found


def test_the_guides_metrics_have_their_names_and_kinds() -> None:
    kinds = {metric.name: metric.kind for metric in METRICS}
    assert {name: kinds.get(name) for name in GUIDES} == GUIDES


def test_a_compaction_is_counted_with_every_output_its_ratios_and_its_time() -> None:
    assert told(COMPACTED) == {
        FILES_COMPACTED: [14],
        BYTES_READ: [4000],
        BYTES_WRITTEN: [2000],
        COMPACTIONS_SUCCEEDED: [1],
        COMPACTION_DURATION: [2.5],
        COMPRESSION_RATIO: [2.0],
        FILES_RATIO: [7.5],
        FILE_SIZES: [1500, 500],
        LAST_COMPACTION: [1_737_090_000.5],
        SMALL_FILES: [1],
    }


def test_a_compaction_that_left_no_file_has_no_ratio() -> None:
    found = told(replace(COMPACTED, output_bytes=(), stats=replace(STATS, files_after=0)))
    assert COMPRESSION_RATIO not in found
    assert FILES_RATIO not in found
    assert found[BYTES_WRITTEN] == [0]


def test_a_write_that_did_not_look_counts_as_a_write_and_as_nothing_else() -> None:
    assert told(Wrote(table="t", compaction_recommended=False, small_files=None)) == {WRITES: [1]}
    taking = Wrote(table="t", compaction_recommended=False, small_files=None, files_taken_along=3)
    assert told(taking) == {WRITES: [1], FILES_TAKEN_ALONG: [3]}
    looked = told(Wrote(table="t", compaction_recommended=True, small_files=12))
    assert looked == {WRITES: [1], COMPACTION_CHECKS: [1], COMPACTION_RECOMMENDED: [1], SMALL_FILES: [12]}


def test_a_failure_is_counted_under_its_code() -> None:
    assert COMPACTIONS_FAILED not in told(CompactionEnded(table="t"))
    (_, failed) = measurements(CompactionEnded(table="t", failed_with="COMMIT_CONFLICT"))
    assert (failed.metric, failed.label_value) == (COMPACTIONS_FAILED, "COMMIT_CONFLICT")


def test_queries_and_looks_are_measured() -> None:
    assert told(Queried(table="t", seconds=0.25)) == {QUERY_TIME: [0.25]}
    assert told(Assessed(table="t", small_files=3)) == {SMALL_FILES: [3]}


def test_a_sweep_is_counted_and_so_is_what_it_could_not_do() -> None:
    assert told(SweepEnded(faults=2)) == {SWEEPS: [1], SWEEP_ERRORS: [2]}


def test_a_job_that_is_given_up_is_one_more_failure_and_ends_no_compaction_of_this_process() -> None:
    assert told(JobGivenUp(table="t", code="WORKER_LOST")) == {COMPACTIONS_FAILED: [1]}


@given(st.lists(st.none() | texts, max_size=20))
def test_what_is_active_comes_back_to_zero(endings: list[str | None]) -> None:
    happened = [CompactionStarted(table="t") for _ in endings]
    happened += [CompactionEnded(table="t", failed_with=code) for code in endings]  # type: ignore[misc]
    assert sum(sum(told(one).get(ACTIVE_COMPACTIONS, [0])) for one in happened) == 0


@given(occurrences)
def test_only_metrics_that_are_declared_are_measured_and_counters_never_fall(occurrence: Occurrence) -> None:
    for measurement in measurements(occurrence):
        assert measurement.metric in METRICS
        assert measurement.metric.kind is Kind.UP_DOWN or measurement.value >= 0


def test_a_measurement_has_a_label_exactly_where_its_metric_has_one() -> None:
    for metric, value in ((SMALL_FILES, None), (WRITES, "t")):
        with pytest.raises(ValueError, match=metric.name):
            Measurement(metric=metric, value=1, label_value=value)


def test_the_buckets_of_every_histogram_rise() -> None:
    for metric in METRICS:
        assert bool(metric.buckets) == (metric.kind is Kind.HISTOGRAM)
        assert list(metric.buckets) == sorted(set(metric.buckets))
