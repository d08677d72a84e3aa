"""What the demo does besides counting: a Redis of its own where none is installed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.acceptance.command import reconciler

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(400)]


@pytest.fixture
def without_redis(tmp_path: Path) -> dict[str, str]:
    """A PATH without redis-server."""
    folder = tmp_path / "bin"
    folder.mkdir()
    return {"PATH": str(folder), "HOME": os.environ.get("HOME", str(tmp_path))}


@pytest.mark.slow
def test_without_redis_server_the_demo_says_so_and_holds(without_redis: dict[str, str], tmp_path: Path) -> None:
    numbers = ("--messages", "30", "--lose", "8", "--seed", "11", "--output", "json")
    ended = reconciler("demo", *numbers, environment=without_redis)
    assert ended.exit_code == 0, ended.stderr
    assert "redis-server is not on PATH: using fakeredis" in ended.stderr
    assert (ended.document["lost"], ended.document["repaired"]) == (8, 8)


def test_fakeredis_is_refused_with_a_real_broker(without_redis: dict[str, str]) -> None:
    ended = reconciler("demo", "--namesrv", "127.0.0.1:9", environment=without_redis, timeout_seconds=60)
    assert ended.exit_code == 2, ended.stderr
    assert "--redis-url" in ended.stderr
