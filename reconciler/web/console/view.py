"""The look of pages for one visitor: language, colours, time zone. A cookie keeps the choice."""

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
#: Most languages of Accept-Language that are considered.
_WISHES_MAX = 20


class Theme(StrEnum):
    """Colours."""

    #: The colours of the browser's system.
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
    #: True: live parts do not change.
    paused: bool = False

    @property
    def zone_info(self) -> ZoneInfo:
        """Rules of the zone."""
        return ZoneInfo(self.zone)

    def cookie(self, *, prefix: str) -> str:
        """Makes the header that keeps the choices. Scripts cannot read the cookie, and other sites do not send it."""
        chosen = {"language": self.language, "theme": self.theme, "zone": self.zone, "paused": int(self.paused)}
        about = f"Path={prefix}/; Max-Age={COOKIE_SECONDS}; SameSite=Lax; HttpOnly"
        return f"{COOKIE}={urlencode(chosen)}; {about}"


@cache
def zones() -> Sequence[str]:
    """Returns the time zones that this machine knows, always with UTC."""
    return ("UTC", *sorted(available_timezones() - {"UTC", "localtime"}))


def view_of(request: WebRequest) -> View:
    """Reads the choices; the defaults are the browser's language, the system's colours and UTC. An impossible choice
    does not count."""
    view = View(language=_wished(request.headers.get("accept-language", "")))
    chosen = dict(parse_qsl(request.cookies.get(COOKIE, "")[:500]))
    try:
        return changed(view, chosen)
    except ValueError:
        return view


def changed(view: View, chosen: dict[str, str]) -> View:
    """Changes the choices. Unknown names are left out. Raises ValueError for an impossible value."""
    if (language := chosen.get("language", view.language)) not in LANGUAGES:
        raise ValueError("language")
    if (theme := chosen.get("theme", view.theme)) not in tuple(Theme):
        raise ValueError("theme")
    if (zone := chosen.get("zone", view.zone)) not in zones():
        raise ValueError("zone")
    paused = chosen.get("paused", "1" if view.paused else "0") == "1"
    return replace(view, language=language, theme=Theme(theme), zone=zone, paused=paused)


def _wished(accepted: str) -> str:
    """Picks the language with the highest weight, the first of several (RFC 9110); English if none of ours is
    wanted."""
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
