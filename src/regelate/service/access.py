"""Which credentials a catalog is opened with: the process's, or a session that fits one tenant and one purpose."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from regelate.core.access import Access, session_name, session_policy
from regelate.ports.access import OpenCatalogs, StorageSessions
from regelate.tenancy import Address

if TYPE_CHECKING:
    from regelate.settings import Settings


class CatalogAccess:
    """Opens the configured catalogs; without `tenancy.role_arn` one of each, for everybody.

    `catalogs` and `sessions` are asked for when first needed, because of what they import. A session lives for
    `least_seconds` at least.
    """

    def __init__(
        self,
        settings: Settings,
        catalogs: Callable[[], OpenCatalogs],
        sessions: Callable[[], StorageSessions],
        *,
        least_seconds: float,
    ) -> None:
        self._settings = settings
        self._catalogs = catalogs
        self._sessions = sessions
        self._least_seconds = least_seconds

    def survey(self, name: str | None = None) -> Any:
        """Return a catalog to look at all of its tables, not at their rows. Errors: NotFound CATALOG_NOT_FOUND."""
        if self._settings.tenancy.role_arn:
            return self._in_session(name, Access.SURVEY, None)
        found, catalog = self._settings.catalog(name)
        return self._catalogs().open(found, catalog.properties, catalog.local_folders())

    def of(self, address: Address, access: Access = Access.WRITE) -> Any:
        """Return the catalog of a table, with access to the tables of its tenant."""
        if not self._settings.tenancy.role_arn:
            return self.survey(address.catalog)
        return self._in_session(address.catalog, access, address.tenant_id)

    def _in_session(self, name: str | None, access: Access, tenant: str | None) -> Any:
        found, catalog = self._settings.catalog(name)
        properties = catalog.properties
        who = tenant if catalog.multi_tenant else None
        partition = self._settings.tenancy.partition
        session = self._sessions().session(
            session_policy(access, who, properties["warehouse"], partition=partition),
            name=session_name(access, tenant),
            least_seconds=self._least_seconds,
        )
        return self._catalogs().open(found, {**properties, **session.properties}, session=session.access_key_id)
