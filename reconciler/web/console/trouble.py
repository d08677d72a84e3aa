"""The page of a refused request. It shows what is wrong and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from reconciler.web.console.catalogue import catalogue_of
from reconciler.web.console.rendering import page
from reconciler.web.console.view import view_of
from reconciler.web.exchange import WebRefusal, WebRequest, WebResponse
from reconciler.web.services import WebServices

#: Maximum number of messages to which a refusal links.
MESSAGES_MAX = 20


def trouble_page(services: WebServices, request: WebRequest, refusal: WebRefusal) -> WebResponse:
    """Makes the page. The answer has the status and headers of the refusal."""
    known = catalogue_of(view_of(request).language).texts
    kind = refusal.kind if f"trouble.title.{refusal.kind}" in known else refusal.status.value
    messages = list(dict.fromkeys(_keys_of(refusal)))[:MESSAGES_MAX]
    answer = page(services, request, "trouble.html", refusal=refusal, kind=kind, messages=messages)
    return replace(answer, status=refusal.status, headers=refusal.headers)


def _keys_of(refusal: WebRefusal) -> Iterator[str]:
    """Yields the messages whose state has changed since the visitor saw them."""
    now = refusal.more.get("now")
    lines = now.get("keys") if isinstance(now, Mapping) else None
    for line in lines if isinstance(lines, list) else ():
        key = line.get("unique_key") if isinstance(line, Mapping) else None
        if isinstance(key, str):
            yield key
