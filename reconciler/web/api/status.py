"""GET /api/v1/status."""

from __future__ import annotations

from reconciler.web.exchange import WebRequest, WebResponse, json_response
from reconciler.web.services import WebServices


def show(services: WebServices, _request: WebRequest) -> WebResponse:
    """What `reconciler status --output json` says."""
    report = services.newest_status()
    return json_response(report.as_dict() | {"exit_code": report.exit_code})
