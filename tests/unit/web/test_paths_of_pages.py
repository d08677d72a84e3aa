"""A page that is new would be missing among the screenshots and in the tests of all pages."""

from __future__ import annotations

import pytest

from reconciler.web.console.navigation import NAVIGATION
from tests.unit.web.paths_of_pages import paths_of_pages

SAMPLES = {"name": ("o-1", "a/b"), "job_id": ("1",), "act": ("repair",), "key": ("k",)}


def test_every_page_of_the_navigation_has_its_path() -> None:
    paths = {path for _, path in paths_of_pages(SAMPLES)}
    assert paths >= {path for path, _ in NAVIGATION} | {"/messages/a%2Fb", "/jobs/1", "/acts/repair/k", "/login"}


def test_a_place_without_a_sample_is_refused() -> None:
    with pytest.raises(KeyError, match="job_id"):
        list(paths_of_pages({"name": (), "act": (), "key": ()}))
