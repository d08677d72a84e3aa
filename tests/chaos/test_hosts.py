"""Hosts of actors: a death is noticed, and nothing is left when the host is closed."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.chaos.hosts import Actor, Host
from tests.polling import eventually


def spawn(host: Host, folder: Path) -> Actor:
    # Without a job it ends by itself, with an error: what it would do is the chaos runs' concern.
    return host.spawn("consumer", "consumer", [str(folder / "no-job.json"), "group"], log=folder / "log", sentence="")


def test_the_end_of_an_actor_is_told_with_its_code(tmp_path: Path) -> None:
    host = Host("host", tmp_path)
    try:
        actor = spawn(host, tmp_path)
        assert eventually(lambda: actor.exit_code, within_seconds=60, message="its end") == 1
        assert "no-job.json" in (tmp_path / "log").read_text()
    finally:
        host.close()


@pytest.mark.parametrize("how", ["kill", "close"])
def test_no_actor_outlives_its_kill_or_its_host_even_when_it_is_stopped(tmp_path: Path, how: str) -> None:
    os.mkfifo(tmp_path / "no-job.json")  # reading it blocks: the actor lives
    host = Host("host", tmp_path)
    try:
        actor = spawn(host, tmp_path)
        assert actor.exit_code is None
        actor.send_signal(signal.SIGSTOP)
        if how == "kill":
            actor.kill()
            assert actor.exit_code == -signal.SIGKILL
    finally:
        host.close()
    assert actor.exit_code == -signal.SIGKILL
