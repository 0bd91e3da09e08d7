"""regelate.yaml: what it says is what holds, and what is wrong is refused with its line and column."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from datetime import UTC, datetime, time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regelate.core.fleet.conditions import Metric
from regelate.core.fleet.operation import FleetOperation
from regelate.core.fleet.policy import Budgets, FleetPolicy, QuietWindow, Scope
from regelate.core.policy.policy import MB
from regelate.errors import InvalidRequest
from regelate.settings.fleet_file import RuleSection, fleet_schema
from regelate.settings.fleet_policy import load_fleet_policy, read_fleet_policy, refuse_unmatched
from regelate.settings.located_yaml import MAX_BYTES

ROOT = Path(__file__).parents[1]
PAPER = (ROOT / "docs" / "fleet.md").read_text(encoding="utf-8")
EXAMPLE = re.findall(r"```yaml\n(.*?)```", PAPER, re.DOTALL)[0]
TABLES = [
    ("glue", "staging_eu.orders"),
    ("glue", "acme__events.clicks"),
    ("glue", "sales.orders_2026"),
    ("rest", "sales.audit_log"),
]


def refused(text: str | bytes) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as found:
        read_fleet_policy(text if isinstance(text, bytes) else text.encode())
    assert found.value.code == "FLEET_POLICY_INVALID"
    return found.value


def places(error: InvalidRequest) -> list[tuple[int, int]]:
    listed: Any = error.details["faults"]
    return [(fault["line"], fault["column"]) for fault in listed]


def faults_of(content: bytes) -> list[tuple[int, int]]:
    """The places of what is wrong with a file, none where it is a policy; any other error is a failure."""
    try:
        read_fleet_policy(content)
    except InvalidRequest as error:
        return places(error)
    return []


@pytest.fixture(scope="module")
def example() -> FleetPolicy:
    return read_fleet_policy(EXAMPLE.encode())


def test_the_documents_example_says_budgets_quotas_limits_and_quiet_hours(example: FleetPolicy) -> None:
    assert example.budgets == Budgets(dollars_per_day=20.0, gb_seconds_per_day=1_200_000.0, dollars_per_month=400.0)
    assert example.budgets_of("acme") == Budgets(dollars_per_day=8.0, dollars_per_month=150.0)
    assert example.budgets_of("umbrella") == Budgets(dollars_per_day=1.0)
    assert (example.max_running, example.max_running_per_catalog) == (6, 3)
    assert example.quiet_windows == (QuietWindow(days=(0, 1, 2, 3, 4), start=time(7), end=time(9, 30)),)
    monday = datetime(2026, 11, 23, 8, tzinfo=UTC).timestamp()
    assert example.quiet_windows[0].covers(monday)
    refuse_unmatched(example, TABLES)


def test_the_documents_example_says_who_decided_by_file_line_and_glob(example: FleetPolicy) -> None:
    lines = EXAMPLE.splitlines()
    line = 1 + lines.index("    expire-snapshots: off")
    staging = example.for_table("glue", "staging_eu.orders").operations
    assert not staging["expire-snapshots"].enabled
    assert staging["expire-snapshots"].decided_by == f'regelate.yaml line {line}, namespaces "staging_*"'
    line = 1 + lines.index("  remove-orphan-files: off")
    assert staging["remove-orphan-files"].decided_by == f"regelate.yaml line {line}, defaults"
    line = 1 + lines.index("    compact:")
    assert staging["compact"].decided_by == f'regelate.yaml line {line}, profiles "careful"'
    audited = example.for_table("rest", "sales.audit_log").operations.values()
    assert {(one.enabled, one.decided_by) for one in audited} == {
        (False, f'regelate.yaml line {1 + lines.index("    enabled: off")}, tables "*.audit_log"')
    }


def test_a_place_lies_over_the_profile_that_it_inherits_and_that_over_its_own(example: FleetPolicy) -> None:
    found = example.for_table("glue", "acme__events.clicks")
    assert found.compact_options == {"target-file-size-bytes": 256 * MB}
    assert found.max_cost_per_day == 0.5
    assert found.max_cost_per_run == 2.0
    when = found.operations["compact"].when
    assert when is not None
    assert when.text.startswith("(small-files >= 500")
    always = example.for_table("glue", "sales.orders_1").operations["compact"].when
    assert always is not None
    assert always.holds({})
    assert example.for_table("rest", "sales.orders_1").max_cost_per_run is None


def test_a_profile_gives_way_to_the_place_that_inherits_it() -> None:
    text = "profiles:\n  a: {compact: off, max-cost-per-run: 3}\ntables:\n  x.*: {inherits: a, compact: on}\n"
    found = read_fleet_policy(text.encode()).for_table("c", "x.y")
    assert found.operations["compact"].enabled
    assert found.max_cost_per_run == 3.0


@pytest.mark.parametrize("word", ["off", "false", '"off"'])
def test_off_is_off_to_readers_of_either_yaml(word: str) -> None:
    found = read_fleet_policy(f"defaults:\n  compact: {word}\n  apply-deletes: {{enabled: {word}}}\n".encode())
    operations = found.for_table("c", "a.b").operations
    assert not operations["compact"].enabled
    assert not operations["apply-deletes"].enabled


def test_a_clock_without_quotes_is_a_clock() -> None:
    found = read_fleet_policy(b"quiet-windows:\n  - {start: 22:00, end: 06:00}\n")
    assert found.quiet_windows == (QuietWindow(start=time(22), end=time(6)),)


BOMB = "a: &a [1,1,1,1,1,1]\n" + "".join(
    f"{after}: &{after} [*{name},*{name},*{name},*{name},*{name},*{name}]\n"
    for name, after in zip("abcdefghijklmno", "bcdefghijklmnop", strict=True)
)
BAD: dict[str, tuple[str, tuple[int, int], str]] = {
    "unknown key": ("defaults:\n  compat: off", (2, 3), "did you mean compact?"),
    "unknown key far from all": ("zzz: 1", (1, 1), "valid are budgets, catalogs, defaults"),
    "unknown key below a glob": ('tables:\n  "a.b":\n    budgets: 1', (3, 5), "unknown key"),
    "unknown key of an operation": ("defaults:\n  compact: {wen: x}", (2, 13), "did you mean when?"),
    "negative budget": ("budgets:\n  dollars-per-day: -3", (2, 20), "greater than or equal to 0"),
    "negative tenant budget": ("tenants:\n  budgets:\n    a: {dollars-per-month: -1}", (3, 28), "or equal to 0"),
    "budget as text": ('budgets:\n  dollars-per-day: "3"', (2, 20), "valid number"),
    "infinite budget": ("budgets:\n  dollars-per-day: 1e999", (2, 20), "finite"),
    "circle": ("profiles:\n  a: {inherits: b}\n  b: {inherits: a}", (2, 17), "in a circle: a -> b -> a;"),
    "circle of one": ("profiles:\n  a: {inherits: a}", (2, 17), "in a circle: a -> a;"),
    "circle reached": ("profiles:\n  a: {inherits: a}\ntables:\n  x.y: {inherits: a}", (2, 17), "circle"),
    "no such profile": ("profiles:\n  careful: {}\ndefaults: {inherits: carefull}", (3, 22), "did you mean careful?"),
    "unknown metric": ("defaults:\n  compact:\n    when: files > 1 and filez > 3", (3, 25), "did you mean files?"),
    "unknown metric in quotes": ('defaults:\n  compact: {when: "filez > 3"}', (2, 20), "did you mean files?"),
    "condition over lines": ("defaults:\n  compact:\n    when: >-\n      files >\n      x", (3, 11), "needs a number"),
    "condition in an unused profile": ("profiles:\n  a:\n    compact: {when: files}", (3, 26), "it ends there"),
    "alias": ("defaults: &a {}\ntables:\n  x.y: *a", (1, 11), "anchors and aliases are not allowed"),
    "alias alone": ("defaults: *a", (1, 11), "aliases are not allowed"),
    "bomb": (BOMB, (1, 4), "anchors"),
    "merge key": ("defaults:\n  <<: {compact: off}", (2, 3), "unknown key"),
    "tag": ("defaults: !!python/object/apply:os.system [x]", (1, 11), "tags are not allowed"),
    "duplicate key": ("tables:\n  x.y: {}\n  z.*: {}\n  x.y: {compact: off}", (4, 3), "twice; line 2 has it"),
    "duplicate key in a flow": ("defaults: {compact: off, compact: on}", (1, 26), "stands twice"),
    "second document": ("version: 1\n---\nversion: 1", (2, 1), "second document"),
    "key of a list": ("? [a]\n: b", (1, 3), "a key must be a text"),
    "deep": ("a: " + "[" * 100, (1, 24), "nested more than 20 deep"),
    "not closed": ("defaults: {compact: off", (2, 1), "is no YAML"),
    "tab": ("defaults:\n\tcompact: off", (2, 1), "is no YAML"),
    "control character": ("defaults: \x00", (1, 11), "does not allow"),
    "lone surrogate": ('a: "\\ud800"', (1, 7), "is no YAML"),
    "empty": ("", (1, 1), "must hold keys and values"),
    "comments only": ("# nothing\n", (1, 1), "must hold keys and values"),
    "a list": ("- compact", (1, 1), "must hold keys and values"),
    "no value": ("defaults:\n  compact:\n  expire-snapshots: off", (2, 3), "has no value"),
    "null": ("budgets:\n  dollars-per-day: null", (2, 3), "has no value"),
    "version": ("version: 2", (1, 10), "Input should be 1"),
    "hour": ("quiet-windows:\n  - {start: 25:00, end: 06:00}", (2, 13), "should match pattern"),
    "no end": ("quiet-windows:\n  - {start: 22:00}", (2, 5), "end: Field required"),
    "no day": ("quiet-windows:\n  - {days: [], start: 22:00, end: 23:00}", (2, 12), "at least 1 item"),
    "day": ("quiet-windows:\n  - {days: [monday], start: 22:00, end: 23:00}", (2, 12), "'mon'"),
    "at once": ("limits:\n  max-running: 0", (2, 16), "greater than or equal to 1"),
    "table without namespace": ("tables:\n  orders: {}", (2, 3), "write `*.orders`"),
    "catalog with slash": ("catalogs:\n  a/b: {}", (2, 3), "holds a `/`"),
    "two slashes": ("tables:\n  a/b/c.d: {}", (2, 3), "holds a `/`"),
    "no catalog": ("tables:\n  /c.d: {}", (2, 3), "holds a `/`"),
    "no name": ("namespaces:\n  a/: {}", (2, 3), "names nothing"),
    "empty glob": ('tables:\n  "": {}', (2, 3), "at least 1 character"),
    "neither on nor off": ("defaults:\n  compact: yes", (2, 12), "compact"),
    "neither on nor off, enabled": ("defaults:\n  enabled: 1", (2, 12), "valid boolean"),
    "unknown option": ("defaults:\n  compact-options: {rewrite-al: true}", (2, 21), "unknown option"),
    "option out of range": ("defaults:\n  compact-options:\n    min-input-files: 0", (3, 5), "between 1 and"),
    "option's size": ("defaults:\n  compact-options:\n    max-file-size-bytes: 5XB", (3, 26), "such as 512MB"),
    "clashing options": (
        "defaults:\n  compact-options: {target-file-size-bytes: 64MB}\n"
        "tables:\n  x.y:\n    compact-options: {min-file-size-bytes: 128MB}",
        (5, 23),
        "must be below target-file-size-bytes",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_bad_policy_is_refused_with_the_line_and_the_column(name: str) -> None:
    text, place, told = BAD[name]
    error = refused(text)
    assert places(error)[0] == place, error.message
    assert told in error.message
    assert error.message.startswith(f"regelate.yaml line {place[0]}, column {place[1]}: ")
    assert error.message.endswith("nothing of it is applied")


def test_text_that_is_no_utf_8_is_refused_where_it_stops_being_it() -> None:
    assert places(refused("version: 1\n# gr\u00fc\u00df".encode() + b"\xff")) == [(2, 7)]
    assert places(refused("version: 1".encode("utf-16"))) == [(1, 1)]


def test_a_file_of_ten_megabytes_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    path.write_bytes(b"# 234567\n" * (10 * 1024 * 1024 // 9))
    with pytest.raises(InvalidRequest) as found:
        load_fleet_policy(path)
    assert "large.yaml line 1, column 1: the file has more than 1,048,576 bytes" in found.value.message
    assert read_fleet_policy(b"version: 1\n".ljust(MAX_BYTES)) == FleetPolicy(
        layers=read_fleet_policy(b"version: 1").layers, source="regelate.yaml"
    )


def test_a_file_that_is_not_there_is_refused_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest) as found:
        load_fleet_policy(tmp_path / "missing.yaml")
    assert found.value.message.startswith("missing.yaml line 1, column 1: the file cannot be read: No such file")


def test_all_faults_are_listed_in_the_order_of_the_file_and_five_are_told() -> None:
    text = "tables:\n" + "".join(f'  "a.t{number}": {{inherits: no{number}}}\n' for number in range(7))
    error = refused(text)
    assert places(error) == [(line, 22) for line in range(2, 9)]
    assert "no6" not in error.message
    assert "; and 2 more" in error.message


def test_a_glob_that_names_no_table_of_the_fleet_is_refused_where_it_stands() -> None:
    text = 'catalogs:\n  glue: {}\nnamespaces:\n  "stagin_*": {}\ntables:\n  "glue/*.audit_log": {}\n'
    policy = read_fleet_policy(text.encode(), "fleet.yaml")
    with pytest.raises(InvalidRequest) as found:
        refuse_unmatched(policy, TABLES)
    assert places(found.value) == [(4, 3), (6, 3)]
    assert found.value.message.startswith('fleet.yaml line 4, column 3: namespaces "stagin_*": matches nothing; line 6')


@given(st.binary(max_size=200))
def test_any_bytes_are_a_policy_or_refused_at_a_place_within_them(content: bytes) -> None:
    faults = faults_of(content)
    assert all(1 <= line <= content.count(b"\n") + content.count(b"\r") + 2 for line, _ in faults)


@given(st.text(alphabet="abdefilnostu:-{}[]'\"\n #&*!|>%@`,0.1?", max_size=80))
def test_any_text_of_yamls_signs_is_a_policy_or_refused(text: str) -> None:
    assert all(line >= 1 and column >= 1 for line, column in faults_of(text.encode()))


def test_every_operation_is_a_key_and_every_metric_is_documented() -> None:
    keys = set(RuleSection.model_json_schema()["properties"])
    assert {operation.value for operation in FleetOperation} <= keys
    section = PAPER[PAPER.index("### `when`") : PAPER.index("### What is refused")]
    assert {metric for metric in Metric if f"`{metric}`" not in section} == set()


def test_every_key_of_the_file_is_documented() -> None:
    schema = fleet_schema()
    keys = set(schema["properties"]) | {key for one in schema["$defs"].values() for key in one["properties"]}
    assert {key for key in keys if key not in PAPER} == set()


def test_every_section_is_held_against_names_of_its_own() -> None:
    assert {scope.value for scope in Scope} <= set(fleet_schema()["properties"])


def test_the_published_schema_is_that_of_the_models() -> None:
    published = (ROOT / "docs" / "regelate.schema.json").read_text(encoding="utf-8")
    command = "python -m regelate.settings.fleet_file > docs/regelate.schema.json"
    assert json.loads(published) == fleet_schema(), f"run `{command}`"


def test_who_has_no_policy_pays_for_no_yaml() -> None:
    code = "import sys, regelate.settings.fleet_policy, regelate.handler; print('yaml' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], cwd=ROOT / "src", capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "False"


def test_prices_of_others_are_taken_beside_the_built_in_ones_and_in_their_place() -> None:
    entries = "  glue: {name: Glue, per-run: 0.5, source: ours, as-of: 2026-11-01}\n"
    entries += "  s3-tables: {name: S3 Tables, per-gb: 0.01, source: ours, as-of: 2026-11-01}\n"
    found = read_fleet_policy(f"prices:\n{entries}".encode(), "regelate.yaml").list_prices
    assert [price.name for price in found.values()] == ["Cloudflare R2 Data Catalog", "Glue", "S3 Tables"]
    assert (found["glue"].per_run, found["s3-tables"].per_gb, found["r2"].per_million_files) == (0.5, 0.01, 2.0)
