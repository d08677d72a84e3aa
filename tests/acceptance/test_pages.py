"""Every tutorial and every how-to page, run as it stands there: only ports and folders are other ones."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.acceptance.page_cases import CASES, REAL, World
from tests.services.rocketmq import marks

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.redis,
    pytest.mark.slow,
    pytest.mark.timeout(300),
]


def _marked(page: str) -> object:
    if page in ("tutorial/java-shop.md", "tutorial/real-broker.md"):
        return pytest.param(page, marks=[*marks(REAL), pytest.mark.nightly])
    if page == "tutorial/data-engineer.md":
        return pytest.param(page, marks=pytest.mark.spark)
    return pytest.param(page, marks=pytest.mark.xdist_group("pages"))


@pytest.mark.parametrize("page", [_marked(page) for page in CASES])
def test_every_step_of_the_page_works_as_written(page: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    with ExitStack() as stack:
        CASES[page](page, World(stack, tmp_path, request))
