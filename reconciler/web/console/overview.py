"""The first page: one sentence, the same as `reconciler status`."""

from __future__ import annotations

from reconciler.web.console.rendering import page
from reconciler.web.exchange import WebRequest, WebResponse
from reconciler.web.services import WebServices


def show(services: WebServices, request: WebRequest) -> WebResponse:
    """Whether money is missing, since when, and why."""
    return page(services, request, "overview.html", report=services.newest_status())
