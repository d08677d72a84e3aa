"""Every page in a real browser: no script but the console's own runs, no other host is asked, axe finds nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from reconciler.clock import SystemClock
from reconciler.settings.file import load_settings
from reconciler.web.routes import ROUTES, Surface
from reconciler.web.server import serving_web
from tests.console.watched_page import opened
from tests.services.ports import free_port

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]
ROOT = Path(__file__).parents[2]
PAGES = [route.path for route in ROUTES if route.surface is Surface.PAGE and route.method == "GET"]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("ledger")
    variables = {"RECONCILER_LEDGER__URL": f"sqlite:///{folder}/none.db"}
    settings = load_settings(ROOT / "config" / "reconciler.toml", variables)
    with serving_web(settings, f"127.0.0.1:{free_port()}", clock=SystemClock()) as (host, port):
        yield f"http://{host}:{port}"


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_readable_for_everybody(chromium: Browser, url: str, path: str) -> None:
    with opened(chromium, url) as watched:
        watched.page.goto(url + path)
        assert watched.violations() == []
        assert watched.overflow_pixels() <= 0
