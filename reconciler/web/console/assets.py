"""Files of the pages: style, scripts and icon. Each address contains a digest of its file, so browsers may keep the
file for ever.

The files are served from a table that is filled once, from fixed names. No part of a request ever becomes the path of a
file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from importlib.resources import files

from reconciler.web.exchange import WebRefusal, WebRequest, WebResponse
from reconciler.web.services import WebServices

#: Name -> content type. `vendor/README.md` lists the files that others have written.
_TYPES = {
    "console.css": "text/css; charset=utf-8",
    "console.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
    "vendor/htmx.min.js": "text/javascript; charset=utf-8",
    "vendor/uPlot.iife.min.js": "text/javascript; charset=utf-8",
    "vendor/uPlot.min.css": "text/css; charset=utf-8",
}
#: Characters of SHA-256 in an address.
DIGEST_CHARACTERS = 16
_KEPT = {"Cache-Control": "public, max-age=31536000, immutable"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asset:
    """One file."""

    content_type: str
    body: bytes
    digest: str


@cache
def assets() -> Mapping[str, Asset]:
    """Returns all files by name."""
    folder = files("reconciler.web.console") / "static"
    found = {}
    for name, content_type in _TYPES.items():
        body = folder.joinpath(*name.split("/")).read_bytes()
        digest = hashlib.sha256(body).hexdigest()[:DIGEST_CHARACTERS]
        found[name] = Asset(content_type=content_type, body=body, digest=digest)
    return found


def asset_path(name: str) -> str:
    """Returns the address of a file below the prefix. Raises KeyError for an unknown name."""
    return f"/static/{assets()[name].digest}/{name}"


def serve(_services: WebServices, request: WebRequest) -> WebResponse:
    """Serves one file. Raises WebRefusal for an unknown name or digest."""
    found = assets().get(request.parts["name"])
    if found is None or found.digest != request.parts["digest"]:
        raise WebRefusal(HTTPStatus.NOT_FOUND, "no such file; load the page again")
    return WebResponse(content_type=found.content_type, body=found.body, headers=_KEPT)
