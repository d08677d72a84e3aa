"""Makes the answers of /metrics, /livez and /readyz. serving.py or a console sends them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus

from reconciler.instrumentation.listening import is_own_name
from reconciler.instrumentation.metrics.book import MetricBook
from reconciler.instrumentation.metrics.readiness import readiness_answer

#: Dependency -> its error. Error None: the dependency answered. Mapping None: errors were not found out in time.
Readiness = Callable[[], Mapping[str, str | None] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PageAnswer:
    """One answer over HTTP."""

    status: HTTPStatus
    content_type: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


class MetricPages:
    """The three pages of one process."""

    def __init__(self, book: MetricBook, *, readiness: Readiness) -> None:
        self._book = book
        self._readiness = readiness

    def answer(self, path: str, *, accept: str = "", host: str = "") -> PageAnswer:
        """Makes the page of a path. Any other path gets 404.

        `host`: the name under which the page is requested. If it is not a name of this machine, a page of another site
        may be asking (DNS rebinding). Then the answer names the unreachable dependencies without their errors.
        """
        if path == "/metrics":
            body, content_type = self._book.page(accept)
            return PageAnswer(status=HTTPStatus.OK, content_type=content_type, body=body)
        if path == "/livez":
            return _json(HTTPStatus.OK, {"status": "alive"})
        if path == "/readyz":
            return self._ready(is_told=not host or is_own_name(host))
        return _json(HTTPStatus.NOT_FOUND, {"status": "not found", "pages": ["/metrics", "/livez", "/readyz"]})

    def _ready(self, *, is_told: bool) -> PageAnswer:
        return _json(*readiness_answer(self._readiness(), is_told=is_told))


def _json(status: HTTPStatus, document: object, headers: Mapping[str, str] | None = None) -> PageAnswer:
    body = json.dumps(document, ensure_ascii=True).encode() + b"\n"
    return PageAnswer(status=status, content_type="application/json", body=body, headers=headers or {})
