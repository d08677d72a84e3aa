"""Every page has its picture: a route that is new fails here until the bad night has something to show on it."""

from __future__ import annotations

from tests.console.bad_night import PAGES, PLACES
from tests.unit.web.sample_addresses import paths_of


def test_no_page_is_without_a_picture() -> None:
    assert all(list(paths_of(page, PLACES)) for page in PAGES)
