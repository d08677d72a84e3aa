"""The demo needs a Redis from somewhere: where there is none it says what to install, before anything hangs."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.clock import SystemClock
from reconciler.demo import processes
from reconciler.demo.truth import DemoFiles
from reconciler.errors import MissingDependency


def test_machine_without_any_redis_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(processes, "find_spec", lambda _name: None)
    children = processes.Children(files=DemoFiles(tmp_path), clock=SystemClock())
    with pytest.raises(MissingDependency, match="install the extra demo") as caught:
        processes.start_redis(children)
    assert caught.value.exit_code == 2
