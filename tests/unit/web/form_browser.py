"""A person at the console without a browser: sends what forms of its pages hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import urlencode

from reconciler.web.application import answer_of
from reconciler.web.exchange import FORM, WebRequest, WebResponse
from reconciler.web.routes import ROUTES
from tests.unit.web.web_world import HOST, WebWorld

KEYS = [f"{number:032X}" for number in range(120)]
HOSTILE = "<script>alert(1)</script>\u202e"
Form = Mapping[str, str | Sequence[str]]


class Browser:
    """One person's: it has a session, and sends what forms of its pages hold."""

    def __init__(self, world: WebWorld, name: str) -> None:
        self.world = world
        self.cookie = world.cookie_of(name)
        self.token = world.csrf_token(self.cookie)
        self.language = "en"

    def post(self, path: str, form: Form, *, key: str = "k1", **parts: str) -> WebResponse:
        """`path` as in the table of routes."""
        sent = {"act_key": key, "csrf_token": self.token, **form}
        body = urlencode({name: value for name, value in sent.items() if value}, doseq=True).encode()
        return self._ask("POST", path, {"content-type": FORM, "sec-fetch-site": "same-origin"}, body, parts)

    def get(self, path: str, *, query: Mapping[str, Sequence[str]] | None = None, **parts: str) -> WebResponse:
        return self._ask("GET", path, {}, b"", parts, query)

    def _ask(
        self,
        method: str,
        path: str,
        headers: dict[str, str],
        body: bytes,
        parts: dict[str, str],
        query: Mapping[str, Sequence[str]] | None = None,
    ) -> WebResponse:
        (route,) = [route for route in ROUTES if (route.path, route.method) == (path, method)]
        request = WebRequest(
            method=method,
            path=path.replace(":path}", "}").format(**parts),
            headers={"host": HOST, "accept-language": self.language} | headers,
            request_id="r1",
            peer="127.0.0.1",
            parts=parts,
            query=query or {},
            cookies={self.world.services.access.visitors.cookie.name: self.cookie},
            body=body,
        )
        return answer_of(self.world.services, route, request)
