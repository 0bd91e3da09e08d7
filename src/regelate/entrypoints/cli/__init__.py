"""The command `regelate`. Importing it costs next to nothing: each command imports what it needs."""

from regelate.entrypoints.cli.program import main

__all__ = ["main"]
