"""Mutants drawn by lot: every change is one, and none changes what no test should pin."""

import ast

import pytest

from tests.import_path import ROOT
from tests.mutation.operators import changes

SOURCE = '''
"""A docstring with 1 number."""
LIMIT_SECONDS: float = 60.0

class Port(Protocol):
    def ask(self, limit: int = 3) -> int: ...

def due(age: int, *, is_held: bool) -> bool:
    """Whether 1 is due."""
    log.info("asked", age=age)
    record(age, unit="s")
    if age >= 5 and not is_held:
        raise ValueError(f"age {age} is over {LIMIT_SECONDS + 1}")
    return age + 2 > 7
'''


def changed(kind: str) -> set[str]:
    return {line for change in changes(SOURCE) if change.kind == kind for line in difference(change.applied(SOURCE))}


def difference(text: str) -> set[str]:
    return {line.strip() for line in text.splitlines()} - {line.strip() for line in SOURCE.splitlines()}


@pytest.mark.parametrize(
    ("kind", "lines"),
    [
        ("constant by 1000", {"LIMIT_SECONDS: float = 0.06"}),
        ("call left out", {"pass"}),
        ("argument unit left out", {"record(age)"}),
        ("error not raised", {"pass"}),
        ("and, or", {"if (age >= 5 or not is_held):"}),
        ("condition left out", {"if (not is_held):", "if (age >= 5):"}),
        ("comparison", {"if (age > 5) and not is_held:", "return (age + 2 >= 7)"}),
        ("arithmetic", {"return (age - 2) > 7"}),
        ("nothing returned", {"return None"}),
        ("word", {"record(age, unit='sX')"}),
    ],
)
def test_a_kind_of_change_is_lost(kind: str, lines: set[str]) -> None:
    assert changed(kind) == lines


def test_a_change_leaves_the_product_as_it_was_or_unreadable() -> None:
    source = (ROOT / "reconciler/policy/brakes.py").read_text()
    found = changes(source)
    assert len(found) > 50
    for change in found:
        text = change.applied(source)
        assert ast.dump(ast.parse(text)) != ast.dump(ast.parse(source)), change
