"""Forked processes of the demo are those that it would start: they have a log, and end as they end."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from reconciler.clock import SystemClock
from reconciler.demo.processes import Children
from reconciler.demo.truth import DemoFiles

_MODULE = """
import os, pathlib, signal

def main(how):
    print(pathlib.Path.cwd().name, os.environ.get("RECONCILER_CONFIG"), flush=True)
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "wrong":
        raise ValueError("of the child")
    if how == "waits":
        signal.pause()
    return 0
"""


@pytest.mark.parametrize(("how", "code"), [("well", 0), ("wrong", 1), ("killed", -9), ("waits", -15)])
def test_a_forked_child_ends_as_one_of_its_own_would(
    how: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "demo"
    folder.mkdir()
    (tmp_path / "demo_child.py").write_text(_MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("RECONCILER_CONFIG", "of the user")
    children = Children(files=DemoFiles(folder), clock=SystemClock())
    child = children.fork("child", "demo_child", how)
    if how == "waits":
        child.process.send_signal(signal.SIGTERM)
    assert child.process.wait(60) == child.exit_code == code
    child.process.terminate()
    children.stop(child, expected=(code,))
    assert child.tail().startswith("demo None") or how == "waits"
    assert ("ValueError: of the child" in child.tail()) is (how == "wrong")
