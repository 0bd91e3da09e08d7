"""Values at which arithmetic ends, of every type under every transform: written, pruned and compacted, or refused."""

from __future__ import annotations

import operator
import os
import random
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.expressions import LessThan
from pyiceberg.expressions.visitors import inclusive_projection
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import MonthTransform, TruncateTransform
from pyiceberg.types import DateType, DecimalType, IntegerType, NestedField, StringType
from pyiceberg.utils.truncate import truncate_upper_bound_text_string

from regelate.adapters.iceberg.manifests import ManifestReader
from regelate.adapters.iceberg.scan import SnapshotScan
from regelate.core.query.predicate import literal, parse_filter
from regelate.core.requests import QueryRequest
from regelate.errors import InvalidRequest
from tests.support.extreme_values import Extremes
from tests.support.iceberg_tables import live_data_files
from tests.support.lake import Lake, address

EXTREMES = Extremes()
TESTS: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
FILTERS = None if os.environ.get("FUZZ_ROUNDS") else 150
"""How many of some 3,000 filters one run looks at; all with FUZZ_ROUNDS set."""


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return Lake(tmp_path_factory.mktemp("extremes"))


@pytest.fixture(scope="module")
def table(lake: Lake) -> Table:
    made = lake.table(EXTREMES.schema, spec=EXTREMES.spec)
    lake.write(made, EXTREMES.rows)
    return made.refresh()


def filters() -> Iterator[tuple[dict[str, Any], frozenset[int]]]:
    """Every op with every value of every column, and the rows that it holds for."""
    for name, (kind, _, pool) in EXTREMES.columns.items():
        text = str(kind).replace(", ", ",")
        stored = {row["n"]: literal(text, row[name]) for row in EXTREMES.rows if name in row}
        for value in pool:
            wanted = literal(text, value)
            for op, holds in TESTS.items():
                if wanted != wanted:
                    if op in ("=", "!="):
                        nan = frozenset(n for n, v in stored.items() if (v != v) is (op == "="))
                        yield {"column": name, "op": op, "value": value}, nan
                    continue
                found = frozenset(n for n, v in stored.items() if (op == "!=" or v == v) and holds(v, wanted))
                yield {"column": name, "op": op, "value": value}, found


def test_every_extreme_value_is_written_and_no_filter_at_one_skips_its_rows(table: Table, tmp_path: Path) -> None:
    scan = SnapshotScan(table, ManifestReader(), tmp_path)
    rows_of = {f.file_path: {int.from_bytes(f.lower_bounds[1], "little")} for f in live_data_files(table)}
    assert sorted(n for rows in rows_of.values() for n in rows) == [row["n"] for row in EXTREMES.rows]
    pruned, every = 0, list(filters())
    seed = int(os.environ.get("FUZZ_SEED", "11"))
    chosen = every if FILTERS is None else random.Random(seed).sample(every, FILTERS)
    for written, wanted in chosen:
        groups = scan.files(parse_filter(written, scan.columns))
        found = {n for group in groups for task in group for n in rows_of[task.data_file.path]}
        assert wanted <= found, f"seed {seed}: {written} skips {wanted - found}"
        pruned += len(rows_of) - len(found)
    assert pruned > 2 * len(chosen)


def described(table: Table) -> set[tuple[str, ...]]:
    """Partition and bounds of every file, as text: NaN equals itself."""
    files = live_data_files(table.refresh())
    return {(repr(f.partition), *(repr(sorted(b.items())) for b in (f.lower_bounds, f.upper_bounds))) for f in files}


def test_compaction_keeps_every_extreme_value_in_its_partition(lake: Lake, table: Table) -> None:
    lake.write(table, EXTREMES.rows)
    before = described(table)
    answer = lake.assert_rows_kept(table, verify="strict")
    assert answer["stats"]["files_compacted"] == 2 * len(EXTREMES.rows)
    assert len(live_data_files(table.refresh())) == len(EXTREMES.rows)
    assert described(table) == before


@pytest.mark.parametrize(("value", "held"), [("-9999999.90", True), ("-9999999.91", False)])
def test_row_15_a_decimal_whose_partition_has_a_digit_too_many_is_refused_by_name(
    lake: Lake, value: str, held: bool
) -> None:
    """Java: "Cannot write value as decimal(9,2), too large: -10000000.00", when it writes the manifest."""
    spec = PartitionSpec(PartitionField(1, 1000, TruncateTransform(10), "p"))
    table = lake.table(Schema(NestedField(1, "v", DecimalType(9, 2))), spec=spec, ident=f"db.decimal_{held}")
    if held:
        lake.write(table, [{"v": value}])
        assert [f.partition[0] for f in live_data_files(table.refresh())] == [Decimal(value)]
        return
    with pytest.raises(InvalidRequest, match=r"column .v.: .* beyond decimal\(9, 2\)") as refused:
        lake.write(table, [{"v": "0.00"}, {"v": value}])
    assert (refused.value.code, refused.value.status) == ("VALUE_OUT_OF_RANGE", 422)
    assert live_data_files(table.refresh()) == []


def test_a_filter_that_reaches_beyond_the_calendar_is_answered(lake: Lake) -> None:
    spec = PartitionSpec(PartitionField(1, 1000, MonthTransform(), "p"))
    table = lake.table(Schema(NestedField(1, "v", DateType())), spec=spec, ident="db.calendar")
    for day in ("0001-01-01", "9999-12-31"):
        lake.write(table, [{"v": day}])
    asked = {op: {"column": "v", "op": op, "value": day} for op, day in (("<", "0001-01-01"), (">", "9999-12-31"))}
    for written in asked.values():
        assert lake.service.queries.query(address(table), QueryRequest(filter=written)).row_count == 0
    compacted = lake.compact(table, where="v < '0001-01-01'", force=True)
    assert compacted["status"] == "NOTHING_TO_DO", compacted


def test_a_lone_surrogate_is_no_value_to_look_for(lake: Lake, table: Table) -> None:
    name = next(name for name, (kind, _, _) in EXTREMES.columns.items() if isinstance(kind, StringType))
    for value in ("\ud800", "x\udfff"):
        with pytest.raises(InvalidRequest, match="no lone surrogate"):
            lake.service.queries.query(address(table), QueryRequest(filter={"column": name, "op": "<", "value": value}))


def test_an_upsert_finds_the_least_int_in_its_wrapped_partition(lake: Lake) -> None:
    spec = PartitionSpec(PartitionField(1, 1000, TruncateTransform(10), "p"))
    schema = Schema(NestedField(1, "v", IntegerType()), NestedField(2, "word", StringType()))
    table = lake.table(schema, spec=spec, ident="db.wrapped")
    lake.write(table, [{"v": -(2**31), "word": "old"}, {"v": 2**31 - 1, "word": "kept"}])
    lake.write(table, [{"v": -(2**31), "word": "new"}], mode="upsert", key=("v",))
    found = lake.service.queries.query(address(table), QueryRequest(order_by=[{"column": "v"}])).rows
    assert [row["word"] for row in found] == ["new", "kept"]


def test_t44_pyiceberg_raises_a_bound_to_a_surrogate() -> None:
    """Our answer: bounds are collected whole and cut by Iceberg's rule (`core.bounds.raised`)."""
    assert truncate_upper_bound_text_string("\ud7ffx", 1) == "\ud800"
    assert truncate_upper_bound_text_string("a\U0010ffffx", 2) == "b\U0010ffff"


def test_t45_pyiceberg_computes_partitions_beyond_their_types() -> None:
    """Our answer: ints wrap as in Java, and what cannot be projected does not prune (`transforms.py`)."""
    assert TruncateTransform(10).transform(IntegerType())(-(2**31)) == -(2**31) - 2
    spec = PartitionSpec(PartitionField(1, 1000, MonthTransform(), "p"))
    with pytest.raises(OverflowError):
        inclusive_projection(Schema(NestedField(1, "v", DateType())), spec)(LessThan("v", "0001-01-01"))
