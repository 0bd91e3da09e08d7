"""The documents say what the code does: error codes, operations, fields, and the requests that the README prints."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from fnmatch import fnmatch
from pathlib import Path

import pytest

from regelate import errors
from regelate.adapters.iceberg.encoding import row_faults
from regelate.adapters.telemetry.prometheus import prometheus_name
from regelate.core.measures.measures import METRICS, Kind
from regelate.core.planning.plan import PlanReason, SkipReason
from regelate.core.planning.selection import Reason
from regelate.core.running.conflict import DropCode
from regelate.core.running.placement import PlacementReason
from regelate.core.running.stats import CompactionStats
from regelate.entrypoints.actions import OPERATIONS, parse_request
from regelate.entrypoints.api.requests import TableRequest
from regelate.entrypoints.api.short_form import ShortCompact, parse_short_form
from regelate.operations.compacting.compact import Status
from regelate.settings import SettingsError
from tests import index
from tests.adapters.scenarios.upstream import SCENARIOS

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "regelate"
KINDS: Mapping[str, type[errors.RegelateError]] = {
    "SettingsError": SettingsError,
    **{name: kind for name, kind in vars(errors).items() if inspect.isclass(kind)},
}
ROW_CODES = {code for name, code in vars(row_faults).items() if name.isupper() and name == code}
MADE_BY_EXPRESSION: Mapping[tuple[str, str], set[str]] = {
    ("adapters/iceberg/encoding/row_faults.py", "first.code"): ROW_CODES,
    ("adapters/duckdb/inputs.py", "code"): {"DATA_FILE_CORRUPT", "DELETE_FILE_CORRUPT"},
    ("adapters/duckdb/inputs.py", "missing"): {"DATA_FILE_MISSING", "DELETE_FILE_CORRUPT"},
    ("adapters/duckdb/duckdb_errors.py", "code"): {"DATA_FILE_MISSING", "DATA_FILE_CORRUPT", "DELETE_FILE_CORRUPT"},
    ("adapters/iceberg/files/file_layouts.py", "missing"): {"DATA_FILE_MISSING", "DELETE_FILE_CORRUPT"},
    ("adapters/iceberg/files/file_layouts.py", "corrupt"): {"DATA_FILE_CORRUPT", "DELETE_FILE_CORRUPT"},
    ("adapters/iceberg/tables/spec.py", "code"): {"INVALID_PARTITION_SPEC", "INVALID_FIELD"},
    ("core/policy/options.py", "fault.code"): {"INVALID_OPTION"},
    ("core/policy/table_properties.py", "fault.code"): {"INVALID_OPTION", "INVALID_RETENTION"},
    ("adapters/iceberg/tables/properties.py", "clash.code"): {"INVALID_OPTION", "INVALID_RETENTION"},
    ("entrypoints/api/validation.py", "first['code']"): {
        "MISSING_FIELD",
        "UNKNOWN_FIELD",
        "INVALID_FIELD",
        "INVALID_OPTION",
    },
    ("entrypoints/cli/rows.py", "fault.code"): {"INVALID_JSON", "INVALID_REQUEST", "INVALID_FIELD"},
    ("core/running/routing.py", "found.reason.value"): {
        PlacementReason.TOO_LARGE.value,
        PlacementReason.TOO_LONG.value,
    },
    ("core/running/routing.py", "reason.value"): {PlacementReason.TOO_LARGE.value, PlacementReason.TOO_LONG.value},
}
"""Codes that are no literal where the error is made; a new such place must be entered here."""
OF_ITS_FAULT = "status"
"""The one status that is an expression: what HTTP itself says of an unreadable request."""
README_URL = "localhost:8080"


def raised() -> Iterator[tuple[str, int, bool]]:
    """(code, status, retryable) of every place in the source that makes an error."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in KINDS and node.args:
                kind, given = KINDS[node.func.id], {word.arg: word.value for word in node.keywords}
                status, retryable = given.get("status"), given.get("retryable")
                if isinstance(status, ast.Name) and status.id == OF_ITS_FAULT:
                    continue
                for code in codes_of(str(path.relative_to(PACKAGE)), node.args[0]):
                    yield (
                        code,
                        kind.status_default if status is None else ast.literal_eval(status),
                        kind.retryable_default if retryable is None else ast.literal_eval(retryable),
                    )


def codes_of(path: str, first: ast.expr) -> set[str]:
    if isinstance(first, ast.Constant) and isinstance(first.value, str):
        return {first.value}
    place = (path, ast.unparse(first))
    assert place in MADE_BY_EXPRESSION, f"which codes does {place} stand for? Say so in MADE_BY_EXPRESSION"
    return MADE_BY_EXPRESSION[place]


def documented() -> dict[str, set[tuple[int, bool]]]:
    """Code -> (status, retryable) as the tables of docs/errors.md have it."""
    found: dict[str, set[tuple[int, bool]]] = defaultdict(set)
    rows = re.findall(r"^\| `([A-Z_]+)` \| (\d{3}) \| (yes|no) \|", read("docs/errors.md"), re.MULTILINE)
    for code, status, retryable in rows:
        found[code].add((int(status), retryable == "yes"))
    return dict(found)


def read(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def section(markdown: str, heading: str) -> str:
    """The text under a heading, up to the next one of the same or a higher level."""
    level = len(heading) - len(heading.lstrip("#"))
    match = re.search(rf"^{re.escape(heading)}$(.*?)(?=^#{{1,{level}}} |\Z)", markdown, re.MULTILINE | re.DOTALL)
    assert match, f"no heading {heading!r}"
    return match[1]


def spans(markdown: str) -> set[str]:
    return set(re.findall(r"`([^`\n]+)`", markdown))


def fields_of(model: type) -> set[str]:
    """Of a request, which is a model, or of an answer, which is a value."""
    if dataclasses.is_dataclass(model):
        return {field.name for field in dataclasses.fields(model)}
    return {field.alias or name for name, field in model.model_fields.items()}  # type: ignore[attr-defined]


def printed_requests() -> list[tuple[str, str]]:
    """(path, body) of every curl command of the README; the shell's loop variable counts as 1."""
    commands = re.findall(rf"curl [^\n]*{re.escape(README_URL)}(/\S*)[^\n]*?-d '((?:[^']|'\$i')*)'", read("README.md"))
    return [(path, body.replace("'$i'", "1")) for path, body in commands]


def test_every_error_code_that_the_source_raises_is_documented_and_no_other() -> None:
    assert {code for code, _, _ in raised()} == set(documented())


def test_every_error_is_documented_with_its_status_and_whether_a_retry_may_help() -> None:
    found: dict[str, set[tuple[int, bool]]] = defaultdict(set)
    for code, status, retryable in raised():
        found[code].add((status, retryable))
    assert dict(found) == documented()


def test_the_runbook_speaks_of_codes_that_exist() -> None:
    told = set(re.findall(r"`([A-Z]+_[A-Z_]+)`", read("docs/operations.md")))
    known = {*documented(), *(reason.value for reason in PlanReason), *(status.value for status in Status)}
    assert told - known - set(OPERATIONS) == set()


def test_the_reasons_of_a_dropped_group_are_told_apart_from_errors() -> None:
    assert {code.value for code in DropCode} <= spans(section(read("docs/errors.md"), "## Codes that are no errors"))


def test_every_metric_is_documented_as_cloudwatch_and_prometheus_call_it() -> None:
    told = re.findall(
        r"^\| `(\w+)` \| (\w+) \| (\w+) \| (?:`(\w+)` )?\| `(\w+)` \|", read("docs/observability.md"), re.MULTILINE
    )
    kinds = {Kind.UP_DOWN: "gauge"}
    assert told == [
        (
            metric.name,
            kinds.get(metric.kind, metric.kind.value),
            metric.unit.value,
            metric.label or "",
            prometheus_name(metric) + ("_total" if metric.kind is Kind.COUNTER else ""),
        )
        for metric in METRICS
    ]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_operation_is_documented_with_all_its_fields(operation: str) -> None:
    told = spans(section(read("docs/api.md"), f"### {operation}"))
    common = fields_of(TableRequest) | {"operation", "success"}
    wanted = (fields_of(OPERATIONS[operation].request) | fields_of(OPERATIONS[operation].answer)) - common
    assert wanted - told == set()


def test_the_fields_that_requests_share_are_documented() -> None:
    assert fields_of(TableRequest) <= spans(section(read("docs/api.md"), "## Addressing a table"))


def test_no_operation_is_documented_that_does_not_exist() -> None:
    assert set(re.findall(r"^### ([A-Z_]+)$", read("docs/api.md"), re.MULTILINE)) == set(OPERATIONS)


def test_status_reason_and_stats_of_compact_are_documented_name_by_name() -> None:
    told = spans(section(read("docs/api.md"), "### COMPACT"))
    assert {status.value for status in Status} <= told
    assert {reason.value for reason in (*PlanReason, *DropCode)} <= told
    assert fields_of(CompactionStats) <= told


def test_the_short_form_is_documented_field_by_field() -> None:
    told = spans(section(read("docs/api.md"), "## Short form: POST /api/v1/compact"))
    assert fields_of(ShortCompact) <= told
    assert {"options.target_file_size", "options.min_file_size", "options.max_cost"} <= told


def test_every_reason_of_a_file_and_of_a_skip_is_in_the_compaction_policy() -> None:
    assert {reason.value for reason in (*Reason, *SkipReason)} <= spans(read("docs/compaction-policy.md"))


def test_the_architecture_lists_every_room_and_no_other() -> None:
    """A room is a folder with modules of its own. A module beside the rooms has a row too, or fits a pattern."""
    table = section(read("docs/architecture.md"), "## The rooms").strip().partition("\n\n")[0]
    listed = {name for cell in re.findall(r"^\| (`[^|]+`) \|", table, re.MULTILINE) for name in spans(cell)}
    modules = {path for path in PACKAGE.rglob("*.py") if not path.stem.startswith("__")}
    rooms = {f"{path.parent.relative_to(PACKAGE)}/" for path in modules if path.parent != PACKAGE}
    rooms |= {path.name for path in modules if path.parent == PACKAGE}
    assert {room for room in rooms if not any(fnmatch(room, name) for name in listed)} == set()
    assert {name for name in listed if not any(fnmatch(room, name) for room in rooms)} == set()


def test_the_index_of_tests_is_current() -> None:
    paper = read("docs/reliability.md")
    assert index.updated(paper) == paper, "run `make index`, and read the diff"


def test_every_fault_row_scenario_trap_and_law_has_a_test_that_shows_it() -> None:
    listed = re.findall(r"^\| (\d+) \|", section(read("docs/reliability.md"), "## Faults"), re.MULTILINE)
    rows = [int(row) for row in listed]
    assert rows == list(range(1, len(rows) + 1))
    assert set(rows) == set(index.by_row())
    assert index.by_scenario().keys() == {f"{group}.{name}" for group, names in SCENARIOS.items() for name in names}
    assert index.trap_names().keys() == set(map(int, re.findall(r"^\| T(\d+) ", read("docs/traps.md"), re.MULTILINE)))
    assert index.trap_names().keys() == index.by_trap().keys()
    assert index.laws().keys() == index.by_law().keys()


def test_no_paper_cites_a_trap_by_its_number_alone() -> None:
    """Its name stands behind it. Not in old decisions, nor where the traps are listed and told apart."""
    told = {"traps.md", "reliability.md"}
    papers = [path for path in sorted((ROOT / "docs").glob("*.md")) if path.name not in told]
    cited = [
        (path.name, *found) for path in papers for found in re.findall(r"\bT(\d{1,2})\b(?:: (.*))?", path.read_text())
    ]
    assert cited
    names = index.trap_names()
    assert [c for c in cited if not c[2].lower().startswith(names[int(c[1])][:12].lower())] == []


def test_no_source_cites_a_law_a_trap_or_a_row_by_its_number_alone() -> None:
    bare = {path.name: found for path in sorted((ROOT / "src").rglob("*.py")) if (found := cited_alone(_prose(path)))}
    assert bare == {}


@pytest.mark.parametrize(
    ("text", "alone"),
    [
        ("(trap T16)", ["T16"]),
        ("(T7: a landed commit is cleaned up, T39)", ["T39"]),
        ("(trap T16: a landed commit is cleaned up)", ["T16"]),
        ("(laws 8 and 9)", ["8"]),
        ("(law 8: clean up only what did not land)", []),
        ("(row 33)", ["row 33"]),
        ("(rows 54 and 55)", ["rows 54"]),
        ("(rows 54 and 55 of the fault catalogue: the disk is full)", []),
    ],
)
def test_a_number_without_its_word_is_seen(text: str, alone: list[str]) -> None:
    assert cited_alone(text) == alone


def cited_alone(prose: str) -> list[str]:
    """What a text cites without the name that stands behind it in the papers; a row may say in its own words."""
    traps, laws = index.trap_names(), index.laws()
    named = [(f"T{n}", traps[int(n)], said) for n, said in re.findall(r"\bT(\d{1,2})\b(?:: (.{12}))?", prose)]
    named += [(n, laws[int(n)], said) for n, said in re.findall(r"\b[Ll]aws? (\d{1,2})\b(?:: (.{12}))?", prose)]
    alone = [number for number, name, said in named if said.lower() != name[:12].lower()]
    return alone + re.findall(r"\b[Rr]ows? \d+\b(?![\d, andto]* of the fault catalogue: )", prose)


def _prose(path: Path) -> str:
    """The text of a source with its docstrings and comments on one line."""
    return re.sub(r"\s*\n\s*(# )?", " ", path.read_text(encoding="utf-8"))


def test_every_test_that_a_document_names_exists() -> None:
    """`test_t15_*`, `..._mid[case]` and the like name several; a path may begin below tests/ or a folder of it."""
    files = {f"tests/{file}" for file, _, _ in index.tests()}
    names = {name for _, name, _ in index.tests()}
    lost = []
    for path in sorted(ROOT.glob("docs/**/*.md")):
        for span in spans(path.read_text(encoding="utf-8")):
            if match := re.fullmatch(r"(?:[\w/]+/)?test_\w+\.py", span):
                lost += [] if any(f"/{file}".endswith(f"/{match[0]}") for file in files) else [(path.name, span)]
            elif match := re.fullmatch(r"(test_\w+?)(_?\*)?(\[.*\])?", span):
                found = any(name.startswith(match[1]) if match[2] else name == match[1] for name in names)
                lost += [] if found else [(path.name, span)]
    assert lost == []


def test_every_code_of_a_fault_row_exists_with_the_status_that_stands_before_it() -> None:
    told = section(read("docs/reliability.md"), "## Faults")
    codes = {code for code in spans(told) if re.fullmatch(r"[A-Z]+(_[A-Z]+)+", code)}
    assert codes - {code.value for code in DropCode} <= set(documented())
    wrong = [
        (status, code)
        for status, code in re.findall(r"(\d{3}) `([A-Z_]+)`", told)
        if int(status) not in {known for known, _ in documented()[code]}
    ]
    assert wrong == []


def test_the_readme_prints_requests_that_the_api_takes() -> None:
    printed = printed_requests()
    taken = []
    for path, body in printed:
        assert path in ("/database", "/api/v1/compact")
        payload = json.loads(body)
        made = parse_request(payload) if path == "/database" else parse_short_form(payload, lambda _: "me")
        taken.append(made.operation)
    assert {"CREATE_TABLE", "WRITE", "TABLE_HEALTH", "COMPACT", "QUERY"} <= set(taken)


def test_no_curl_command_of_the_readme_escapes_the_check() -> None:
    assert len(printed_requests()) == len(re.findall(r"-d '", read("README.md")))


def test_every_paper_of_the_docs_is_in_their_index() -> None:
    index = read("docs/README.md")
    papers = [str(path.relative_to(ROOT / "docs")) for path in sorted((ROOT / "docs").rglob("*.md"))]
    assert [paper for paper in papers if paper != "README.md" and f"]({paper})" not in index] == []


def test_every_link_to_a_heading_finds_it() -> None:
    papers = [path for pattern in ("*.md", "docs/**/*.md") for path in sorted(ROOT.glob(pattern))]
    links = [(path, *link) for path in papers for link in re.findall(r"\]\(([^)#:\s]*)#([^)]*)\)", path.read_text())]
    assert links
    broken = [
        f"{path.name}: {target}#{anchor}"
        for path, target, anchor in links
        if anchor not in anchors(path.parent / target if target else path)
    ]
    assert broken == []


def anchors(path: Path) -> set[str]:
    """The names that GitHub gives to the headings of a paper."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_decisions_are_numbered_without_a_gap_and_have_the_four_parts() -> None:
    papers = sorted((ROOT / "docs" / "adr").glob("*.md"))
    assert [path.name[:4] for path in papers] == [f"{number:04}" for number in range(1, len(papers) + 1)]
    wanted = ["Context", "Decision", "Consequences", "What would change our mind"]
    headings = {path.name: re.findall(r"^## (.+)$", path.read_text(), re.MULTILINE) for path in papers}
    assert {name: found for name, found in headings.items() if found != wanted} == {}
