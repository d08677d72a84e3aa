"""The table of everything that is served: a line says who may."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from reconciler.web.access.person import WebRole
from reconciler.web.api import status
from reconciler.web.console import overview
from reconciler.web.exchange import Handler


class Surface(StrEnum):
    """To whom a refusal is told, and so in which form."""

    API = "api"
    PAGE = "page"


@dataclass(frozen=True, slots=True, kw_only=True)
class WebRoute:
    """One path and method."""

    method: Literal["GET", "POST", "DELETE"]
    #: Below the prefix; {name} is one part of it.
    path: str
    #: The operation's id in the API's description, and the page's name in links.
    name: str
    #: The least role; None: everybody, known or not.
    role: WebRole | None
    handler: Handler
    surface: Surface

    @property
    def changes(self) -> bool:
        """Whether it changes something."""
        return self.method != "GET"


def _api(method: Literal["GET", "POST", "DELETE"], path: str, name: str, role: WebRole, handler: Handler) -> WebRoute:
    return WebRoute(method=method, path=f"/api/v1{path}", name=name, role=role, handler=handler, surface=Surface.API)


def _page(path: str, name: str, handler: Handler, *, role: WebRole | None = WebRole.VIEWER) -> WebRoute:
    return WebRoute(method="GET", path=path, name=name, role=role, handler=handler, surface=Surface.PAGE)


API: Sequence[WebRoute] = (_api("GET", "/status", "status", WebRole.VIEWER, status.show),)

PAGES: Sequence[WebRoute] = (_page("/", "overview", overview.show),)

ROUTES: Sequence[WebRoute] = (*API, *PAGES)
