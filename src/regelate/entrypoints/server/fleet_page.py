"""The page of a fleet as a server shows it: made anew for every request, of what FLEET_STATUS and its like answer."""

from __future__ import annotations

import time
from urllib.parse import parse_qs

from regelate.core.fleet.operation import BACKLOG_DAYS
from regelate.entrypoints.server.reply import Reply
from regelate.service.facade import Service

FLEET_PATH = "/fleet"


def fleet_reply(service: Service, query: str) -> Reply:
    """Return the page of one catalog, the default one without `catalog` in the query; with `tenant_id`, of that
    tenant's tables alone. Nothing is stored by it. Errors: those of the tenancy and of FLEET_STATUS."""
    from regelate.report.fleet.answers import MOST_RUNS, MOST_TABLES, contents_of
    from regelate.report.fleet.page import content_policy, fleet_page

    given = {name: values[-1] for name, values in parse_qs(query).items()}
    tenancy, catalog, tenant = service.tenancy, given.get("catalog"), given.get("tenant_id")
    scope = tenancy.everybody(catalog) if tenant is None else tenancy.scope(None, tenant, catalog, None)
    with tenancy.admitted(None, tenant):
        desk = service.fleet_desk()
        status = desk.status(scope, limit=MOST_TABLES)
        plan = desk.plan(scope, asked_by="the page", keep=False)
        history = desk.history(scope, limit=MOST_RUNS, backlog_days=BACKLOG_DAYS)
    now_ms = int(time.time() * 1000)
    page = fleet_page(contents_of(status, plan, history, catalog=scope.catalog, now_ms=now_ms))
    headers = {
        "Content-Type": "text/html; charset=utf-8",
        "Content-Security-Policy": f"{content_policy()}; frame-ancestors 'none'",
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-store",
    }
    return Reply(status=200, headers=headers, data=page.encode())
