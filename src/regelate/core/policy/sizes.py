"""Sizes as people read them, the same in tables, pictures and what a job says."""

from __future__ import annotations

_UNITS = ("B", "KB", "MB", "GB", "TB", "PB")


def size_text(size_bytes: float) -> str:
    """Return bytes as people read them, `12.3 MB`; a unit is a power of 1024, as in Iceberg's options."""
    power, size = 0, float(size_bytes)
    while abs(size) >= 1024 and power < len(_UNITS) - 1:
        power, size = power + 1, size / 1024
    return f"{size:.0f} B" if power == 0 else f"{size:.1f} {_UNITS[power]}"
