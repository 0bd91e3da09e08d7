"""What the demo says, line by line, and its picture."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regelate.core.policy.sizes import size_text
from regelate.core.values import dataclass
from regelate.entrypoints.cli import screen
from regelate.entrypoints.demo.home import CONFIG, MORE, PICTURE
from regelate.report import plots
from regelate.report.frames import Frame, count_text, histogram, plural, seconds_text

if TYPE_CHECKING:
    from regelate.entrypoints.demo.healing import Writes

Answer = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One table at one moment: a TABLE_HEALTH answer, the median milliseconds by query, its rows and their hash."""

    health: Answer
    query_ms: Mapping[str, float]
    rows: int
    fingerprint: str


def writing_text(number: int, count: int, rows: int, recommended_after: int | None) -> str:
    told = "" if recommended_after is None else " · compaction recommended"
    return f"WRITE {number} of {count} · {plural(rows, 'row')}{told}"


class Teller:
    """Says what happens, unless it is told to be silent."""

    def __init__(self, *, silent: bool) -> None:
        self._silent = silent

    def _say(self, text: str, *, style: str | None = None) -> None:
        if not self._silent:
            screen.say(text, style=style)

    def _show(self, frame: Frame) -> None:
        if not self._silent:
            screen.show(frame)

    def begin(self, rows: int, folder: Path) -> None:
        self._say(f"{plural(rows, 'real flight')} from New York in 2013, as small writes into an Iceberg table.")
        self._say(f"Lake: {folder}", style="dim")

    def wrote(self, writes: Writes) -> None:
        self._say(
            f"\n1  {plural(writes.requests, 'WRITE request')} in {seconds_text(writes.seconds)} "
            f"({writes.median_ms:.0f} ms each, by the median)."
        )
        if writes.recommended_after is not None:
            self._say(f"   After request {writes.recommended_after} the answer said: compaction_recommended = true.")

    def ill(self, look: Look) -> None:
        self._say(f"\n2  The table now: health {look.health['score']:.0f} of 100. {look.health['recommendation']}")
        self._show(histogram(look.health))

    def healed(self, answer: Answer) -> None:
        stats = answer["stats"]
        if stats is None:
            self._say(f"\n3  COMPACT: {answer['status']} ({answer['reason']}).")
            return
        became = f"{plural(stats['files_compacted'], 'file')} became {plural(stats['files_added'], 'file')}"
        took = seconds_text(stats["compaction_time_ms"] / 1000)
        self._say(f"\n3  COMPACT: {answer['status']} in {took}. {became}, in one `replace` snapshot.")

    def well(self, look: Look) -> None:
        self._say(f"\n4  The table now: health {look.health['score']:.0f} of 100. {look.health['recommendation']}")
        self._show(histogram(look.health))

    def end(self, before: Look, after: Look, *, same: bool, picture: Path | None, seconds: float) -> None:
        self._say("")
        self._show(comparison(before, after))
        proof = "the fingerprint of all rows and columns is that of the flights that were sent"
        verdict = f"The rows are the same: {count_text(after.rows)}, and {proof}."
        self._say(f"\n{verdict if same else 'THE ROWS ARE NOT THE SAME.'}")
        if picture is not None:
            self._say(f"Picture: {picture}")
        else:
            self._say("No picture: matplotlib is not installed (it comes with the extra `report`).")
        self._say(f"All of it took {seconds_text(seconds)}.", style="dim")

    def left(self, folder: Path, table: str) -> None:
        """Say how to go on. The last command writes until a small-file check is due, which recommends a compaction."""
        regelate = f"REGELATE_CONFIG={shlex.quote(str(folder / CONFIG))} {_program()}"
        sql = "SELECT carrier, count(*) AS flights FROM t GROUP BY carrier ORDER BY flights DESC LIMIT 5"
        more = shlex.quote(str(folder / MORE))
        self._say("\nThe table is still there. Go on with it:\n")
        self._say(f"{regelate} health {table}")
        self._say(f'{regelate} query {table} --sql "{sql}"')
        self._say(f"for i in 1 2 3 4 5 6; do {regelate} write {table} {more}; done")
        self._say("\nAfter the last one a compaction is recommended again. The next demo begins anew.")


def _program() -> str:
    """Return how this command line was called, so that the next line can be pasted."""
    called = Path(sys.argv[0])
    return shlex.quote(str(called.absolute())) if called.name == "regelate" and called.is_file() else "regelate"


def comparison(before: Look, after: Look) -> Frame:
    """Return the table that a newcomer should understand: before, after, and what that means."""
    ill, well = before.health, after.health
    rows = [
        ("data files", count_text(ill["files"]), count_text(well["files"]), _fewer(ill["files"], well["files"])),
        ("average file", _average(ill), _average(well), ""),
        ("size", size_text(ill["size_bytes"]), size_text(well["size_bytes"]), _smaller(ill, well)),
        ("manifests", count_text(ill["manifest_count"]), count_text(well["manifest_count"]), ""),
        ("health of 100", f"{ill['score']:.0f}", f"{well['score']:.0f}", ""),
    ]
    for name, took in before.query_ms.items():
        now = after.query_ms[name]
        rows.append((name, f"{took:.0f} ms", f"{now:.0f} ms", _faster(took, now)))
    rows.append(("rows", count_text(before.rows), count_text(after.rows), _same(before.rows, after.rows)))
    same = _same(before.fingerprint, after.fingerprint)
    rows.append(("fingerprint, end of", before.fingerprint[-8:], after.fingerprint[-8:], same))
    return Frame(columns=("", "before", "after", ""), rows=tuple(rows), right=frozenset({1, 2}))


def _average(health: Answer) -> str:
    return size_text(health["size_bytes"] / health["files"]) if health["files"] else "-"


def _fewer(before: int, after: int) -> str:
    return f"{before / after:.1f} times fewer" if 0 < after < before else ""


def _smaller(before: Answer, after: Answer) -> str:
    saved = 1 - after["size_bytes"] / before["size_bytes"] if before["size_bytes"] else 0.0
    return f"{saved:.0%} smaller" if saved >= 0.005 else ""


def _faster(before: float, after: float) -> str:
    return f"{before / after:.1f} times faster" if before / after >= 1.05 else "no faster"


def _same(before: object, after: object) -> str:
    return "the same" if before == after else "DIFFERENT"


def draw(folder: Path, before: Look, after: Look, about: str) -> Path | None:
    """Save the picture and return where; None without matplotlib. `about`: what was measured, and how."""
    if not plots.can_draw():
        return None
    path = folder / PICTURE
    ill, well = before.health["files"], after.health["files"]
    figure = plots.before_after(
        title=f"One COMPACT: {plural(ill, 'small file')} become {well:,}, no row changes",
        subtitle=about,
        health=(before.health, after.health),
        query_ms={name: (took, after.query_ms[name]) for name, took in before.query_ms.items()},
    )
    figure.savefig(path)
    return path


def put_json(before: Look, after: Look, compacted: Answer, *, same: bool, picture: Path | None, seconds: float) -> None:
    """Print what was measured as one JSON object."""
    sides = {
        name: {"health": look.health, "query_ms": look.query_ms, "rows": look.rows, "fingerprint": look.fingerprint}
        for name, look in (("before", before), ("after", after))
    }
    told = {"same_rows": same, "picture": None if picture is None else str(picture), "seconds": round(seconds, 1)}
    screen.put_json({**sides, "compact": compacted, **told})
