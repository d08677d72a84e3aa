"""Asynchronous producers, handlers and the kit in loops of uvloop, which a test by night installs for itself."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.unit.testing.inner_pytest import ROOT, paths_with, run_python

SUITES = (
    "tests/unit/producers/test_asynchronous_blocks.py",
    "tests/unit/consumers/test_asynchronous_handlers.py",
    "tests/unit/testing/test_handlers_in_a_loop.py",
)
#: Loaded before any of them makes a loop; says at the end which loops they had.
_POLICY = """
import asyncio
import uvloop

asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())

def pytest_terminal_summary(terminalreporter):
    with asyncio.Runner() as runner:
        terminalreporter.write_line(f"loops of {type(runner.get_loop()).__module__}")
"""


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_producers_handlers_and_kit_work_where_a_service_has_set_the_policy_of_uvloop(tmp_path: Path) -> None:
    paths = paths_with(tmp_path / "packages", "uvloop")
    (tmp_path / "policy_of_uvloop.py").write_text(_POLICY)
    loaded = ("-p", "policy_of_uvloop", "-p", "no:cacheprovider", "--hypothesis-profile=fast")
    ended = run_python(
        "-m", "pytest", *loaded, "-m", "not nightly", *SUITES,
        folder=ROOT, PYTHONPATH=os.pathsep.join((str(tmp_path), paths)),
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "loops of uvloop" in ended.stdout
