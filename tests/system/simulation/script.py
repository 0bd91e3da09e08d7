"""What happens in one seed, drawn beforehand: kinds of actions, and what likes to happen beside what."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

from tests.system.simulation import deltas, extras, others
from tests.system.simulation.catalog import CatalogKind

LENGTH = 14
"""Actions of one seed."""
THERE_AND_BACK = "there and back"
FOREIGN: dict[str, tuple[others.Foreign, int]] = {
    "foreign append": (others.append, 5),
    "branch append": (others.append_to_branch, 2),
    "position delete": (others.position_delete, 7),
    "equality delete": (others.equality_delete, 6),
    "foreign overwrite": (others.overwrite, 2),
    "remove files": (others.remove_files, 2),
    "foreign manifest rewrite": (others.rewrite_manifests, 2),
    "schema change": (others.change_schema, 2),
    "schema there and back": (others.drop_and_return, 2),
    "spec change": (others.change_spec, 1),
    "branch delete": (others.delete_on_branch, 0),
    "branch off": (others.branch_off, 0),
    "move branch": (others.move_branch, 0),
    "fast forward": (others.fast_forward, 0),
    "tag": (others.tag, 2),
    "branch": (others.branch, 2),
    "drop ref": (others.drop_ref, 2),
    "rollback": (others.roll_back, 2),
    THERE_AND_BACK: (others.there_and_back, 0),
    "merge": (deltas.merge, 4),
    "statistics": (extras.statistics, 2),
    "upgrade": (extras.upgrade, 4),
}
OURS = {
    "write": 9,
    "compact": 12,
    "expire": 4,
    "undo": 1,
    "manifests": 2,
    "dangling": 3,
    "orphans": 1,
    "sweep": 2,
    "branch write": 0,
    "branch compact": 0,
    "job": 3,
}
ON_BRANCH = {"branch write", "branch compact"}
HOURS = "hours pass"
SUSPENSION = "suspension"
"""Minutes pass, for some while they sleep: longer than a lease, shorter than any retention."""
THEMES: tuple[Mapping[str, int], ...] = (
    {},
    {"position delete": 11, "remove files": 8, "dangling": 14},
    {"write": 4, "compact": 6, "expire": 14, "undo": 8, "sweep": 8, "orphans": 3, HOURS: 8, "drop ref": 3},
    {"expire": 16, "tag": 18, "branch": 4, "drop ref": 3, HOURS: 6, "compact": 8},
    {"compact": 14, "rollback": 8, "remove files": 5, "equality delete": 9, "schema there and back": 4},
    {"schema there and back": 12, "schema change": 6, "write": 22, "compact": 14},
)
"""What a seed is about: kinds with another weight than usual. The first is an ordinary day."""
BESIDE = {
    "expire": ("tag", "branch", "rollback", "drop ref", "undo", "expire", "sweep"),
    "compact": ("schema there and back", "rollback", "position delete", "equality delete", "expire", "compact"),
    "position delete": ("remove files", "remove files", "compact"),
    "equality delete": ("remove files", "remove files", "compact"),
    "remove files": ("dangling", "dangling", "dangling", "compact", "rollback"),
    "branch": ("branch append", "branch append", "expire"),
    "write": ("schema there and back", "rollback", "equality delete", "write", HOURS),
    "schema change": ("write", "compact"),
    "schema there and back": ("write", "write", "compact"),
    "undo": ("expire", "sweep", HOURS, HOURS),
    HOURS: ("sweep", "orphans", "expire"),
    "job": (*(SUSPENSION,) * 6, "job", "compact", "position delete"),
    SUSPENSION: (SUSPENSION, "compact", "foreign append"),
}
"""What likes to happen just then: half of the actions that follow these are of these kinds."""
NOT_HEAD_ONLY = {"branch append", "tag", "branch", "drop ref", "rollback", "undo"}
ONLY_V1 = {"upgrade"}
REPEATED = ("write", "compact")
BRANCH_SHARE = 0.2
"""So many seeds are about a branch that the service works on."""
BEGINNING = ("foreign append", "foreign append", "branch off", "branch append")
BRANCH_DAY = {
    "branch write": 16,
    "branch compact": 16,
    "branch append": 10,
    "branch delete": 6,
    "fast forward": 6,
    "move branch": 3,
    "drop ref": 4,
    "branch off": 4,
    "expire": 8,
    "foreign append": 5,
    "compact": 5,
    "write": 4,
    "rollback": 2,
    "tag": 1,
    "sweep": 3,
    "orphans": 1,
    HOURS: 4,
}
BESIDE_BRANCH = ("drop ref", "move branch", "fast forward", "branch append", "branch delete", "expire", "write")
"""What likes to happen just after the service has begun to work on the branch."""
RETURNS_SHARE = 0.2
"""So many seeds tell of a request that is under way while its branch is put elsewhere and back."""


@dataclass(frozen=True)
class Action:
    """One line of a seed's script. `twin`: sent twice with one run id, at once or after a crash."""

    index: int
    kind: str
    twin: bool = False
    is_held_up: bool = False


def script(
    rng: random.Random, catalog: CatalogKind, *, is_v1: bool, length: int = LENGTH, stories: random.Random
) -> list[Action]:
    """`stories`: draws what some seeds tell beside; the others are what they would be without."""
    weights = {**{k: w for k, (_, w) in FOREIGN.items()}, **OURS, HOURS: 3, SUSPENSION: 1, **rng.choice(THEMES)}
    is_head_only = catalog is CatalogKind.HEAD_ONLY
    pointless = (NOT_HEAD_ONLY if is_head_only else set()) | (set() if is_v1 else ONLY_V1)
    kinds = {k: w for k, w in weights.items() if k not in pointless}
    chosen = rng.choices(list(kinds), list(kinds.values()), k=length)
    for i, kind in enumerate(chosen[:-1]):
        beside = [k for k in BESIDE.get(kind, ()) if k in kinds]
        if beside and rng.random() < 0.5:
            chosen[i + 1] = rng.choice(beside)
        if kind == "expire" and "undo" in kinds and rng.random() < 0.7:
            chosen[rng.randrange(i + 1, length)] = "undo"
    if "undo" in chosen and rng.random() < 0.5:
        at = chosen.index("undo")
        chosen[at : at + 3] = ("undo", HOURS, "sweep")[: length - at]
    actions = [
        Action(i, kind, twin=not is_head_only and kind in REPEATED and rng.random() < 0.25)
        for i, kind in enumerate(chosen)
    ]
    if is_head_only:
        return actions
    returns, is_on_branch = stories.random() < RETURNS_SHARE, stories.random() < BRANCH_SHARE
    if is_on_branch:
        actions = _on_branch(stories, length)
    if returns:
        at = stories.randrange(len(BEGINNING), length - 4) if is_on_branch else stories.randrange(length - 4)
        before = "branch append" if is_on_branch else "foreign append"
        held_up = ("branch " if is_on_branch else "") + stories.choice(("compact", "compact", "compact", "write"))
        for i, kind in enumerate((before, before, held_up, THERE_AND_BACK), start=at):
            actions[i] = Action(i, kind, is_held_up=kind is held_up)
    return actions


def _on_branch(rng: random.Random, length: int) -> list[Action]:
    """Draw what happens to a branch that the service writes and compacts."""
    chosen = rng.choices(list(BRANCH_DAY), list(BRANCH_DAY.values()), k=length)
    chosen[: len(BEGINNING)] = BEGINNING
    for i, kind in enumerate(chosen[:-1]):
        if kind == "drop ref" and rng.random() < 0.7:
            chosen[i + 1] = rng.choice(("branch off", "branch"))
        elif kind in ON_BRANCH and rng.random() < 0.4:
            chosen[i + 1] = rng.choice(BESIDE_BRANCH)
    twins = {*REPEATED, *ON_BRANCH}
    return [Action(i, kind, twin=kind in twins and rng.random() < 0.25) for i, kind in enumerate(chosen)]
