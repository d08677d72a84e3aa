"""The whole way of a request, without a server: users, a clock that is moved, and requests of a browser."""

from __future__ import annotations

from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from reconciler.clock import ManualClock
from reconciler.settings.file import load_settings
from reconciler.web.access.passwords import hashed_password
from reconciler.web.access.tokens import digest_of, new_token
from reconciler.web.access.users import WebToken, WebUser
from reconciler.web.access.users_file import change_users
from reconciler.web.application import answer_of
from reconciler.web.exchange import FORM, WebRequest, WebResponse
from reconciler.web.roles import Visitor, WebRole
from reconciler.web.route import Surface, WebRoute
from reconciler.web.routes import ROUTES
from reconciler.web.services import WebServices, build_services
from reconciler.wiring.connections import Connections

ROOT = Path(__file__).parents[3]
PASSWORD = "correct horse battery"
HOST = "127.0.0.1:8378"

#: Served by nothing else than the way to it.
READ = WebRoute(
    path="/read", name="read", handler=lambda _s, _r: WebResponse(), surface=Surface.API, role=WebRole.VIEWER
)
ACT = replace(READ, path="/act", name="act", role=WebRole.OPERATOR, method="POST")


class WebWorld:
    """One deployment. `variables`: names of settings in [web] -> values."""

    def __init__(self, folder: Path, *, listen: str = "127.0.0.1:8378", **variables: str) -> None:
        self.clock = ManualClock()
        self.users_file = folder / "users.json"
        environment = {f"RECONCILER_WEB__{name.upper()}": value for name, value in variables.items()}
        environment["RECONCILER_LEDGER__URL"] = f"sqlite:///{folder}/none.db"
        self.settings = load_settings(ROOT / "config" / "reconciler.toml", environment)
        self.connections = Connections(self.settings, clock=self.clock)
        self.services: WebServices = build_services(self.settings, self.connections, clock=self.clock, listen=listen)

    def ask(
        self,
        route: WebRoute,
        *,
        headers: dict[str, str] | None = None,
        cookie: str = "",
        device: str = "",
        form: dict[str, str] | None = None,
        query: dict[str, str] | None = None,
        peer: str = "127.0.0.1",
        is_own_page: bool = True,
    ) -> WebResponse:
        """A request as a browser sends it, by default from a page of this server."""
        sent = {"host": HOST}
        if route.method == "POST":
            sent |= {"content-type": FORM} | ({"sec-fetch-site": "same-origin"} if is_own_page else {})
        name = self.services.access.visitors.cookie.name
        cookies = ({name: cookie} if cookie else {}) | ({f"{name}-device": device} if device else {})
        request = WebRequest(
            method=route.method,
            path=route.path,
            headers=sent | (headers or {}),
            request_id="r1",
            peer=peer,
            cookies=cookies,
            query={name: [value] for name, value in (query or {}).items()},
            body=urlencode(form or {}).encode(),
        )
        return answer_of(self.services, route, request)

    def log_in(
        self, name: str, password: str = PASSWORD, *, cookie: str = "", next_path: str = "", **request: Any
    ) -> WebResponse:
        """What the form of the login page sends."""
        form = {"name": name, "password": password, "next": next_path}
        if cookie:
            form["csrf_token"] = self.csrf_token(cookie)
        return self.ask(route_of("login", "POST"), form=form, cookie=cookie, **request)

    def cookie_of(self, name: str) -> str:
        """A session's id."""
        answer = self.log_in(name)
        assert answer.status is HTTPStatus.SEE_OTHER, answer
        return cookie_in(answer)

    def csrf_token(self, cookie: str = "", **request: Any) -> str:
        """What the forms of this visitor's pages hold."""
        return self._seen(cookie=cookie, **request).csrf_token

    def visitor(self, **request: Any) -> tuple[str, WebRole]:
        """Name and role that a request is given."""
        found = self._seen(**request)
        return found.name, found.role

    def _seen(self, **request: Any) -> Visitor:
        seen: list[Visitor] = []

        def note(_services: WebServices, asked: WebRequest) -> WebResponse:
            seen.append(asked.visitor)
            return WebResponse()

        answer = self.ask(replace(READ, handler=note, role=WebRole.ANYBODY, surface=Surface.PAGE), **request)
        assert seen, answer
        return seen[0]


def cookie_in(answer: WebResponse) -> str:
    """The session's id."""
    return answer.cookies[-1].partition("=")[2].partition(";")[0]


def device_in(answer: WebResponse) -> str:
    """What makes the device known."""
    return answer.cookies[0].partition("=")[2].partition(";")[0]


def route_of(name: str, method: str = "GET") -> WebRoute:
    """From the table of what is served."""
    return next(route for route in ROUTES if (route.name, route.method) == (name, method))


def with_user(file: Path, name: str, role: WebRole, *, password: str = PASSWORD) -> None:
    """Writes a user into the file."""
    user = WebUser(name=name, role=role, password_hash=hashed_password(password))
    change_users(file, lambda users: users.with_entry(user))


def with_token(file: Path, name: str, role: WebRole, *, expires_at_ms: int) -> str:
    """Writes a token into the file; gives the token."""
    text = new_token()
    token = WebToken(name=name, role=role, digest=digest_of(text), expires_at_ms=expires_at_ms)
    change_users(file, lambda users: users.with_entry(token))
    return text


def with_three_users(folder: Path) -> Path:
    """The file, with a user for each role, named for it."""
    file = folder / "users.json"
    for role in (WebRole.VIEWER, WebRole.OPERATOR, WebRole.ADMIN):
        with_user(file, role.name.lower(), role)
    return file
