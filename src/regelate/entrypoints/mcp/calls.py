"""From the call of a tool to the door that every request goes through, and back as what an assistant can read."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Mapping
from typing import Any

from regelate.core.answers import FleetApplyAnswer
from regelate.core.values import dataclass
from regelate.entrypoints.actions import OPERATIONS, Payload, Who, parse_request
from regelate.entrypoints.answering import Answered, answer, new_request_id, refusal
from regelate.entrypoints.api.requests import AnyRequest
from regelate.entrypoints.caller import Caller
from regelate.entrypoints.mcp.tools import TOOLS, McpTool
from regelate.errors import InvalidRequest
from regelate.service.facade import Provider, Service
from regelate.settings import Settings
from regelate.tenancy import DEFAULT_NAMESPACE

MOST_ANSWER_BYTES = 256 * 1024
"""More than an assistant can keep in mind."""
MOST_EXPLAINED = 100
_SHOWN_CHARACTERS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """What a call came to: the API's answer, or its error, as an object and as text."""

    made: Mapping[str, Any]
    text: str
    failed: bool


class Calls:
    """The tools of one process. Who starts it is trusted like a direct invoke's principal, as at the command line."""

    def __init__(self, provider: Provider, *, tenant: str | None, catalog: str | None, allow_write: bool) -> None:
        self._provider = provider
        self._tenant = tenant
        self._catalog = catalog
        self._stopping = threading.Event()
        self.tools = tuple(tool for tool in TOOLS if allow_write or not tool.writes)

    def call(self, name: str, arguments: Mapping[str, object]) -> Called:
        """Call a tool by its name. What can go wrong is in the answer."""
        caller = Caller(request_id=new_request_id(), trusted=True, may_delegate=False)
        tool = next((tool for tool in self.tools if tool.name == name), None)
        if tool is None:
            return _failed(refusal(self._unknown(name), caller).made)

        answered = self._answered(tool, arguments, caller)
        while isinstance(answered.told, FleetApplyAnswer) and self._worked():
            before, answered = answered.told, self._answered(tool, arguments, caller)
            if answered.told == before:
                break
        if answered.told is None:
            return _failed(answered.made)
        made = _brief(answered.made)
        text = json.dumps(made, ensure_ascii=False, separators=(",", ":"))
        if len(text.encode()) > MOST_ANSWER_BYTES:
            message = f"the answer has more than {MOST_ANSWER_BYTES} bytes; ask for less, by namespace or a limit"
            return _failed(refusal(InvalidRequest("RESULT_TOO_LARGE", message, status=413), caller).made)
        return Called(made=made, text=text, failed=False)

    def _answered(self, tool: McpTool, arguments: Mapping[str, object], caller: Caller) -> Answered:
        def load(_: Settings) -> Payload:
            given = {} if self._catalog is None or "catalog" not in tool.takes else {"catalog": self._catalog}
            return tool.payload({**given, **arguments})

        return answer(self._provider, load, self._parse, caller)

    def _worked(self) -> bool:
        """Do the jobs that are due, where they are kept on this machine; false where there was none."""
        worker, worked = self._provider().worker, False
        while worker.job_threads and worker.run_due_job(stopping=self._stopping):
            worked = True
        return worked

    def _unknown(self, name: str) -> InvalidRequest:
        known = [tool.name for tool in self.tools]
        if name in {tool.name for tool in TOOLS}:
            todo = "start `regelate mcp` with --allow-write for it"
        else:
            todo = f"known are {', '.join(known)}"
        shown = ascii(name[:_SHOWN_CHARACTERS])
        return InvalidRequest("UNKNOWN_OPERATION", f"there is no tool {shown} here; {todo}", known_operations=known)

    def _parse(self, given: Payload, service: Service, caller: Caller) -> AnyRequest:
        """Name the tenant: the only one there is, or that of the command line. A scan of all of them names none."""
        catalog, namespace, table = (_text(given, name) for name in ("catalog", "namespace", "table"))
        over_all = OPERATIONS[str(given["operation"])].who is Who.TENANT_OR_TRUSTED
        if over_all and self._tenant is None and namespace is None and table is None:
            return parse_request(given)
        place = namespace or DEFAULT_NAMESPACE
        if self._tenant is None and len(service.settings.tenants) > 1:
            told = "there are several tenants: start `regelate mcp` with --tenant NAME for this tool"
            raise InvalidRequest("MISSING_FIELD", told, field="tenant_id")
        address = service.tenancy.resolve(None, self._tenant, catalog, place, table, trusted=True)
        return parse_request({**given, "tenant_id": address.tenant_id})


def _text(given: Payload, name: str) -> str | None:
    value = given.get(name)
    if value is not None and not isinstance(value, str):
        raise InvalidRequest("INVALID_FIELD", f"{name}: must be a string", field=name)
    return value


def _failed(made: Mapping[str, Any]) -> Called:
    return Called(made=made, text=f"{made['error']['code']}: {made['error']['message']}", failed=True)


def _brief(made: Mapping[str, Any]) -> Mapping[str, Any]:
    """Keep of a reason for each data file those that would be rewritten first, and how many have which."""
    explained = made.get("explained")
    if explained is None:
        return made
    first = sorted(explained, key=lambda file: not file["selected"])[:MOST_EXPLAINED]
    return {**made, "explained": first, "reasons": dict(Counter(file["reason"] for file in explained))}
