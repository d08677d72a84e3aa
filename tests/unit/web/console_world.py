"""Pages without a server: settings of a prefix, services, and one request as a browser sends it."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from starlette.routing import compile_path

from reconciler.clock import Clock, ManualClock
from reconciler.settings.file import load_settings
from reconciler.settings.schema import Settings
from reconciler.web.application import answer_of
from reconciler.web.exchange import WebRequest, WebResponse
from reconciler.web.route import WebRoute
from reconciler.web.routes import ROUTES
from reconciler.web.services import WebServices, build_services
from reconciler.wiring.connections import Connections

ROOT = Path(__file__).parents[3]
PREFIX = "/reconciler"
#: Markup, a cursor that moves, text turned round, and half of a surrogate pair.
HOSTILE = "<script>alert(1)</script> & \"'\x1b[2J\u202egnp.exe \ud800"


def settings_of(folder: Path, **variables: str) -> Settings:
    """Those of the example, with a ledger that the test may or may not make."""
    given = {
        "RECONCILER_LEDGER__URL": f"sqlite:///{folder}/ledger.db",
        "RECONCILER_WEB__URL_PREFIX": PREFIX,
    }
    return load_settings(ROOT / "config" / "reconciler.toml", given | variables)


def services_of(settings: Settings, *, clock: Clock | None = None) -> WebServices:
    """Connections are opened by the first page that needs them."""
    clock = clock or ManualClock()
    return build_services(settings, Connections(settings, clock=clock), clock=clock)


def route_of(path: str) -> tuple[WebRoute, dict[str, str]]:
    """The route that a path below the prefix leads to, as the server finds it. Raises LookupError."""
    for route in ROUTES:
        pattern, _, _ = compile_path(route.path)
        if route.method == "GET" and (found := pattern.match(path)):
            return route, found.groupdict()
    raise LookupError(path)


def asked(
    services: WebServices,
    address: str,
    *,
    language: str = "en",
    cookies: dict[str, str] | None = None,
    token: str = "",
) -> WebResponse:
    """The answer to a GET of an address below the prefix. `token`: of who asks, where there are users."""
    parts = urlsplit(address)
    path = unquote(parts.path)
    route, found = route_of(path)
    request = WebRequest(
        method="GET",
        path=path,
        headers={"host": "localhost", "accept-language": language}
        | ({"authorization": f"Bearer {token}"} if token else {}),
        request_id="r-1",
        parts=found,
        query=parse_qs(parts.query),
        cookies=cookies or {},
    )
    return answer_of(services, route, request)


def page_of(services: WebServices, address: str, language: str = "en") -> str:
    """The text of a page that there is, of an address below the prefix."""
    answer = asked(services, address, language=language)
    assert answer.status == 200, answer.body
    return answer.body.decode()
