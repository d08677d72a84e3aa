"""The documented use of the test kit, and of the shards in memory, is true."""

from __future__ import annotations

import doctest
import shutil
from pathlib import Path

import reconciler.testing.memory_shards
from tests.page_blocks import DOCS, Purpose, blocks_of
from tests.unit.testing.inner_pytest import run_pytest

PAGE = "how-to/testing.md"


def test_the_example_of_the_shards_says_what_happens() -> None:
    outcome = doctest.testmod(reconciler.testing.memory_shards)
    assert outcome.attempted >= 10
    assert outcome.failed == 0


def test_the_tests_of_the_page_pass_beside_the_services_that_it_names(tmp_path: Path) -> None:
    for service in DOCS.glob("examples/*.py"):
        shutil.copy(service, tmp_path)
    files = [b for b in blocks_of(PAGE, (DOCS / PAGE).read_text(encoding="utf-8")) if b.purpose is Purpose.FILE]
    for block in files:
        (tmp_path / block.marks["file"]).write_text(block.text, encoding="utf-8")
    ended = run_pytest(tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert f"{sum(block.text.count('def test_') for block in files)} passed" in ended.stdout
