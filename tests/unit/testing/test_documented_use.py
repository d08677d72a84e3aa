"""The documented use of the ledger and the shards in memory is true."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import reconciler.testing.memory_shards

PAGE = Path(__file__).parents[3] / "docs/how-to/testing.md"


def test_the_example_of_the_shards_says_what_happens() -> None:
    outcome = doctest.testmod(reconciler.testing.memory_shards)
    assert outcome.attempted >= 10
    assert outcome.failed == 0


def test_the_page_that_shows_how_to_test_with_it_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
    for block in blocks:
        names: dict[str, object] = {}
        exec(compile(block, str(PAGE), "exec"), names)
        tests = [named for name, named in names.items() if name.startswith("test_")]
        assert tests
        for test in tests:
            assert callable(test)
            test()
