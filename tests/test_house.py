"""The house itself: its size, its floors, its lists and its papers."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import regelate

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "regelate"
MAX_LINES_OF_A_FILE = 450
MAX_LINES_OF_A_FUNCTION = 60
UNFINISHED = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b")
IO = {"os", "pathlib", "shutil", "socket", "subprocess", "tempfile"}
NEVER_IN_CORE = IO | {"asyncio", "logging", "random", "secrets", "threading", "time"}

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
REQUIREMENTS = ROOT / "requirements"
LISTS = {
    "build": [],
    "base": PROJECT["dependencies"],
    "dev": [*PROJECT["dependencies"], *(r for name in ("aws", "demo", "dev", "otel", "report") for r in EXTRAS[name])],
    "aws": [*PROJECT["dependencies"], *EXTRAS["aws"]],
    "otel": [*PROJECT["dependencies"], *EXTRAS["aws"], *EXTRAS["otel"]],
    "mcp": [*PROJECT["dependencies"], *EXTRAS["mcp"]],
    "spark": [*PROJECT["dependencies"], *EXTRAS["spark"], *EXTRAS["notebook"]],
}


def sources(*folders: str) -> list[tuple[str, str]]:
    """(path, text) of every Python file under these folders of the repository."""
    paths = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return [(str(path.relative_to(ROOT)), path.read_text()) for path in paths]


def package_files(*names: str) -> Iterator[tuple[str, ast.Module]]:
    """(path, tree) of these modules of the package, and of all that lies under them."""
    for name in names:
        for path in [PACKAGE / f"{name}.py", *sorted((PACKAGE / name).rglob("*.py"))]:
            if path.exists():
                yield str(path.relative_to(ROOT)), ast.parse(path.read_text())


def imported_roots(tree: ast.Module) -> set[str]:
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    return {name.partition(".")[0] for name in names}


def pins(name: str) -> dict[str, str]:
    """Package -> version, as requirements/<name>.txt pins them."""
    lines = re.findall(r"^([\w.-]+)==([^\s;\\]+)", (REQUIREMENTS / f"{name}.txt").read_text(), re.MULTILINE)
    return {canonicalize_name(package): version for package, version in lines}


def papers() -> list[Path]:
    return [path for pattern in ("*.md", "docs/**/*.md") for path in sorted(ROOT.glob(pattern))]


def code_in(markdown: str) -> str:
    """What a document shows as code: fenced blocks and `spans`."""
    return "\n".join(re.findall(r"```.*?```|`[^`\n]+`", markdown, re.DOTALL))


def documented_targets() -> set[str]:
    return set(re.findall(r"^([a-z0-9-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_no_source_file_is_too_long() -> None:
    lengths = {path: text.count("\n") for path, text in sources("src")}
    assert lengths
    assert {path: lines for path, lines in lengths.items() if lines > MAX_LINES_OF_A_FILE} == {}


def test_no_function_is_too_long() -> None:
    functions = [
        (f"{path}:{node.name}", (node.end_lineno or node.lineno) - node.lineno + 1)
        for path, text in sources("src")
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    assert functions
    assert [(name, lines) for name, lines in functions if lines > MAX_LINES_OF_A_FUNCTION] == []


def test_nothing_is_marked_as_unfinished() -> None:
    files = sources("src", "tests", "benchmarks", "studies")
    assert [path for path, text in files if UNFINISHED.search(text)] == []


def test_what_decides_imports_the_standard_library_only() -> None:
    allowed = sys.stdlib_module_names | {"regelate"}
    files = list(package_files("errors", "ports", "core", "operations"))
    assert {path: third for path, tree in files if (third := imported_roots(tree) - allowed)} == {}


def test_what_is_zipped_to_clusters_imports_nothing_but_spark() -> None:
    allowed = sys.stdlib_module_names | {"regelate", "pyspark"}
    files = list(package_files("errors", "core", "pipeline"))
    assert {path: third for path, tree in files if (third := imported_roots(tree) - allowed)} == {}


def test_core_has_no_clock_no_io_no_log_and_no_randomness() -> None:
    files = list(package_files("core"))
    assert {path: found for path, tree in files if (found := imported_roots(tree) & NEVER_IN_CORE)} == {}


def test_every_value_in_core_is_frozen_slotted_and_keyword_only() -> None:
    loose = []
    for path, tree in package_files("core"):
        for node in ast.walk(tree):
            for decorator in node.decorator_list if isinstance(node, ast.ClassDef) else []:
                if ast.unparse(decorator).startswith("dataclass"):
                    given = {word.arg for word in decorator.keywords} if isinstance(decorator, ast.Call) else set()
                    loose += [f"{path}:{node.name}"] if {"frozen", "slots", "kw_only"} - given else []
    assert loose == []


def besides_protocols(tree: ast.Module) -> list[str]:
    """What a module holds besides imports and Protocols whose methods say nothing but their types."""
    imports = (ast.Import, ast.ImportFrom)
    return [ast.unparse(n).splitlines()[0] for n in _without_docstring(tree) if not isinstance(n, imports) and _does(n)]


def _does(node: ast.stmt) -> bool:
    if not isinstance(node, ast.ClassDef) or node.decorator_list:
        return True
    if "Protocol" not in map(ast.unparse, node.bases):
        return True
    bodies = [_without_docstring(m) if isinstance(m, ast.FunctionDef) else [m] for m in _without_docstring(node)]
    return any(ast.unparse(statement) != "..." for body in bodies for statement in body)


def _without_docstring(node: ast.Module | ast.ClassDef | ast.FunctionDef) -> list[ast.stmt]:
    return node.body if ast.get_docstring(node) is None else node.body[1:]


def test_ports_hold_protocols_and_nothing_else() -> None:
    files = list(package_files("ports"))
    assert any(isinstance(node, ast.ClassDef) for _, tree in files for node in tree.body)
    assert {path: other for path, tree in files if (other := besides_protocols(tree))} == {}


@pytest.mark.parametrize(
    "other",
    [
        "class Value:\n    size_bytes: int",
        "@dataclass\nclass Value(Protocol):\n    def size(self) -> int: ...",
        "class Port(Protocol):\n    size_bytes: int = 5",
        "class Port(Protocol):\n    def size(self) -> int:\n        return 5",
        "class Port(Base):\n    def size(self) -> int: ...",
        "LIMIT = 5",
        "Sizes = tuple[int, ...]",
        "def size() -> int: ...",
    ],
)
def test_what_is_no_protocol_is_seen(other: str) -> None:
    port = 'class Port(Protocol):\n    """Why."""\n\n    @property\n    def size(self) -> int: ...\n'
    assert besides_protocols(ast.parse(port)) == []
    assert len(besides_protocols(ast.parse(f"{port}\n{other}"))) == 1


def inherited(tree: ast.Module) -> list[str]:
    """The classes of a module that inherit from a class of ours: no error, and no Protocol of its own file."""
    nodes = list(ast.walk(tree))
    classes = [node for node in nodes if isinstance(node, ast.ClassDef)]
    ours = {node.name for node in classes}
    for node in nodes:
        module = (node.module or "") if isinstance(node, ast.ImportFrom) else ""
        if module.startswith("regelate.") and module != "regelate.errors" and isinstance(node, ast.ImportFrom):
            ours |= {alias.asname or alias.name for alias in node.names}
    bases = {node.name: [ast.unparse(base).partition("[")[0] for base in node.bases] for node in classes}
    return [name for name, of in bases.items() if "Protocol" not in of and ours.intersection(of)]


def test_what_works_is_composed_and_inherits_from_nothing_of_ours() -> None:
    files = list(package_files("service", "operations", "adapters"))
    assert any(isinstance(node, ast.ClassDef) for _, tree in files for node in tree.body)
    assert {path: heirs for path, tree in files if (heirs := inherited(tree))} == {}


@pytest.mark.parametrize(
    ("module", "heirs"),
    [
        ("class A: ...\nclass B(A): ...", ["B"]),
        ("from regelate.service.tables import Tables\nclass B(Tables): ...", ["B"]),
        ("from regelate.ports.clock import Clock\nclass B(Clock): ...", ["B"]),
        ("class A: ...\nclass B(A, Protocol): ...", []),
        ("from regelate.errors import Unavailable\nclass B(Unavailable): ...", []),
        ("from pyiceberg.io import FileIO\nclass B(FileIO): ...", []),
    ],
)
def test_an_heir_is_seen(module: str, heirs: list[str]) -> None:
    assert inherited(ast.parse(module)) == heirs


def private_of_others(tree: ast.Module) -> list[str]:
    """The private attributes that a module asks of anything but its own objects and their bases."""
    named = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    asked = [node for node in named if node.attr.startswith("_") and not node.attr.endswith("__")]
    return [ast.unparse(node) for node in asked if ast.unparse(node.value) not in ("self", "cls", "super()")]


def test_no_door_asks_for_a_private_attribute_of_a_service() -> None:
    files = list(package_files("entrypoints", "handler", "worker"))
    assert any(isinstance(node, ast.Attribute) for _, tree in files for node in ast.walk(tree))
    assert {path: asked for path, tree in files if (asked := private_of_others(tree))} == {}


def test_a_private_attribute_of_another_object_is_seen() -> None:
    module = ast.parse("self._x\nservice.jobs._stores\nsuper()._y()\nservice.__class__\nself.service._z")
    assert private_of_others(module) == ["service.jobs._stores", "self.service._z"]


def judged_by_key(tree: ast.Module) -> list[str]:
    """What a module reads by a string key though a value has it: the status of an answer, an option of a request.

    What an f-string shows as it is, is no judgement.
    """
    shown = {node.value for node in ast.walk(tree) if isinstance(node, ast.FormattedValue)}
    return [ast.unparse(node) for node in ast.walk(tree) if _reads_key(node) and node not in shown]


def _reads_key(node: ast.AST) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get" and node.args:
        held, key = node.func.value, node.args[0]
    elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        held, key = node.value, node.slice
    else:
        return False
    return ast.unparse(held).rpartition(".")[2] == "options" or ast.unparse(key) == "'status'"


def test_no_answer_and_no_request_is_judged_by_string_keys() -> None:
    codecs = tuple(f"src/regelate/{room}/" for room in ("adapters", "core/answers", "entrypoints/api"))
    files = [(path, ast.parse(text)) for path, text in sources("src") if not path.startswith(codecs)]
    assert any(judged_by_key(ast.parse(text)) for path, text in sources("src") if path.startswith(codecs))
    assert {path: judged for path, tree in files if (judged := judged_by_key(tree))} == {}


@pytest.mark.parametrize(
    ("module", "judged"),
    [
        ("options.get('max-files')", ["options.get('max-files')"]),
        ("command.options['max-files']", ["command.options['max-files']"]),
        ("if answer['status'] == DONE: ...", ["answer['status']"]),
        ("answer.get('status', FAILED)", ["answer.get('status', FAILED)"]),
        ("f'{answer[\"status\"]}'", []),
        ("made = {'status': 1}\nmade['status'] = 2\nanswer.status\nknown_options['a']", []),
    ],
)
def test_a_judgement_by_a_string_key_is_seen(module: str, judged: list[str]) -> None:
    assert judged_by_key(ast.parse(module)) == judged


def face_of(adapter: str) -> list[str]:
    """The names that others may import from an adapter: `__all__` of its package."""
    tree = ast.parse((PACKAGE / "adapters" / adapter / "__init__.py").read_text())
    (found,) = (n.value for n in tree.body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "__all__")
    return list(ast.literal_eval(found))


FACES = {path.parent.name: face_of(path.parent.name) for path in (PACKAGE / "adapters").glob("*/__init__.py")}


def reached_in_adapters(tree: ast.Module) -> set[tuple[str, str]]:
    """(adapter, dotted path in it) of every import from a package of adapters; an underscore stays in the path."""
    found = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    paths = [name.removeprefix("regelate.adapters.").split(".") for name in found if "regelate.adapters." in name]
    return {(adapter, ".".join(rest)) for adapter, *rest in paths if adapter in FACES}


def past_the_face(tree: ast.Module) -> list[str]:
    """What a module imports from an adapter though its face does not show it: another module, or a private name."""
    return sorted(
        f"{adapter}.{path}"
        for adapter, path in reached_in_adapters(tree)
        if path.split(".")[0] not in FACES[adapter] or path.count(".") > 1 or "._" in path
    )


def outside_adapters() -> Iterator[tuple[str, ast.Module]]:
    return ((path, ast.parse(text)) for path, text in sources("src") if "/adapters/" not in path)


def test_nobody_imports_past_the_face_of_an_adapter() -> None:
    assert {path: past for path, tree in outside_adapters() if (past := past_the_face(tree))} == {}


@pytest.mark.parametrize(
    ("statement", "past"),
    [
        ("from regelate.adapters.iceberg.session import TableSession", []),
        ("import regelate.adapters.iceberg.session", []),
        ("from regelate.adapters.telemetry import ProcessTelemetry", []),
        ("from regelate.adapters.clock import SystemClock", []),
        (
            "from regelate.adapters.iceberg.commit.committer import IcebergCommitter",
            ["iceberg.commit.committer.IcebergCommitter"],
        ),
        ("from regelate.adapters.iceberg.commit import committer", ["iceberg.commit.committer"]),
        ("import regelate.adapters.iceberg.s3.store", ["iceberg.s3.store"]),
        ("from regelate.adapters.iceberg.session import _private", ["iceberg.session._private"]),
        ("from regelate.adapters.telemetry import Telemetries", ["telemetry.Telemetries"]),
    ],
)
def test_an_import_past_a_face_is_seen(statement: str, past: list[str]) -> None:
    assert past_the_face(ast.parse(statement)) == past


def test_a_face_shows_nothing_that_nobody_uses() -> None:
    used = {
        (adapter, path.split(".")[0]) for _, tree in outside_adapters() for adapter, path in reached_in_adapters(tree)
    }
    assert {(adapter, name) for adapter, face in FACES.items() for name in face} == used


def test_the_faces_load_no_library() -> None:
    code = f"import sys, {', '.join(f'regelate.adapters.{name}' for name in FACES)}; print(*sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    shown = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert {"boto3", "duckdb", "pyarrow", "pyiceberg", "regelate.adapters.iceberg.session"}.isdisjoint(
        shown.stdout.split()
    )


@pytest.mark.parametrize("name", ["duckdb", "small-files", "time-series", "overwrite_partitions"])
def test_a_kind_is_spelled_once(name: str) -> None:
    found = [
        path
        for path, text in sources("src")
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant) and node.value == name
    ]
    assert len(found) == 1, "draw it from the enum or the table that has it"


@pytest.mark.parametrize("name", [*LISTS, "sam", "peers", "constraints"])
def test_a_requirement_list_names_no_host_no_index_and_no_local_path(name: str) -> None:
    lines = (REQUIREMENTS / f"{name}.txt").read_text().splitlines()
    own = re.compile(r"#.*-[cr] requirements/\w+\.(txt|in)$")
    assert lines
    assert [line for line in lines if re.search(r"://|^-|\s@\s|/", line) and not own.search(line)] == []


@pytest.mark.parametrize("name", [*LISTS, "sam", "peers"])
def test_every_pin_of_a_requirement_list_carries_its_hash(name: str) -> None:
    entries = re.split(r"^(?=\w)", (REQUIREMENTS / f"{name}.txt").read_text(), flags=re.MULTILINE)[1:]
    assert len(entries) == len(pins(name)) > 0
    assert [entry for entry in entries if "--hash=sha256:" not in entry] == []


@pytest.mark.parametrize("name", LISTS)
def test_a_requirement_list_is_cut_from_the_one_resolution(name: str) -> None:
    assert pins(name).items() <= pins("constraints").items()


@pytest.mark.parametrize("name", LISTS)
def test_a_requirement_list_holds_what_pyproject_declares(name: str) -> None:
    pinned = pins(name)
    declared = [Requirement(text) for text in LISTS[name] if not text.startswith("regelate[")]
    missing = [str(need) for need in declared if pinned.get(canonicalize_name(need.name), "0") not in need.specifier]
    assert missing == [], "run `make requirements`"


def test_every_library_that_the_package_imports_is_declared() -> None:
    declared = {canonicalize_name(Requirement(need).name) for needs in LISTS.values() for need in needs}
    owners = packages_distributions()
    undeclared = {
        (path, root)
        for path, text in sources("src")
        for root in imported_roots(ast.parse(text)) - sys.stdlib_module_names - {"regelate"}
        if declared.isdisjoint(canonicalize_name(owner) for owner in owners.get(root, [root]))
    }
    assert undeclared == set()


def test_duckdb_and_its_extensions_are_pinned_to_one_version() -> None:
    needs = [Requirement(text) for text in PROJECT["dependencies"]]
    found = {need.name: str(need.specifier) for need in needs if need.name.startswith("duckdb")}
    assert set(found) == {"duckdb", *(f"duckdb-extension-{name}" for name in ("avro", "httpfs", "iceberg"))}
    assert len(set(found.values())) == 1
    assert next(iter(found.values())).startswith("==")


def test_the_package_and_pyproject_say_the_same_version() -> None:
    assert regelate.__version__ == PROJECT["version"]


def test_the_changelog_has_an_unreleased_section() -> None:
    assert re.search(r"^## \[Unreleased\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)


def test_every_make_target_that_a_document_shows_exists() -> None:
    shown = {
        (path.name, word) for path in papers() for word in re.findall(r"\bmake ([a-z0-9-]+)", code_in(path.read_text()))
    }
    assert shown
    assert {(paper, target) for paper, target in shown if target not in documented_targets()} == set()


def test_every_link_between_documents_leads_to_a_file() -> None:
    links = [
        (path, link) for path in papers() for link in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", path.read_text())
    ]
    assert links
    assert [f"{path.name}: {link}" for path, link in links if not (path.parent / link).exists()] == []


def test_make_alone_lists_every_target_in_exactly_one_group() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    shown = subprocess.run(["make"], cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert phony
    groups = [block.splitlines() for block in shown.strip().split("\n\n")]
    assert [lines[0] for lines in groups] == ["Start", "Test", "Prove", "Measure", "Build"]
    listed = [line.split()[1] for lines in groups for line in lines[1:]]
    assert sorted(listed) == sorted(phony[1].split()) == sorted(documented_targets())


def test_the_build_script_can_be_started() -> None:
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
