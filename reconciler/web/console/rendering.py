"""Makes pages from templates. Every value is escaped, a long text is cut, and an invisible character is shown as its
number.

`_about` lists the names that every template may use besides its own values.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, partial
from urllib.parse import quote, urlencode

import jinja2
from markupsafe import Markup, escape

from reconciler.clock import utc_text
from reconciler.commands import docs
from reconciler.contract.visible_text import visible
from reconciler.web.console.assets import asset_path
from reconciler.web.console.catalogue import catalogue_of
from reconciler.web.console.moments import duration, moment
from reconciler.web.console.navigation import NAVIGATION
from reconciler.web.console.offer import offer_to
from reconciler.web.console.saying import kept_on_page, on_page
from reconciler.web.console.view import view_of
from reconciler.web.excerpts import shown
from reconciler.web.exchange import HTML, WebRequest, WebResponse
from reconciler.web.services import WebServices
from reconciler.words import LANGUAGES, counted

#: A name that can be part of a path. Dots and slashes are special, because browsers take them for steps of the path,
#: even if they are encoded.
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_~-][A-Za-z0-9_.~-]*")


@cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader("reconciler.web.console", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: shown(value) if type(value) is str else value,
    )


def page(services: WebServices, request: WebRequest, template: str, **values: object) -> WebResponse:
    """Renders a page, or a part of a page. `values`: names that the template uses."""
    text = _environment().get_template(template).render(_about(services, request) | values)
    return WebResponse(content_type=HTML, body=text.encode("utf-8", "backslashreplace"), headers={"Vary": "Cookie"})


def _about(services: WebServices, request: WebRequest) -> dict[str, object]:
    view = view_of(request)
    words = catalogue_of(view.language)
    link = partial(_link, services.prefix)
    in_zone = partial(moment, zone=view.zone_info)
    document_address = partial(_document_address, services.prefix, services.settings.web.docs_url, view.language)
    back = _address("", request.path, **{name: values[-1] for name, values in request.query.items() if values})
    return {
        "environment": services.settings.environment,
        "request_id": request.request_id,
        "visitor": request.visitor,
        # value of the field `csrf_token` in every form with POST
        "csrf_token": request.visitor.csrf_token,
        # the acts that this visitor may do; templates/acts.html makes forms of them
        "offer": offer_to(services, request),
        "view": view,
        "languages": LANGUAGES,
        # t: a text of the catalogue by its key; word: the word for a value by its family
        "t": words.text,
        "word": words.word,
        # link("/losses", topic="ORDERS"): an address below the prefix
        "link": link,
        "message_link": partial(_message_link, link),
        "asset": lambda name: services.prefix + asset_path(name),
        # document("runbooks/BreakerOpen.md"): a link to a page of docs
        "document": partial(_document, document_address, view.language),
        # moment(at_ms): a time element; duration(milliseconds): a duration
        "moment": in_zone,
        "duration": partial(duration, words=words),
        # minute_of(at_ms): a time for fields of forms, UTC
        "minute_of": lambda at_ms: utc_text(at_ms)[:16],
        # said(fact): its sentence; a command's line without a fact is shown as it is
        "said": lambda fact: _with_pages(on_page(fact, words, in_zone), document_address, view.language),
        # told_by(line): the text of a line of a kept answer
        "told_by": partial(kept_on_page, words=words, moment=in_zone),
        # counted(number): a number of ledger rows, which are counted up to a limit
        "counted": partial(counted, language=words.language),
        "now_ms": services.clock.now_ms(),
        "path": request.path,
        # where a choice of language returns to
        "here": back,
        # whole(text): a text that the caller has limited, so it is not cut
        "whole": lambda text: escape(visible(text)),
        "navigation": NAVIGATION,
    }


def _document(address: Callable[[str], str], language: str, path: str) -> Markup:
    """Makes a link to a page of docs in the visitor's language."""
    return Markup('<a href="{}">{}</a>').format(address(path), docs.page_title(docs.in_language(path, language)))


def _document_address(prefix: str, docs_url: str | None, language: str, path: str) -> str:
    """Returns the address of a page of docs. The page is in this console, or in the copy that the settings name."""
    return f"{prefix}/docs/{path}" if docs_url is None else f"{docs_url}/{docs.in_language(path, language)}"


def _with_pages(text: Markup, address: Callable[[str], str], language: str) -> Markup:
    """Makes a link of each page of docs that a sentence names. Sections keep their English names."""

    def linked(found: re.Match[str]) -> str:
        path = found[1].removeprefix(docs.CHINESE)
        if path not in docs.page_names():
            return found[0]
        section = found[2] if found[2] and docs.in_language(path, language) == path else ""
        return Markup('<a href="{}">{}</a>').format(address(path) + section, found[0])

    return Markup(docs.MENTION.sub(linked, text))  # noqa: S704 - it is escaped


def _link(prefix: str, path: str, /, **query: object) -> Markup:
    """Makes an address. An address is never cut. Values that are None or empty are left out."""
    return escape(_address(prefix, path, **query))


def _address(prefix: str, path: str, /, **query: object) -> str:
    asked = urlencode({name: value for name, value in query.items() if value not in (None, "")}, errors="replace")
    return f"{prefix}{quote(path, errors='replace')}" + (f"?{asked}" if asked else "")


def _message_link(link: Callable[..., Markup], name: str) -> Markup:
    """Makes the link to a message's page, by unique key or business id."""
    if _PLAIN_NAME.fullmatch(name):
        return link(f"/messages/{name}")
    return link("/messages", name=name)
