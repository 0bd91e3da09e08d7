"""COMPACT where row groups of inputs are copied as they are: the same rows in the same order, and one reason each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
)

from regelate.adapters.parquet import splicing as joining
from regelate.core.planning import splicing
from regelate.core.running import parts
from regelate.errors import RegelateError
from tests.support.deletes_writer import add_position_deletes
from tests.support.iceberg_tables import duckdb_rows, live_data_files, live_data_paths, local_path, row_texts, rows
from tests.support.lake import Lake, in_table_order
from tests.support.writers import EVERY, WRITERS, add_written, by_duckdb, by_pyarrow, every, v2_pages

LARGE, SMALL, GROUP = 600, 40, 300
SCHEMA = Schema(
    NestedField(1, "n", LongType()), NestedField(2, "text", StringType()), NestedField(3, "v", DoubleType())
)
Row = tuple[object, ...]


@pytest.fixture(autouse=True)
def small_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row group of 250 rows is large."""
    monkeypatch.setattr(splicing, "WHOLE_ROWS", 250)


def some(low: int, count: int) -> list[Row]:
    return [(n, f"t{n % 9}", n / 4) for n in range(low, low + count)]


def numbers(table: Any) -> list[int]:
    """The column n of all files, each in the order of its rows."""
    return [n for path in in_table_order(table) for n in pq.read_table(local_path(path)).column("n").to_pylist()]


def groups_of(path: str) -> list[int]:
    footer = pq.read_metadata(local_path(path))
    return [footer.row_group(number).num_rows for number in range(footer.num_row_groups)]


def compact(lake: Lake, table: Any, splice: str = "auto", **request: Any) -> Any:
    asked = {"force": True, "verify": "strict", **request}
    answer = lake.compact(table, options={"splice": splice}, **asked)
    assert answer["status"] == "COMPLETED", answer
    return answer["stats"]


def mixed(lake: Lake, **how: Any) -> Any:
    """Two large files of two row groups each, a small one before the second."""
    table = lake.table(SCHEMA, ident=how.pop("ident", "db.t"), **how)
    for low, count in ((0, LARGE), (1_000, SMALL), (2_000, SMALL), (3_000, LARGE)):
        add_written(table, by_pyarrow, some(low, count), group=GROUP)
    return table


@pytest.mark.parametrize("codec", ["zstd", "snappy", "gzip", "uncompressed"])
@pytest.mark.parametrize("large", WRITERS)
def test_spliced_and_mixed_outputs_hold_the_same_rows_for_every_reader(lake: Lake, large: str, codec: str) -> None:
    """All three readers, before and after; `pyarrow` writes the small ones, as PyIceberg does."""
    properties = {"write.parquet.compression-codec": codec}
    for ident, small in (("db.spliced", ()), ("db.mixed", ("pyarrow", "duckdb"))):
        table = lake.table(EVERY, ident=ident, properties=properties)
        add_written(table, WRITERS[large], every(0, 2 * LARGE), group=GROUP, codec=codec)
        for number, name in enumerate(small, 1):
            add_written(table, WRITERS[name], every(9_000 * number, 9_000 * number + SMALL), group=GROUP, codec=codec)
        add_written(table, WRITERS[large], every(50_000, 50_000 + 2 * LARGE), group=GROUP, codec=codec)
        before = rows(table.refresh()), duckdb_rows(table), numbers(table)
        stats = compact(lake, table)
        (path,) = live_data_paths(table.refresh())
        assert row_texts(rows(table)) == row_texts(before[0])
        assert row_texts(duckdb_rows(table)) == row_texts(before[1])
        assert numbers(table) == before[2]
        assert stats["bytes_spliced"] > stats["bytes_before"] / 3
        assert stats["row_groups_after"] == len(groups_of(path))
        assert min(groups_of(path)) >= 250


def test_small_row_groups_take_a_neighbour_along_and_the_others_stay_as_they_are(lake: Lake) -> None:
    table = mixed(lake)
    wanted = numbers(table)
    stats = compact(lake, table)
    (path,) = live_data_paths(table.refresh())
    assert groups_of(path) == [300, 300, 80 + 300, 300] or groups_of(path) == [300, 300 + 80, 300, 300]
    assert numbers(table) == wanted
    assert (stats["row_groups_before"], stats["row_groups_after"]) == (6, 4)
    assert 0 < stats["bytes_spliced"] < stats["bytes_before"]
    assert table.current_snapshot().summary["regelate.spliced-bytes"] == str(stats["bytes_spliced"])


def test_never_recodes_all_and_always_copies_small_ones_too(lake: Lake) -> None:
    never, always = mixed(lake, ident="db.never"), mixed(lake, ident="db.always")
    wanted = numbers(never)
    assert compact(lake, never, "never")["bytes_spliced"] == 0
    assert max(groups_of(live_data_paths(never.refresh())[0])) > GROUP
    assert "regelate.spliced-bytes" not in never.current_snapshot().summary.additional_properties
    compact(lake, always, "always")
    (path,) = live_data_paths(always.refresh())
    assert groups_of(path) == [300, 300, 40, 40, 300, 300]
    assert numbers(always) == numbers(never) == wanted


def test_a_table_says_by_a_property_what_a_request_may_overrule(lake: Lake) -> None:
    tables = [mixed(lake, ident=f"db.t{at}", properties={"regelate.compaction.splice": "never"}) for at in (0, 1)]
    assert lake.compact(tables[0], force=True)["stats"]["bytes_spliced"] == 0
    assert compact(lake, tables[1], "auto")["bytes_spliced"] > 0


def test_a_dry_run_says_what_is_copied_and_what_is_recoded(lake: Lake) -> None:
    table = mixed(lake)
    sizes = {f.file_path: f.file_size_in_bytes for f in live_data_files(table.refresh())}
    large = sum(size for path, size in sizes.items() if pq.read_metadata(local_path(path)).num_rows == LARGE)
    plan = lake.compact(table, force=True, dry_run=True)["plan"]
    assert (plan["bytes_spliced"], plan["bytes_recoded"]) == (large, sum(sizes.values()) - large)
    assert [group["bytes_spliced"] for group in plan["file_groups"]] == [large]
    never = lake.compact(table, force=True, dry_run=True, options={"splice": "never"})["plan"]
    assert (never["bytes_spliced"], never["bytes_recoded"]) == (0, sum(sizes.values()))


@pytest.mark.parametrize("splice", ["auto", "always"])
def test_files_with_deletes_are_recoded_and_those_beside_them_are_not(lake: Lake, splice: str) -> None:
    table = mixed(lake)
    first = in_table_order(table)[0]
    add_position_deletes(table, {first: range(0, LARGE, 2)})
    wanted = [n for n in numbers(table) if n >= 1_000 or n % 2]
    stats = compact(lake, table, splice)
    assert numbers(table.refresh()) == wanted
    large = sorted(f.file_size_in_bytes for f in live_data_files(table))
    assert 0 < stats["bytes_spliced"] < large[-1]


def test_a_sort_recodes_everything(lake: Lake) -> None:
    table = mixed(lake)
    order = [{"column": "n", "direction": "desc"}]
    stats = compact(lake, table, "always", strategy="sort", sort_order=order)
    assert stats["bytes_spliced"] == 0
    assert numbers(table.refresh()) == sorted(numbers(table), reverse=True)


def test_another_codec_than_the_tables_is_recoded(lake: Lake) -> None:
    table = lake.table(SCHEMA)
    for low in (0, 5_000):
        add_written(table, by_pyarrow, some(low, LARGE), group=GROUP, codec="snappy")
    assert compact(lake, table, "always")["bytes_spliced"] == 0
    (path,) = live_data_paths(table.refresh())
    assert pq.read_metadata(local_path(path)).row_group(0).column(0).compression == "ZSTD"


def test_a_renamed_column_is_copied_under_its_new_name_and_an_added_one_is_a_reason_to_recode(lake: Lake) -> None:
    renamed, added = mixed(lake, ident="db.renamed"), mixed(lake, ident="db.added")
    with renamed.update_schema() as schema:
        schema.rename_column("text", "said so")
    with added.update_schema() as schema:
        schema.add_column("more", LongType())
    before = row_texts(rows(renamed.refresh())), row_texts(rows(added.refresh()))
    assert compact(lake, renamed)["bytes_spliced"] > 0
    assert compact(lake, added, "always")["bytes_spliced"] == 0
    (path,) = live_data_paths(renamed.refresh())
    assert pq.read_schema(local_path(path)).names == ["n", "said_x20so", "v"]
    assert (row_texts(rows(renamed)), row_texts(rows(added.refresh()))) == before


def test_a_copied_file_is_read_right_after_the_next_promotion(lake: Lake) -> None:
    schema = Schema(NestedField(1, "n", LongType()), NestedField(2, "f", FloatType()))
    table = lake.table(schema)
    for low in (0, 5_000):
        add_written(table, by_duckdb, [(n, n / 8) for n in range(low, low + LARGE)], group=GROUP)
    assert compact(lake, table)["bytes_spliced"] > 0
    with table.refresh().update_schema() as change:
        change.update_column("f", DoubleType())
    assert row_texts(rows(table.refresh())) == row_texts(
        (n, n / 8) for low in (0, 5_000) for n in range(low, low + 600)
    )


def test_t49_bounds_of_an_output_hold_the_rows_of_a_copied_row_group_that_has_none(lake: Lake) -> None:
    """Bounds of the other row groups would hide its rows from readers."""
    table = lake.table(SCHEMA)

    def without_statistics(path: Path, given: pa.Table, schema: Schema, group: int, codec: str) -> None:
        by_pyarrow(path, given, schema, group, codec, write_statistics=["n"])

    add_written(table, by_pyarrow, [(n, "m", 1.0) for n in range(LARGE)], group=GROUP)
    add_written(table, without_statistics, [(n + 5_000, "A", -500.0) for n in range(LARGE)], group=GROUP)
    stats = compact(lake, table)
    (file,) = live_data_files(table.refresh())
    assert stats["bytes_spliced"] > 0
    assert groups_of(file.file_path) == [300] * 4
    assert sorted(file.lower_bounds) == [1]
    for sought in ("v < -100", "text < 'a'"):
        assert table.scan(row_filter=sought).to_arrow().num_rows == LARGE


def test_required_columns_of_pyarrow_are_joined_with_small_ones_that_it_recodes(lake: Lake) -> None:
    """DuckDB writes optional columns only: what goes between row groups with required ones is written by PyArrow."""
    schema = Schema(NestedField(1, "n", LongType(), required=True), NestedField(2, "text", StringType()))
    table = lake.table(schema)
    for low, count in ((0, LARGE), (1_000, SMALL), (3_000, LARGE), (6_000, LARGE)):
        add_written(table, by_pyarrow, [(n, "t") for n in range(low, low + count)], group=GROUP)
    wanted = numbers(table)
    stats = compact(lake, table)
    (path,) = live_data_paths(table.refresh())
    assert stats["bytes_spliced"] > 0
    assert numbers(table) == wanted
    assert not pq.read_schema(local_path(path)).field("n").nullable


def required(schema: Schema) -> Schema:
    """The columns as a writer declares them that knows of no null among its rows, as Spark does."""
    inner = StructType(*(field.model_copy(update={"required": True}) for field in NESTED.fields[2].field_type.fields))
    listed = ListType(7, LongType(), element_required=True)
    kinds = {"st": inner, "li": listed}
    fields = (
        f.model_copy(update={"required": True, "field_type": kinds.get(f.name, f.field_type)}) for f in schema.fields
    )
    return Schema(*fields)


def by_spark(path: Path, rows: pa.Table, schema: Schema, group: int, codec: str) -> None:
    by_pyarrow(path, rows, required(schema), group, codec)


NESTED = Schema(
    NestedField(1, "n", LongType()),
    NestedField(2, "d", DecimalType(30, 2)),
    NestedField(3, "st", StructType(NestedField(5, "a", LongType()), NestedField(6, "b", StringType()))),
    NestedField(4, "li", ListType(7, LongType(), element_required=False)),
)


def nested(low: int, count: int) -> list[Row]:
    return [(n, Decimal(n) / 4, {"a": n, "b": "x"}, [n, n + 1]) for n in range(low, low + count)]


@pytest.mark.parametrize("verify", ["fast", "strict"])
def test_what_lies_between_files_that_declare_no_nulls_is_recoded_to_their_shape(lake: Lake, verify: str) -> None:
    """Spark declares a column required where the query that made it gives no null; the table allows them."""
    table = lake.table(NESTED)
    for low, count in ((0, LARGE), (1_000, SMALL), (3_000, LARGE), (6_000, LARGE)):
        add_written(table, by_spark if count == LARGE else by_pyarrow, nested(low, count), group=GROUP)
    before, wanted = row_texts(rows(table.refresh())), numbers(table)
    stats = compact(lake, table, verify=verify)
    (path,) = live_data_paths(table.refresh())
    assert stats["bytes_spliced"] > stats["bytes_before"] / 2
    assert numbers(table) == wanted
    assert row_texts(rows(table)) == row_texts(duckdb_rows(table)) == before
    assert [field.nullable for field in pq.read_schema(local_path(path))] == [False] * 4


@pytest.mark.parametrize("null", [0, 1, 2, 3])
def test_where_a_null_lies_between_files_that_declare_none_all_is_recoded(lake: Lake, null: int) -> None:
    table = lake.table(NESTED)
    odd: list[Row] = [(None, *nested(1_000, 1)[0][1:]), (1, None, None, None), (2, Decimal(1), {"a": 1}, [1])]
    odd += [(3, Decimal(1), {"a": 1, "b": "x"}, [None])]
    for low, between in ((0, nested(1_000, SMALL)), (3_000, [odd[null], *nested(2_000, SMALL)])):
        add_written(table, by_spark, nested(low, LARGE), group=GROUP)
        add_written(table, by_pyarrow, between, group=GROUP)
    before, wanted = row_texts(rows(table.refresh())), numbers(table)
    assert compact(lake, table)["bytes_spliced"] == 0
    assert numbers(table.refresh()) == wanted
    assert row_texts(rows(table)) == before


@pytest.mark.parametrize("verify", ["fast", "strict"])
def test_a_flipped_bit_in_a_page_with_a_checksum_spoils_the_group_and_names_the_file(lake: Lake, verify: str) -> None:
    table = lake.table(SCHEMA)
    for low in (0, 5_000):
        add_written(table, v2_pages, some(low, LARGE), group=GROUP)
    path = in_table_order(table)[1]
    before = live_data_paths(table)
    chunk = pq.read_metadata(local_path(path)).row_group(1).column(2)
    data = bytearray(local_path(path).read_bytes())
    data[(chunk.dictionary_page_offset or chunk.data_page_offset) + chunk.total_compressed_size - 1] ^= 1
    local_path(path).write_bytes(data)
    with pytest.raises(RegelateError, match="DATA_FILE_CORRUPT") as raised:
        lake.compact(table, force=True, verify=verify)
    assert path.rpartition("/")[2] in raised.value.message
    assert live_data_paths(table.refresh()) == before


@pytest.mark.parametrize(
    ("mutation", "verify"),
    [(one, verify) for one in ("swapped", "doubled", "planned twice") for verify in ("fast", "strict")]
    + [("asked for twice", "strict")],
)
def test_a_fault_of_ours_in_what_is_copied_is_found_before_the_commit(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, mutation: str, verify: str
) -> None:
    """Also where pages have no checksums, and where one row group is taken for another of as many rows."""
    table = lake.table(SCHEMA)
    for low in (0, 5_000):
        add_written(table, by_pyarrow, [(n, "t", float(n % 3)) for n in range(low, low + LARGE)], group=GROUP)
    before = live_data_paths(table)
    spoil(monkeypatch, mutation)
    with pytest.raises(RegelateError, match=r"ROWS_CHANGED|SPLICE_DISAGREES"):
        lake.compact(table, force=True, verify=verify)
    assert live_data_paths(table.refresh()) == before


def spoil(monkeypatch: pytest.MonkeyPatch, mutation: str) -> None:
    copy, write = joining._chunk_by_chunk, joining.ParquetSplicer._write
    if mutation == "swapped":
        monkeypatch.setattr(joining, "_chunk_by_chunk", lambda *given: [at[::-1] for at in copy(*given)])
    elif mutation == "planned twice":
        spliced = parts._spliced
        monkeypatch.setattr(
            parts, "_spliced", lambda *given: replace(spliced(*given), numbers=spliced(*given).numbers[:1] * 2)
        )
    elif mutation == "doubled":

        def doubled(self: Any, sources: Sequence[Any], target: Path) -> None:
            write(self, [sources[0], *sources], target)

        monkeypatch.setattr(joining.ParquetSplicer, "_write", doubled)
    else:
        join = joining.ParquetSplicer.join
        monkeypatch.setattr(
            joining.ParquetSplicer,
            "join",
            lambda self, sources, target: join(self, [replace(s, numbers=(0, 0)) for s in sources], target),
        )


def test_an_input_that_is_no_longer_what_its_footer_said_is_recoded(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was replaced between the look at its footer and its copy: a row group is gone."""
    table = mixed(lake)
    wanted = numbers(table)
    join = joining.ParquetSplicer.join

    def of_others(self: Any, sources: Sequence[Any], target: str) -> bool:
        return join(self, [replace(s, numbers=(9,)) if s.numbers else s for s in sources], target)

    monkeypatch.setattr(joining.ParquetSplicer, "join", of_others)
    assert compact(lake, table)["bytes_spliced"] == 0
    assert numbers(table.refresh()) == wanted


def test_a_file_that_the_table_lists_twice_is_copied_twice(lake: Lake) -> None:
    table = lake.table(SCHEMA)
    add_written(table, by_pyarrow, some(0, LARGE), group=GROUP)
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as added:
        added.append_data_file(live_data_files(table)[0])
    before = row_texts(rows(table.refresh()))
    assert len(before) == 2 * LARGE
    assert compact(lake, table, verify="fast")["bytes_spliced"] > 0
    assert row_texts(rows(table.refresh())) == before


def test_what_was_copied_does_not_count_for_the_size_that_a_rewrite_is_expected_to_achieve(lake: Lake) -> None:
    """The next plan goes by what recoding achieved, and a run that only copied says nothing of that."""
    table = lake.table(SCHEMA)
    for low in (0, 5_000):
        add_written(table, by_pyarrow, some(low, LARGE), group=GROUP)
    assert compact(lake, table)["bytes_spliced"] > 0
    summary = table.refresh().current_snapshot().summary.additional_properties
    told = {name: int(summary[name]) for name in ("regelate.spliced-bytes", "removed-files-size", "added-files-size")}
    assert told["regelate.spliced-bytes"] < told["added-files-size"]
    assert told["removed-files-size"] - told["regelate.spliced-bytes"] < told["removed-files-size"] / 2
