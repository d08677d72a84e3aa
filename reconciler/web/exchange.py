"""One request and its answer for handlers: plain values, without a framework."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import parse_qs

from reconciler.contract.visible_text import visible_json
from reconciler.web.excerpts import excerpts
from reconciler.web.roles import ANYBODY, Visitor

HTML = "text/html; charset=utf-8"
JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
#: Maximum number of fields of one form or query. A bulk selection has one field per key.
FIELDS_MAX = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class WebRequest:
    """A request. Every text in it may be hostile."""

    #: GET or POST.
    method: str
    #: Path below the prefix, as requested.
    path: str
    #: Name in lower case -> value.
    headers: Mapping[str, str]
    #: Id of the request, for the log and for every problem document about the request.
    request_id: str
    #: Address of the client: a browser, or the proxy in front of it.
    peer: str = ""
    #: Values in the places of the route's path, for example `unique_key`.
    parts: Mapping[str, str] = field(default_factory=dict)
    #: Name -> its values, in order.
    query: Mapping[str, Sequence[str]] = field(default_factory=dict)
    cookies: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    visitor: Visitor = ANYBODY

    def asked(self, name: str, default: str = "") -> str:
        """Returns the value of a name in the query. Of several values, the last one counts."""
        return last_of(self.query, name, default)

    def form(self) -> Mapping[str, Sequence[str]]:
        """Returns name -> values of a form. Raises WebRefusal if the body is no form."""
        self._require_type(FORM)
        try:
            text = self.body.decode("ascii")
            return parse_qs(text, keep_blank_values=True, strict_parsing=bool(text), max_num_fields=FIELDS_MAX)
        except ValueError as error:
            raise WebRefusal(HTTPStatus.BAD_REQUEST, "the body is no form, or one with too many fields") from error

    def document(self) -> dict[str, object]:
        """Returns the JSON object in the body. Raises WebRefusal if the body is no JSON object."""
        self._require_type(JSON)
        try:
            found = json.loads(self.body)
        except (ValueError, RecursionError) as error:
            raise WebRefusal(HTTPStatus.BAD_REQUEST, "the body is no JSON") from error
        if not isinstance(found, dict):
            raise WebRefusal(HTTPStatus.BAD_REQUEST, "the body must be a JSON object")
        return found

    def _require_type(self, wanted: str) -> None:
        if self.headers.get("content-type", "").partition(";")[0].strip().lower() != wanted:
            raise WebRefusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"the body must be {wanted}")


@dataclass(frozen=True, slots=True, kw_only=True)
class WebResponse:
    """An answer."""

    status: HTTPStatus = HTTPStatus.OK
    content_type: str = JSON
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    #: Values of Set-Cookie.
    cookies: Sequence[str] = ()


#: Python 3.13 has the names of RFC 9110 for these statuses. With this table, a title is the same under every Python.
_TITLES = {413: "Request Entity Too Large", 414: "URI Too Long", 422: "Unprocessable Entity"}


def title_of(status: HTTPStatus) -> str:
    """Returns the words of a status, for problem documents and the page of the API."""
    return _TITLES.get(status.value, status.phrase)


class WebRefusal(Exception):
    """The refusal of a request, in the terms of RFC 9457: what is wrong, and what to do."""

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
        #: The problem's type, as one word. about:blank: the status says everything.
        self.kind = kind
        self.headers = headers or {}
        self.more = more
        super().__init__(f"{status.value} {title_of(status)}: {detail}")


def last_of(fields: Mapping[str, Sequence[str]], name: str, default: str = "") -> str:
    """Returns the value of a field of a query or a form. Of several values, the last one counts."""
    return (fields.get(name) or (default,))[-1]


def see_other(location: str, *, cookies: Sequence[str] = ()) -> WebResponse:
    """Makes an answer with status 303, which leads to another page. `location` contains the prefix."""
    headers = {"Location": location}
    return WebResponse(status=HTTPStatus.SEE_OTHER, content_type="text/plain", headers=headers, cookies=cookies)


def json_response(
    document: object,
    *,
    status: HTTPStatus = HTTPStatus.OK,
    headers: Mapping[str, str] | None = None,
    is_whole: bool = False,
) -> WebResponse:
    """Makes a JSON document in which invisible characters are escaped. `is_whole`: the caller has limited the texts
    already, so none is cut."""
    bounded = document if is_whole else excerpts(document)
    text = visible_json(json.dumps(bounded, ensure_ascii=False, default=str))
    return WebResponse(status=status, body=f"{text}\n".encode("utf-8", "backslashreplace"), headers=headers or {})
