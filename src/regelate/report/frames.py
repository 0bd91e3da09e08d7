"""JSON answers -> small tables of text. How they are drawn is the command line's business."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from regelate.core.policy.sizes import size_text
from regelate.core.values import dataclass

Answer = Mapping[str, Any]
_FULL, _PARTS = "█", " ▏▎▍▌▋▊▉"
MAX_CELL_CHARACTERS = 200
BAR_CHARACTERS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """A table of text. `right`: positions of the columns that hold numbers."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: frozenset[int] = frozenset()


def count_text(count: int) -> str:
    return f"{count:,}"


def plural(count: int, noun: str) -> str:
    """Return `1 file`, `2 files`, `1,000 files`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def seconds_text(seconds: float) -> str:
    """Return `850 ms`, `2.3 s` or `4 min 05 s`."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{int(seconds // 60)} min {int(seconds % 60):02d} s"


def printable(text: str) -> str:
    """Return a text on one line without anything that a terminal would obey; cut where it is very long."""
    shown = text if len(text) <= MAX_CELL_CHARACTERS else text[: MAX_CELL_CHARACTERS - 1] + "…"
    if shown.isprintable():
        return shown
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in shown)


def cell(value: object) -> str:
    """Return a JSON value as a cell: `null` is empty, what is nested is compact JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return printable(value)
    return printable(json.dumps(value, ensure_ascii=False, separators=(", ", ": ")))


def bar(value: float, most: float, width: int = BAR_CHARACTERS) -> str:
    """Return a bar of `width` characters for `most`; what is not zero is never invisible."""
    eighths = round(value / most * width * 8) if most > 0 else 0
    if value > 0:
        eighths = max(eighths, 1)
    full, rest = divmod(eighths, 8)
    return _FULL * full + (_PARTS[rest] if rest else "")


def size_range(bucket: Answer) -> str:
    """Return the name of one bucket of a size histogram: `64 KB - 256 KB`."""
    low, high = bucket["from_bytes"], bucket["to_bytes"]
    if high is None:
        return f"over {_round_size(low)}"
    return f"under {_round_size(high)}" if low == 0 else f"{_round_size(low)} - {_round_size(high)}"


def _round_size(size_bytes: int) -> str:
    return size_text(size_bytes).replace(".0 ", " ")


def occupied(histograms: Sequence[Sequence[Answer]]) -> list[int]:
    """Return the positions of the buckets from the first to the last that holds a file in any of the histograms."""
    held = [i for histogram in histograms for i, bucket in enumerate(histogram) if bucket["files"]]
    return list(range(min(held), max(held) + 1)) if held else []


def histogram(answer: Answer) -> Frame:
    """Return the sizes of the files of a TABLE_HEALTH answer as text bars."""
    buckets = [answer["size_histogram"][i] for i in occupied([answer["size_histogram"]])]
    most = max((b["files"] for b in buckets), default=0)
    rows = [(size_range(b), count_text(b["files"]), bar(b["files"], most)) for b in buckets]
    return Frame(columns=("file size", "files", ""), rows=tuple(rows), right=frozenset({1}))


def health(answer: Answer) -> Frame:
    """Return the numbers of a TABLE_HEALTH answer, one per row."""
    files, size = answer["files"], answer["size_bytes"]
    rows = [
        ("health", f"{answer['score']:.1f} of 100, {answer['grade'].lower()}"),
        ("points lost", _points(answer["points_lost"])),
        ("data files", count_text(files)),
        ("size", size_text(size)),
        ("average file", size_text(size / files) if files else "-"),
        ("rows", count_text(answer["rows"])),
        ("small files", count_text(answer["small_files"])),
        ("delete files", count_text(answer["delete_files"])),
        ("partitions", count_text(answer["partitions"])),
        ("manifests", count_text(answer["manifest_count"])),
        ("snapshots", count_text(answer["snapshot_count"])),
    ]
    return _pairs(rows)


def _points(lost: Mapping[str, float]) -> str:
    """Say for what points were lost, most first."""
    found = sorted(((value, name) for name, value in lost.items() if value), reverse=True)
    return ", ".join(f"{value:.1f} for {name}" for value, name in found) or "none"


def worst_partitions(answer: Answer) -> Frame:
    """Return the partitions of a TABLE_HEALTH answer that need work most."""
    names = ("partition", "urgency", "files", "small", "deletes", "size")
    rows = [
        (
            _partition(p["partition"]),
            f"{p['score']:.2f}",
            count_text(p["files"]),
            count_text(p["small_files"]),
            count_text(p["delete_files"]),
            size_text(p["size_bytes"]),
        )
        for p in answer["worst_partitions"]
    ]
    return Frame(columns=names, rows=tuple(rows), right=frozenset(range(1, 6)))


def plan_groups(plan: Answer) -> Frame:
    """Return the file groups of a plan."""
    rows = [
        (
            _partition(g["partition"]),
            count_text(g["files"]),
            size_text(g["bytes"]),
            count_text(g["rows"]),
            count_text(g["expected_output_files"]),
            ", ".join(f"{count:,} {reason}" for reason, count in g["reasons"].items()),
        )
        for g in plan["file_groups"]
    ]
    names = ("partition", "files", "size", "rows", "become", "because")
    return Frame(columns=names, rows=tuple(rows), right=frozenset({1, 2, 3, 4}))


def plan_skips(plan: Answer) -> Frame:
    """Return what a plan leaves alone, with the reason."""
    rows = [
        (_partition(s["partition"]), count_text(s["files"]), size_text(s["bytes"]), s["reason"])
        for s in plan["skipped"]
    ]
    names = ("partition", "files", "size", "left alone because")
    return Frame(columns=names, rows=tuple(rows), right=frozenset({1, 2}))


def swept(answer: Answer) -> Frame:
    """Return what a sweep found: one line per run that left something in a table."""
    rows = [
        (printable(t["table"]), run["reason"], count_text(run["files_deleted"]), size_text(run["bytes_freed"]))
        for t in answer["tables"]
        for run in t["runs"]
    ]
    return Frame(columns=("table", "run", "files deleted", "size"), rows=tuple(rows), right=frozenset({2, 3}))


def compaction(stats: Answer) -> Frame:
    """Return what a COMPACT changed: the table before and after."""
    rows = [
        ("data files", count_text(stats["files_before"]), count_text(stats["files_after"])),
        ("size", size_text(stats["bytes_before"]), size_text(stats["bytes_after"])),
        ("manifests", count_text(stats["manifests_before"]), count_text(stats["manifests_after"])),
    ]
    if stats["row_groups_before"] is not None:
        groups = (count_text(stats["row_groups_before"]), count_text(stats["row_groups_after"]))
        rows.append(("row groups of what was rewritten", *groups))
    return Frame(columns=("", "before", "after"), rows=tuple(rows), right=frozenset({1, 2}))


def result(answer: Answer) -> Frame:
    """Return the rows of a QUERY answer."""
    columns = answer["columns"]
    numeric = ("int", "long", "float", "double", "decimal")
    rows = [tuple(cell(row[c["name"]]) for c in columns) for row in answer["rows"]]
    return Frame(
        columns=tuple(printable(c["name"]) for c in columns),
        rows=tuple(rows),
        right=frozenset(i for i, c in enumerate(columns) if c["type"].startswith(numeric)),
    )


def columns(answer: Answer) -> Frame:
    """Return the columns of a DESCRIBE_TABLE answer, nested ones by their paths."""
    rows: list[tuple[str, ...]] = []
    _collect_columns(answer["schema"]["fields"], "", rows)
    return Frame(columns=("column", "type", "required", "doc"), rows=tuple(rows))


def _collect_columns(fields: Mapping[str, Any], above: str, rows: list[tuple[str, ...]]) -> None:
    for name, field in fields.items():
        path = f"{above}{printable(name)}"
        rows.append((path, field["type"], "yes" if field.get("required") else "", cell(field.get("doc"))))
        below = field.get("fields") or {k: field[k] for k in ("element", "key", "value") if field.get(k)}
        _collect_columns(below, f"{path}.", rows)


def table_facts(answer: Answer) -> Frame:
    """Return what else a DESCRIBE_TABLE answer says, one fact per row."""
    spec = ", ".join(_transformed(f["transform"], f["source"]) for f in answer["partition_spec"])
    order = ", ".join(f"{f['column']} {f['direction']} {f['nulls']}" for f in answer["sort_order"])
    facts = [
        ("table", answer["table"]),
        ("uuid", answer["table_uuid"]),
        ("location", answer["location"]),
        ("format version", str(answer["format_version"])),
        ("partitioned by", spec or "nothing"),
        ("sorted by", order or "nothing"),
        ("snapshot", str(answer["snapshot_id"] or "none")),
        ("snapshots", count_text(answer["snapshot_count"])),
        *((f"{ref['type']} {ref['name']}", str(ref["snapshot_id"])) for ref in answer["refs"]),
        *sorted(answer["properties"].items()),
    ]
    return _pairs([(printable(name), printable(value)) for name, value in facts])


def _transformed(transform: str, source: str) -> str:
    return source if transform == "identity" else f"{transform}({source})"


def _pairs(rows: Sequence[tuple[str, str]]) -> Frame:
    return Frame(columns=("", ""), rows=tuple(rows))


def _partition(path: str) -> str:
    return printable(path) or "(whole table)"
