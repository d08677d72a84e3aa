"""Every page has its picture: a route that is new fails here until the bad night has something to show on it."""

from __future__ import annotations

from reconciler.web.routes import ROUTES, Surface
from tests.console.bad_night import PLACES
from tests.unit.web.sample_addresses import paths_of


def test_no_page_is_without_a_picture() -> None:
    pages = [r for r in ROUTES if r.surface is Surface.PAGE and r.method == "GET" and r.name != "static"]
    assert all(list(paths_of(page, PLACES)) for page in pages)
