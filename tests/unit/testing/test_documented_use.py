"""The documented use of the test kit, and of the shards in memory, is true."""

from __future__ import annotations

import doctest
import json
import os
import shutil
import sys
from pathlib import Path

import pytest

import reconciler.testing.memory_shards
from tests.page_blocks import DOCS, Block, Purpose, blocks_of
from tests.unit.testing.inner_pytest import PATHS, paths_with, run_pytest, run_python

PAGES = sorted(page.relative_to(DOCS).as_posix() for page in DOCS.glob("how-to/testing*.md"))


def test_the_example_of_the_shards_says_what_happens() -> None:
    outcome = doctest.testmod(reconciler.testing.memory_shards)
    assert outcome.attempted >= 10
    assert outcome.failed == 0


def write_page(folder: Path) -> list[Block]:
    """The files that the pages write, beside the services that they name."""
    for service in DOCS.glob("examples/*.py"):
        shutil.copy(service, folder)
    blocks = [block for page in PAGES for block in blocks_of(page, (DOCS / page).read_text(encoding="utf-8"))]
    files = [block for block in blocks if block.purpose is Purpose.FILE]
    for block in files:
        (folder / block.marks["file"]).write_text(block.text, encoding="utf-8")
    return files


def test_the_tests_of_the_page_pass_beside_the_services_that_it_names(tmp_path: Path) -> None:
    files = write_page(tmp_path)
    ended = run_pytest(tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert f"{sum(block.text.count('def test_') for block in files)} passed" in ended.stdout


@pytest.mark.nightly
def test_what_the_page_writes_is_typed_strictly(tmp_path: Path) -> None:
    files = [block.marks["file"] for block in write_page(tmp_path)]
    ended = run_python(
        "-m", "mypy", "--strict", "--explicit-package-bases", "--follow-imports=silent", "--config-file=", *files,
        "order_service.py", "billing_service.py",
        folder=tmp_path, MYPYPATH=PATHS,
    )  # fmt: skip
    assert ended.stdout.startswith("Success"), ended.stdout + ended.stderr


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_what_the_page_writes_is_typed_strictly_for_pyright_too(tmp_path: Path) -> None:
    """Its fork comes as a wheel that carries all that it needs."""
    page = tmp_path / "page"
    page.mkdir()
    files = [block.marks["file"] for block in write_page(page)]
    settings = {
        "typeCheckingMode": "strict",
        "extraPaths": PATHS.split(os.pathsep),
        "include": [*files, "order_service.py", "billing_service.py"],
    }
    (page / "pyrightconfig.json").write_text(json.dumps(settings))
    paths = paths_with(tmp_path / "packages", "basedpyright")
    ended = run_python("-m", "basedpyright", "--pythonpath", sys.executable, folder=page, PYTHONPATH=paths)
    assert ended.stdout.startswith("0 errors"), ended.stdout + ended.stderr
