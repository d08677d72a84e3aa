from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.services import ports

ROOT = Path(__file__).parents[2]
DRAW = """
import sys
from tests.services import ports
ports.FIRST_PORT, ports.LAST_PORT = map(int, sys.argv[1:])
print(ports.free_port(), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def few_ports(monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """A range of two ports."""
    first = ports.free_port(neighbours=(1,))
    with ports._claims() as claimed:
        for port in (first, first + 1):
            del claimed[port]
    monkeypatch.setattr(ports, "FIRST_PORT", first)
    monkeypatch.setattr(ports, "LAST_PORT", first + 2)
    return first, first + 2


def test_a_port_that_another_living_process_drew_and_has_not_bound_is_not_drawn_again(
    few_ports: tuple[int, int],
) -> None:
    """Two brokers that drew one port: the one that binds later ends with "Address already in use"."""
    command = [sys.executable, "-c", DRAW, *map(str, few_ports)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, text=True) as other:
        assert other.stdout is not None
        drawn = int(other.stdout.readline())
        mine = ports.free_port()
        assert {drawn, mine} == set(range(*few_ports))
        with pytest.raises(RuntimeError, match="no free port"):
            ports.free_port()
        other.communicate()
    assert ports.free_port() == drawn, "the port of a process that has ended is free"


def test_neighbours_are_drawn_with_their_port(few_ports: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "LAST_PORT", few_ports[0] + 1)
    assert ports.free_port(neighbours=(1,)) == few_ports[0]
    monkeypatch.setattr(ports, "LAST_PORT", few_ports[0] + 2)
    with pytest.raises(RuntimeError, match="no free port"):
        ports.free_port()
