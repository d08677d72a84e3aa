"""The page: one sentence, the same as `reconciler status`, and the lines below it."""

from __future__ import annotations

from reconciler.web.console.rendering import page
from reconciler.web.exchange import WebRequest, WebResponse
from reconciler.web.services import WebServices


def show(services: WebServices, request: WebRequest) -> WebResponse:
    """Whether money is missing, since when, and why."""
    report = services.newest_status()
    remarks = (
        ("Away", report.away),
        ("Late", report.late_lines),
        ("Undecided", report.undecided),
        ("Two effects", report.doubled),
        ("Damaged", report.damaged),
        ("Not proved to be primaries", report.unproved),
        ("Rejected", report.rejected),
    )
    return page(services, request, "overview.html", report=report, remarks=remarks)
