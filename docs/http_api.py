"""Every request of `/api/v1`, written from the descriptions beside the routes (reconciler/web/description.py).

The same as [OpenAPI 3.1](console.md#the-api): `GET /api/v1/openapi.json`. Times are milliseconds UTC since 1970. Requests that are
not served get a problem document (RFC 9457). How a program acts, and how it pages: [Console and HTTP API](console.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import Any

from reconciler.web.description import Parameter
from reconciler.web.exchange import title_of
from reconciler.web.route import WebRoute
from reconciler.web.routes import ROUTES


def lines(routes: Sequence[WebRoute] = ROUTES) -> Iterator[str]:
    """Below the title."""
    described = [(_shown(route), route.about) for route in routes if route.about is not None]
    yield from ("| request | role | what |", "|---|---|---|")
    for route, about in described:
        yield f"| [`{route.method} {route.path}`](#{_anchor(route)}) | {route.role.name.lower()} | {about.summary} |"
    for route, about in described:
        yield from ("", f"## {route.method} {route.path}", "", f"{about.summary}. {about.more}".rstrip())
        if about.parameters:
            yield from ("", "| parameter | in | values | meaning |", "|---|---|---|---|")
            yield from map(_parameter, about.parameters)
        if about.body is not None and about.body.get("properties"):
            yield from ("", "Body:", "", *_members(about.body))
        if "properties" in about.answer or "oneOf" in about.answer:
            yield from ("", "Answer:", "", *_members(about.answer))
        yield from ("", "| status | meaning |", "|---|---|")
        for status, meaning in about.statuses.items():
            yield f"| {status} {title_of(HTTPStatus(status))} | {meaning} |"


def _shown(route: WebRoute) -> WebRoute:
    return replace(route, path=route.path.replace(":path}", "}"))


def _parameter(one: Parameter) -> str:
    needed = ", needed" if one.is_required else ""
    return f"| `{one.name}` | {one.where}{needed} | {_values(one.schema)} | {one.doc} |"


def _anchor(route: WebRoute) -> str:
    return re.sub(r"[^\w\- ]", "", f"{route.method} {route.path}".lower()).replace(" ", "-")


def _members(schema: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """One line a member, however deep it lies: `items[].topic`."""
    if "oneOf" in schema:
        for number, one in enumerate(schema["oneOf"]):
            yield from (*(["", "or", ""] if number else []), *_members(one))
        return
    if not prefix:
        yield from ("| member | values | meaning |", "|---|---|---|")
        if "properties" not in schema:
            yield f"| | {_values(schema)} | {schema.get('description', '')} |"
    for name, member in schema.get("properties", {}).items():
        yield f"| `{prefix}{name}` | {_values(member)} | {member.get('description', '')} |"
        inner, mark = (member.get("items", {}), "[].") if "items" in member else (member, ".")
        yield from _members(inner, f"{prefix}{name}{mark}")


def _values(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return ", ".join("null" if word is None else str(word) for word in schema["enum"])
    kinds = schema.get("type", "any")
    text = kinds if isinstance(kinds, str) else " or ".join(kinds)
    if "minimum" in schema and schema["maximum"] < 1 << 53:
        text += f", {schema['minimum']} to {schema['maximum']}"
    if "maxLength" in schema:
        text += f", at most {schema['maxLength']} characters"
    return text + (f", default {schema['default']}" if "default" in schema else "")
