"""Which patches are planted into living functions, and that nothing is changed by the others."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.simulation.bodies import are_planted

TEXT = '''"""Of no use."""
from functools import cache

LIMIT = 3

class Thing:
    @property
    def one(self):
        return [n for n in (1, 2)]

    @staticmethod
    def two(add=1):
        return 2 + add

@cache
def kept():
    return 4

def five():
    return LIMIT + 2
'''


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    (tmp_path / "module_with_a_bug.py").write_text(TEXT)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("module_with_a_bug")
    del sys.modules["module_with_a_bug"]


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("in (1, 2)", "in (1, 3)", ([1, 3], 3, 4, 5)),
        ("return 2 + add", "# on another line\n        return 7 + add", ([1, 2], 8, 4, 5)),
        ("LIMIT + 2", "LIMIT + 2.0 + 1", ([1, 2], 3, 4, 6.0)),
    ],
)
def test_a_patch_of_bodies_alone_is_planted_into_living_functions(
    module: Any, before: str, after: str, said: tuple[object, ...]
) -> None:
    five = module.five  # as other modules have imported it
    assert are_planted({Path(module.__file__): TEXT.replace(before, after)})
    assert (module.Thing().one, module.Thing.two(), module.kept(), five()) == said


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("LIMIT = 3", "LIMIT = 4"),
        ("LIMIT = 3", "LIMIT = 3.0"),
        ("add=1", "add=2"),
        ("return 4", "return 5"),  # what was computed before would be answered on
        ("@property", "@staticmethod"),
        ("def five", "def new():\n    return 1\n\ndef five"),
    ],
)
def test_any_other_patch_changes_nothing(module: Any, before: str, after: str) -> None:
    text = TEXT.replace("return 2 + add", "return 7 + add").replace(before, after)
    assert not are_planted({Path(module.__file__): text})
    assert not are_planted({Path(module.__file__).with_suffix(".lua"): text})
    assert (module.Thing().one, module.Thing.two(), module.kept(), module.five()) == ([1, 2], 3, 4, 5)
