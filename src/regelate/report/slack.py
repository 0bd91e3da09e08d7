"""Messages in Slack's Block Kit, which other chats take too. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from regelate.report.frames import printable

MOST_LINES, MOST_CHARACTERS, MOST_HEAD_CHARACTERS = 40, 2_900, 150
"""Slack takes 50 blocks, and 3,000 characters in one (https://docs.slack.dev/reference/block-kit/blocks)."""


def message(head: str, lines: Sequence[str]) -> dict[str, object]:
    """Return what a Slack-compatible webhook takes: `text` for all of them, `blocks` where they are understood.

    `lines` are mrkdwn already, `head` is plain text; what is too long or too much is cut, and the number is told.
    """
    shown = [line[:MOST_CHARACTERS] for line in lines[:MOST_LINES]]
    if len(lines) > MOST_LINES:
        shown.append(f"and {len(lines) - MOST_LINES:,} more")
    blocks: list[dict[str, object]] = [
        {"type": "header", "text": {"type": "plain_text", "text": head[:MOST_HEAD_CHARACTERS]}}
    ]
    blocks += [{"type": "section", "text": {"type": "mrkdwn", "text": line}} for line in shown]
    return {"text": "\n".join([mrkdwn(head), *shown]), "blocks": blocks}


def mrkdwn(text: str) -> str:
    """Return a text that is no markup, mention or link in mrkdwn."""
    return printable(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
