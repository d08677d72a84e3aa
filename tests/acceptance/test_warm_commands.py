"""Commands that are forked from a warm process end as those do that a shell starts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.acceptance.warm_commands import WarmProcess, warm_command
from tests.polling import eventually
from tests.services.ports import answers

pytestmark = pytest.mark.acceptance

SERVICE = ("broker", "--listen", "127.0.0.1:0")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "broker.log"


def serves(log: Path) -> bool:
    return b"listen" in log.read_bytes()


def started(log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as output:
        client = subprocess.Popen([warm_command(), *SERVICE], stdout=output, stderr=output)
    eventually(lambda: serves(log), within_seconds=60)
    return client


def test_a_signal_to_the_program_in_the_path_kills_the_command_instead_of_ending_it(log: Path) -> None:
    client = started(log)
    client.send_signal(signal.SIGTERM)
    assert client.wait(60) == 0, log.read_text()


def test_a_command_outlives_the_program_in_the_path_that_was_killed(log: Path) -> None:
    client = started(log)
    port = int(json.loads(log.read_text())["listen"].rpartition(":")[2])
    client.kill()
    client.wait(60)
    eventually(lambda: not answers(port), within_seconds=60)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGKILL, -signal.SIGKILL)])
def test_a_command_that_ended_is_said_to_have_ended_otherwise(number: signal.Signals, code: int, log: Path) -> None:
    with log.open("ab") as output:
        process = WarmProcess(SERVICE, output=output.fileno(), variables=os.environ)
    eventually(lambda: serves(log), within_seconds=60)
    assert process.poll() is None
    process.send_signal(number)
    assert process.wait(60) == code, log.read_text()
    assert process.poll() == code
