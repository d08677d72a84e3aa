"""One image for all tests that look at it: they share a worker (xdist_group "image")."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.packages.container import Image, built_image


@pytest.fixture(scope="session")
def image() -> Iterator[Image]:
    with built_image() as built:
        yield built
