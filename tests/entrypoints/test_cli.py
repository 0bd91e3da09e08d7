"""The command line, run for real: a lake in a temporary folder, the exit code, and both streams."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table.snapshots import Operation

from benchmarks.cold_start import LIST, fresh, make_lake
from regelate import __version__
from regelate.core.answers import CompactAnswer, DropTableAnswer, MaintainAnswer, Status
from regelate.core.jobs.exit_codes import DONE, FAILED, INTERRUPTED, LATER, PARTIAL, SOMETHING_TO_DO, USAGE
from regelate.entrypoints.cli import failures, main, screen, texts
from regelate.entrypoints.cli.parser import make_parser
from regelate.entrypoints.cli.running import COMMANDS
from tests.support.answers import check_answer
from tests.support.iceberg_tables import append, live_data_paths, make_catalog, make_table

SOURCE = Path(__file__).parents[2] / "src"
EVENTS = Path(__file__).parents[2] / "events"
PROGRAM = "import sys; from regelate.entrypoints.cli import main; sys.exit(main())"


@dataclass(frozen=True)
class Ended:
    """How one command ended."""

    code: int
    out: str
    err: str

    @property
    def answer(self) -> dict[str, Any]:
        """The one JSON answer on standard output."""
        made: dict[str, Any] = json.loads(self.out)
        return made


Run = Callable[..., Ended]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run one command line in a folder of its own; `stdin` is what it reads."""
    monkeypatch.chdir(tmp_path)

    def started(*argv: str, stdin: bytes = b"") -> Ended:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = main([str(a) for a in argv])
        out, err = capsys.readouterr()
        return Ended(code, out, err)

    return started


def done(ended: Ended) -> Ended:
    assert (ended.code, ended.err) == (0, "")
    return ended


def orders(run: Run, *, writes: int = 0) -> None:
    """Make shop.orders, a table by month, with one file in each of two months per write."""
    done(run("create", "shop.orders", "--schema", "id:long!,day:date,name:string", "--partition", "month(day)"))
    for n in range(writes):
        lines = [{"id": n, "day": "2025-01-05", "name": "a"}, {"id": 100 + n, "day": "2025-02-05", "name": None}]
        done(run("write", "shop.orders", "-", stdin=json_lines(*lines)))


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with one row in shop.orders, for commands that change nothing."""
    folder = tmp_path_factory.mktemp("lake")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("REGELATE_HOME", str(folder))
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json_lines({"id": 1, "day": "2025-01-05"}))))
        columns = "id:long!,day:date,name:string"
        assert main(["create", "shop.orders", "--schema", columns, "--partition", "month(day)"]) == 0
        assert main(["write", "shop.orders", "-"]) == 0
    return folder


def json_lines(*records: Mapping[str, Any]) -> bytes:
    return b"".join(json.dumps(r).encode() + b"\n" for r in records)


def rows_of(run: Run, table: str, order: str = "id") -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = done(run("query", table, "--order-by", order, "--json")).answer["rows"]
    return rows


def ids_of(run: Run, table: str) -> list[int]:
    rows = done(run("query", table, "--order-by", "id", "--columns", "id", "--json")).answer["rows"]
    return [row["id"] for row in rows]


def assert_two_lines(ended: Ended) -> None:
    lines = ended.err.splitlines()
    assert [line.partition(": ")[0] for line in lines] == ["error", "help"]
    assert all(line.partition(": ")[2] for line in lines)


# Help and usage


def test_no_arguments_print_the_help(run: Run) -> None:
    assert done(run()).out == make_parser().format_help()


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_that_names_its_flags(run: Run, command: str) -> None:
    ended = done(run(command, "--help"))
    assert ended.out.startswith(f"usage: regelate {command}")
    assert "--json" in ended.out


def test_the_help_lists_every_command_and_no_other() -> None:
    listed = re.findall(r"^    ([a-z-]+) ", make_parser().format_help(), re.MULTILINE)
    assert sorted(listed) == sorted(COMMANDS)


def test_the_help_documents_every_exit_code() -> None:
    documented = re.findall(r"^  (\d+)  ", make_parser().format_help(), re.MULTILINE)
    assert [int(code) for code in documented] == [DONE, FAILED, USAGE, LATER, PARTIAL, SOMETHING_TO_DO, INTERRUPTED]


def test_the_version_is_the_package_s(run: Run) -> None:
    assert done(run("--version")).out == f"regelate {__version__}\n"


def test_help_imports_the_standard_library_only() -> None:
    code = """
import sys
before = set(sys.modules)
from regelate.entrypoints.cli import main
main(["compact", "--help"])
roots = {name.partition(".")[0] for name in set(sys.modules) - before}
print("imported", sorted(roots - sys.stdlib_module_names - {"regelate"}))
"""
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "imported []"


def test_listing_tables_imports_no_engine_no_arrow_and_no_server(tmp_path: Path) -> None:
    """What `python -m benchmarks cold_start` measures: each of these would be a tenth of a second and more."""
    loaded = set(fresh(LIST, make_lake(tmp_path / "lake"))["modules"])
    assert "pyiceberg.catalog.sql" in loaded
    assert loaded & {"duckdb", "pandas", "pyarrow", "boto3", "http.server", "matplotlib"} == set()


def test_a_query_counts_itself_without_the_desk_of_a_fleet(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_bytes(json_lines({"id": 1}))
    program = f"""
from regelate.entrypoints.cli import main
main(["write", "bench.events", "{tmp_path}/rows.jsonl"])
main(["query", "bench.events"])
"""
    loaded = set(fresh(program, make_lake(tmp_path / "lake"))["modules"])
    assert "regelate.adapters.records.sqlite_fleet" in loaded
    assert loaded & {"regelate.service.fleet_desk", "regelate.core.fleet.propose"} == set()


@pytest.mark.parametrize(
    ("argv", "flag"),
    [
        (["compact"], "NS.TABLE"),
        (["compact", "."], "NS.TABLE"),
        (["compact", "--table", "."], "--table"),
        (["compact", "s.t", "--table", "s.t"], "--table"),
        (["compact", "s.t", "--max-files", "0"], "--max-files"),
        (["compact", "s.t", "--max-files", "many"], "--max-files"),
        (["compact", "s.t", "--partition", "month"], "--partition"),
        (["compact", "s.t", "--option", "x"], "--option"),
        (["compact", "s.t", "--option", "x=1", "--option", "x=2"], "--option"),
        (["compact", "s.t", "--strategy", "hilbert"], "--strategy"),
        (["compact", "s.t", "--max-fil", "1"], "--max-fil"),
        (["expire", "s.t", "--retention-hours", "a day"], "--retention-hours"),
        (["create", "s.t"], "--schema"),
        (["create", "s.t", "--schema", "id"], "--schema"),
        (["create", "s.t", "--schema", "id:long,id:int"], "--schema"),
        (["create", "s.t", "--schema", "ids:list<int>"], "--schema"),
        (["create", "s.t", "--schema", "id:long", "--partition", "month(id"], "--partition"),
        (["write", "s.t", "rows.xls"], "FILE"),
        (["write", "s.t", "missing.csv"], "FILE"),
        (["write", "s.t", "-", "--null", "NA"], "--null"),
        (["query", "s.t", "--filter", "{"], "--filter"),
        (["query", "s.t", "--filter", "5"], "--filter"),
        (["query", "s.t", "--aggregate", "sum"], "--aggregate"),
        (["serve", "--port", "99999"], "--port"),
        (["invoke", "missing.json"], "FILE"),
        (["drop", "s.t"], "--yes"),
    ],
)
def test_a_wrong_command_line_is_told_in_two_lines_that_name_the_flag(run: Run, argv: list[str], flag: str) -> None:
    ended = run(*argv)
    assert (ended.code, ended.out) == (2, "")
    assert_two_lines(ended)
    assert flag in ended.err.splitlines()[0]


@pytest.mark.parametrize(
    ("argv", "flag"),
    [
        (["compact", "shop.orders", "--target-file-size-mb", "99999999"], "--target-file-size-mb"),
        (["compact", "shop.orders", "--option", "nonsense=1"], "--option nonsense"),
        (["compact", "shop.orders", "--option", "min-input-files=few"], "--option min-input-files"),
        (["compact", "shop.orders", "--partition", "year=2025"], "--partition"),
        (["compact", "shop.orders", "--where", "id >"], "--where"),
        (["compact", "shop.orders", "--max-cost", "-1"], "--max-cost"),
        (["compact", "shop.orders", "--retention-hours", "-1"], "--retention-hours"),
        (["expire", "shop.orders", "--min-snapshots-to-keep", "0"], "--min-snapshots-to-keep"),
        (["query", "shop.orders", "--sql", "SELECT 1", "--columns", "id"], "--sql"),
        (["query", "shop.orders", "--as-of", "yesterday"], "--as-of"),
        (["query", "shop.orders", "--filter", '{"column": "id", "op": "~", "value": 1}'], "--filter"),
        (["write", "shop.orders", "-", "--mode", "upsert"], "--key"),
        (["write", "shop.orders", "-", "--key", "id"], "--key"),
        (["write", "shop.orders", "-", "--missing-columns", "keep"], "--missing-columns"),
        (["create", "shop.other", "--schema", "id:money"], "--schema"),
        (["create", "shop.other", "--schema", "id:long", "--partition", "month(id)"], "--partition"),
        (["create", "Shop.Other", "--schema", "id:long"], "NS.TABLE"),
        (["health", "shop.orders", "--catalog", "nowhere"], "--catalog"),
        (["--tenant", "a/b", "health", "shop.orders"], "--tenant"),
    ],
)
def test_what_the_service_refuses_about_a_flag_names_the_flag_too(
    run: Run, argv: list[str], flag: str, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGELATE_HOME", str(lake))
    ended = run(*argv, stdin=json_lines({"id": 1}))
    assert (ended.code, ended.out) == (2, "")
    assert_two_lines(ended)
    assert flag in ended.err.splitlines()[0]


# The line


def test_the_table_may_be_a_flag_and_the_catalog_a_uri(run: Run, tmp_path: Path) -> None:
    orders(run, writes=3)
    uri = f"sqlite:///{tmp_path}/lake/catalog.db"
    (tmp_path / "elsewhere").mkdir()
    os.chdir(tmp_path / "elsewhere")
    assert "NOT_FOUND" in run("health", "--table", "shop.orders").err
    told = run("compact", "--table", "shop.orders", "--strategy", "partition", "--selection", "small-files")
    assert (told.code, "--strategy" in told.err) == (2, True)
    healed = done(run("compact", "--catalog-uri", uri, "--table", "shop.orders", "--strategy", "small-files"))
    assert "6 files became 2 files" in healed.out
    written = run("write", "-", "--table", "shop.orders", "--catalog-uri", uri, stdin=json_lines({"id": 7}))
    assert done(written).out.startswith("Wrote 1 row to shop.orders")


def test_a_table_is_made_filled_looked_at_healed_and_asked(run: Run) -> None:
    orders(run, writes=4)
    recommended = done(run("write", "shop.orders", "-", stdin=json_lines({"id": 4, "day": "2025-01-05"})))
    assert "Compaction is recommended (9 small files): regelate compact shop.orders" in recommended.out
    before = rows_of(run, "shop.orders")
    assert "COMPACT: 9 files" in done(run("health", "shop.orders")).out
    assert "9 files" in done(run("plan", "shop.orders")).out
    assert done(run("compact", "shop.orders")).out.startswith("Compacted shop.orders: 9 files became 2 files in ")
    assert rows_of(run, "shop.orders") == before
    assert "Nothing to do for shop.orders (NO_CANDIDATE)" in done(run("compact", "shop.orders")).out
    assert done(run("list", "shop")).out == "shop.orders\n"
    assert done(run("list")).out == "shop\n"
    assert "partitioned by  month(day)" in re.sub(" {3,}", "  ", done(run("describe", "shop.orders")).out)
    assert "0 snapshots of shop.orders expired" in done(run("expire", "shop.orders")).out
    assert done(run("drop", "shop.orders", "--yes", "--purge")).out == "Dropped shop.orders and deleted its files.\n"
    assert done(run("list", "shop")).out == ""


def test_a_plan_changes_nothing_and_its_id_runs_it(run: Run) -> None:
    orders(run, writes=4)
    plan = done(run("plan", "shop.orders", "--json")).answer
    assert done(run("describe", "shop.orders", "--json")).answer["snapshot_count"] == 4
    ran = done(run("compact", "shop.orders", "--plan-id", plan["plan"]["plan_id"], "--json")).answer
    assert (ran["status"], ran["stats"]["files_compacted"]) == ("COMPLETED", plan["plan"]["files"])
    assert done(run("describe", "shop.orders", "--json")).answer["snapshot_count"] == 5


def test_the_flags_of_compact_reach_the_plan(run: Run) -> None:
    orders(run, writes=4)
    one_month = done(run("plan", "shop.orders", "--partition", "day_month=2025-02", "--json")).answer["plan"]
    assert [group["partition"] for group in one_month["file_groups"]] == ["day_month=2025-02"]
    both = ("--partition", "day_month=2025-01", "--partition", "day_month=2025-02")
    assert done(run("plan", "shop.orders", *both, "--json")).answer["plan"]["groups"] == 2
    few = ("--option", "min-input-files=5")
    assert done(run("compact", "shop.orders", *few, "--json")).answer["reason"] == "BELOW_THRESHOLD"
    forced = done(run("compact", "shop.orders", *few, "--force", "--strategy", "sort", "--sort", "id desc", "--json"))
    assert forced.answer["stats"]["files_added"] == 2
    assert [row["id"] for row in done(run("query", "shop.orders", "--json")).answer["rows"]][:4] == [3, 2, 1, 0]


def test_what_max_files_leaves_over_is_partial_and_exit_code_4(run: Run) -> None:
    orders(run, writes=4)
    ended = run("compact", "shop.orders", "--max-files", "4")
    assert ended.code == 4
    assert "in part (BUDGET_CAPPED)" in ended.out
    assert "1 group left for another run" in ended.out


def a_month_older(home: Path) -> None:
    """Let every snapshot of the only table be older, by the metadata file that the catalog names."""
    newest = max(home.rglob("*.metadata.json"), key=lambda path: path.name)
    text = newest.read_text()
    month_ms = 30 * 24 * 3600 * 1000
    older = re.sub(r'"((?:timestamp|last-updated)-ms)":\s*(\d+)', lambda m: f'"{m[1]}":{int(m[2]) - month_ms}', text)
    newest.write_text(older)


def test_an_expiry_says_how_to_undo_it_and_the_undo_works(run: Run, tmp_path: Path) -> None:
    orders(run, writes=4)
    a_month_older(tmp_path)
    out = done(run("expire", "shop.orders")).out
    assert out.startswith("3 snapshots of shop.orders expired; 0 files deleted, 0 B freed.\n")
    (undo,) = re.findall(r"^  regelate (expire shop\.orders --undo \d+)$", out, re.MULTILINE)
    assert done(run("describe", "shop.orders", "--json")).answer["snapshot_count"] == 1
    told = "3 snapshots of shop.orders restored; each has a tag, undo-<snapshot id>.\n"
    assert done(run(*undo.split())).out == told
    assert done(run("describe", "shop.orders", "--json")).answer["snapshot_count"] == 5
    assert run(*undo.split()).code == 0
    assert run("expire", "shop.orders", "--undo", "17").code == 1
    assert "cannot be combined" in run("expire", "shop.orders", "--undo", "17", "--grace-hours", "1").err


def test_maintain_says_what_each_step_did_and_orphans_lists_before_it_deletes(run: Run, tmp_path: Path) -> None:
    orders(run, writes=4)
    a_month_older(tmp_path)
    (stray,) = (path.parent / "stray.parquet" for path in [*tmp_path.rglob("*.parquet")][:1])
    stray.write_bytes(b"x" * 2048)
    os.utime(stray, (0, 0))
    out = done(run("orphans", "shop.orders")).out
    assert out.endswith("stray.parquet\n1 orphan file of shop.orders, 2.0 KB; --delete deletes them.\n")
    shown = done(run("maintain", "shop.orders", "--dry-run", "--force")).out
    assert re.search(r"^compact +would do +8 files would become 2 files$", shown, re.MULTILINE)
    assert re.search(r"^expire +would do +\d+ snapshots? would expire$", shown, re.MULTILINE)
    assert re.search(r"^orphans +would do +1 orphan file would be deleted, 2.0 KB would be freed$", shown, re.MULTILINE)
    assert not re.search(r" done | became | expired", shown)
    assert stray.exists()
    assert done(run("orphans", "shop.orders", "--delete")).out.endswith("; 1 deleted, 2.0 KB freed.\n")
    before = rows_of(run, "shop.orders")
    out = done(run("maintain", "shop.orders", "--force")).out
    assert re.search(r"^compact +done +8 files became 2 files$", out, re.MULTILINE)
    assert re.search(r"^expire +done +4 snapshots expired, 0 B freed$", out, re.MULTILINE)
    assert re.search(r"^orphans +nothing to do$", out, re.MULTILINE)
    assert "  regelate expire shop.orders --undo " in out
    assert rows_of(run, "shop.orders") == before
    assert done(run("manifests", "shop.orders")).out.startswith("Nothing to do for shop.orders: ")
    assert "steps" in run("maintain", "shop.orders", "--steps", "dance").err


def test_explain_prints_one_line_for_every_data_file(run: Run) -> None:
    orders(run, writes=3)
    out = done(run("health", "shop.orders", "--explain")).out
    assert len(re.findall(r" small +file:/.+\.parquet$", out, re.MULTILINE)) == 6


JSON_COMMANDS = [
    ("CREATE_TABLE", ["create", "shop.new", "--schema", "id:long"]),
    ("DESCRIBE_TABLE", ["describe", "shop.orders"]),
    ("LIST_TABLES", ["list", "shop"]),
    ("LIST_NAMESPACES", ["list"]),
    ("WRITE", ["write", "shop.orders", "-"]),
    ("QUERY", ["query", "shop.orders", "--sql", "SELECT count(*) AS n FROM shop.orders", "--limit", "1"]),
    ("TABLE_HEALTH", ["health", "shop.orders", "--explain"]),
    ("COMPACT", ["plan", "shop.orders"]),
    ("COMPACT", ["compact", "shop.orders", "--dry-run"]),
    ("COMPACT", ["compact", "shop.orders"]),
    ("EXPIRE_SNAPSHOTS", ["expire", "shop.orders", "--dry-run"]),
    ("REMOVE_ORPHAN_FILES", ["orphans", "shop.orders"]),
    ("REWRITE_MANIFESTS", ["manifests", "shop.orders"]),
    ("MAINTAIN", ["maintain", "shop.orders"]),
    ("DROP_TABLE", ["drop", "shop.orders", "--yes"]),
]


@pytest.mark.parametrize(("operation", "argv"), JSON_COMMANDS)
def test_json_prints_the_answer_of_the_api_and_nothing_else(run: Run, operation: str, argv: list[str]) -> None:
    orders(run, writes=3)
    ended = done(run(*argv, "--json", stdin=json_lines({"id": 9})))
    assert ended.out.count("\n") == 1
    check_answer(operation, ended.answer)


def test_json_prints_a_refusal_as_the_api_gives_it(run: Run) -> None:
    ended = run("health", "shop.nothing", "--json")
    assert (ended.code, ended.answer["error"]["code"]) == (1, "NAMESPACE_NOT_FOUND")
    assert_two_lines(ended)


def test_a_global_flag_may_stand_before_or_after_the_command(run: Run) -> None:
    orders(run)
    assert done(run("--json", "list", "shop")).answer["tables"] == ["orders"]
    assert done(run("list", "--json", "shop")).answer["tables"] == ["orders"]


def test_drop_without_yes_leaves_the_table(run: Run) -> None:
    orders(run)
    assert run("drop", "shop.orders").code == 2
    assert done(run("list", "shop")).out == "shop.orders\n"


# Rows


TWO_MB = "x" * 2 * 1024 * 1024
"""The text of a row of which two are a batch where `limited`."""


def limited(folder: Path, records: int = 100, partitions: int = 1_000) -> None:
    """Write a config.json whose WRITE takes so many records, of so many partitions, and whose files end at 1 MB."""
    local = {
        "type": "sql",
        "uri": f"sqlite:///{folder}/catalog.db",
        "warehouse": str(folder / "warehouse"),
    }
    limits = {"max_records": records, "max_partitions_per_write": partitions}
    sizes = {"write": {"target_file_size_mb": 1}, "compaction": {"small_file_threshold_mb": None}}
    section = {"auth": "none", "tenants": "*", "catalogs": {"local": local}, "limits": limits, "iceberg": sizes}
    (folder / "config.json").write_text(json.dumps({"environments": {"development": section}}))


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.json"])
def test_a_file_is_written_however_many_partitions_its_rows_have(run: Run, tmp_path: Path, name: str) -> None:
    limited(tmp_path, 100, partitions=1)
    done(run("create", "shop.cut", "--schema", "id:long", "--partition", "id"))
    rows = [{"id": n} for n in range(5)]
    (tmp_path / name).write_bytes(json_lines(*rows) if name.endswith("l") else json.dumps(rows).encode())
    done(run("write", "shop.cut", name))
    assert len(rows_of(run, "shop.cut")) == 5


def test_json_lines_go_in_batches_of_four_times_the_target_of_a_file(run: Run, tmp_path: Path) -> None:
    limited(tmp_path)
    orders(run)
    lines = json_lines(*({"id": n, "name": TWO_MB} for n in range(5)))
    (tmp_path / "rows.jsonl").write_bytes(lines.replace(b"\n", b"\r\n\n"))
    ended = done(run("write", "shop.orders", "rows.jsonl", "--json"))
    assert [json.loads(line)["records_written"] for line in ended.out.splitlines()] == [2, 2, 1]
    assert ids_of(run, "shop.orders") == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("bad", [b'{"id": "x"}\n', b"no json\n", b"[]\n", b'{"id": 1, "id": 2}\n', b'{"id": NaN}\n'])
def test_a_bad_line_says_how_many_rows_before_it_are_in_the_table(run: Run, tmp_path: Path, bad: bytes) -> None:
    limited(tmp_path)
    orders(run)
    ended = run("write", "shop.orders", "-", stdin=json_lines(*({"id": n, "name": TWO_MB} for n in range(3))) + bad)
    assert ended.code == 4
    assert_two_lines(ended)
    assert "2 rows of earlier batches are in the table" in ended.err
    assert ids_of(run, "shop.orders") == [0, 1]


def test_json_lines_are_one_commit_however_many_more_they_are_than_the_records_of_a_request(
    run: Run, tmp_path: Path
) -> None:
    limited(tmp_path, 2)
    orders(run)
    ended = done(run("write", "shop.orders", "-", stdin=json_lines(*({"id": n} for n in range(5)))))
    assert "Wrote 5 rows to shop.orders in 1 commit." in ended.out


def test_a_line_that_is_no_json_is_named_and_nothing_is_written(run: Run) -> None:
    orders(run)
    ended = run("write", "shop.orders", "-", stdin=json_lines({"id": 1}) + b"\nno json\n")
    assert ended.code == 1
    assert "line 3" in ended.err
    assert rows_of(run, "shop.orders") == []


def test_a_repeated_command_with_an_idempotency_key_writes_no_row_twice(run: Run, tmp_path: Path) -> None:
    limited(tmp_path)
    orders(run)
    lines = json_lines(*({"id": n, "name": TWO_MB} for n in range(5)))
    for _ in range(2):
        done(run("write", "shop.orders", "-", "--idempotency-key", "monday", stdin=lines))
    assert ids_of(run, "shop.orders") == [0, 1, 2, 3, 4]


def test_a_branch_is_written_and_compacted_by_its_name(run: Run) -> None:
    orders(run, writes=2)
    ended = run("write", "shop.orders", "-", "--ref", "side", stdin=json_lines({"id": 1}))
    assert (ended.code, "the table has no branch or tag 'side'" in ended.err) == (1, True)
    done(run("write", "shop.orders", "-", "--ref", "main", stdin=json_lines({"id": 1})))
    planned = done(run("compact", "shop.orders", "--ref", "main", "--force", "--dry-run"))
    assert "regelate compact shop.orders --ref main does it" in planned.out
    assert run("compact", "shop.orders", "--ref", "side").code == 1


def test_overwritten_partitions_hold_all_rows_of_the_file_however_many_a_request_takes(
    run: Run, tmp_path: Path
) -> None:
    limited(tmp_path, 2)
    orders(run, writes=1)
    lines = json_lines(*({"id": n, "day": "2025-01-09"} for n in range(10, 15)))
    done(run("write", "shop.orders", "-", "--mode", "overwrite_partitions", stdin=lines))
    assert [row["id"] for row in rows_of(run, "shop.orders")] == [10, 11, 12, 13, 14, 100]


def test_no_rows_are_written_to_a_table_that_is_there_and_to_no_other(run: Run) -> None:
    orders(run)
    assert done(run("write", "shop.orders", "-")).out == "Wrote 0 rows to shop.orders in 0 commits.\n"
    assert "TABLE_NOT_FOUND" in run("write", "shop.nothing", "-").err


def test_an_upsert_replaces_the_rows_of_its_keys(run: Run, tmp_path: Path) -> None:
    orders(run, writes=2)
    (tmp_path / "new.json").write_text('[{"id": 1, "name": "new"}, {"id": 7}]')
    done(run("write", "shop.orders", "new.json", "--mode", "upsert", "--key", "id"))
    assert [(row["id"], row["name"]) for row in rows_of(run, "shop.orders")] == [
        (0, "a"),
        (1, "new"),
        (7, None),
        (100, None),
        (101, None),
    ]


@pytest.mark.parametrize("form", ["json", "jsonl", "csv", "parquet"])
def test_an_upsert_keeps_what_the_rows_of_a_file_lack_when_it_is_told_to(run: Run, tmp_path: Path, form: str) -> None:
    orders(run, writes=2)
    before = rows_of(run, "shop.orders")
    changed = [{"id": row["id"], "day": "2030-01-01"} for row in before]
    texts = {
        "json": json.dumps(changed),
        "jsonl": json_lines(*changed).decode(),
        "csv": "id,day\n" + "".join(f"{row['id']},{row['day']}\n" for row in changed),
    }
    file = tmp_path / f"new.{form}"
    if form == "parquet":
        days = pa.array([date(2030, 1, 1)] * len(changed))
        pq.write_table(pa.table({"id": [row["id"] for row in changed], "day": days}), file)
    else:
        file.write_text(texts[form])
    done(run("write", "shop.orders", file.name, "--mode", "upsert", "--key", "id", "--missing-columns", "keep"))
    assert rows_of(run, "shop.orders") == [{**row, "day": "2030-01-01"} for row in before]
    assert any(row["name"] is not None for row in before)


WIDE = "id:long!,zip:string,price:decimal(9,2),ok:boolean,at:timestamptz,t:timestamp,day:date,w:double,f:float,u:uuid"
CSV = """id,zip,price,ok,at,t,day,w,f,u
1,007,2.50,true,2025-01-01T00:00:00.5+02:00,2025-01-01T10:00:00,2025-01-05,0.1,1e3,{u}
2,"",,FALSE,,,,NaN,,
3,,,,,,,,,
"""


def test_csv_is_typed_by_the_table_and_only_an_empty_field_is_null(run: Run, tmp_path: Path) -> None:
    uuid = "9c12d441-03fe-4693-9a96-a0705ddf69c1"
    done(run("create", "shop.wide", "--schema", WIDE))
    (tmp_path / "rows.csv").write_text(CSV.format(u=uuid))
    done(run("write", "shop.wide", "rows.csv"))
    nothing = dict.fromkeys(("zip", "price", "ok", "at", "t", "day", "w", "f", "u"))
    assert rows_of(run, "shop.wide") == [
        {
            "id": 1,
            "zip": "007",
            "price": "2.50",
            "ok": True,
            "at": "2024-12-31T22:00:00.500000Z",
            "t": "2025-01-01T10:00:00.000000",
            "day": "2025-01-05",
            "w": 0.1,
            "f": 1000.0,
            "u": uuid,
        },
        {**nothing, "id": 2, "zip": "", "ok": False, "w": "NaN"},
        {**nothing, "id": 3},
    ]


def test_the_text_of_a_null_in_csv_can_be_named(run: Run, tmp_path: Path) -> None:
    orders(run)
    (tmp_path / "rows.csv").write_text("id,name\n1,NA\n2,\n")
    done(run("write", "shop.orders", "rows.csv", "--null", "NA"))
    assert [row["name"] for row in rows_of(run, "shop.orders")] == [None, ""]


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("x,,,,,,,,,", "row 1, column 'id'"),
        (",,,,,,,,,", "row 1, column 'id'"),
        ("2,,1.234,,,,,,,", "row 1, column 'price'"),
        ("2,,,,,,,1e400,,", "row 1, column 'w'"),
        ("2,,,,,,,,1e39,", "row 1, column 'f'"),
        ("2,,,,,2025-01-01T10:00:00Z,,,,", "row 1, column 't'"),
        ("2,,,1,,,,,,", "row 1, column 'ok'"),
    ],
)
def test_a_csv_value_that_does_not_fit_is_refused_by_row_and_column(
    run: Run, tmp_path: Path, line: str, named: str
) -> None:
    done(run("create", "shop.wide", "--schema", WIDE))
    (tmp_path / "rows.csv").write_text(f"{CSV.splitlines()[0]}\n1,,,,,,,,,\n{line}\n")
    ended = run("write", "shop.wide", "rows.csv")
    assert ended.code == 1
    assert named in ended.err
    assert rows_of(run, "shop.wide") == []


def test_parquet_is_written_in_one_commit_however_many_rows_it_has(run: Run, tmp_path: Path) -> None:
    limited(tmp_path, 2)
    orders(run)
    table = pa.table({"id": pa.array(range(1000), pa.int32()), "name": [f"n{i}" for i in range(1000)]})
    pq.write_table(table, tmp_path / "rows.parquet")
    answer = done(run("write", "shop.orders", "rows.parquet", "--json")).answer
    assert answer["records_written"] == 1000
    counted = done(run("query", "shop.orders", "--aggregate", "count_distinct(name) as n", "--json")).answer
    assert counted["rows"] == [{"n": 1000}]


@pytest.mark.parametrize("name", ["rows.parquet", "rows.json", "rows.csv"])
def test_a_file_that_is_not_what_its_name_says_is_refused(run: Run, tmp_path: Path, name: str) -> None:
    orders(run)
    (tmp_path / name).write_bytes(b'"a\xff')
    ended = run("write", "shop.orders", name)
    assert (ended.code, ended.out) == (1, "")
    assert_two_lines(ended)
    assert name in ended.err


# A table of somebody else's


def test_a_table_of_plain_pyiceberg_is_healed_and_nothing_of_ours_is_in_it(run: Run, tmp_path: Path) -> None:
    theirs = make_catalog(tmp_path / "theirs", "mine")
    table = make_table(theirs, "Sales_EU.Orders__v2", pa.schema([("Id", pa.int64()), ("what ever", pa.string())]))
    for number in range(6):
        append(table, [(number, "a"), (number + 100, None)])
    local = {"type": "sql", "uri": f"sqlite:///{tmp_path}/theirs/catalog.db", "warehouse": str(tmp_path / "theirs")}
    section = {"auth": "none", "tenants": "*", "catalogs": {"mine": local}}
    (tmp_path / "config.json").write_text(json.dumps({"environments": {"development": section}}))
    assert "6 files became 1 file" in done(run("compact", "Sales_EU.Orders__v2")).out
    after = SqlCatalog("mine", uri=local["uri"]).load_table("Sales_EU.Orders__v2")
    assert len(live_data_paths(after)) == 1
    assert after.properties == table.properties
    assert after.location() == table.location()
    by_id = [found.scan().to_arrow().sort_by("Id").to_pylist() for found in (after, table)]
    assert by_id[0] == by_id[1]
    snapshot = after.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary.operation is Operation.REPLACE


# Doors


def test_invoke_answers_as_the_handler_does_and_its_exit_code_follows_the_body(run: Run) -> None:
    created = done(run("invoke", str(EVENTS / "emulator_seed_create.json"), "--json")).answer
    assert created["statusCode"] == 200
    assert json.loads(created["body"])["created"]
    for name in ("query", "scheduler_compact"):  # a rule's event that fails fails the function: here it is shown
        missing = run("invoke", str(EVENTS / f"{name}.json"))
        assert (missing.code, missing.err, missing.answer["error"]["code"]) == (1, "", "TABLE_NOT_FOUND")
    in_envelope = run("invoke", str(EVENTS / "apigw_v2_write.json"))
    assert (in_envelope.code, in_envelope.answer["statusCode"]) == (1, 404)


@pytest.mark.parametrize("event", [b"[", b"[]", b'{"Records": []}'])
def test_invoke_refuses_what_is_no_event(run: Run, event: bytes) -> None:
    ended = run("invoke", "-", stdin=event)
    assert (ended.code, ended.out) == (1, "")
    assert_two_lines(ended)


def test_serve_says_when_the_port_is_taken(run: Run) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        ended = run("serve", "--port", str(taken.getsockname()[1]))
    assert ended.code == 1
    assert_two_lines(ended)
    assert "--port" in ended.err


def test_serve_answers_over_http_and_ends_with_0_when_it_is_interrupted(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "serve", "--port", "0"],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as server:
        assert server.stdout is not None
        found = re.search(r"on (http://127\.0\.0\.1:\d+);", server.stdout.readline())
        assert found
        with urllib.request.urlopen(f"{found[1]}/health", timeout=60) as answered:
            assert json.load(answered)["catalog_reachable"]
        server.send_signal(signal.SIGINT)
        assert server.wait(timeout=60) == 0


# Ends


class Breaking(io.RawIOBase):
    """Standard input on which something goes wrong."""

    def __init__(self, fault: BaseException) -> None:
        self.fault = fault

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        raise self.fault


def broken(fault: BaseException) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BufferedReader(Breaking(fault)))


def test_an_interrupted_command_ends_with_130(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    orders(run)
    monkeypatch.setattr(sys, "stdin", broken(KeyboardInterrupt()))
    code = main(["write", "shop.orders", "-"])
    assert_two_lines(Ended(code, *capsys.readouterr()))
    assert code == 130


def test_an_unexpected_fault_is_two_lines_and_no_stack(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    orders(run)
    monkeypatch.setattr(sys, "stdin", broken(RuntimeError("token=abcdef is broken")))
    code = main(["write", "shop.orders", "-"])
    ended = Ended(code, *capsys.readouterr())
    assert code == 1
    assert_two_lines(ended)
    assert "RuntimeError" in ended.err
    assert "abcdef" not in ended.err


def test_a_reader_that_has_seen_enough_is_no_failure(tmp_path: Path) -> None:
    script = """
import sys
from regelate.entrypoints.cli import main
assert main(["create", "s.t", "--schema", "id:long"]) == 0
print("ready", flush=True)
sys.stdin.readline()
sys.exit(main(["list", "s"]))
"""
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    with subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        assert program.stderr is not None
        while program.stdout.readline() != "ready\n":
            pass
        program.stdout.close()
        program.stdin.close()
        assert program.stderr.read() == ""
        assert program.wait(timeout=60) == 0


def test_a_wrong_config_is_told_by_its_key(run: Run, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"environments": {"development": {"cataloges": {}}}}')
    ended = run("health", "shop.orders")
    assert ended.code == 1
    assert_two_lines(ended)
    assert "cataloges" in ended.err


def test_log_lines_are_written_only_when_they_are_asked_for(
    run: Run, log_lines: Callable[[], list[dict[str, Any]]]
) -> None:
    done(run("create", "shop.orders", "--schema", "id:long"))
    assert log_lines() == []
    done(run("list", "shop", "--verbose"))
    assert [line["operation"] for line in log_lines()] == ["LIST_TABLES"]


def test_what_a_terminal_would_obey_is_shown_and_not_obeyed(run: Run) -> None:
    orders(run)
    done(run("write", "shop.orders", "-", stdin=json_lines({"id": 1, "name": "\x1b[2J[bold]x\r\n"})))
    out = done(run("query", "shop.orders")).out
    assert "\x1b" not in out
    assert r"\x1b[2J[bold]x\r\n" in out


def test_a_paragraph_of_any_length_is_shown_and_not_obeyed(capsys: pytest.CaptureFixture[str]) -> None:
    screen.say("one\x1b[2J\ntwo " + "x" * 500)
    assert capsys.readouterr().out == "one\\x1b[2J\ntwo " + "x" * 500 + "\n"


ERROR = {"code": "ANY", "message": "x", "retryable": False, "details": {}}


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ({"success": True}, 0),
        ({"success": True, "status": "COMPLETED"}, 0),
        ({"success": True, "status": "NOTHING_TO_DO"}, 0),
        ({"success": True, "status": "PARTIAL"}, 4),
        ({"success": False, "error": ERROR}, 1),
        ({"success": False, "error": {**ERROR, "retryable": True}}, 3),
    ],
)
def test_the_exit_code_of_an_answer_s_json(answer: Mapping[str, Any], code: int) -> None:
    assert failures.exit_code_of(answer) == code


@pytest.mark.parametrize(("status", "code"), [(Status.COMPLETED, 0), (Status.NOTHING_TO_DO, 0), (Status.PARTIAL, 4)])
def test_the_exit_code_of_an_answer(status: Status, code: int) -> None:
    answer = CompactAnswer(compacted=False, status=status, reason=None, snapshot_id=None, stats=None, warnings=())
    assert failures.exit_code(answer) == code
    steps: dict[str, Any] = {"dry_run": False, "steps": (), "bytes_freed": 0, "warnings": ()}
    maintained = MaintainAnswer(status="PARTIAL" if status is Status.PARTIAL else "COMPLETED", **steps)
    assert failures.exit_code(maintained) == code
    assert failures.exit_code(DropTableAnswer(dropped=True)) == 0


@pytest.mark.parametrize("status", [400, 403, 404, 409, 413, 422, 424, 500, 501, 502, 503, 507])
def test_every_status_has_an_advice(status: int) -> None:
    for retryable in (False, True):
        answer = {"success": False, "error": {**ERROR, "retryable": retryable}}
        fault = failures.refused(answer, status, ())
        assert fault.todo
        assert fault.code == (3 if retryable else 1)


@pytest.mark.parametrize(
    ("code", "way"), [("UNSUPPORTED_TABLE", "--engine spark"), ("SPARK_DISABLED", "make setup-spark")]
)
def test_a_table_for_spark_alone_is_refused_with_the_way_there(code: str, way: str) -> None:
    fault = failures.refused({"success": False, "error": {**ERROR, "code": code}}, 501, ())
    assert way in fault.todo


# What people write after a flag


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (texts.table, "orders", ("default", "orders")),
        (texts.table, "a.b.orders", ("a.b", "orders")),
        (
            texts.schema,
            "id:long!, price:decimal(9, 2),k:fixed[4]",
            {
                "fields": {
                    "id": {"type": "long", "required": True},
                    "price": {"type": "decimal(9, 2)", "required": False},
                    "k": {"type": "fixed[4]", "required": False},
                }
            },
        ),
        (texts.partition_field, "region", {"source": "region", "transform": "identity"}),
        (texts.partition_field, "month(day)", {"source": "day", "transform": "month"}),
        (texts.partition_field, "bucket[16](id)", {"source": "id", "transform": "bucket[16]"}),
        (texts.partition_field, "bucket(16, id)", {"source": "id", "transform": "bucket[16]"}),
        (texts.sort_field, "id", {"column": "id", "direction": "asc"}),
        (texts.sort_field, "my id desc nulls last", {"column": "my id", "direction": "desc", "nulls": "nulls-last"}),
        (texts.order_field, "id DESC nulls-first", {"column": "id", "direction": "desc", "nulls": "first"}),
        (texts.aggregate, "count(*) as n", {"function": "count", "as": "n"}),
        (texts.aggregate, "count()", {"function": "count"}),
        (texts.aggregate, "AVG(price)", {"function": "avg", "column": "price"}),
        (texts.partition_values, "month=2025-01,region=e=u", {"month": "2025-01", "region": "e=u"}),
        (texts.hours, "0.5", 0.5),
    ],
)
def test_a_flag_s_text_becomes_what_the_request_holds(read: Callable[[str], Any], text: str, value: Any) -> None:
    assert read(text) == value


def test_a_schema_may_lie_in_a_file_as_create_table_takes_it(run: Run, tmp_path: Path) -> None:
    fields = {"id": {"type": "long"}, "tags": {"type": "list", "element": {"type": "string"}}}
    (tmp_path / "schema.json").write_text(json.dumps({"fields": fields}))
    done(run("create", "shop.tags", "--schema", "schema.json"))
    described = done(run("describe", "shop.tags")).out
    assert re.search(r"^tags\.element +string", described, re.MULTILINE)
