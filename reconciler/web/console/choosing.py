"""The page on which visitors choose how pages look, and the route that stores the choice."""

from __future__ import annotations

from reconciler.errors import InvalidValue
from reconciler.web.console.own_path import own_path
from reconciler.web.console.rendering import page
from reconciler.web.console.view import Theme, changed, view_of, zones
from reconciler.web.exchange import WebRequest, WebResponse, see_other
from reconciler.web.services import WebServices
from reconciler.words import LANGUAGES


def show(services: WebServices, request: WebRequest) -> WebResponse:
    """Shows the choices. `back`: path of the page to which the visitor returns."""
    back = own_path(request.asked("back"))
    return page(services, request, "view.html", back=back, languages=LANGUAGES, themes=tuple(Theme), zones=zones())


def choose(services: WebServices, request: WebRequest) -> WebResponse:
    """Stores a choice in a cookie, and leads back to the page before. GET is allowed, because only this visitor's pages
    change."""
    chosen = {name: request.asked(name) for name in ("language", "theme", "zone", "paused") if name in request.query}
    try:
        view = changed(view_of(request), chosen)
    except ValueError as error:
        name = str(error)
        raise InvalidValue(name, chosen[name][:80], "one of those on the page") from error
    back = own_path(request.asked("back"))
    return see_other(services.prefix + back, cookies=[view.cookie(prefix=services.prefix)])
