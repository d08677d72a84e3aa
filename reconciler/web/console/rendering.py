"""Templates into pages: everything is escaped, and what cannot be seen is shown as its number."""

from __future__ import annotations

from functools import cache

import jinja2

from reconciler.contract.visible_text import visible
from reconciler.web.exchange import HTML, WebRequest, WebResponse
from reconciler.web.services import WebServices


@cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader("reconciler.web.console", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: visible(value) if type(value) is str else value,
    )


def page(services: WebServices, request: WebRequest, template: str, **values: object) -> WebResponse:
    """A page, or a part of one; `values` are the names that the template uses."""
    about = {"environment": services.settings.environment, "request_id": request.request_id}
    text = _environment().get_template(template).render(about | values)
    return WebResponse(content_type=HTML, body=text.encode("utf-8", "backslashreplace"))
