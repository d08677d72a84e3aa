"""What every test shares: a clean environment, and services that are named when they are missing.

A mark says which service a test needs. Where it is missing the test is skipped with the one line that says
how to get it; with CI=true that is a failure.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Generator
from pathlib import Path

import pytest

import tests.examples  # noqa: F401 - registers the hypothesis profile of `make test-fast`
from reconciler.testing import pytest_plugin
from tests.compiled_once import compile_once
from tests.polling import PATIENCE
from tests.services import requirements

pytest_plugins = ["tests.services.fixtures"]

# The developer's own settings must not steer the tests.
for _name in [name for name in os.environ if name.upper().startswith("RECONCILER_")]:
    del os.environ[_name]

compile_once()

_DESELECTED = pytest.StashKey[int]()
#: Of tests/unit and tests/contract, what has none of these marks is fast.
_NOT_FAST = ("slow", "redis", "sql", "broker")
_TESTS = Path(__file__).parent
#: The folders of tests/unit with others, too. Reading the rest, only to leave it out, would cost each worker 15 s.
_MIXED = ("ground", "service", "sql")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`make test-fast` and, with FAST=elsewhere, `make test` take one part each: what another Python runs, or not."""
    parser.addoption("--fast", choices=("only", "elsewhere"), help="only fast tests, or none of them")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """True: nothing below is wanted."""
    return True if config.getoption("fast") == "elsewhere" and _is_pure(collection_path) else None


def _is_pure(path: Path) -> bool:
    """Whether it is, or lies in, a part of tests/unit that has fast tests alone."""
    folder = _TESTS / "unit"
    return path != folder and path.is_relative_to(folder) and path.relative_to(folder).parts[0] not in _MIXED


def _is_fast(item: pytest.Item) -> bool:
    if not any(item.path.is_relative_to(_TESTS / folder) for folder in ("unit", "contract")):
        return False
    return all(item.get_closest_marker(mark) is None for mark in _NOT_FAST)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What another run is for is deselected; tests for a library that no registry carries are, and are listed, not
    skipped; CI is patient."""
    for item in items if PATIENCE > 1.0 else []:
        mark = item.get_closest_marker("timeout")
        seconds = mark.args[0] if mark else float(config.getini("timeout"))
        item.add_marker(pytest.mark.timeout(seconds * PATIENCE), append=False)
    wanted = config.getoption("fast")
    if wanted is not None:
        others = [item for item in items if _is_fast(item) != (wanted == "only")]
        lost = [item.nodeid for item in others if wanted == "only" and _is_pure(item.path)]
        if lost:
            raise pytest.UsageError(f"no run of CI would take {lost}: name their folder in _MIXED of tests/conftest.py")
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if _is_fast(item) == (wanted == "only")]
    if requirements.librocketmq2_present():
        return
    without = [item for item in items if item.get_closest_marker("librocketmq2")]
    if without:
        config.hook.pytest_deselected(items=without)
        items[:] = [item for item in items if not item.get_closest_marker("librocketmq2")]
    config.stash[_DESELECTED] = len(without)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Nothing that is collected is garbage: a collector that looks through all of it again and again takes an eighth of
    the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """12 000 collected tests are half a million objects that live to the end. A collector that walks through them stops
    all threads for seconds on a busy machine, and then a request to an embedded broker has no answer in time."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Coverage's trace function is taken away for the length of a test that is marked `unmeasured`.

    The mark of pytest-cov stops and starts coverage, which patches os._exit once more each time.
    """
    if item.get_closest_marker("unmeasured") is None:
        return (yield)
    tracing, tracing_threads = sys.gettrace(), threading.gettrace()
    sys.settrace(None)
    threading.settrace(None)
    try:
        return (yield)
    finally:
        threading.settrace(tracing_threads)
        sys.settrace(tracing)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips (CI: fails) before any fixture starts what is not there."""
    for mark in requirements.BY_MARK:
        found = item.get_closest_marker(mark)
        if found is not None:
            requirements.require(requirements.BY_MARK[mark](*found.args))


class _NamesFailures:
    """Names a failed test at once: a run that is cut short prints no summary."""

    def __init__(self, terminal: pytest.TerminalReporter) -> None:
        self._terminal = terminal

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Nothing for what passed."""
        if not report.failed:
            return
        crash = getattr(report.longrepr, "reprcrash", None)
        why = str(crash.message if crash else report.longrepr or "").strip().splitlines()
        self._terminal.write(f"\n{report.when} failed: {report.nodeid}: {why[0] if why else ''}\n")


def pytest_sessionstart(session: pytest.Session) -> None:
    """The processes of xdist have no terminal; their reports come to the one that has."""
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None:
        session.config.pluginmanager.register(_NamesFailures(terminal))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Names the deselected tests' library."""
    count = config.stash.get(_DESELECTED, 0)
    if count:
        terminalreporter.write_line(f"DESELECTED [{count}] {requirements.LIBROCKETMQ2_REMEDY}")


def pytest_configure(config: pytest.Config) -> None:
    """As the entry point `checkback` does it, in an environment that was made before there was one."""
    if not config.pluginmanager.has_plugin("checkback"):
        config.pluginmanager.register(pytest_plugin, "checkback")
