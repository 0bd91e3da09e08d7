"""The table properties by which a table's owner may say what a fleet does for it, where the fleet's policy allows it.

What deletes files that no metadata names is not among them: somebody has to know that nobody else writes there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from regelate.core.policy.option_values import boolean, whole
from regelate.core.policy.policy import MAX_TARGET_BYTES

FLEET_PREFIX = "regelate.fleet."
FLEET_ENABLED = FLEET_PREFIX + "enabled"
FLEET_TARGET = FLEET_PREFIX + "target-file-size-bytes"
SWITCHED = ("compact", "expire-snapshots", "rewrite-manifests", "apply-deletes")
"""Operations that have a switch of their own: `regelate.fleet.<operation>.enabled`."""


def switch_of(operation: str) -> str:
    return f"{FLEET_PREFIX}{operation}.enabled"


def _target(name: str, value: object) -> int:
    return whole(name, value, 1, MAX_TARGET_BYTES)


FLEET_PROPERTIES: Mapping[str, Callable[[str, object], object]] = {
    FLEET_ENABLED: boolean,
    **{switch_of(operation): boolean for operation in SWITCHED},
    FLEET_TARGET: _target,
}
"""By name, with what reads it. Errors of each: InvalidRequest INVALID_OPTION."""
