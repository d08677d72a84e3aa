"""The console over services of which a test chose some: a shelf of audits, a reading of the status."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from reconciler.clock import SystemClock
from reconciler.settings.schema import Settings
from reconciler.web.server import serving
from reconciler.web.services import build_services
from reconciler.wiring.connections import Connections
from tests.polling import PATIENCE
from tests.services.ports import free_port

FIRST_READING_SECONDS = 60


@contextmanager
def served(settings: Settings, **chosen: Any) -> Iterator[str]:
    """The address of the pages, without a slash at the end. `chosen`: names in WebServices -> what stands there.

    The status has been read once: a page that comes before that says so after 4 s, and a slow machine takes longer.
    """
    clock = SystemClock()
    with Connections(settings, clock=clock) as connections:
        services = replace(build_services(settings, connections, clock=clock), **chosen)
        first = services.status.begin()
        assert first is None or first.wait(FIRST_READING_SECONDS * PATIENCE)
        with serving(services, f"127.0.0.1:{free_port()}") as (host, port):
            yield f"http://{host}:{port}{settings.web.url_prefix}"
