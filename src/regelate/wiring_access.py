"""Which credentials a catalog is opened with: the process's, or a session that fits one tenant and one purpose."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from regelate.core.session_policy import Access, StorageSession, session_name, session_policy
from regelate.settings import SESSION_MARGIN_SECONDS
from regelate.tenancy import Address

if TYPE_CHECKING:
    from regelate.core.policy import PlacementPolicy
    from regelate.ports.clock import Clock
    from regelate.settings import Settings


class StorageSessions(Protocol):
    """Hands out credentials that can do no more than a policy says, for at least so many seconds."""

    def session(self, policy: str, *, name: str, least_seconds: float) -> StorageSession: ...


class OpenCatalogs(Protocol):
    def open(
        self, name: str, properties: Mapping[str, str], folders: tuple[Path, ...] = (), *, session: str = ""
    ) -> Any: ...


class Opening:
    """The part of the Application that opens catalogs; without `tenancy.role_arn` one of each, for everybody."""

    if TYPE_CHECKING:
        settings: Settings
        clock: Clock
        placement: PlacementPolicy

    @cached_property
    def _catalogs(self) -> OpenCatalogs:
        from regelate.adapters.iceberg.catalogs import Catalogs

        return Catalogs(self.settings.storage.properties, self.settings.network.timeouts)

    @cached_property
    def _sessions(self) -> StorageSessions:
        from regelate.adapters.aws.sessions import StsSessions, sts_client

        role, timeouts = self.settings.tenancy, self.settings.network.timeouts
        return StsSessions(
            lambda: sts_client(timeouts),
            role.role_arn or "",
            lives_seconds=role.session_seconds,
            now_ms=self.clock.now_ms,
        )

    def catalog(self, name: str | None = None) -> Any:
        """Return a catalog to look at all of its tables, not at their rows."""
        if self.settings.tenancy.role_arn:
            return self._in_session(name, Access.SURVEY, None)
        found, catalog = self.settings.catalog(name)
        return self._catalogs.open(found, catalog.properties, catalog.local_folders())

    def catalog_of(self, address: Address, access: Access = Access.WRITE) -> Any:
        """Return the catalog of a table, with access to the tables of its tenant."""
        if not self.settings.tenancy.role_arn:
            return self.catalog(address.catalog)
        return self._in_session(address.catalog, access, address.tenant_id)

    def _in_session(self, name: str | None, access: Access, tenant: str | None) -> Any:
        found, catalog = self.settings.catalog(name)
        tenancy, properties = self.settings.tenancy, catalog.properties
        who = tenant if catalog.multi_tenant else None
        session = self._sessions.session(
            session_policy(access, who, properties["warehouse"], partition=tenancy.partition),
            name=session_name(access, tenant),
            least_seconds=self.placement.max_in_process_seconds + SESSION_MARGIN_SECONDS,
        )
        return self._catalogs.open(found, {**properties, **session.properties}, session=session.access_key_id)
