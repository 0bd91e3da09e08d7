"""The proof before a commit: what a rewrite lost, doubled or made up is refused; what it kept passes."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regelate.core.planning.plan import FileGroup
from regelate.core.running.rewrite import Fingerprint, NewDataFile, RewriteResult, verify_content, verify_rewrite
from regelate.core.table.input_metrics import InputMetrics
from regelate.core.table.table import ColumnMetrics, FileScanTask
from regelate.errors import DataUnavailable, InvariantViolated
from tests.unit.core.model_table import UNPARTITIONED, data_file

TYPES = {1: "long"}
Values = Sequence[int | None]


def bound(value: int) -> bytes:
    return value.to_bytes(8, "little", signed=True)


def metrics_of(values: Values) -> ColumnMetrics:
    """Return what a writer says of column 1 that holds these values."""
    found = [v for v in values if v is not None]
    return ColumnMetrics(
        value_counts={1: len(values)},
        null_counts={1: len(values) - len(found)},
        lower_bounds={1: bound(min(found))} if found else {},
        upper_bounds={1: bound(max(found))} if found else {},
    )


@dataclass(frozen=True)
class Rewritten:
    """A rewrite, and what the manifests said of each of its inputs."""

    result: RewriteResult
    inputs: tuple[ColumnMetrics | None, ...]


def rewritten(inputs: Sequence[Values], outputs: Sequence[Values], *, deleted: int = 0) -> Rewritten:
    tasks = tuple(FileScanTask(data_file=data_file(f"in{n}", 100, rows=len(v))) for n, v in enumerate(inputs))
    group = FileGroup(index=7, partition=UNPARTITIONED, tasks=tasks, expected_output_files=1)
    added = tuple(
        NewDataFile(
            path=f"out{n}",
            partition=UNPARTITIONED,
            record_count=len(values),
            size_bytes=10,
            metrics=metrics_of(values),
        )
        for n, values in enumerate(outputs)
    )
    result = RewriteResult(group=group, added=added, rows_deleted=deleted)
    return Rewritten(result, tuple(metrics_of(values) for values in inputs))


def without_metrics(made: Rewritten, index: int, metrics: ColumnMetrics | None = None) -> Rewritten:
    """Return the rewrite with other metrics, or none, on one of its inputs."""
    return replace(made, inputs=(*made.inputs[:index], metrics, *made.inputs[index + 1 :]))


def verify(made: Rewritten, types: Mapping[int, str] = TYPES) -> None:
    inputs = InputMetrics(types)
    for task, metrics in zip(made.result.group.tasks, made.inputs, strict=False):
        inputs.add(metrics, task.data_file.record_count)
    verify_rewrite(made.result, inputs)


rows = st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)), max_size=6)


@given(inputs=st.lists(rows, min_size=1, max_size=4), data=st.data())
def test_a_rewrite_that_keeps_every_live_row_passes(inputs: list[list[int | None]], data: st.DataObject) -> None:
    everything = [value for values in inputs for value in values]
    live = [value for value in everything if not data.draw(st.booleans())]
    cut = data.draw(st.integers(0, len(live)))
    outputs = [part for part in (live[:cut], live[cut:]) if part]
    verify(rewritten(inputs, outputs, deleted=len(everything) - len(live)))


@given(inputs=st.lists(rows, min_size=1, max_size=4), wrong=st.integers(-6, 6).filter(bool), deleted=st.integers(0, 3))
def test_any_other_number_of_rows_is_refused(inputs: list[list[int | None]], wrong: int, deleted: int) -> None:
    everything = [value for values in inputs for value in values]
    written = len(everything) - deleted + wrong
    outputs = [(everything + [1] * wrong)[:written]] if written > 0 else []
    result = rewritten(inputs, outputs, deleted=deleted)
    if result.result.rows_written == len(everything) - deleted:
        return
    with pytest.raises(InvariantViolated, match="ROWS_NOT_CONSERVED") as refused:
        verify(result)
    assert refused.value.details == {
        "rows_read": len(everything),
        "rows_deleted": deleted,
        "rows_written": result.result.rows_written,
    }


@pytest.mark.parametrize(
    ("inputs", "outputs", "deleted"),
    [
        ([[1, None], [3]], [[1, 2, 3]], 0),
        ([[1, 2], [3]], [[1, None, 3]], 0),
        ([[1, None], [3, 4]], [[None, None, 3]], 1),
    ],
    ids=["a null filled", "a value lost", "more nulls than before, although a row was deleted"],
)
def test_nulls_that_came_or_went_are_refused(inputs: list[Values], outputs: list[Values], deleted: int) -> None:
    with pytest.raises(DataUnavailable, match=r"DATA_FILE_SUSPECT: group 7: column 1 has .* nulls") as refused:
        verify(rewritten(inputs, outputs, deleted=deleted))
    assert refused.value.details["paths"] == ["in0", "in1"]


@pytest.mark.parametrize("outside", [0, 4], ids=["below", "above"])
@pytest.mark.parametrize("deleted", [0, 1])
def test_values_outside_the_bounds_of_the_inputs_are_refused(outside: int, deleted: int) -> None:
    result = rewritten([[1, 2], [3] * (1 + deleted)], [[1, 2, outside]], deleted=deleted)
    with pytest.raises(DataUnavailable, match=r"DATA_FILE_SUSPECT: .* outside the bounds"):
        verify(result)


def test_each_output_is_judged() -> None:
    with pytest.raises(DataUnavailable, match="outside the bounds"):
        verify(rewritten([[1, 2, 3]], [[1, 2], [9]]))


def test_a_column_that_is_not_compared_is_not_judged() -> None:
    verify(rewritten([[1, 2, 3]], [[1, 2, 9]]), {})
    verify(rewritten([[1, 2, 3]], [[1, 2, 9]]), {2: "long"})


def test_an_input_of_nulls_alone_sets_no_bounds_and_an_input_without_bounds_lifts_them() -> None:
    result = rewritten([[1, 2], [None]], [[1, 9, None]])
    with pytest.raises(DataUnavailable, match="outside the bounds"):
        verify(result)
    no_bounds = ColumnMetrics(value_counts={1: 1}, null_counts={1: 1}, lower_bounds={}, upper_bounds={})
    with pytest.raises(DataUnavailable, match="outside the bounds"):
        verify(without_metrics(result, 1, no_bounds))
    few_metrics = ColumnMetrics(value_counts={}, null_counts={}, lower_bounds={}, upper_bounds={})
    verify(without_metrics(result, 1, few_metrics))
    verify(without_metrics(result, 1))


def test_an_input_without_a_null_count_may_hold_none_to_all() -> None:
    few_metrics = ColumnMetrics(value_counts={}, null_counts={}, lower_bounds={}, upper_bounds={})
    for nulls in range(3):
        outputs = [[1, None, *([None] * nulls), *([1] * (2 - nulls))]]
        verify(without_metrics(rewritten([[1, None], [1, 1]], outputs), 1, few_metrics))
    too_many = rewritten([[1, None], [1, 1]], [[None, None, None, None]])
    with pytest.raises(DataUnavailable, match="column 1 has 3 nulls in the manifests and 4 as written"):
        verify(without_metrics(too_many, 1, few_metrics))
    too_few = rewritten([[1, None], [1, 1]], [[1, 1, 1, 1]])
    with pytest.raises(DataUnavailable, match="column 1 has 1 nulls in the manifests and 0 as written"):
        verify(without_metrics(too_few, 1, few_metrics))


def test_an_input_whose_manifest_said_nothing_of_it_is_refused() -> None:
    with pytest.raises(InvariantViolated, match="INPUT_METRICS_MISSING: group 7: the manifests of 2 files described 1"):
        verify(replace(rewritten([[1], [2]], [[1, 2]]), inputs=(metrics_of([1]),)))


def test_a_group_whose_rows_are_all_deleted_needs_no_output() -> None:
    result = rewritten([[1, 2], [None]], [], deleted=3)
    verify(result)
    found = result.result
    assert (found.rows_read, found.rows_written, found.bytes_written) == (3, 0, 0)


@given(st.lists(st.integers(0, 2**64 - 1)), st.randoms(use_true_random=False), st.integers(0, 5))
def test_fingerprints_of_parts_add_up_to_that_of_the_whole_in_any_order(
    hashes: list[int], seed: random.Random, cut: int
) -> None:
    rows = [Fingerprint(rows=1, total=h) for h in hashes]
    whole = sum(rows, Fingerprint())
    seed.shuffle(rows)
    assert sum(rows[:cut], Fingerprint()) + sum(rows[cut:], Fingerprint()) == whole
    verify_content(rewritten([[1]], [[1]]).result, whole, whole)


@pytest.mark.parametrize("written", [Fingerprint(rows=2, total=7), Fingerprint(rows=3, total=8)])
def test_rows_of_another_number_or_content_are_refused(written: Fingerprint) -> None:
    with pytest.raises(InvariantViolated) as caught:
        verify_content(rewritten([[1]], [[1]]).result, Fingerprint(rows=2, total=8), written)
    assert (caught.value.code, caught.value.status) == ("ROWS_CHANGED", 500)
