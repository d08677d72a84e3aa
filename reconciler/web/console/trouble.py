"""The page of a request that is not served: what is wrong, and what to do."""

from __future__ import annotations

from dataclasses import replace

from reconciler.web.console.catalogue import catalogue_of
from reconciler.web.console.rendering import page
from reconciler.web.console.view import view_of
from reconciler.web.exchange import WebRefusal, WebRequest, WebResponse
from reconciler.web.services import WebServices


def trouble_page(services: WebServices, request: WebRequest, refusal: WebRefusal) -> WebResponse:
    """With the status and headers of the refusal."""
    known = catalogue_of(view_of(request).language).texts
    kind = refusal.kind if f"trouble.title.{refusal.kind}" in known else refusal.status.value
    answer = page(services, request, "trouble.html", refusal=refusal, kind=kind)
    return replace(answer, status=refusal.status, headers=refusal.headers)
