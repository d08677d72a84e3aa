"""Who asks while nothing was read yet, or while nothing can be read, is told which of both it is."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reconciler.clock import ManualClock, SystemClock
from reconciler.commands.metrics import STATUS_SECONDS
from reconciler.commands.status.report import StatusReport
from reconciler.instrumentation.metrics.reading import LatestReading
from reconciler.web.services import WebServices
from tests.unit.web.console_world import asked, services_of
from tests.unit.web.hostile_ledger import make_empty_world


@pytest.fixture
def services(tmp_path: Path) -> Iterator[WebServices]:
    made = services_of(make_empty_world(tmp_path, now_ms=0))
    with made.connections:
        yield made


def problem_of(services: WebServices) -> Any:
    answer = asked(services, "/api/v1/status")
    assert (answer.status, answer.headers["Retry-After"]) == (503, "10")
    return json.loads(answer.body)["detail"]


def test_a_first_reading_that_takes_long_is_told_as_a_ledger_that_is_away(services: WebServices) -> None:
    goes_on = threading.Event()

    def read() -> StatusReport:
        goes_on.wait(60)
        raise OSError("the test is over")

    hangs = LatestReading(read, clock=ManualClock(), interval_seconds=STATUS_SECONDS)
    try:
        starting = replace(services, status=hangs)
        assert "the first reading is under way" in problem_of(starting)
        page = asked(starting, "/rounds")
        assert (page.status, b"The first reading is under way" in page.body) == (200, True)
    finally:
        goes_on.set()


def test_a_ledger_that_is_away_is_told_as_a_reading_that_takes_long(services: WebServices) -> None:
    def read() -> StatusReport:
        raise OSError("connection refused")

    away = LatestReading(read, clock=SystemClock(), interval_seconds=STATUS_SECONDS)
    assert "the ledger did not answer in time" in problem_of(replace(services, status=away))
