"""Mutants drawn by lot: every change is one, and none changes what no test should pin."""

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from coverage import CoverageData

from tests.import_path import ROOT
from tests.mutation.operators import changes
from tests.mutation.results import Part, Results
from tests.mutation.run import TestsOfLines, drawn, name_of_test, seed_of_commit

SOURCE = '''
"""A docstring with 1 number."""
__all__ = ["due"]
Key = TypeVar("Key", bound="Text")
LIMIT_SECONDS: float = 60.0

class Port(Protocol):
    def ask(self, limit: int = 3) -> int: ...

def due(age: int, *, is_held: bool) -> bool:
    """Whether 1 is due."""
    log.info("asked", age=age)
    record(age, unit="s")
    for old, new in zip(before, after, strict=True):
        Thread(target=old, name="ager").start()
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
        ("argument target left out", {"Thread(name='ager').start()"}),
        ("argument unit left out", {"record(age)"}),
        ("element left out", set()),
        ("error not raised", {"pass"}),
        ("and, or", {"if (age >= 5 or not is_held):"}),
        ("condition left out", {"if (not is_held):", "if (age >= 5):"}),
        ("comparison", {"if (age > 5) and not is_held:", "return (age + 2 >= 7)"}),
        ("arithmetic", {"return (age - 2) > 7"}),
        ("nothing returned", {"return None"}),
        ("word", {"record(age, unit='sX')"}),
        ("argument strict left out", set()),
        ("argument name left out", set()),
        ("argument bound left out", set()),
    ],
)
def test_a_kind_of_change_is_lost(kind: str, lines: set[str]) -> None:
    assert changed(kind) == lines


@pytest.mark.parametrize(
    ("context", "test"),
    [
        ("tests/unit/test_a.py::test_b|run", "tests/unit/test_a.py::test_b"),
        ("tests/unit/test_a.py::test_b@servers|setup", "tests/unit/test_a.py::test_b"),
        ("tests/unit/test_a.py::test_b[sql]@servers|run", "tests/unit/test_a.py::test_b[sql]"),
        ("tests/unit/test_a.py::test_b[x://u:p@h/d|e-1]|run", "tests/unit/test_a.py::test_b[x://u:p@h/d|e-1]"),
    ],
)
def test_a_test_with_a_url_among_its_parameters_is_not_found_and_counts_as_a_dead_mutant(
    context: str, test: str
) -> None:
    assert name_of_test(context) == test


@pytest.fixture
def data() -> Iterator[CoverageData]:
    """What coverage measured, in memory."""
    made = CoverageData(no_disk=True)
    yield made
    made.close(force=True)


def test_a_mutant_is_tried_by_tests_of_other_rooms_while_those_of_its_own_wait(data: CoverageData) -> None:
    path = "reconciler/policy/brakes.py"
    seconds = {f"tests/{test}": took for test, took in {
        "unit/service/test_daemon.py::test_a": 0.1,
        "unit/policy/test_circuit_breaker.py::test_b": 2.0,
        "contract/ledger/test_policy_rows.py::test_c": 1.0,
        "unit/policy/test_circuit_breaker.py::test_long": 179.0,
        "unit/service/test_daemon.py::test_d": 3.0,
    }.items()}  # fmt: skip
    for test in seconds:
        data.set_context(f"{test}|run")
        data.add_lines({str(ROOT / path): [7]})
    assert [test.rpartition("::")[2] for test in TestsOfLines(data, seconds).of(path, 7)] == [
        "test_c", "test_b", "test_a", "test_d"
    ]  # fmt: skip


def test_a_constant_is_tried_by_no_test_of_the_file_that_imports_it(data: CoverageData) -> None:
    java = "tests/unit/rocketmq/test_java_constants.py::test_a"
    other = "tests/unit/policy/test_circuit_breaker.py::test_b"
    measured = TestsOfLines(data, {java: 0.1, other: 0.1})
    assert measured.of("reconciler/rocketmq/wire/codes.py", 48) == [java]


def test_a_change_leaves_the_product_as_it_was_or_unreadable() -> None:
    source = (ROOT / "reconciler/policy/brakes.py").read_text()
    found = changes(source)
    assert len(found) > 50
    for change in found:
        text = change.applied(source)
        assert ast.dump(ast.parse(text)) != ast.dump(ast.parse(source)), change


def test_a_run_that_was_killed_goes_on_after_its_last_whole_line(tmp_path: Path) -> None:
    path = tmp_path / "outcomes.jsonl"
    Results(path).add("one", "died", {"number": 0})
    with path.open("a") as file:
        file.write('{"mutant": "two", "end": "li')
    again = Results(path)
    assert (again.end_of("one"), again.end_of("two")) == ("died", None)
    again.add("two", "lived", {"number": 1})
    assert Results(path).counted(["one", "two", "three"]) == {"died": 1, "lived": 1}


def test_four_parts_are_the_whole_draw_and_share_no_mutant() -> None:
    drawing = {number: f"mutant {number}" for number in range(10)}
    parts = [Part.read(f"{number}/4").of_draw(drawing) for number in (1, 2, 3, 4)]
    assert sorted(number for part in parts for number in part) == list(range(10))
    assert [len(part) for part in parts] == [3, 3, 2, 2]


@pytest.mark.parametrize("text", ["0/4", "5/4", "1", "a/b"])
def test_a_part_that_does_not_exist_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"part|invalid"):
        Part.read(text)


def test_a_small_draw_is_the_beginning_of_a_large_one_of_the_same_seed() -> None:
    folders = ("reconciler/shards",)
    assert drawn(5, 7, folders) == drawn(20, 7, folders)[:5]
    assert drawn(5, 7, folders) != drawn(5, 8, folders)


def test_each_commit_draws_other_mutants() -> None:
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert f"{seed_of_commit():08x}" == head[:8]


def test_a_test_that_fails_without_a_mutant_decides_nothing(data: CoverageData) -> None:
    path, failing, sound = "reconciler/policy/brakes.py", "tests/unit/a.py::test_a", "tests/unit/a.py::test_b"
    for test in (failing, sound):
        data.set_context(f"{test}|run")
        data.add_lines({str(ROOT / path): [7]})
    assert TestsOfLines(data, {failing: 0.1, sound: 0.1}, [failing]).of(path, 7) == [sound]
