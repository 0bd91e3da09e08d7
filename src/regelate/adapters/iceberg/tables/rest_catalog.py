"""PyIceberg's REST catalog, with an end to waiting."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from pyiceberg.catalog.rest import SIGV4_MAX_RETRIES, RestCatalog, TableResponse
from pyiceberg.catalog.rest.auth import OAuth2AuthManager, OAuth2TokenProvider
from pyiceberg.table import StagedTable, Table
from pyiceberg.typedef import Identifier

from regelate.core.policy.timeouts import Timeouts

SIGNED_RETRIES = "1"
"""PyIceberg sends a signed request that only reads eleven times; with timeouts that is eleven of them."""


class PatientRestCatalog(RestCatalog):
    """A connection that does not come about, or falls silent, ends in an error of `requests` (trap T46: a server that
    never answers).

    That goes for every request of every session: configuration, tables and commits, tokens, signed ones too.
    """

    def __init__(self, name: str, **properties: Any) -> None:
        self._timeouts = Timeouts.of(properties)
        super().__init__(name, **{SIGV4_MAX_RETRIES: SIGNED_RETRIES, **properties})

    def _config_headers(self, session: Any) -> None:
        """Called for a new session before anything is sent by it: a legacy token is fetched right after."""
        limit(session, self._timeouts)
        super()._config_headers(session)

    def _create_session(self) -> Any:
        session: Any = super()._create_session()
        manager = self._auth_manager
        if isinstance(manager, OAuth2AuthManager):
            manager.token_provider = _TokenProvider.like(manager.token_provider, limit(type(session)(), self._timeouts))
        return session

    def _response_to_table(self, identifier_tuple: Identifier, table_response: TableResponse) -> Table:
        """Open a table's storage by the server's configuration (trap T52: properties that open storage)."""
        table = super()._response_to_table(identifier_tuple, _without_properties(table_response))
        table.metadata = table_response.metadata
        return table

    def _response_to_staged_table(self, identifier_tuple: Identifier, table_response: TableResponse) -> StagedTable:
        table = super()._response_to_staged_table(identifier_tuple, _without_properties(table_response))
        table.metadata = table_response.metadata
        return table


def _without_properties(response: TableResponse) -> TableResponse:
    return response.model_copy(update={"metadata": response.metadata.model_copy(update={"properties": {}})})


def limit(session: Any, timeouts: Timeouts) -> Any:
    """Let requests of this session of `requests` that name no timeout have these; return it."""
    seconds = (timeouts.connect_seconds, timeouts.read_seconds)
    session.request = partial(session.request, timeout=seconds)
    return session


class _TokenProvider(OAuth2TokenProvider):
    """PyIceberg's own asks for a token without a timeout, and without a session that could have one."""

    session: Any

    @classmethod
    def like(cls, other: OAuth2TokenProvider, session: Any) -> _TokenProvider:
        made = cls(
            other.client_id,
            other.client_secret,
            other.token_url,
            other.scope,
            other.refresh_margin,
            other.expires_in,
        )
        made.session = session
        return made

    def _refresh_token(self) -> None:
        asked = {"grant_type": "client_credentials", **({"scope": self.scope} if self.scope else {})}
        headers = {"Authorization": self._client_secret_header}
        response = self.session.post(self.token_url, data=asked, headers=headers)
        response.raise_for_status()
        answer = response.json()
        lives_seconds = answer.get("expires_in", self.expires_in)
        if lives_seconds is None:
            raise ValueError("neither the token's answer nor auth.oauth2.expires_in says how long a token lives")
        self._token = answer["access_token"]
        self._expires_at = int(time.monotonic() + lives_seconds - self.refresh_margin)
