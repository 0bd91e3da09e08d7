"""From a command to the door that every request goes through: the same models, the same refusals, the same answers."""

from __future__ import annotations

import argparse
import logging
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Generic, TypeVar

from regelate.core.answers import Answer
from regelate.core.values import dataclass
from regelate.entrypoints.actions import OPERATIONS, Payload, Who, parse_request
from regelate.entrypoints.answering import answer, new_request_id
from regelate.entrypoints.api.requests import AnyRequest
from regelate.entrypoints.caller import Caller
from regelate.entrypoints.cli.failures import refused
from regelate.entrypoints.log import logger
from regelate.service.facade import Service
from regelate.tenancy import DEFAULT_NAMESPACE, Address

Progress = Callable[[int, int], None]
A = TypeVar("A", bound=Answer)
OVER_ALL_TENANTS = frozenset(row.name for row in OPERATIONS.values() if row.who is Who.TENANT_OR_TRUSTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Told(Generic[A]):
    """An answer as the value that commands judge, and as the JSON that --json prints and tables are drawn from."""

    answer: A
    made: Mapping[str, Any]


class Door:
    """Asks the service of this machine. Who starts the command line is trusted like a direct invoke's principal."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._tenant: str | None = args.tenant
        self._catalog: str | None = args.catalog
        self._given = {"REGELATE_CATALOG_URI": args.catalog_uri, "REGELATE_FLEET_POLICY": getattr(args, "file", None)}

    @cached_property
    def service(self) -> Service:
        """Return the service of config.json and the environment. Errors: SettingsError INVALID_CONFIG."""
        from regelate.service.build import build_service

        given = {name: value for name, value in self._given.items() if value is not None}
        return build_service({**os.environ, **given})

    def ask(
        self,
        operation: str,
        kind: type[A],
        target: tuple[str | None, str | None],
        fields: Mapping[str, object],
        *,
        rows: object | None = None,
        progress: Progress | None = None,
    ) -> Told[A]:
        """Return the answer, a `kind`, of an operation on `target`, (namespace, table). What is None is not sent.

        `rows` stand in for the records of a WRITE, `progress` hears of a COMPACT. A plan that does not fit is refused
        with advice: at a command line perhaps nobody works on jobs. Raises Failed.
        """
        namespace, table = target
        payload: dict[str, object] = {"operation": operation}
        payload |= {} if namespace is None else {"namespace": namespace}
        payload |= {} if table is None else {"table": table}
        payload |= {} if self._catalog is None else {"catalog": self._catalog}
        payload |= {name: value for name, value in fields.items() if value is not None}

        def parse(given: Payload, service: Service, caller: Caller) -> AnyRequest:
            if operation in OVER_ALL_TENANTS and self._tenant is None and namespace is None:
                return parse_request(given)  # of all tenants
            return parse_request({**given, "tenant_id": self.address(namespace or DEFAULT_NAMESPACE, table).tenant_id})

        caller = Caller(request_id=new_request_id(), trusted=True, rows=rows, progress=progress, may_delegate=False)
        answered = answer(lambda: self.service, lambda _: payload, parse, caller)
        if answered.told is None:
            raise refused(answered.made, answered.status, (*payload, "tenant_id"))
        if not isinstance(answered.told, kind):
            raise TypeError(f"{operation} answers a {kind.__name__}, not {type(answered.told).__name__}")
        return Told(answer=answered.told, made=answered.made)

    def address(self, namespace: str, table: str | None) -> Address:
        """Return the address of a table or a namespace. Errors: RegelateError."""
        tenancy = self.service.tenancy
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
