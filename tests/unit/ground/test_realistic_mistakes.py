"""Mutants that are mistakes as people make them: what each kind makes of a small source, and what it leaves alone."""

import difflib

import pytest

from tests.mutation.mistakes import required_arguments
from tests.mutation.operators import changes

#: What the small sources call.
PRODUCT = """
class Row:
    key: str
    tag: str = ""

def settle(rows, *, at_ms, again=False): ...
def judge(case, rules=None): ...
"""


def made(source: str, kind: str) -> list[str]:
    """The lines that changes of a kind put there: of two that change places, the one that comes first now."""
    found: list[str] = []
    for change in changes(source, required_arguments([PRODUCT])):
        if change.kind == kind:
            lines = difflib.ndiff(source.splitlines(), change.applied(source).splitlines())
            found.extend(line[2:].strip() for line in lines if line.startswith("+ "))
    return found


@pytest.mark.parametrize(
    ("source", "kind", "lines"),
    [
        ("key = (topic, group)", "element left out", ["key = (group,)", "key = (topic,)"]),
        ("return topic, group", "element left out", ["return (group,)", "return (topic,)"]),
        ("held[topic, group] = row", "element left out", ["held[(group,)] = row", "held[(topic,)] = row"]),
        ("is_in = state in {NEW, SEEN}", "element left out", ["is_in = state in {NEW}", "is_in = state in {SEEN}"]),
        ("first, second = one, other", "element left out", []),
        ("Seen = dict[tuple[str, int], Row]", "element left out", []),
        ("empty = dict[tuple[str, int], Row]()", "element left out", []),
        ("def due(row: tuple[str, int]) -> tuple[str, int]: ...", "element left out", []),
        ("numbers = (1, 2, 3, 4, 5, 6, 7, 8, 9)", "element left out", []),
        ("floor = min(a, b, default=0)", "max, min", ["floor = max(a, b, default=0)"]),
        ("last = max(a, b)", "max, min", ["last = min(a, b)"]),
        ("is_due = any(map(due, rows))", "all, any", ["is_due = all(map(due, rows))"]),
        ("is_due = all(map(due, rows))", "all, any", ["is_due = any(map(due, rows))"]),
        ("oldest = rows[0].at_ms", "first, last", ["oldest = rows[-1].at_ms"]),
        ("newest = rows[-1]", "first, last", ["newest = rows[0]"]),
        ("rows[0] = row", "first, last", []),
        ("second = rows[1]", "first, last", []),
        ("for row in rows:\n    break", "break, continue", ["continue"]),
        ("for row in rows:\n    continue", "break, continue", ["break"]),
        ("row = Row(key=key, tag=tag)", "argument tag left out", ["row = Row(key=key)"]),
        ("row = Row(key=key, tag=tag)", "argument key left out", []),
        ("row = replace(row, tag=tag)", "argument tag left out", ["row = replace(row)"]),
        ("settle(rows, at_ms=1, again=True)", "argument again left out", ["settle(rows, at_ms=1)"]),
        ("settle(rows, at_ms=1, again=True)", "argument at_ms left out", []),
        ("said = self.judge(case=case, rules=rules)", "argument rules left out", ["said = self.judge(case=case)"]),
        ("now = clock.now_ms()\nrows = self.rows(topic)", "neighbours exchanged",
         ["rows = self.rows(topic)"]),
        ("offset = queue.offset()\nself.memory.clear(topic)", "neighbours exchanged",
         ["self.memory.clear(topic)"]),
        ("now = clock.now_ms()\nrows = self.rows(now)", "neighbours exchanged", []),
        ("now = clock.now_ms()\nlog.info('begun')", "neighbours exchanged", []),
        ("first = build(topic)\nsecond = build(group)", "neighbours exchanged", []),
        ("same = (a, b) == (c, d)", "compared by fewer", ["same = ((b,) == (d,))", "same = ((a,) == (c,))"]),
        ("same = a == b and c == d", "condition left out", ["same = (a == b)", "same = (c == d)"]),
        ("rows = [row for row in rows if row.is_due]", "condition left out", ["rows = [row for row in rows if True]"]),
        ("is_in = first <= at < last", "bound left out", ["is_in = (at < last)", "is_in = (first <= at)"]),
    ],
)  # fmt: skip
def test_a_mistake_is_made_in_each_place_where_it_could_be(source: str, kind: str, lines: list[str]) -> None:
    assert sorted(made(source, kind)) == sorted(lines)


def test_statements_that_change_places_keep_the_comment_between_them() -> None:
    source = "def due():\n    now = clock.now_ms()\n    # the state is read last\n    seen = store.read(\n        1)\n"
    (change,) = (change for change in changes(source) if change.kind == "neighbours exchanged")
    assert change.applied(source) == (
        "def due():\n    seen = store.read(\n        1)\n    # the state is read last\n    now = clock.now_ms()\n"
    )


def test_an_argument_that_one_of_two_functions_of_a_name_does_not_require_is_left_out() -> None:
    required = required_arguments(
        ["def ask(*, key, limit): ...", "class Port:\n    def ask(self, *, key, limit=3): ..."]
    )
    assert [change.text for change in changes("ask(key=1, limit=2)", required) if "argument" in change.kind] == [
        "ask(key=1)"
    ]
