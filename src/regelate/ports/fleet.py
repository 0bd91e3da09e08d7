"""Many tables at once."""

from __future__ import annotations

from typing import Protocol


class Fleet(Protocol):
    """The tables of one catalog, by namespace. An ident is `namespace.table`."""

    def namespaces(self) -> tuple[str, ...]: ...
    def list_tables(self, namespace: str) -> tuple[str, ...]: ...
