"""Who asks, whichever door they came through."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, replace

from regelate.core.values import dataclass
from regelate.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks, by the envelope. `trusted`: an IAM principal invoked us directly, so its payload names the tenant.
    `claims`: what the authorizer says of a token; `claim_tenant`: what of it names the tenant, once settings are known.
    `seconds_left`: until Lambda ends this process, as far as it is known when the event arrives.
    `signed`: the gateway has checked an IAM principal's signature; with `auth: iam` that is trusted as well.

    A caller on this machine may hand over what no JSON holds: `rows` in place of a WRITE's records, and `progress`,
    which hears how far a COMPACT is. `may_delegate`: it can wait for a job. `scheduled`: nobody asks, a rule does.
    """

    request_id: str
    claims: Mapping[str, object] = field(default_factory=dict)
    claim_tenant: str | None = None
    seconds_left: float | None = None
    trusted: bool = False
    signed: bool = False
    rows: object | None = None
    progress: Callable[[int, int], None] | None = None
    may_delegate: bool = True
    scheduled: bool = False

    def known_to(self, settings: Settings) -> Caller:
        """Return this caller with the tenant that the authorizer proved: the configured claim's, no other's."""
        claim = self.claims.get(settings.tenancy.claim)
        return replace(self, claim_tenant=claim if isinstance(claim, str) and claim else None)

    def is_trusted(self, settings: Settings) -> bool:
        return self.trusted or (self.signed and settings.auth == "iam")
