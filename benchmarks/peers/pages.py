"""The figures of `python -m benchmarks peers` as tables and as one picture."""

from __future__ import annotations

from typing import Any

from benchmarks.measuring import RESULTS, ROOT, median
from benchmarks.peers.cases import CASES
from benchmarks.peers.contest import FLOOR, OURS, PEERS

DOCS = ROOT / "docs" / "performance.md"
PICTURE = ROOT / "docs" / "images" / "performance.png"
OPENING, CLOSING = "<!-- figures of make bench-peers -->", "<!-- end of the figures -->"
HEAD = (
    "| who | processor s | / COPY's | seconds | / COPY's | peak MB | MB out | files | row groups | "
    "processor s of the whole process | runs |"
)
COLOURS = ("#c0392b", "#2c3e50", "#7f8c8d", "#2980b9", "#d35400", "#8e44ad")


def publish(known: dict[str, Any], quick: bool) -> None:
    """Write the tables and the picture; into docs too, unless the sizes were small."""
    text = figures(known)
    suffix = "-quick" if quick else ""
    title = "# peers: what does each take to compact the same tables?"
    (RESULTS / f"peers{suffix}.md").write_text(f"{title}\n\n{text}\n")
    draw(known, str(RESULTS / "peers-quick.png" if quick else PICTURE))
    if not quick:
        before, _, rest = DOCS.read_text().partition(OPENING)
        _, mark, after = rest.partition(CLOSING)
        if not mark:
            raise SystemExit(f"{DOCS} has no place for the figures")
        DOCS.write_text(f"{before}{OPENING}\n\n{text}\n\n{CLOSING}{after}")


def figures(known: dict[str, Any]) -> str:
    """Return a table for each case: medians of the runs."""
    host = known["machine"]
    parts = [f"{host['processors']} processors, {host['memory_gb']} GB, Python {host['python']}, {host['system']}."]
    everywhere = _everywhere(known)
    parts += [f"Left out: {peer}, as {why}." for peer, why in everywhere.items()]
    for name, case in known["cases"].items():
        loads = [run["load"] for runs in case["runs"].values() for run in runs]
        deletes = f", {case['delete_files']} delete files" if case["delete_files"] else ""
        parts.append(
            f"**{name}: {case['output_files']:,} {case['words']}**, {case['output_mb']:,.0f} MB "
            f"({case['output_mb'] * 1024 / case['output_files']:,.0f} KB each) in "
            f"{case['row_groups']:,} row groups, {case['row_count']:,} rows{deletes} "
            f"({case['date']}, load {min(loads):.0f} to {max(loads):.0f})"
        )
        parts.append(
            "\n".join([HEAD, "| --- |" + " ---: |" * 10, *(_line(peer, case["runs"]) for peer in case["runs"])])
        )
        parts += [f"Left out: {peer}, as {why}." for peer, why in case["skipped"].items() if peer not in everywhere]
    return "\n\n".join(parts)


def _everywhere(known: dict[str, Any]) -> dict[str, str]:
    """Return what is left out of every case for one reason."""
    skipped = [set(case["skipped"].items()) for name, case in known["cases"].items() if not CASES[name].scaling]
    return dict(sorted(set.intersection(*skipped))) if skipped else {}


def _line(peer: str, found: dict[str, list[dict[str, Any]]]) -> str:
    runs, bare = found[peer], found.get(FLOOR)

    def shown(key: str, form: str) -> str:
        return format(median(runs, key), form)

    def ratio(key: str) -> str:
        return f"{median(runs, key) / median(bare, key):.2f}" if bare else "-"

    cells = [
        f"**{peer}**" if peer == OURS else peer,
        shown("processor_seconds", ".2f"),
        ratio("processor_seconds"),
        shown("seconds", ".1f"),
        ratio("seconds"),
        shown("peak_mb", ",.0f"),
        shown("output_mb", ",.1f"),
        shown("output_files", ".0f"),
        shown("row_groups", ".0f"),
        shown("whole_processor_seconds", ".2f"),
        str(len(runs)),
    ]
    return f"| {' | '.join(cells)} |"


def draw(known: dict[str, Any], path: str) -> None:
    """Draw processor seconds beside the bare COPY's, peak memory, and both as the table grows."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    cases = {name: case["runs"] for name, case in known["cases"].items() if not CASES[name].scaling}
    steps = {name: case["runs"] for name, case in known["cases"].items() if CASES[name].scaling}
    growing = len(steps) > 1
    figure, axes = plt.subplots(1 + growing, 2, figsize=(13, 8.5 if growing else 5), squeeze=False)
    _bars(
        axes[0][0], cases, "processor_seconds", "processor seconds of the work, those of a bare COPY = 1", relative=True
    )
    _bars(axes[0][1], cases, "peak_mb", "peak memory of all processes, MB", relative=False)
    if growing:
        _growth(axes[1][0], steps, "processor_seconds", "processor seconds as A grows")
        _growth(axes[1][1], steps, "peak_mb", "peak memory as A grows, MB")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=4, frameon=False)
    figure.tight_layout(rect=(0, 0.1, 1, 1))
    figure.savefig(path, dpi=90)
    plt.close(figure)


def _bars(axis: Any, cases: dict[str, Any], key: str, title: str, *, relative: bool) -> None:
    width = 0.8 / len(PEERS)
    for place, (peer, colour) in enumerate(zip(PEERS, COLOURS, strict=True)):
        heights = [
            median(runs[peer], key) / (median(runs[FLOOR], key) if relative else 1) if peer in runs else 0.0
            for runs in cases.values()
        ]
        axis.bar([number + place * width for number in range(len(cases))], heights, width, color=colour, label=peer)
    axis.set_xticks([number + 0.4 - width / 2 for number in range(len(cases))], list(cases))
    axis.set_title(title, fontsize=10)
    if relative:
        axis.set_yscale("log")
        axis.axhline(1, color="black", linewidth=0.6)


def _growth(axis: Any, steps: dict[str, Any], key: str, title: str) -> None:
    for peer, colour in ((OURS, COLOURS[0]), (FLOOR, COLOURS[1])):
        axis.plot(list(steps), [median(runs[peer], key) for runs in steps.values()], "o-", color=colour, label=peer)
    axis.set_ylim(bottom=0)
    axis.set_title(title, fontsize=10)
