"""`regelate mcp`: tools for AI assistants on standard input and output."""

from __future__ import annotations

import argparse

from regelate.core.jobs.exit_codes import DONE
from regelate.entrypoints.cli.door import Door
from regelate.entrypoints.mcp.calls import Calls
from regelate.errors import Unavailable
from regelate.tenancy import DEFAULT_NAMESPACE


def mcp(args: argparse.Namespace) -> int:
    """Serve one client until it goes. Errors: Unavailable ENGINE_UNAVAILABLE without the extra `mcp`."""
    door = Door(args)
    service = door.service  # what is wrong with the configuration or the tenant ends it here, where a person reads it
    if args.tenant is not None:
        door.address(DEFAULT_NAMESPACE, None)
    try:
        from regelate.entrypoints.mcp.server import serve
    except ModuleNotFoundError as missing:
        if missing.name is None or not missing.name.startswith("mcp"):
            raise
        told = "the official SDK of the Model Context Protocol is not installed: pip install 'regelate[mcp]'"
        raise Unavailable("ENGINE_UNAVAILABLE", told, retryable=False) from None
    serve(Calls(lambda: service, tenant=args.tenant, catalog=args.catalog, allow_write=args.allow_write))
    return DONE
