"""One request and its answer, as handlers see them: plain values, no framework."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING

from reconciler.contract.visible_text import visible_json

if TYPE_CHECKING:
    from reconciler.web.services import WebServices

HTML = "text/html; charset=utf-8"
JSON = "application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class WebRequest:
    """What came in. Every text of it is hostile."""

    #: Name in lower case -> value.
    headers: Mapping[str, str]
    #: In the log and in every problem document about this request.
    request_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WebResponse:
    """What goes out."""

    status: HTTPStatus = HTTPStatus.OK
    content_type: str = JSON
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


class WebRefusal(Exception):
    """A request that is not served, in the words of RFC 9457: what is wrong, and what to do."""

    def __init__(
        self,
        status: HTTPStatus,
        detail: str,
        *,
        kind: str = "about:blank",
        headers: Mapping[str, str] | None = None,
        **more: object,
    ) -> None:
        self.status = status
        self.detail = detail
        #: The problem's type, one word; about:blank: the status says it all.
        self.kind = kind
        self.headers = headers or {}
        self.more = more
        super().__init__(f"{status.value} {status.phrase}: {detail}")


#: A handler runs in a thread of its own, and may raise WebRefusal and every ReconcilerError.
Handler = Callable[["WebServices", WebRequest], WebResponse]


def json_response(
    document: object, *, status: HTTPStatus = HTTPStatus.OK, headers: Mapping[str, str] | None = None
) -> WebResponse:
    """A JSON document; what cannot be seen in it is escaped."""
    text = visible_json(json.dumps(document, ensure_ascii=False, default=str))
    return WebResponse(status=status, body=f"{text}\n".encode("utf-8", "backslashreplace"), headers=headers or {})
