"""One served path, with its role, its form and its handler."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from reconciler.web.description import Description
from reconciler.web.roles import WebRole
from reconciler.web.services import Handler


class Surface(StrEnum):
    """The reader of a refusal: a program or a visitor. A refusal has another form for each."""

    API = "api"
    PAGE = "page"


@dataclass(frozen=True, slots=True, kw_only=True)
class WebRoute:
    """One path."""

    #: Path below the prefix.
    path: str
    name: str
    handler: Handler
    surface: Surface
    role: WebRole
    #: Method of the route. A POST changes something, and must come from one of our pages or from the visitor's own
    #: program.
    method: Literal["GET", "POST"] = "GET"
    #: Parameters and answer of the route. None: the route is a page.
    about: Description | None = None
    #: True: the handler asks no dependency, so it runs without a thread.
    is_instant: bool = False

    @property
    def is_health(self) -> bool:
        """True: a probe may ask under any name, and its request need not come from the proxy."""
        return self.surface is Surface.API and self.role is WebRole.ANYBODY
