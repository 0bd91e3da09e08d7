"""What a client of a REST catalog raises for each HTTP status: by PyIceberg's own table, not by a copy of it."""

from __future__ import annotations

import random

import requests
from pyiceberg.catalog.rest import response as native
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, NoSuchTableError

LIKELY = (400, 401, 403, 404, 408, 409, 412, 419, 422, 429, 500, 501, 502, 503, 504)
"""Half of the answers; the others are any from 400 to 599."""
MAY_ARRIVE_LATER = range(500, 600)
COMMIT = {
    409: CommitFailedException,
    500: CommitStateUnknownException,
    502: CommitStateUnknownException,
    504: CommitStateUnknownException,
}
LOAD = {404: NoSuchTableError}


def drawn(rng: random.Random) -> int:
    return rng.choice(LIKELY) if rng.random() < 0.5 else rng.randrange(400, 600)


def to_commit(status: int, rng: random.Random) -> Exception:
    """Return what `commit_table` raises: with Iceberg's error as the body, or with a page of a proxy.

    404 is a plain RESTError of PyIceberg's REST client, and a missing table in other catalogs.
    """
    missing = {404: NoSuchTableError} if rng.random() < 0.5 else {}
    return _raised(status, {**COMMIT, **missing}, rng)


def to_load(status: int, rng: random.Random) -> Exception:
    return _raised(status, LOAD, rng)


def _raised(status: int, known: dict[int, type[Exception]], rng: random.Random) -> Exception:
    answer = requests.Response()
    answer.status_code = status
    if rng.random() < 0.3:
        answer._content = b"<html>" + str(status).encode() + b"</html>"
    else:
        body = '{"error": {"message": "simulated", "type": "Simulated", "code": %d}}'
        answer._content = (body % status).encode()
    try:
        native._handle_non_200_response(requests.HTTPError(response=answer), known)
    except Exception as error:  # noqa: BLE001  whatever it is, that is what a caller gets
        return error
    raise AssertionError(f"{status} raised nothing")
