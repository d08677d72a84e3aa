"""Pages of docs in the console. Markdown of this release becomes HTML with links to pages of the console.

A page is our own text, but HTML in it is still escaped. In a runbook, the text between `<!-- live: ... -->` and `<!--
/live -->` is for readers outside the console. The console shows live values in its place (live.py). The first remark
names these values, and templates escape them as always.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from http import HTTPStatus
from posixpath import dirname, normpath
from urllib.parse import quote, urlencode

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup, escape

from reconciler.commands import docs
from reconciler.commands.glossary import with_glossary
from reconciler.web.console import live
from reconciler.web.console.rendering import page
from reconciler.web.console.view import view_of
from reconciler.web.exchange import WebRefusal, WebRequest, WebResponse
from reconciler.web.services import WebServices

#: Maximum number of pages whose HTML is kept. Each language of a page counts.
KEPT_MAX = 64
_SVG = "image/svg+xml"
_LIVE = re.compile(r"^<!-- live: ([\w -]+) -->\n(?:.*\n)*?<!-- /live -->\n", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of a page: HTML, or the words of the live values that take its place."""

    html: Markup
    live: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One page."""

    title: str
    language: str
    parts: Sequence[Part]
    #: Headings of the second level, each as (anchor, text).
    contents: Sequence[tuple[str, str]]


def show(services: WebServices, request: WebRequest) -> WebResponse:
    """Shows a page in the visitor's language, or in English if the page has no translation. Raises WebRefusal for an
    unknown page."""
    name = normpath(f"/{request.parts.get('page', '')}").lstrip("/")
    if name.endswith(docs.DRAWING):
        return _drawing(name)
    found = document_of(name, view_of(request).language, services.prefix)
    words = frozenset(word for part in found.parts for word in part.live)
    shown = live.values(services, words) if words else {}
    return page(services, request, "document.html", document=found, **shown)


def _drawing(name: str) -> WebResponse:
    if name not in docs.drawing_names():  # only a known name is read, so a request cannot name a path
        raise WebRefusal(HTTPStatus.NOT_FOUND, "there is no such drawing")
    return WebResponse(content_type=_SVG, body=docs.folder().joinpath(*name.split("/")).read_bytes())


def document_of(name: str, language: str, prefix: str) -> Document:
    """Finds the page of an address. The address may have zh/ and .md, or lack them. Raises WebRefusal for an unknown
    page."""
    name = name.removeprefix(docs.CHINESE) or docs.INDEX
    named = (name, f"{name}.md", f"{name}/{docs.INDEX}")
    found = next((one for one in named if docs.in_language(one, "zh") in docs.page_names()), None)
    if found is None and f"{name}/" in {f"{dirname(one)}/" for one in docs.page_names()}:
        found = docs.INDEX
    if found is None:
        raise WebRefusal(HTTPStatus.NOT_FOUND, "docs have no such page")
    return _document(docs.in_language(found, language), prefix)


@lru_cache(maxsize=KEPT_MAX)
def _document(name: str, prefix: str) -> Document:
    text = with_glossary(docs.source(name), name)
    writer = _Writer(name, prefix)
    parts: list[Part] = []
    end = 0
    for found in _LIVE.finditer(text):
        parts += [Part(html=writer.html(text[end : found.start()])), Part(html=Markup(), live=tuple(found[1].split()))]
        end = found.end()
    parts.append(Part(html=writer.html(text[end:])))
    return Document(
        title=docs.page_title(name),
        language="zh" if name.startswith(docs.CHINESE) else "en",
        parts=tuple(parts),
        contents=tuple(writer.contents),
    )


@cache
def _markdown() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False}).enable("table")


class _Writer:
    """Writes the HTML of one page, part after part."""

    def __init__(self, name: str, prefix: str) -> None:
        self._name = name
        self._prefix = prefix
        self._anchors: Counter[str] = Counter()
        self._last_anchor = ""
        self.contents: list[tuple[str, str]] = []

    def html(self, text: str) -> Markup:
        """Makes HTML from Markdown. Remarks are left out."""
        markdown = _markdown()
        tokens = markdown.parse(docs.without_remarks(text))
        for token, following in zip(tokens, [*tokens[1:], None], strict=True):
            if token.type == "heading_open" and following is not None:
                self._name_heading(token, following)
            if token.type == "th_open" and following is not None and not following.content:
                token.tag = tokens[tokens.index(following) + 1].tag = "td"
            for child in token.children or ():
                self._lead(child)
        boxed = list(self._boxed(tokens))
        return Markup(markdown.renderer.render(boxed, markdown.options, {}))  # noqa: S704 - HTML of pages is off

    def _name_heading(self, token: Token, text: Token) -> None:
        plain = "".join(child.content for child in text.children or ())
        anchor = docs.anchor_of(plain)
        seen = self._anchors[anchor]
        self._anchors[anchor] += 1
        self._last_anchor = f"{anchor}-{seen}" if seen else anchor
        token.attrSet("id", self._last_anchor)
        if token.tag == "h2":
            self.contents.append((self._last_anchor, plain))

    def _lead(self, token: Token) -> None:
        """Makes a link lead to a page within the console. A link to a file that is not served becomes plain text."""
        if token.type == "image":
            place = self._place(str(token.attrs["src"]))
            if place.startswith("docs/") and place.removeprefix("docs/") in docs.drawing_names():
                token.attrSet("src", f"{self._prefix}/{quote(place)}")
            else:
                token.type, token.children, token.content = "text", None, ""
        if token.type == "link_open":
            self._lead_link(token)

    def _lead_link(self, token: Token) -> None:
        href = str(token.attrs["href"])
        path, _, anchor = href.partition("#")
        if ":" in path:
            token.attrSet("rel", "noreferrer")
        elif path:
            place = self._place(path)
            name = place.removeprefix("docs/")
            if name == place or name not in docs.page_names():
                token.tag, token.attrs = "span", {"title": place}
                return
            own, other = (one.startswith(docs.CHINESE) for one in (self._name, name))
            address = f"/docs/{name.removeprefix(docs.CHINESE)}" + (f"#{anchor}" if anchor else "")
            if name.removeprefix(docs.CHINESE) == self._name.removeprefix(docs.CHINESE) and own != other:
                query = urlencode({"language": "zh" if other else "en", "back": address})
                address = f"/view/set?{query}"
            token.attrSet("href", self._prefix + address)

    def _place(self, path: str) -> str:
        """Returns the path of a linked file in the repository."""
        return normpath(f"{dirname(f'docs/{self._name}')}/{path}")

    def _boxed(self, tokens: Sequence[Token]) -> Iterator[Token]:
        """Puts tables into boxes that scroll, and code into boxes of its own. The heading above labels the box of a
        table."""
        label = self._last_anchor
        for token in tokens:
            if token.type == "heading_open":
                label = str(token.attrs["id"])
            if token.type == "table_open":
                box = f'<div class="scroll" tabindex="0" role="region" aria-labelledby="{escape(label)}">'
                yield Token("html_block", "", 0, content=box)
            if token.type in {"fence", "code_block"}:
                yield Token(
                    "html_block", "", 0, content=f'<pre class="body" tabindex="0">{escape(token.content)}</pre>'
                )
                continue
            yield token
            if token.type == "table_close":
                yield Token("html_block", "", 0, content="</div>")
