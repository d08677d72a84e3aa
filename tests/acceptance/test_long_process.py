"""What a command does once, a console does for weeks in one process: it may open nothing anew and send no faster."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from reconciler.commands.acts.repair import repair_now
from reconciler.commands.explain import life_stories
from reconciler.commands.list import list_rows
from reconciler.commands.status.reading import read_status
from reconciler.settings.file import load_settings
from reconciler.telling.ports.paging import LedgerFilter
from reconciler.wiring.connections import Connections
from tests.acceptance.deployment import Deployment
from tests.polling import eventually

pytestmark = [pytest.mark.acceptance, pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(180)]

SETTINGS = """
[rounds]
interval_seconds = 0.5
skew_margin_seconds = 0.5
[repairs]
check_back_wait_seconds = 0
rate_per_second = 0.001
"""
CALLS = 100


@pytest.fixture
def deployed(tmp_path: Path, services: tuple[str, str]) -> Iterator[Deployment]:
    redis_url, name_servers = services
    with Deployment(tmp_path, redis_url=redis_url, name_servers=name_servers, settings=SETTINGS) as deployment:
        yield deployment


@pytest.mark.nightly
def test_a_hundred_looks_open_a_hundred_connections(deployed: Deployment) -> None:
    key = deployed.commit(1)[0]
    with (
        Connections(load_settings(deployed.config, {})) as connections,
        redis.Redis.from_url(deployed.redis_url) as server,
    ):

        def look() -> None:
            assert life_stories(connections, key).is_known
            list_rows(connections, "floors", only=LedgerFilter(), limit=10)
            read_status(connections)
            repair_now(connections, [key], topic=None, group=None, dry_run=True, by="")

        def opened() -> tuple[int, int, int]:
            clients = server.info("clients")["connected_clients"]
            return clients, threading.active_count(), len(list(Path("/proc/self/fd").iterdir()))

        look()
        before = opened()
        for _ in range(CALLS):
            look()
        more = [now - then for now, then in zip(opened(), before, strict=True)]
    assert max(more) < CALLS / 4, f"Redis connections, threads, open files: {more}"


def test_each_act_begins_with_a_rate_of_repairs_of_its_own(
    deployed: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reconciler.wiring.connections.REPAIRS_AT_ONCE", 1.0)
    first, second = deployed.commit(2, lose=True)
    with Connections(load_settings(deployed.config, {})) as connections:

        def repaired(key: str, *, dry_run: bool = False) -> tuple[str, str]:
            (line,) = repair_now(connections, [key], topic=None, group=None, dry_run=dry_run, by="anna").keys
            return line.outcome, line.cells["reason"]

        eventually(lambda: repaired(second, dry_run=True)[0] == "planned", within_seconds=30)
        assert repaired(first)[0] == "sent"
        outcome, reason = repaired(second)
        assert (outcome, reason.partition(";")[0]) == ("held", "held: rate limit")
