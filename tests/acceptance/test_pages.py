"""Every tutorial and every how-to page, run as it stands there: only ports and folders are other ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.acceptance.page_cases import CASES, REAL, World
from tests.acceptance.warm_commands import WarmCommands
from tests.services.rocketmq import marks

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.redis,
    pytest.mark.slow,
    pytest.mark.timeout(300),
]


@pytest.fixture(scope="session")
def warm_commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmCommands]:
    """One server for all pages of the worker."""
    with WarmCommands(tmp_path_factory.mktemp("commands")) as commands:
        yield commands


def _marked(page: str) -> object:
    on_real = page == "tutorial/real-broker.md"
    return pytest.param(page, marks=marks(REAL) if on_real else pytest.mark.xdist_group("pages"))


@pytest.mark.parametrize("page", [_marked(page) for page in CASES])
def test_every_step_of_the_page_works_as_written(page: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    with ExitStack() as stack:
        CASES[page](page, World(stack, tmp_path, request))
