"""Find config.json, merge one environment over the defaults, expand `${NAME}`, judge, and start or say why not."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, cast, get_args

from regelate.core.catalogs import CATALOGS, KIND_OF_SCHEME
from regelate.settings.builtin import ENVIRONMENTS
from regelate.settings.judge import Fault, clashes, typed, unknown_keys
from regelate.settings.models import Environment, Settings, SettingsError

FILE_NAME = "config.json"
ENVIRONMENT_NAMES: tuple[str, ...] = get_args(Environment)
_PLACEHOLDER = re.compile(r"\$\{([^}]*)(\}?)")
_NAME_AND_DEFAULT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.ASCII | re.DOTALL)
_TOP_LEVEL = ("defaults", "environments")
_MOST_FAULTS = 5
_CATALOG_URI = "REGELATE_CATALOG_URI"
_FLEET_POLICY = "REGELATE_FLEET_POLICY"
_ON_LAMBDA = "AWS_LAMBDA_FUNCTION_NAME"
_MEANT = "REGELATE_DEVELOPMENT_ON_LAMBDA"


def load_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """Load the configuration of the environment that REGELATE_ENVIRONMENT names (default: development).

    The file is REGELATE_CONFIG, else config.json in the working directory, else what is built in. REGELATE_CATALOG_URI
    takes the place of the default catalog. Unknown keys are refused in every environment of the file, types and clashes
    in the chosen one; so is development on Lambda, unless it is said. Raises SettingsError INVALID_CONFIG.
    """
    environ = os.environ if environ is None else environ
    environment = environ.get("REGELATE_ENVIRONMENT") or "development"
    if environment not in ENVIRONMENT_NAMES:
        _refuse("environment", [("REGELATE_ENVIRONMENT", f"must be one of {', '.join(ENVIRONMENT_NAMES)}")])
    if environment == "development" and environ.get(_ON_LAMBDA) and environ.get(_MEANT) != "yes":
        rule = (
            "is development, or not set, on Lambda, where every caller would be every tenant: set staging or production"
        )
        _refuse("environment", [("REGELATE_ENVIRONMENT", f"{rule}, or {_MEANT}=yes if that is meant")])
    source = _find(environ)
    told = str(source) if source is not None else f"the built-in {FILE_NAME}"
    defaults, overlays = _sections({"environments": ENVIRONMENTS} if source is None else _read(source), told)
    for name in ENVIRONMENT_NAMES:
        if faults := unknown_keys(_merged(defaults, overlays.get(name, {}))):
            _reject(faults, overlays, name, told)
    chosen = _with_catalog_uri(_merged(defaults, overlays.get(environment, {})), environ)
    if environ.get(_FLEET_POLICY):
        chosen = _merged(chosen, {"fleet": {"policy": f"${{{_FLEET_POLICY}}}"}})
    expanded, unset = _expanded(chosen, _with_home(environ))
    if unset:
        _reject(unset, overlays, environment, told)
    configuration, faults = typed(expanded)
    if configuration is None:
        _reject(faults, overlays, environment, told)
    if clashing := list(clashes(configuration, environment)):
        _reject(clashing, overlays, environment, told)
    return Settings(**dict(configuration), environment=cast(Environment, environment), source=source)


def _find(environ: Mapping[str, str]) -> Path | None:
    named = environ.get("REGELATE_CONFIG")
    if named:
        path = Path(named).absolute()
        if not path.is_file():
            _refuse("environment", [("REGELATE_CONFIG", f"names no file: {path}")])
        return path
    path = Path.cwd() / FILE_NAME
    return path if path.is_file() else None


def _read(path: Path) -> Any:
    def no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        seen = dict(pairs)
        if len(seen) < len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"the key {twice!r} appears twice in one object")
        return seen

    def no_constant(text: str) -> NoReturn:
        raise ValueError(f"{text} is not JSON")

    try:
        text = path.read_text(encoding="utf-8")
        return json.loads(text, object_pairs_hook=no_duplicates, parse_constant=no_constant)
    except OSError as fault:
        _refuse(str(path), [("the file", f"cannot be read: {fault.strerror}")])
    except (ValueError, RecursionError) as fault:
        _refuse(str(path), [("the file", f"is not valid JSON: {fault}")])


def _sections(document: Any, told: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return `defaults` and `environments`, each an object, and nothing beside them."""
    faults: list[Fault] = []
    if not isinstance(document, Mapping):
        _refuse(told, [("the file", "must hold an object with defaults and environments")])
    faults += [(key, "unknown key; valid are defaults, environments") for key in document if key not in _TOP_LEVEL]
    defaults, overlays = document.get("defaults", {}), document.get("environments", {})
    faults += [(k, "must be an object") for k, v in [("defaults", defaults), ("environments", overlays)] if not _is(v)]
    if not faults:
        valid = ", ".join(ENVIRONMENT_NAMES)
        faults += [
            (f"environments.{k}", f"unknown key; valid are {valid}") for k in overlays if k not in ENVIRONMENT_NAMES
        ]
        faults += [(f"environments.{k}", "must be an object") for k, v in overlays.items() if not _is(v)]
    if faults:
        _refuse(told, faults)
    return dict(defaults), dict(overlays)


def _is(value: object) -> bool:
    return isinstance(value, Mapping)


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Lay one object over another: objects merge key by key, anything else is replaced whole."""
    merged = dict(below)
    for key, value in above.items():
        both = _is(merged.get(key)) and _is(value)
        merged[key] = _merged(merged[key], value) if both else value
    return merged


def _with_catalog_uri(document: dict[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    """Put the catalog at REGELATE_CATALOG_URI in the place of the default one, under its name.

    Of that it keeps the namespace template, and everything else where both are of one type.
    """
    uri, catalogs = environ.get(_CATALOG_URI), document.get("catalogs")
    if not uri or not isinstance(catalogs, Mapping) or not catalogs:
        return document
    scheme = uri.partition(":")[0].partition("+")[0]
    if scheme not in KIND_OF_SCHEME:
        known = ", ".join(f"{name}:" for name in KIND_OF_SCHEME)
        _refuse("environment", [(_CATALOG_URI, f"must begin with one of {known}")])
    name = document.get("default_catalog") or next(iter(catalogs))
    before = catalogs.get(name, {})
    kind = KIND_OF_SCHEME[scheme]
    kept = before if before.get("type") == kind else {k: before[k] for k in ("namespace_template",) if k in before}
    warehouse = {"warehouse": "${REGELATE_HOME}/warehouse"} if "warehouse" in CATALOGS[kind].required else {}
    made = {**warehouse, **kept, "type": kind.value, "uri": f"${{{_CATALOG_URI}}}"}
    return {**document, "catalogs": {**catalogs, name: made}}


def _with_home(environ: Mapping[str, str]) -> dict[str, str]:
    """Make REGELATE_HOME absolute (default: `lake` in the working directory): table metadata names files by it."""
    home = Path(environ.get("REGELATE_HOME") or "lake").absolute()
    return {**environ, "REGELATE_HOME": str(home)}


def _expanded(value: Any, environ: Mapping[str, str], path: str = "") -> tuple[Any, list[Fault]]:
    """Replace `${NAME}` and `${NAME:-default}` in every text; an empty variable counts as unset, as in a shell."""
    faults: list[Fault] = []

    def replacement(match: re.Match[str]) -> str:
        parts = _NAME_AND_DEFAULT.fullmatch(match[1])
        if parts is None or not match[2]:
            faults.append((path, "holds a malformed placeholder; write ${NAME} or ${NAME:-default}"))
            return ""
        found = environ.get(parts[1]) or parts[2]
        if found is None:
            faults.append((path, f"needs the environment variable {parts[1]}, which is not set"))
        return found or ""

    if isinstance(value, str):
        return _PLACEHOLDER.sub(replacement, value), faults
    if isinstance(value, Mapping):
        pairs = {key: _expanded(item, environ, f"{path}.{key}" if path else str(key)) for key, item in value.items()}
        return {key: item for key, (item, _) in pairs.items()}, [f for _, found in pairs.values() for f in found]
    if isinstance(value, list):
        items = [_expanded(item, environ, f"{path}[{index}]") for index, item in enumerate(value)]
        return [item for item, _ in items], [f for _, found in items for f in found]
    return value, faults


def _located(path: str, overlays: Mapping[str, Any], environment: str) -> str:
    """Say in which part of the file a key of the merged document stands."""
    here: Any = overlays.get(environment, {})
    for part in path.partition("[")[0].split("."):
        if not isinstance(here, Mapping) or part not in here:
            return f"defaults.{path}"
        here = here[part]
    return f"environments.{environment}.{path}"


def _reject(faults: Sequence[Fault], overlays: Mapping[str, Any], environment: str, told: str) -> NoReturn:
    _refuse(f"{told} ({environment})", [(_located(path, overlays, environment), rule) for path, rule in faults])


def _refuse(told: str, faults: Sequence[Fault]) -> NoReturn:
    shown = "; ".join(f"{path}: {rule}" for path, rule in faults[:_MOST_FAULTS])
    more = f"; and {len(faults) - _MOST_FAULTS} more" if len(faults) > _MOST_FAULTS else ""
    raise SettingsError("INVALID_CONFIG", f"{told}: {shown}{more}", keys=[path for path, _ in faults])
