"""One served path: for whom, in which form, and by which handler."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from reconciler.web.description import Description
from reconciler.web.roles import WebRole
from reconciler.web.services import Handler


class Surface(StrEnum):
    """Who reads a refusal: a program or a visitor. Its form differs."""

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
    #: POST changes something. It must prove that it comes from one of our pages, or from the visitor's own program.
    method: Literal["GET", "POST"] = "GET"
    #: What it takes and answers; None for pages.
    about: Description | None = None
    #: True: it asks nobody, so it runs without a thread.
    is_instant: bool = False

    @property
    def is_health(self) -> bool:
        """True: a probe may ask under any name, and need not come from the proxy."""
        return self.surface is Surface.API and self.role is WebRole.ANYBODY
