"""Posts a message to a webhook. Its address is a secret: it stands in no error and in no log."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from urllib.parse import urlsplit

from regelate.errors import InvalidRequest, Unavailable

TIMEOUT_SECONDS = 15.0
_TOO_MANY, _SERVER_FAULTS = 429, 500


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A webhook that moved is an error: the message would go to whom nobody named."""

    def redirect_request(self, *_: object) -> None:
        return None


def post(url: str, message: Mapping[str, object], *, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
    """Post a message as JSON.

    Errors: InvalidRequest INVALID_FIELD for an address that is none, Unavailable WEBHOOK_FAILED (later it may
    succeed) or WEBHOOK_REFUSED (it will not).
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidRequest("INVALID_FIELD", "webhook is not an http or https address", field="webhook")
    body = json.dumps(message, ensure_ascii=False).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json; charset=utf-8"}, method="POST")
    opener = urllib.request.build_opener(_NoRedirects)
    try:
        with opener.open(request, timeout=timeout_seconds):
            return
    except urllib.error.HTTPError as fault:
        fault.close()
        what = f"the webhook at {parts.hostname} answered {fault.code}"
        if fault.code == _TOO_MANY or fault.code >= _SERVER_FAULTS:
            raise Unavailable("WEBHOOK_FAILED", what, status=502) from None
        raise Unavailable("WEBHOOK_REFUSED", what, status=502, retryable=False) from None
    except (OSError, http.client.HTTPException) as fault:
        what = f"the webhook at {parts.hostname} cannot be reached: {type(fault).__name__}"
        raise Unavailable("WEBHOOK_FAILED", what, status=502) from None
