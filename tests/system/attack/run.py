"""One run: warm up, watch, attack, and look at what is left."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.system.attack import bodies, events, sql, structured, tables, wire, work
from tests.system.attack.attack import Attack
from tests.system.attack.scene import START_SECONDS, VICTIM_ROWS, Scene, request, scene
from tests.system.attack.sending import Outcome, all_sent
from tests.system.attack.watching import SMALL, Watch, memory_mb, watching

OK = 200
OURS = {"INTERNAL_ERROR", "ENGINE_FAULT"}
QUIET_SECONDS = 5.0
BY_OTHERS = ("SQL", "Handler")
"""Parts that processes for queries and the handler work on."""
PARTS = (bodies.attacks, wire.attacks, structured.attacks, tables.attacks, work.attacks, events.attacks, sql.attacks)


@dataclass(kw_only=True)
class Run:
    """What one run has shown. `quiet` and `watch` are before and during the attack."""

    outcomes: list[Outcome] = field(default_factory=list)
    quiet: Watch = field(default_factory=Watch)
    watch: Watch = field(default_factory=Watch)
    warm_mb: float = 0.0
    end_mb: float = 0.0
    again_mb: float = 0.0
    """After a second round of the attacks that the server works on by itself."""
    is_alive: bool = False
    handler_crashes: int = 0
    is_untouched: bool = False
    called: tuple[str, ...] = ()
    log_faults: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Attacks whose part begins with one of `parts`, and whose name holds one of `names`."""

    parts: tuple[str, ...] = ("",)
    names: tuple[str, ...] = ("",)

    def __contains__(self, attack: Attack) -> bool:
        return attack.part.startswith(self.parts) and any(name in attack.name for name in self.names)


def attacks(made: Scene) -> list[Attack]:
    """Return all attacks."""
    return [attack for of_part in PARTS for attack in of_part(made)]


def run(folder: Path, wanted: Wanted, *, clients: int, say: Callable[[str], None]) -> Run:
    """Attack a lake in this folder; `say` hears of each answer."""
    made = Run()
    with scene(folder) as place:
        chosen = [attack for attack in attacks(place) if attack in wanted]
        warm_up(place)
        with watching(place) as made.quiet:
            time.sleep(QUIET_SECONDS)
        made.warm_mb = statistics.median(made.quiet.server_mb)
        before = place.digest()
        with watching(place) as made.watch:
            for outcome in all_sent(place, chosen, clients):
                made.outcomes.append(outcome)
                say(line(outcome))
            time.sleep(1)
        made.end_mb = memory_mb(place.server.pid, b"VmRSS:")
        for _ in all_sent(place, [attack for attack in chosen if not attack.part.startswith(BY_OTHERS)], clients):
            pass  # tables and jobs are no longer what they were: other answers are right now
        time.sleep(1)
        made.again_mb = memory_mb(place.server.pid, b"VmRSS:")
        made.is_alive = place.server.poll() is None
        made.handler_crashes = place.handler.crashes
        rows = place.ask({**SMALL, "sql": "SELECT count(*) AS n FROM t"})["rows"] if made.is_alive else []
        made.is_untouched = before == place.digest() and rows == [{"n": VICTIM_ROWS}]
        made.called = tuple(place.called)
        made.log_faults = _log_faults(folder / "server.log")
    return made


def warm_up(place: Scene) -> None:
    """Let the server load all that it ever loads: an operation of each kind, and a body as large as one may be."""
    own = {"tenant_id": "mallory", "table": "spare"}
    until = time.monotonic() + START_SECONDS
    while request(place.port, json.dumps(SMALL).encode())[0] != OK and time.monotonic() < until:
        pass  # the first processes for queries start: on a busy machine that may take longer than a query may
    for number in range(3):
        place.ask(SMALL)
        place.ask({**own, "operation": "QUERY", "filter": {"column": "id", "op": "<", "value": number}})
        place.ask({**own, "operation": "TABLE_HEALTH", "explain": True})
        place.ask({**own, "operation": "COMPACT", "force": True})
        place.ask({**own, "operation": "WRITE", "records": [{"id": n, "p": number} for n in range(30_000)]})
    place.ask({**own, "operation": "MAINTAIN"})


def _log_faults(path: Path) -> tuple[str, ...]:
    """Return what the log knows no name for: stacks, faults of ours, and lines that are no entries."""
    found = []
    for text in path.read_text(errors="replace").splitlines():
        try:
            entry = json.loads(text)
        except ValueError:
            if not text.startswith("serving "):
                found.append(text[:500])
            continue
        if isinstance(entry, dict) and (entry.get("code") in OURS or "stack" in entry or "exception" in entry):
            found.append(text[:1500])
    return tuple(found)


def line(outcome: Outcome) -> str:
    told = "" if outcome.is_allowed else "  <- NOT ALLOWED"
    late = "" if outcome.is_in_time else "  <- LATE"
    leaks = f"  <- SHOWS {outcome.leaks}" if outcome.leaks else ""
    return (
        f"{outcome.seconds:6.2f} s  {outcome.told:32} {outcome.attack.part}: {outcome.attack.name}{told}{late}{leaks}"
    )
