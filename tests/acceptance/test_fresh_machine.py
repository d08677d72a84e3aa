"""Set-up and demo on a machine that has neither an environment nor pip's cache, while newer releases are out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.services.locks import pinned_here
from tests.services.newer_releases import write_newer_releases

ROOT = Path(__file__).parents[2]
INSTALL_SECONDS = 900

# .ci/run sets up with such a folder each time: that is the same test, on the environment that is needed anyhow.
pytestmark = [pytest.mark.acceptance, pytest.mark.nightly, pytest.mark.timeout(INSTALL_SECONDS + 60)]


@pytest.mark.parametrize(
    ("stamp", "locks"),
    [(".demo", ("build.lock", "demo.lock")), (".stamp", ("build.lock", "ci.lock"))],
    ids=["demo", "setup"],
)
def test_an_installation_takes_the_locked_versions_though_newer_ones_are_out(
    stamp: str, locks: tuple[str, ...], tmp_path: Path
) -> None:
    links, environment = tmp_path / "links", tmp_path / "environment"
    links.mkdir()
    write_newer_releases(links)
    offered = f"{links} {os.environ.get('PIP_FIND_LINKS', '')}"
    ran = subprocess.run(
        ["make", f"PYTHON={sys.executable}", f"VENV={environment}", str(environment / stamp)],
        cwd=ROOT, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False,
        env={**os.environ, "PIP_FIND_LINKS": offered, "PIP_NO_CACHE_DIR": "1", "MAKEFLAGS": ""},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-2000:]
    listed = subprocess.run(
        [environment / "bin/python", "-m", "pip", "list", "--format", "json"],
        capture_output=True,
        text=True,
        check=True,
    )
    there = {canonicalize_name(one["name"]): Version(one["version"]) for one in json.loads(listed.stdout)}
    locked = {name: version for lock in locks for name, version in pinned_here(lock).items()}
    assert {name: there.get(name) for name in locked} == locked
