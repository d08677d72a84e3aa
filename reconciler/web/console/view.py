"""The look of pages for one visitor: language, colours and time zone. A cookie stores the choice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from urllib.parse import parse_qsl, urlencode
from zoneinfo import ZoneInfo, available_timezones

from reconciler.web.exchange import WebRequest
from reconciler.words import LANGUAGES

COOKIE = "reconciler_view"
COOKIE_SECONDS = 365 * 86_400
#: Maximum number of languages of Accept-Language that are considered.
_WISHES_MAX = 20


class Theme(StrEnum):
    """Colours of the pages."""

    #: The colours of the visitor's system, as the browser reports them.
    SYSTEM = "system"
    LIGHT = "light"
    DARK = "dark"


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """All choices of a visitor."""

    #: One of LANGUAGES.
    language: str = "en"
    theme: Theme = Theme.SYSTEM
    #: One of `zones()`.
    zone: str = "UTC"
    #: True: the live parts of a page stand still.
    paused: bool = False

    @property
    def zone_info(self) -> ZoneInfo:
        """Rules of the zone."""
        return ZoneInfo(self.zone)

    def cookie(self, *, prefix: str) -> str:
        """Makes the Set-Cookie header that stores the choices. Scripts cannot read the cookie. Browsers do not send it
        with requests from other sites."""
        chosen = {"language": self.language, "theme": self.theme, "zone": self.zone, "paused": int(self.paused)}
        about = f"Path={prefix}/; Max-Age={COOKIE_SECONDS}; SameSite=Lax; HttpOnly"
        return f"{COOKIE}={urlencode(chosen)}; {about}"


@cache
def zones() -> Sequence[str]:
    """Returns the time zones that this machine knows. UTC is always among them."""
    return ("UTC", *sorted(available_timezones() - {"UTC", "localtime"}))


def view_of(request: WebRequest) -> View:
    """Reads the choices. The defaults are the browser's language, the system's colours and UTC. An impossible choice is
    ignored."""
    view = View(language=_wished(request.headers.get("accept-language", "")))
    chosen = dict(parse_qsl(request.cookies.get(COOKIE, "")[:500]))
    try:
        return changed(view, chosen)
    except ValueError:
        return view


def changed(view: View, chosen: dict[str, str]) -> View:
    """Changes the choices. Unknown names are ignored. Raises ValueError for an impossible value."""
    if (language := chosen.get("language", view.language)) not in LANGUAGES:
        raise ValueError("language")
    if (theme := chosen.get("theme", view.theme)) not in tuple(Theme):
        raise ValueError("theme")
    if (zone := chosen.get("zone", view.zone)) not in zones():
        raise ValueError("zone")
    paused = chosen.get("paused", "1" if view.paused else "0") == "1"
    return replace(view, language=language, theme=Theme(theme), zone=zone, paused=paused)


def _wished(accepted: str) -> str:
    """Returns the language with the highest weight. Of equal weights, the first one counts (RFC 9110). Returns English
    if none of our languages is wanted."""
    best, best_weight = "en", 0.0
    for wish in accepted.split(",")[:_WISHES_MAX]:
        tag, _, parameters = wish.partition(";")
        language = tag.strip().lower().partition("-")[0]
        weight = _weight(parameters)
        if language in LANGUAGES and weight > best_weight:
            best, best_weight = language, weight
    return best


def _weight(parameters: str) -> float:
    name, _, value = parameters.strip().partition("=")
    if name.strip().lower() != "q":
        return 1.0
    try:
        return float(value)
    except ValueError:
        return 0.0
