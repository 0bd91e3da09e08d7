"""Who asks, and for which table: claims and request -> `Address`; what is not theirs is refused."""

from __future__ import annotations

import posixpath
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from regelate.core.jobs.job import JobRecord
from regelate.core.table import names
from regelate.core.table.storage import store_of
from regelate.core.values import dataclass
from regelate.errors import InvalidRequest, NotAllowed, Unavailable
from regelate.settings import ANY_TENANT, CatalogSettings, Settings

DEFAULT_TENANT = "default"
"""The name in the answer and the logs where nobody asked for one: development, and a catalog without tenants."""
DEFAULT_NAMESPACE = "default"
_SEAM = "__"
"""Between tenant and namespace in a multi-tenant catalog."""
_LEAST_FOLDERS = 4
_METADATA_FILES = (".metadata.json", ".metadata.json.gz")
_REFUSAL = "the caller may not act for this tenant, or the tenant is unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """One table of one catalog as the catalog knows it: `ident` is `namespace.table` after the namespace template.

    Without a `table` it addresses the namespace, and `ident` is its name. `told`: the namespace as the caller names it.
    """

    tenant_id: str
    catalog: str
    ident: str
    table: str | None = None
    told: str | None = field(default=None, compare=False)

    @property
    def told_ident(self) -> str:
        """Return the table's full name as the caller knows it."""
        return ".".join(filter(None, (self.told, self.table)))

    @property
    def namespace(self) -> str:
        return self.ident if self.table is None else self.ident.removesuffix(f"{names.SEPARATOR}{self.table}")


def address_of(record: JobRecord) -> Address:
    """Return the table that a job is about."""
    return Address(tenant_id=record.tenant_id, catalog=record.catalog, ident=record.ident, table=record.table)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The namespaces of one catalog that a request is about, as the catalog knows them.

    `tenants`: those whose they are, "*" for everybody; `namespace` narrows to one.
    """

    tenants: Literal["*"] | tuple[str, ...]
    catalog: str
    multi_tenant: bool
    namespace: str | None = None
    sees_all: bool = False
    """Whether it was asked for by somebody who may act for every tenant."""

    @property
    def is_private(self) -> bool:
        """Whether it is one of several tenants', who are told nothing of the others."""
        return self.multi_tenant and not self.sees_all

    def holds(self, inside: str) -> bool:
        """Say whether a namespace of the catalog is one of these."""
        return self.tenant_of(inside) is not None

    def has(self, ident: str) -> bool:
        """Say whether a table of the catalog is in one of these."""
        return self.holds(ident.rpartition(names.SEPARATOR)[0])

    def tenant_of(self, inside: str) -> str | None:
        """Return whose a namespace of the catalog is; None where it is none of these."""
        if self.namespace not in (None, inside):
            return None
        if not self.multi_tenant:
            return DEFAULT_TENANT if self.tenants == ANY_TENANT else next(iter(self.tenants), None)
        tenant = _tenant_in(inside)
        return tenant if self.tenants == ANY_TENANT or tenant in self.tenants else None

    def address(self, ident: str) -> Address:
        """Return the address of a table of the catalog. Errors: NotAllowed FORBIDDEN for one that is none of these."""
        namespace, _, table = ident.rpartition(names.SEPARATOR)
        tenant = self.tenant_of(namespace)
        if tenant is None:
            raise NotAllowed("FORBIDDEN", f"no tenant of these has the namespace {namespace}")
        told = self.asked_as(namespace)
        return Address(tenant_id=tenant, catalog=self.catalog, ident=ident, table=table, told=told)

    def asked_as(self, inside: str) -> str:
        """Return how a request of its tenant names a namespace of the catalog that is one of these."""
        return inside.removeprefix(f"{self.tenant_of(inside)}{_SEAM}") if self.multi_tenant else inside


class Tenancy:
    """The configured tenants and catalogs, as the doors ask for them. Safe for several threads."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._running: Counter[str] = Counter()
        self._lock = threading.Lock()

    @contextmanager
    def admitted(self, claim_tenant: str | None, body_tenant: str | None, *, trusted: bool = False) -> Iterator[None]:
        """Let one operation of a tenant run, if the caller may act for it and not too many run in this process.

        Every operation that names a tenant passes here before anything else looks at it. Errors: as `resolve`;
        Unavailable TOO_MANY_OPERATIONS (429).
        """
        tenant = self._claimed(claim_tenant, body_tenant, trusted=trusted) or DEFAULT_TENANT
        most = self._settings.limits.of(tenant).max_concurrent_operations
        with self._lock:
            if self._running[tenant] >= most:
                message = f"{most} operations of this tenant are running here; try again when one has ended"
                raise Unavailable("TOO_MANY_OPERATIONS", message, status=429, max_concurrent_operations=most)
            self._running[tenant] += 1
        try:
            yield
        finally:
            with self._lock:
                self._running -= Counter([tenant])  # forgets whom it has counted down to nothing

    def resolve(
        self,
        claim_tenant: str | None,
        body_tenant: str | None,
        catalog_name: str | None,
        namespace: str,
        table: str | None,
        *,
        trusted: bool = False,
        creating: bool = False,
    ) -> Address:
        """Return the table that a request means, or refuse it.

        `trusted`: the event came from an IAM principal (direct invoke, schedule, queue; with `auth: iam` a signed HTTP
        request too), so the tenant in its payload needs no claim; the door decides that, never the body. `creating`:
        the table or the namespace does not exist yet, so the strict names hold in every catalog.
        Errors: NotAllowed FORBIDDEN, one text for an unknown tenant and one that is not the caller's;
        InvalidRequest INVALID_IDENTIFIER or MISSING_FIELD; NotFound CATALOG_NOT_FOUND.
        """
        tenant = self._claimed(claim_tenant, body_tenant, trusted=trusted)
        name, catalog = self._settings.catalog(catalog_name)
        if tenant is None:
            tenant = self._only_tenant(catalog)
        strict = catalog.multi_tenant or creating
        names.check_tenant(tenant, strict=catalog.multi_tenant)
        names.check_namespace(namespace, strict=strict)
        if catalog.multi_tenant and names.SEPARATOR in namespace:
            raise InvalidRequest(
                "INVALID_IDENTIFIER", "namespace holds a dot; this catalog has no nested namespaces", field="namespace"
            )
        if table is not None:
            names.check_table(table, strict=strict)
        inside = catalog.namespace_template.format(tenant_id=tenant, namespace=namespace)
        ident = inside if table is None else names.join_ident(inside, table)
        return Address(tenant_id=tenant, catalog=name, ident=ident, table=table, told=namespace)

    def located(
        self,
        claim_tenant: str | None,
        body_tenant: str | None,
        catalog_name: str | None,
        metadata_location: str,
        *,
        trusted: bool = False,
    ) -> tuple[Address, ...]:
        """Return the tables, one of a catalog at most, whose metadata a file of this name may be.

        By its name alone: `<warehouse>/<namespace>/<table>/metadata/<name>.metadata.json`, where catalogs put tables by
        themselves. One in a folder of another tenant's is nobody's, as is every doubtful spelling. Without a tenant,
        which only a trusted caller may leave out, it is whose folder it is. Errors: as `resolve`.
        """
        tenant = self._claimed(claim_tenant, body_tenant, trusted=trusted)
        whose = self._settings.tenants if tenant is None else (tenant,)
        settings = self._settings
        catalogs = settings.catalogs.items() if catalog_name is None else [settings.catalog(catalog_name)]
        asked = _segments(metadata_location)
        found = [] if asked is None else [self._located(whose, name, catalog, asked) for name, catalog in catalogs]
        return tuple(address for address in found if address is not None)

    def _located(
        self, whose: Literal["*"] | tuple[str, ...], name: str, catalog: CatalogSettings, asked: tuple[str, ...]
    ) -> Address | None:
        warehouse = catalog.properties.get("warehouse", "")
        root = _segments(warehouse if urlsplit(warehouse).scheme else str(Path(warehouse).absolute()))
        inside = () if root is None or asked[: len(root)] != root else asked[len(root) :]
        if len(inside) < _LEAST_FOLDERS or inside[-2] != "metadata" or not inside[-1].endswith(_METADATA_FILES):
            return None
        scope = Scope(tenants=whose, catalog=name, multi_tenant=catalog.multi_tenant)
        namespace = names.SEPARATOR.join(inside[:-3]).removesuffix(".db")
        tenant = scope.tenant_of(namespace)
        if tenant is None:
            return None
        try:
            return self.resolve(None, tenant, name, scope.asked_as(namespace), inside[-3], trusted=True)
        except InvalidRequest:  # no table can be called so
            return None

    def tenant(self, claim_tenant: str | None, body_tenant: str | None, *, trusted: bool = False) -> str:
        """Return who asks for something that is no table's, or refuse it as `resolve` does."""
        return self.resolve(claim_tenant, body_tenant, None, DEFAULT_NAMESPACE, None, trusted=trusted).tenant_id

    def everybody(self, catalog_name: str | None) -> Scope:
        """Return the namespaces of all tenants, for a caller who may act for each; the door has to know that it may.

        Errors: NotFound CATALOG_NOT_FOUND.
        """
        name, catalog = self._settings.catalog(catalog_name)
        tenants = self._settings.tenants
        return Scope(tenants=tenants, catalog=name, multi_tenant=catalog.multi_tenant, sees_all=True)

    def scope(
        self,
        claim_tenant: str | None,
        body_tenant: str | None,
        catalog_name: str | None,
        namespace: str | None,
        *,
        trusted: bool = False,
    ) -> Scope:
        """Return the namespaces that a request over many tables means, or refuse it as `resolve` does."""
        asked = DEFAULT_NAMESPACE if namespace is None else namespace
        address = self.resolve(claim_tenant, body_tenant, catalog_name, asked, None, trusted=trusted)
        _, catalog = self._settings.catalog(address.catalog)
        return Scope(
            tenants=(address.tenant_id,),
            catalog=address.catalog,
            multi_tenant=catalog.multi_tenant,
            namespace=None if namespace is None else address.namespace,
        )

    def check_locations(self, address: Address, properties: Mapping[str, str]) -> None:
        """Refuse table properties that name a place which is not the address's own.

        In multi-tenant catalogs only; the others have no tenants to keep apart. Errors: InvalidRequest INVALID_LOCATION
        outside of the warehouse, NotAllowed FORBIDDEN anywhere else outside of the namespace's own folder.
        """
        _, catalog = self._settings.catalog(address.catalog)
        root = _segments(catalog.properties.get("warehouse", ""))
        for name in names.LOCATION_PROPERTIES:
            if name in properties and catalog.multi_tenant:
                asked = _segments(_without_dots(properties[name]))
                if asked is not None and root is not None and asked[: len(root)] != root:
                    message = f"property {name!r} must be inside the catalog's warehouse"
                    raise InvalidRequest("INVALID_LOCATION", message, field=name)
                self.check_location(address, properties[name], name)

    def check_location(self, address: Address, location: str, field: str = "location") -> None:
        """Refuse a location outside the address's own namespace folder; FORBIDDEN.

        Only in multi-tenant catalogs, where the warehouse is shared: there `<warehouse>/<namespace>` and Glue's
        `<warehouse>/<namespace>.db` belong to the tenant. A text that two programs could read as two places (dot
        segments, escapes, control characters) is refused as well; so is every text where no warehouse is configured.
        """
        _, catalog = self._settings.catalog(address.catalog)
        if not catalog.multi_tenant:
            return
        root, asked = _segments(catalog.properties.get("warehouse", "")), _segments(location)
        folders = (address.namespace, f"{address.namespace}.db")
        if root is None or asked is None or not any(asked[: len(root) + 1] == (*root, folder) for folder in folders):
            raise NotAllowed("FORBIDDEN", "the location is not inside this namespace's own folder", field=field)

    def _claimed(self, claim: str | None, body: str | None, *, trusted: bool) -> str | None:
        """Return the tenant that the caller proved, or may name freely; None when nobody named one."""
        if body is not None:
            names.check_tenant(body, strict=False)
        tenant = body
        if self._settings.auth != "none" and not trusted:
            if claim is None or body not in (None, claim):
                raise NotAllowed("FORBIDDEN", _REFUSAL)
            tenant = claim
        if tenant is not None and self._settings.tenants != "*" and tenant not in self._settings.tenants:
            raise NotAllowed("FORBIDDEN", _REFUSAL)
        return tenant

    def _only_tenant(self, catalog: CatalogSettings) -> str:
        """Return the tenant of a request that names none: the only configured one, or no matter which."""
        tenants = self._settings.tenants
        if tenants != "*" and len(tenants) == 1:
            return tenants[0]
        if tenants == "*" and not catalog.multi_tenant:
            return DEFAULT_TENANT
        raise InvalidRequest("MISSING_FIELD", "tenant_id is required", field="tenant_id")


def _tenant_in(inside: str) -> str | None:
    """Return the tenant of a multi-tenant catalog's namespace; None for one that no tenant can have made.

    `a___b` is `b` of the tenant `a_`: what follows the seam must be a name itself.
    """
    tenant, _, namespace = inside.partition(_SEAM)
    if namespace.startswith("_"):  # the tenant's name ended in it
        tenant, namespace = tenant + "_" * (len(namespace) - len(namespace.lstrip("_"))), namespace.lstrip("_")
    try:
        names.check_tenant(tenant, strict=True)
        names.check_namespace(namespace, strict=True)
    except InvalidRequest:
        return None
    return tenant


def _without_dots(location: str) -> str:
    """Return a location with its dot segments resolved, as a program that normalises paths reads it."""
    scheme, separator, path = location.rpartition("://")
    return f"{scheme}{separator}{posixpath.normpath(path)}" if path else location


def _segments(location: str) -> tuple[str, ...] | None:
    """Return scheme, authority and path parts of a location in one spelling; None where the spelling is doubtful."""
    if not location or any(c in location for c in "%\\?#") or not location.isprintable():
        return None
    scheme, colon, rest = location.partition(":")
    if not colon or "/" in scheme:
        scheme, rest = "", location
    if not rest.startswith("/"):
        return None
    authority, path = "", rest
    if rest.startswith("//"):
        authority, _, path = rest[2:].partition("/")
    parts = tuple(part for part in path.split("/") if part)
    return None if {".", ".."} & set(parts) else (store_of(scheme), authority, *parts)
