"""One path that is served: to whom, in which form, and by which handler."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from reconciler.web.description import Description
from reconciler.web.roles import WebRole
from reconciler.web.services import Handler


class Surface(StrEnum):
    """To whom a refusal is told, and so in which form."""

    API = "api"
    PAGE = "page"


@dataclass(frozen=True, slots=True, kw_only=True)
class WebRoute:
    """One path."""

    #: Below the prefix.
    path: str
    name: str
    handler: Handler
    surface: Surface
    role: WebRole
    #: POST changes something, and is proven to come from a page or a program of the visitor's own will.
    method: Literal["GET", "POST"] = "GET"
    #: What it takes and answers; None for pages.
    about: Description | None = None
    #: Asks nobody and nothing, whoever wants to know: it waits for no thread.
    is_instant: bool = False

    @property
    def is_health(self) -> bool:
        """A probe asks by whatever address it has, and past the proxy."""
        return self.surface is Surface.API and self.role is WebRole.ANYBODY
