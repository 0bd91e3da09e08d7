"""The promises, whether they were met, and the table of a run."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from tests.system.attack.attack import QUERY_SECONDS
from tests.system.attack.run import Run
from tests.system.attack.scene import QUERY_MEMORY_MB, QUERY_PROCESSES
from tests.system.attack.sending import Outcome
from tests.system.attack.watching import Asked

OTHERS_SECONDS = 1.0
CHILD_MB = QUERY_MEMORY_MB * 1.1
RISE_MB = 384.0
"""What the server may have resident above its warm level at any moment: a few bodies of 6 MB, parsed and written."""
LEFT_MB = 128.0
"""And after the last answer."""
AGAIN_MB = 32.0
"""And when all of that comes again: a leak would take as much as the first time."""
SHOWN_CHARACTERS = 100
ATTACKS = 300
EXAMPLES = 10


@dataclass(frozen=True, kw_only=True)
class Promise:
    text: str
    figure: str
    is_met: bool


def promises(found: Run) -> list[Promise]:
    return list(_promises(found))


def _promises(found: Run) -> Iterator[Promise]:
    outcomes = found.outcomes
    wrong = [o for o in outcomes if not o.is_allowed]
    yield _of(
        "every answer is one that the attack's row allows",
        len(wrong),
        f"{len(outcomes)} attacks, {sum(o.attack.copies for o in outcomes)} requests",
    )
    late = [o for o in outcomes if not o.is_in_time]
    worst = max((o.seconds - o.attack.limit for o in outcomes), default=0.0)
    yield _of("no answer later than its limit + 1 s", len(late), f"the latest: {worst:+.1f} s against its limit")
    yield Promise(
        text="the server lives",
        figure=f"{found.handler_crashes} ends of the handler",
        is_met=found.is_alive and not found.handler_crashes,
    )
    yield _of(
        "nothing unexpected in the server's log",
        len(found.log_faults),
        "stacks, faults of ours, lines that are no entries",
    )
    for name in ("HEALTH_CHECK", "QUERY"):
        seconds, quiet = ([asked.seconds for asked in watch.of(name)] for watch in (found.watch, found.quiet))
        slow = [s for s in seconds if s > OTHERS_SECONDS]
        figure = f"{len(seconds)} asked: median {_ms(seconds)}, most {max(seconds, default=0) * 1000:,.0f} ms (before: {_ms(quiet)})"
        yield _of(f"{name} of another tenant within {OTHERS_SECONDS:g} s each time", len(slow), figure)
    yield _of(
        "and the right answer each time",
        sum(bool(asked.fault) for asked in found.watch.asked),
        "HEALTH_CHECK and QUERY",
    )
    rise = max(found.watch.server_mb, default=0.0) - found.warm_mb
    yield Promise(
        text=f"the server's memory at most {RISE_MB:.0f} MB above its warm level",
        figure=f"warm {found.warm_mb:.0f} MB, at most {rise:+.0f} MB",
        is_met=rise <= RISE_MB,
    )
    left = found.end_mb - found.warm_mb
    yield Promise(text=f"and {LEFT_MB:.0f} MB when all is over", figure=f"{left:+.0f} MB", is_met=left <= LEFT_MB)
    more = found.again_mb - found.end_mb
    yield Promise(
        text=f"and at most {AGAIN_MB:.0f} MB more after a second round of what the server works on by itself",
        figure=f"{more:+.0f} MB",
        is_met=more <= AGAIN_MB,
    )
    peaks = list(found.watch.child_peaks_mb.values())
    high = [mb for mb in peaks if mb > CHILD_MB]
    yield _of(
        f"no process for queries above {QUERY_MEMORY_MB} MB + 10 %",
        len(high),
        f"{len(peaks)} processes, the largest {max(peaks, default=0):.0f} MB",
    )
    leaks = [o for o in outcomes if o.leaks]
    yield _of(
        "no answer shows a bait, a stack, an address or SQL of ours",
        len(leaks),
        "baits: a row of the victim's, a file, an environment variable, /etc/passwd",
    )
    yield Promise(
        text="the other tenant's files and the baits are as they were",
        figure="digest of every file",
        is_met=found.is_untouched,
    )
    yield _of("nobody connects to where a request points", len(found.called), "a port of this machine")


def _of(text: str, exceptions: int, figure: str) -> Promise:
    return Promise(text=text, figure=f"{exceptions} exceptions; {figure}", is_met=exceptions == 0)


def _ms(seconds: list[float]) -> str:
    return f"{statistics.median(seconds) * 1000:,.0f} ms" if seconds else "none"


def verdicts(found: Run) -> str:
    """Return the promises as a table, and below it what broke one."""
    rows = [f"| {p.text} | {p.figure} | {'met' if p.is_met else '**not met**'} |" for p in promises(found)]
    return "\n".join(["| promise | is | verdict |", "| --- | --- | --- |", *rows, *_exceptions(found)])


def _exceptions(found: Run) -> Iterator[str]:
    for outcome in found.outcomes:
        if not outcome.is_allowed or not outcome.is_in_time or outcome.leaks:
            yield f"\n- {_cell(outcome.attack.part + ': ' + outcome.attack.name)}: {_cell(outcome.told)} after {outcome.seconds:.1f} s {_cell(' '.join(outcome.leaks))}"
    wrong = [asked for asked in found.watch.asked if asked.seconds > OTHERS_SECONDS or asked.fault]
    slow = [f"{a.name} after {a.seconds:.2f} s {a.fault} during {_doing(found, a)}" for a in wrong]
    for texts in (slow, found.called, found.log_faults):
        yield from (f"\n- {_cell(text, 300)}" for text in texts[:EXAMPLES])


def _doing(found: Run, asked: Asked) -> str:
    """Name the attacks that were under way while somebody else asked."""
    until = asked.begun + asked.seconds
    at_once = [o for o in found.outcomes if o.begun < until and o.begun + o.seconds > asked.begun]
    return "; ".join(f"{o.attack.part}: {o.attack.name}" for o in at_once[:4]) or "nothing"


def document(found: Run, seconds: float) -> str:
    """Return the page that is kept: verdicts, then every attack."""
    load = f"{statistics.mean(found.watch.loads):.1f}" if found.watch.loads else "unknown"
    head = f"""\
# attack: Can one tenant stop, slow down or read another?

Made by `make attack` on {datetime.now(UTC):%Y-%m-%d}: {os.cpu_count()} processors with a mean load of {load}, Python {platform.python_version()}, {seconds:.0f} s.
A real `regelate serve` and the Lambda handler in a process of its own; a QUERY has {QUERY_SECONDS:g} s, {QUERY_MEMORY_MB} MB
and {QUERY_PROCESSES} processes. All the while another tenant asks for HEALTH_CHECK and a QUERY every half second.

{verdicts(found)}

"""
    rows = [_row(number, outcome) for number, outcome in enumerate(found.outcomes, 1)]
    return (
        head
        + "\n".join(["| | part | attack | request | answer | s |", "| --- | --- | --- | --- | --- | --- |", *rows])
        + "\n"
    )


def _row(number: int, outcome: Outcome) -> str:
    attack = outcome.attack
    name = attack.name if attack.copies == 1 else f"{attack.name} ({attack.copies} at once)"
    answer = outcome.told if outcome.is_allowed else f"**{outcome.told}**"
    cells = (str(number), attack.part, name, f"`{_cell(attack.shown)}`", answer, f"{outcome.seconds:.2f}")
    return f"| {' | '.join(cells)} |"


def _cell(text: str, most: int = SHOWN_CHARACTERS) -> str:
    flat = "".join(c if c.isprintable() and c.isascii() else "." for c in " ".join(text.split()))
    cut = flat if len(flat) <= most else f"{flat[: most - 12]}... {len(flat):,}"
    return cut.replace("|", "\\|").replace("`", "'")
