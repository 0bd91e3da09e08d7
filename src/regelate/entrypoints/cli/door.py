"""From a command to the door that every request goes through: the same models, the same refusals, the same answers."""

from __future__ import annotations

import argparse
import logging
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from regelate.core.requests import CompactRequest
from regelate.entrypoints.actions import Caller, Payload, answer, new_request_id
from regelate.entrypoints.cli.failures import refused
from regelate.entrypoints.log import logger
from regelate.entrypoints.requests import AnyRequest, parse_request
from regelate.entrypoints.service import Provider, Service
from regelate.tenancy import DEFAULT_NAMESPACE, Address

if TYPE_CHECKING:
    from regelate.wiring import Application

Progress = Callable[[int, int], None]
Answer = dict[str, Any]


class _Local:
    """The service, with what no JSON holds: rows that are not JSON, and somebody to tell how far a rewrite is."""

    def __init__(self, service: Service, rows: object | None, progress: Progress | None) -> None:
        self._service: Any = service
        self._rows = rows
        self._progress = progress

    def __getattr__(self, name: str) -> Any:
        return getattr(self._service, name)

    def write(self, address: Address, records: Sequence[Mapping[str, Any]], **rest: Any) -> Mapping[str, object]:
        done: Mapping[str, object] = self._service.write(address, records if self._rows is None else self._rows, **rest)
        return done

    def compact(self, address: Address, request: CompactRequest, **rest: Any) -> Mapping[str, object]:
        """A plan that does not fit is refused with advice: at a command line perhaps nobody works on jobs."""
        known = {} if self._progress is None else {"progress": self._progress}
        done: Mapping[str, object] = self._service.compact(address, request, **rest, **known, may_delegate=False)
        return done


class Door:
    """Asks the service of this machine. Who starts the command line is trusted like a direct invoke's principal."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._tenant: str | None = args.tenant
        self._catalog: str | None = args.catalog
        self._catalog_uri: str | None = args.catalog_uri

    @cached_property
    def application(self) -> Application:
        """Return the application of config.json and the environment. Errors: SettingsError INVALID_CONFIG."""
        from regelate.wiring import build_application

        given = {} if self._catalog_uri is None else {"REGELATE_CATALOG_URI": self._catalog_uri}
        return build_application({**os.environ, **given})

    @property
    def provider(self) -> Provider:
        return lambda: cast(Service, self.application)

    def ask(
        self,
        operation: str,
        target: tuple[str | None, str | None],
        fields: Mapping[str, object],
        *,
        rows: object | None = None,
        progress: Progress | None = None,
    ) -> Answer:
        """Return the answer of an operation on `target`, (namespace, table). What is None is not sent.

        `rows` stand in for the records of a WRITE, `progress` hears of a COMPACT. Raises Failed.
        """
        namespace, table = target
        payload: dict[str, object] = {"operation": operation}
        payload |= {} if namespace is None else {"namespace": namespace}
        payload |= {} if table is None else {"table": table}
        payload |= {} if self._catalog is None else {"catalog": self._catalog}
        payload |= {name: value for name, value in fields.items() if value is not None}

        def parse(given: Payload, service: Service, caller: Caller) -> AnyRequest:
            if operation == "SWEEP" and self._tenant is None and namespace is None:
                return parse_request(given)  # of all tenants
            return parse_request({**given, "tenant_id": self.address(namespace or DEFAULT_NAMESPACE, table).tenant_id})

        caller = Caller(request_id=new_request_id(), trusted=True)
        provider = lambda: cast(Service, _Local(self.provider(), rows, progress))  # noqa: E731
        answered = answer(provider, lambda _: payload, parse, caller)
        if not answered.made["success"]:
            raise refused(answered.made, answered.status, (*payload, "tenant_id"))
        return answered.made

    def address(self, namespace: str, table: str | None) -> Address:
        """Return the address of a table or a namespace. Errors: RegelateError."""
        tenancy = self.application.tenancy
        return tenancy.resolve(None, self._tenant, self._catalog, namespace, table, trusted=True)


@contextmanager
def voice(*, verbose: bool) -> Iterator[None]:
    """Keep log lines and warnings of libraries away from the terminal, unless they are asked for."""
    if verbose:
        yield
        return
    level, root, silent = logger.log_level, logging.getLogger(), logging.NullHandler()
    logger.setLevel("CRITICAL")
    root.addHandler(silent)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
        root.removeHandler(silent)
