"""The pytest plug-in where services are tested: it costs nobody anything, and disturbs no other plug-in."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from tests.unit.testing.inner_pytest import paths_with, run_pytest, run_python

_SERVICE = """
def number_of(order):
    if order is None:
        return 0
    return int(order)
"""
_TESTS = """
import anyio
import pytest
from service import number_of

@pytest.mark.parametrize("turn", range(4))
def test_kit_makes_a_world_of_its_own(checkback_kit, turn):
    checkback_kit.sends("order-service", "ORDERS")
    assert number_of("7") == 7
    assert checkback_kit.settle().is_at_rest

@pytest.mark.anyio
async def test_kit_may_be_used_beside_a_loop(checkback_kit):
    await anyio.sleep(0)
    assert number_of(None) == 0
    assert checkback_kit.name_servers.startswith("127.0.0.1:")

@pytest.fixture
def anyio_backend():
    return "asyncio"
"""
_TEST_IN_A_LOOP = """
@pytest.mark.asyncio
async def test_kit_may_be_used_beside_a_loop_of_pytest_asyncio(checkback_kit):
    await anyio.sleep(0)
    assert checkback_kit.settle().is_at_rest
"""


def test_entry_point_loads_pytest_and_the_standard_library_alone(tmp_path: Path) -> None:
    load = "import sys, pytest; sys.stderr.write('ours\\n'); import reconciler.testing.pytest_plugin"
    ended = run_python("-X", "importtime", "-c", load, folder=tmp_path)
    loaded = re.findall(r"\| +([\w.]+)$", ended.stderr.partition("ours\n")[2], re.MULTILINE)
    assert "reconciler.testing.pytest_plugin" in loaded
    strangers = [name for name in loaded if name.partition(".")[0] not in sys.stdlib_module_names]
    assert sorted(strangers) == [
        "reconciler",
        "reconciler.contract",
        "reconciler.contract.late_names",
        "reconciler.testing",
        "reconciler.testing.pytest_plugin",
    ]


def test_fixtures_run_beside_xdist_anyio_and_coverage_with_warnings_as_errors(tmp_path: Path) -> None:
    (tmp_path / "service.py").write_text(_SERVICE)
    (tmp_path / "test_service.py").write_text(_TESTS)
    ended = run_pytest(tmp_path, "-n", "2", "--cov=service", "--cov-branch", "--cov-report=json")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "5 passed" in ended.stdout
    measured = json.loads((tmp_path / "coverage.json").read_text())
    assert measured["files"]["service.py"]["summary"]["percent_covered"] == 100.0


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("release", ["8.4", "9.2"])
def test_fixtures_run_under_each_pytest_that_services_use_beside_pytest_asyncio(release: str, tmp_path: Path) -> None:
    others = ("pytest-asyncio", "pytest-xdist", "pytest-cov", "anyio")
    paths = paths_with(tmp_path / "packages", f"pytest=={release}.*", *others)
    service = tmp_path / "service"
    service.mkdir()
    (service / "service.py").write_text(_SERVICE)
    (service / "test_service.py").write_text(_TESTS + _TEST_IN_A_LOOP)
    strict = ("-o", "asyncio_mode=strict", "-o", "asyncio_default_fixture_loop_scope=function")
    ended = run_pytest(service, "-n", "2", "--cov=service", "--cov-branch", *strict, PYTHONPATH=paths)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert f"pytest-{release}." in ended.stdout
    assert "6 passed" in ended.stdout


def test_accident_that_never_struck_fails_its_test(tmp_path: Path) -> None:
    (tmp_path / "test_service.py").write_text("def test_order(checkback_kit): checkback_kit.lose_next_end()\n")
    ended = run_pytest(tmp_path)
    assert "1 passed, 1 error" in ended.stdout, ended.stdout
    assert "lose_next_end() struck nothing" in ended.stdout


def test_what_is_missing_is_said_where_a_fixture_is_used_and_nowhere_else(tmp_path: Path) -> None:
    (tmp_path / "test_service.py").write_text("def test_other(): pass\ndef test_kit(checkback_kit): pass\n")
    without = "import sys; sys.modules['sqlalchemy'] = None; import pytest; sys.exit(pytest.main(sys.argv[1:]))"
    ended = run_pytest(tmp_path, start=("-c", without))
    assert "1 passed, 1 error" in ended.stdout, ended.stdout
    assert "the fixtures of checkback need sqlalchemy: pip install 'checkback-reconciler[testing]'" in ended.stdout
    assert "Traceback" not in ended.stdout
