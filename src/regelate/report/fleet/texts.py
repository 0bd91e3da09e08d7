"""Numbers, times and foreign names as a page shows them."""

from __future__ import annotations

import html
from datetime import UTC, datetime

MOST_CHARACTERS = 600


def plain(text: str) -> str:
    """Return a text without what is no character to look at, such as signs that turn the direction of writing."""
    cut = text if len(text) <= MOST_CHARACTERS else text[: MOST_CHARACTERS - 1] + "…"
    if cut.isprintable():
        return cut
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in cut)


def escaped(text: str) -> str:
    """Return a foreign text for the body or a quoted attribute of HTML."""
    return html.escape(plain(text), quote=True)


def dollars_text(dollars: float) -> str:
    """Return `$1,204`, `$3.20` or `$0.0042`: two digits that say something."""
    if dollars >= 1000:
        return f"${dollars:,.0f}"
    if dollars >= 0.1 or dollars == 0:
        return f"${dollars:.2f}"
    return f"${dollars:.4f}" if dollars >= 0.0001 else "<$0.0001"


def short_count(count: float) -> str:
    """Return `950`, `12.3k` or `4.1M`, for the axis of a picture."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(count) >= limit:
            return f"{count / limit:.1f}".removesuffix(".0") + unit
    return f"{count:.0f}"


def time_text(at_ms: int, pattern: str = "%Y-%m-%d %H:%M UTC") -> str:
    """Return a time of UTC."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime(pattern)
