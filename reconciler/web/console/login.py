"""GET and POST of /login, and POST of /logout."""

from __future__ import annotations

from dataclasses import replace
from http import HTTPStatus
from urllib.parse import quote, urlencode

from reconciler.web.access.logins import Logins
from reconciler.web.console.own_path import own_path
from reconciler.web.console.rendering import page
from reconciler.web.exchange import WebRefusal, WebRequest, WebResponse, last_of, see_other
from reconciler.web.services import WebServices

LOGIN_PATH = "/login"


def show(services: WebServices, request: WebRequest) -> WebResponse:
    """Shows the form of the login."""
    _logins(services)
    values = {"next_path": own_path(request.asked("next")), "undone": request.asked("undone") == "1", "refusal": None}
    return page(services, request, "login.html", **values)


def log_in(services: WebServices, request: WebRequest) -> WebResponse:
    """Logs the visitor in, and leads to the page that was requested before. If the login fails, shows the form with the
    reason."""
    form = request.form()
    name, password, wanted = (last_of(form, field) for field in ("name", "password", "next"))
    next_path = own_path(wanted)
    try:
        cookies = _logins(services).log_in(request, name, password)
    except WebRefusal as refusal:
        shown = page(services, request, "login.html", next_path=next_path, undone=False, refusal=refusal)
        return replace(shown, status=refusal.status, headers=refusal.headers)
    return see_other(services.prefix + next_path, cookies=cookies)


def log_out(services: WebServices, request: WebRequest) -> WebResponse:
    """Logs the visitor out, and leads to the form of the login."""
    return see_other(services.prefix + LOGIN_PATH, cookies=[_logins(services).log_out(request)])


def to_login(services: WebServices, request: WebRequest) -> WebResponse:
    """Leads a visitor without a login to the form, and afterwards back to the requested page.

    A visitor who pressed a button reads that nothing was done. A live part of a page does not get the form. Instead,
    htmx loads the whole page again, which leads to the form.
    """
    if request.headers.get("hx-request") == "true":
        return WebResponse(status=HTTPStatus.UNAUTHORIZED, content_type="text/plain", headers={"HX-Refresh": "true"})
    if request.method != "GET":
        undone = "" if request.path == "/logout" else "?undone=1"
        return see_other(f"{services.prefix}{LOGIN_PATH}{undone}")
    asked = quote(request.path) + (f"?{urlencode(request.query, doseq=True)}" if request.query else "")
    query = f"?{urlencode({'next': asked})}" if asked != "/" else ""
    return see_other(f"{services.prefix}{LOGIN_PATH}{query}")


def _logins(services: WebServices) -> Logins:
    logins = services.access.logins
    if logins is None:
        raise WebRefusal(HTTPStatus.NOT_FOUND, "nobody can log in here: web.users_file is not set")
    return logins
