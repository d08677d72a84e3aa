"""The page of every dependency and setting. It shows the findings of `reconciler doctor`, and reads them repeatedly
while it is open."""

from __future__ import annotations

from reconciler.web.console.rendering import page
from reconciler.web.exchange import WebRequest, WebResponse
from reconciler.web.services import WebServices

_WORST_FIRST = ("fail", "note", "ok")


def show(services: WebServices, request: WebRequest) -> WebResponse:
    """Shows the findings, with failures at the top. `part=findings`: only the part that changes."""
    # Nothing here needs the ledger, because the ledger's absence is one of the findings.
    found = services.health.get()
    findings = None if found is None else sorted(found, key=lambda one: _WORST_FIRST.index(one.level))
    is_part = request.asked("part") == "findings"
    return page(services, request, "findings.html" if is_part else "health.html", findings=findings)
