"""Which names this server answers to.

A page of any site may let its own name lead to 127.0.0.1 and then asks us as if we were that site (DNS rebinding): no
rule of the browser is broken. The name still stands in `Host`, and it is none of ours.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable

from regelate.errors import InvalidRequest, NotAllowed

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::[0-9]{0,5})?", re.ASCII)


def is_loopback(address: str) -> bool:
    """Say whether only this machine reaches an address that a socket is bound to."""
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def host_names(bound: str, allowed: Iterable[str]) -> frozenset[str]:
    """Return the names that are answered: this machine's own, the one that was bound to, and those that are allowed."""
    own = f"[{bound}]" if ":" in bound else bound
    return frozenset(name.lower().rstrip(".") for name in (*LOOPBACK, own, *allowed) if name)


def check_host(given: str | None, names: frozenset[str]) -> None:
    """Errors: NotAllowed HOST_NOT_ALLOWED (421); InvalidRequest without a Host that can be read. The port is free."""
    found = _HOST.fullmatch((given or "").lower())
    if found is None:
        raise InvalidRequest("INVALID_REQUEST", "send one Host header that names this server")
    if found[1].rstrip(".") not in names:
        message = f"this server answers to {', '.join(sorted(names))} only; name others in serve.hosts of config.json"
        raise NotAllowed("HOST_NOT_ALLOWED", f"{message}, or start it with --allow-host", status=421)
