"""What a tenant, a namespace and a table may be called (rules: docs/api.md, "Addressing a table").

Lenient rules hold for whatever exists already, in any engine; strict ones for names that we create and for every name
of a multi-tenant catalog, where `{tenant_id}__{namespace}` must be injective: strict names hold no `__` and start with
a letter or digit, so the first `__` of a joined name is the seam.
"""

from __future__ import annotations

import re
import unicodedata

from regelate.core.table.table import MAIN_BRANCH
from regelate.errors import InvalidRequest

MAX_TENANT_BYTES = 64
MAX_NAMESPACE_BYTES = 64
MAX_TABLE_BYTES = 128
LOCATION_PROPERTIES = (
    "location",
    "write.data.path",
    "write.metadata.path",
    "write.object-storage.path",
    "write.folder-storage.path",
)
"""Table properties that say where files go; the last two are older names of `write.data.path`."""
SEPARATOR = "."
"""Between the parts of a nested namespace, and before the table in an ident."""
UNDO_TAG = "undo-"
"""What begins the names of the tags that an undo of an expiry makes."""
_STRICT_PART = re.compile(r"[a-z0-9][a-z0-9_-]*")
_STRICT_RULE = "lower-case letters, digits, `_` and `-`, starting with a letter or digit, without `__`"
_CONTROL_CATEGORIES = frozenset({"Cc", "Cs", "Zl", "Zp"})
"""Unicode categories: control characters, lone surrogates, line and paragraph separators."""
_SHOWN_CHARACTERS = 40


def check_tenant(text: str, *, strict: bool) -> str:
    """Return a tenant's name, or refuse it. Errors: InvalidRequest INVALID_IDENTIFIER."""
    _check_part("tenant_id", text, text, strict=strict)
    return _check_length("tenant_id", text, MAX_TENANT_BYTES)


def check_namespace(text: str, *, strict: bool) -> str:
    """Return a namespace, `a` or nested `a.b`, or refuse it. Errors: InvalidRequest INVALID_IDENTIFIER."""
    for part in text.split(SEPARATOR):
        _check_part("namespace", text, part, strict=strict)
    return _check_length("namespace", text, MAX_NAMESPACE_BYTES)


def check_table(text: str, *, strict: bool) -> str:
    """Return a table's name without its namespace, or refuse it. Errors: InvalidRequest INVALID_IDENTIFIER.

    A dot is refused: idents join namespace and table with one, so `a` + `b.c` would mean the table `c` of `a.b`.
    """
    if SEPARATOR in text:
        raise _invalid("table", text, "holds a dot")
    _check_part("table", text, text, strict=strict)
    return _check_length("table", text, MAX_TABLE_BYTES)


def check_tag(text: str) -> str:
    """Return the name of a tag that is made, or refuse it. Errors: InvalidRequest INVALID_IDENTIFIER.

    Engines take digits alone for a snapshot id.
    """
    if not text or any(unicodedata.category(c) in _CONTROL_CATEGORIES for c in text):
        raise _invalid("tag", text, "is empty or holds a control character")
    if text == MAIN_BRANCH or text.isdigit():
        raise _invalid("tag", text, "names the branch main, or a snapshot by its id; choose another name")
    if text.startswith(UNDO_TAG):
        raise _invalid("tag", text, f"starts with {UNDO_TAG}, as those do that an undo of EXPIRE_SNAPSHOTS makes")
    return _check_length("tag", text, MAX_TABLE_BYTES)


def join_ident(namespace: str, table: str) -> str:
    """Return the ident `namespace.table`."""
    return f"{namespace}{SEPARATOR}{table}"


def split_ident(ident: str) -> tuple[str, str]:
    """Return (namespace, table) of an ident. Errors: InvalidRequest INVALID_IDENTIFIER when it names no namespace."""
    namespace, _, table = ident.rpartition(SEPARATOR)
    if not namespace or not table:
        raise _invalid("table", ident, "does not name both namespace and table, as in `namespace.table`")
    return namespace, table


def _check_part(what: str, whole: str, part: str, *, strict: bool) -> None:
    if not part:
        raise _invalid(what, whole, "is empty or has an empty part")
    if any(unicodedata.category(c) in _CONTROL_CATEGORIES for c in part):
        raise _invalid(what, whole, "holds a control character")
    if "/" in part or "\\" in part or ".." in part or part == ".":
        raise _invalid(what, whole, "holds `/`, `\\` or `..`, or is `.`")
    if strict and (not _STRICT_PART.fullmatch(part) or "__" in part):
        raise _invalid(what, whole, f"must be {_STRICT_RULE}")


def _check_length(what: str, text: str, max_bytes: int) -> str:
    size = len(text.encode())
    if size > max_bytes:
        raise _invalid(what, text, f"has {size} bytes; at most {max_bytes} are allowed")
    return text


def _invalid(what: str, text: str, why: str) -> InvalidRequest:
    shown = text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."
    return InvalidRequest("INVALID_IDENTIFIER", f"{what} {shown!a} {why}", field=what)
