"""What `make` and the tests say on a machine where something is missing: one line each, with how to get it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def run_tests(path: str, folder: Path, *, ci: bool) -> subprocess.CompletedProcess[str]:
    """These tests on a machine whose PATH has nothing."""
    clean = {k: v for k, v in os.environ.items() if k not in {"CI"} and not k.startswith(("COVERAGE", "PYTEST"))}
    return subprocess.run(
        [sys.executable, "-m", "pytest", path, "-p", "no:cacheprovider", "-p", "no:xdist"],
        cwd=ROOT,
        env={**clean, "PATH": str(folder), **({"CI": "true"} if ci else {})},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.slow
def test_a_laptop_without_redis_skips_with_one_line_that_says_how_to_get_it(tmp_path: Path) -> None:
    ran = run_tests("tests/services/test_services.py", tmp_path, ci=False)
    assert ran.returncode == 0, ran.stdout
    lines = [line for line in ran.stdout.splitlines() if line.startswith("SKIPPED")]
    assert len([line for line in lines if "redis-server is missing: apt-get install redis-server" in line]) == 1
    assert len(lines) == len(set(lines))


@pytest.mark.nightly
@pytest.mark.slow
def test_ci_without_redis_fails(tmp_path: Path) -> None:
    ran = run_tests("tests/services/test_services.py", tmp_path, ci=True)
    assert ran.returncode == 1, ran.stdout
    assert "SKIPPED" not in ran.stdout
    assert "CI needs every service: redis-server is missing" in ran.stdout


@pytest.mark.parametrize("service", ["Java or Maven", "PostgreSQL", "pgbouncer", "MariaDB", "redis-sentinel"])
def test_every_service_names_its_package(service: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from tests.services import requirements

    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(requirements, "postgres_programs", lambda: None)
    monkeypatch.setattr(requirements, "pgbouncer_program", lambda: None)
    monkeypatch.setattr(requirements, "mariadb_server", lambda: None)
    said = [
        requirements.java_missing(),
        requirements.postgres_missing(),
        requirements.pgbouncer_missing(),
        requirements.mariadb_missing(),
        requirements.sentinel_missing(),
    ]
    (line,) = [line for line in said if line is not None and line.startswith(service)]
    assert "apt-get install" in line
    assert "\n" not in line


@pytest.mark.skipif(shutil.which("make") is None, reason="make is missing: apt-get install make")
@pytest.mark.parametrize(
    ("program", "said"),
    [
        ('case "$2" in *venv*) exit 1;; *) exit 0;; esac', "python3-venv"),
        ('case "$2" in *version_info*) exit 1;; *) exit 0;; esac', "Python 3.11 or newer is needed"),
    ],
    ids=["without venv", "too old"],
)
def test_make_says_in_one_line_which_package_brings_python_venv(program: str, said: str, tmp_path: Path) -> None:
    python = tmp_path / "python3"
    python.write_text(f"#!/bin/sh\n{program}\n")
    python.chmod(0o755)
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copytree(ROOT / "requirements", tmp_path / "requirements")
    ran = subprocess.run(
        ["make", "setup", f"PYTHON={python}"],
        cwd=tmp_path,
        env={k: v for k, v in os.environ.items() if k not in {"MAKEFLAGS", "MAKELEVEL", "MFLAGS"}},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert ran.returncode == 2, ran.stderr
    (line,) = [line for line in ran.stdout.splitlines() if not re.match(r"make(\[\d+\])?: ", line)]
    assert said in line
