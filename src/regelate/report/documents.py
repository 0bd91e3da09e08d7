"""A report as Markdown, as one HTML page, and as a message for a webhook that speaks Slack's format. Pure."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Sequence

from regelate.report import slack
from regelate.report.frames import Frame, printable
from regelate.report.jobs import Report, Section

_STYLE = """\
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 70em; padding: 0 1em; color: #222 }
table { border-collapse: collapse; margin: .5em 0 1.5em } th, td { padding: .25em .8em; border-bottom: 1px solid #ddd }
th { text-align: left; font-weight: 600 } .right { text-align: right; font-variant-numeric: tabular-nums }
.failed { color: #b3261e; font-weight: 600 } img { max-width: 100% } h2 { margin-top: 2em }
"""
_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>|#~])")


def markdown(report: Report, pictures: Sequence[str] = ()) -> str:
    """Return the report as Markdown. `pictures`: a link for each section, empty where there is none."""
    lines = [f"# {_md(report.title)}", ""]
    for name, frame in report.overview:
        lines += [f"**{_md(name)}**", "", *_md_table(frame), ""]
    for section, picture in zip(report.sections, _padded(pictures, report), strict=True):
        lines += [f"## {_md(section.title)}", "", _md_line(section), ""]
        lines += [f"![{_md(section.title)}]({picture})", ""] if picture else []
        lines += [f"- {_md(note)}" for note in section.notes] + ([""] if section.notes else [])
        for name, frame in section.frames:
            lines += [f"**{_md(name)}**", "", *_md_table(frame), ""]
    return "\n".join(lines).rstrip() + "\n"


def _padded(pictures: Sequence[str], report: Report) -> list[str]:
    return [*pictures, *("" for _ in report.sections[len(pictures) :])]


def _md_line(section: Section) -> str:
    return f"**{_md(section.line)}**" if section.failed else _md(section.line)


def _md(text: str) -> str:
    return _MARKDOWN.sub(r"\\\1", printable(text))


def _md_table(frame: Frame) -> list[str]:
    rule = ["---:" if i in frame.right else "---" for i in range(len(frame.columns))]
    rows = [frame.columns, *frame.rows]
    lines = ["| " + " | ".join(_md(cell) for cell in row) + " |" for row in rows]
    return [lines[0], "| " + " | ".join(rule) + " |", *lines[1:]]


def page(report: Report, pictures: Sequence[bytes] = ()) -> str:
    """Return the report as one HTML page that needs nothing else. `pictures`: a PNG for each section, or nothing."""
    title = _text(report.title)
    parts = [f"<h1>{title}</h1>"]
    parts += [f"<h3>{_text(name)}</h3>{_table(frame)}" for name, frame in report.overview]
    for number, section in enumerate(report.sections):
        picture = pictures[number] if number < len(pictures) else b""
        style = ' class="failed"' if section.failed else ""
        parts.append(f"<h2>{_text(section.title)}</h2><p{style}>{_text(section.line)}</p>")
        if picture:
            data = base64.b64encode(picture).decode()
            parts.append(f'<img alt="{_text(section.line)}" src="data:image/png;base64,{data}">')
        parts += [f"<p>{_text(note)}</p>" for note in section.notes]
        parts += [f"<h3>{_text(name)}</h3>{_table(frame)}" for name, frame in section.frames]
    head = f'<meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>'
    return f'<!doctype html><html lang="en"><head>{head}</head><body>\n' + "\n".join(parts) + "\n</body></html>\n"


def _text(text: str) -> str:
    return html.escape(printable(text))


def _table(frame: Frame) -> str:
    def cells(row: Sequence[str], tag: str) -> str:
        classes = [' class="right"' if i in frame.right else "" for i in range(len(row))]
        return "".join(f"<{tag}{c}>{_text(cell)}</{tag}>" for c, cell in zip(classes, row, strict=True))

    rows = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in frame.rows)
    return f"<table><thead><tr>{cells(frame.columns, 'th')}</tr></thead><tbody>{rows}</tbody></table>"


def message(report: Report) -> dict[str, object]:
    """Return what a Slack-compatible webhook takes."""
    failures = f", {report.failures} need a look" if report.failures else ""
    head = f"{report.title}: {len(report.sections)} job{'s' if len(report.sections) != 1 else ''}{failures}"
    return slack.message(head, [_mrkdwn_line(section) for section in report.sections])


def _mrkdwn_line(section: Section) -> str:
    said = slack.mrkdwn(section.line)
    return "\n".join([f":warning: *{said}*" if section.failed else said, *map(slack.mrkdwn, section.notes)])
