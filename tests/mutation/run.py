"""make mutants DRAWN=200 SEED=1: mutants drawn by lot, each tried by the tests that run its line.

First the unit and contract tests run once, and coverage notes which test runs which line. A mutant is a copy of the
checkout with one change. It dies when one of its line's tests fails. The tests of the mutant's own room run first,
the quickest at the front, then those of other rooms, as long as their measured time stays under a bound. A mutant
that lives is printed as a diff with its number: it gets a test, or an explanation. With
`--only NUMBER --tests FILE` it is tried by the tests of a file that is newer than the measurement.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import json
import os
import queue
import random
import resource
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import coverage
from rich.console import Console
from rich.progress import track

from tests.import_path import ROOT, import_path
from tests.mutation.operators import Change, changes

ROOMS = (
    "reconciler/policy",
    "producers/checkback_producers",
    "consumers/checkback_consumers",
    "reconciler/shards",
    "reconciler/ledger",
    "reconciler/evidence",
    "reconciler/history",
    "reconciler/rocketmq/wire",
)
TESTS = ("tests/unit", "tests/contract")
#: Adapters of the native client: their tests need an environment of its own.
NATIVE = "client_python"
#: Tests that look at the tree and not at what it does, and those of many seconds.
LEFT_OUT = ("--ignore-glob=tests/unit/test_*.py", "-m", "not slow")
#: The tests of one mutant take this long together, measured without the mutant.
SECONDS_A_MUTANT = 180.0
#: A mutant that hangs has been noticed. A loaded machine takes three times as long as the measurement.
TIMEOUT_SECONDS = 600.0
#: Exit codes of pytest. 2 and 4: the changed module cannot be imported, so no test is found.
PASSED = 0
FAILED = {1, 2, 4}
MEMORY_BYTES_MAX = 4 << 30
NOTICED_SHARE_MIN = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One change of one file."""

    path: str
    change: Change

    @property
    def source(self) -> str:
        """The file as it is."""
        return (ROOT / self.path).read_text()

    def diff(self) -> str:
        """What the mutant changes, as a unified diff."""
        before = self.source
        lines = difflib.unified_diff(
            before.splitlines(), self.change.applied(before).splitlines(), self.path, self.path, "", "", 2, ""
        )
        return "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How one mutant ended."""

    mutant: Mutant
    #: Its place in the draw, from 0.
    number: int
    #: "died", "hung", "lived", or "not run": no test runs the line.
    end: str
    tests: int


def drawn(count: int, seed: int) -> list[Mutant]:
    """Mutants by lot, over all changes of all rooms."""
    every = [
        Mutant(path=str(path.relative_to(ROOT)), change=change)
        for room in ROOMS
        for path in sorted((ROOT / room).rglob("*.py"))
        if not path.name.startswith(NATIVE)
        for change in changes(path.read_text())
    ]
    return random.Random(seed).sample(every, min(count, len(every)))


class TestsOfLines:
    """Which test runs which line, and how long each test takes."""

    __test__ = False

    def __init__(self, data: coverage.CoverageData, seconds: Mapping[str, float]) -> None:
        self._data = data
        self._seconds = seconds
        self._lines: dict[str, Mapping[int, Sequence[str]]] = {}
        self._imported: dict[str, frozenset[str]] = {}

    def of(self, path: str, line: int) -> list[str]:
        """The tests that run a line, likely killers first.

        A line that runs at import has the tests of its whole file, and those of test files that import it.
        """
        if path not in self._lines:
            self._lines[path] = self._data.contexts_by_lineno(str(ROOT / path))
        lines = self._lines[path]
        running = {name_of_test(context) for context in lines.get(line, ()) if context}
        if not running:
            running = {name_of_test(context) for contexts in lines.values() for context in contexts if context}
            module = _module_of(path)
            names = {module, module.rpartition(".")[0]}  # the package may export what the module has
            running |= {test for test in self._seconds if names & self._imports(test.partition("::")[0])}
        chosen: list[str] = []
        total = 0.0
        for test in sorted(running, key=lambda test: (not _is_of_one_room(path, test), self._seconds_of(test), test)):
            if not chosen or total + self._seconds_of(test) <= SECONDS_A_MUTANT:
                chosen.append(test)
                total += self._seconds_of(test)
        return chosen

    def _imports(self, path: str) -> frozenset[str]:
        """The modules and names that a test's file imports."""
        if path not in self._imported:
            self._imported[path] = frozenset(_imports_in((ROOT / path).read_text()))
        return self._imported[path]

    def _seconds_of(self, test: str) -> float:
        """The seconds of a test; a guess for one that the measurement left without."""
        return self._seconds.get(test, 1.0)


def _module_of(path: str) -> str:
    """`reconciler/shards/sets.py` is reconciler.shards.sets; plug-ins lie a folder deeper than they are imported."""
    parts = Path(path).with_suffix("").parts
    return ".".join(parts[1:] if parts[0] in {"producers", "consumers"} else parts)


def _imports_in(source: str) -> Iterator[str]:
    """Modules, and names of modules with a dot before them."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _is_of_one_room(path: str, test: str) -> bool:
    """Whether a folder of the test, or a word of its file's name, is a folder of the product's file."""
    folders, file = test.partition("::")[0].removesuffix(".py").rsplit("/", 1)
    rooms = {part.removeprefix("checkback_") for part in Path(path).parent.parts} - {"reconciler"}
    return bool(rooms & {*folders.split("/"), *file.split("_")})


def name_of_test(context: str) -> str:
    """The test of a context `test|phase`."""
    return _without_group(context.rpartition("|")[0])


def _without_group(test: str) -> str:
    """The test of `test@group`, a name that pytest-xdist gives; values of parameters end with a bracket."""
    name, _, group = test.rpartition("@")
    return name if name and "]" not in group else test


def _pytest(checkout: Path, *arguments: str, seconds: float | None = None) -> int:
    """The exit code of pytest in a checkout; raises subprocess.TimeoutExpired."""
    environment = os.environ | {"PYTHONPATH": import_path(checkout), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--no-header", *arguments]
    process = subprocess.Popen(
        command,
        cwd=checkout,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=_bounded,
    )
    try:
        return process.wait(seconds)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, 9)
            process.wait()


def _bounded() -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))


def measure(folder: Path, jobs: int) -> None:
    """Runs the tests once, for the contexts of coverage and the seconds of each test. Raises SystemExit."""
    code = _pytest(
        ROOT,
        *TESTS,
        *LEFT_OUT,
        *("-n", str(jobs), "--dist", "loadgroup", "--hypothesis-profile=fast"),
        *("--cov", "--cov-context=test", "--cov-report="),
        *("--junit-xml", str(folder / "junit.xml"), "-o", "junit_family=xunit1"),
    )
    if code != 0:
        raise SystemExit(f"the tests do not pass without a mutant: exit code {code}, {folder}/junit.xml names them")
    shutil.move(ROOT / ".coverage", folder / "contexts")


def read_measured(folder: Path) -> TestsOfLines:
    """What `measure` left in the folder."""
    data = coverage.CoverageData(basename=str(folder / "contexts"))
    data.read()
    seconds = {}
    for case in ElementTree.parse(folder / "junit.xml").iter("testcase"):
        module = case.attrib["file"].removesuffix(".py").replace("/", ".")
        parents = [part for part in case.attrib["classname"].removeprefix(module).split(".") if part]
        name = "::".join([case.attrib["file"], *parents, _without_group(case.attrib["name"])])
        seconds[name] = float(case.attrib["time"])
    return TestsOfLines(data, seconds)


def _copy_of_checkout(folder: Path) -> Path:
    """What git knows of the checkout, as it is on the disk."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.split("\0")
    for name in filter(None, listed):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


def attempt(mutant: Mutant, tests: Sequence[str], checkout: Path) -> str:
    """How a mutant ends by its tests; the copy of the checkout is as before afterwards. Raises RuntimeError."""
    if not tests:
        return "not run"
    source = mutant.source
    chosen = checkout / ".chosen-tests"
    chosen.write_text("\n".join(tests))
    (checkout / mutant.path).write_text(mutant.change.applied(source))
    try:
        code = _pytest(checkout, "-x", "--hypothesis-profile=fast", f"@{chosen}", seconds=TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        return "hung"
    finally:
        (checkout / mutant.path).write_text(source)
    if code not in {PASSED, *FAILED}:
        raise RuntimeError(f"pytest ended with exit code {code}, which says nothing about a mutant of {mutant.path}")
    return "lived" if code == PASSED else "died"


def tried(mutants: Mapping[int, Mutant], tests_of: Callable[[Mutant], Sequence[str]], jobs: int) -> Iterator[Outcome]:
    """Outcomes as they come, `jobs` mutants at a time; mutants by their numbers."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, ThreadPoolExecutor(jobs) as pool:
        free: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for number in range(jobs):
            (Path(folder) / str(number)).mkdir()
            free.put(_copy_of_checkout(Path(folder) / str(number)))

        def one(number: int, mutant: Mutant) -> Outcome:
            checkout = free.get()
            try:
                tests = tests_of(mutant)
                return Outcome(mutant=mutant, number=number, end=attempt(mutant, tests, checkout), tests=len(tests))
            finally:
                free.put(checkout)

        for future in as_completed([pool.submit(one, number, mutant) for number, mutant in mutants.items()]):
            yield future.result()


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0: at least 95 of 100 mutants were noticed; 1: fewer."""
    parser = argparse.ArgumentParser(prog="make mutants")
    parser.add_argument("--mutants", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--measured", type=Path, default=None, help="folder of an earlier measurement, or for this one")
    parser.add_argument(
        "--only", type=int, nargs="+", default=None, help="numbers of this draw, as an earlier run printed"
    )
    parser.add_argument("--tests", nargs="+", default=None, help="files or tests in place of the measured ones")
    options = parser.parse_args(arguments)
    drawing = drawn(options.mutants, options.seed)
    mutants = {number: drawing[number] for number in options.only or range(len(drawing))}
    with tempfile.TemporaryDirectory(prefix="measured-") as own:
        if options.tests:
            outcomes = tried(mutants, lambda mutant: options.tests, options.jobs)
        else:
            folder = options.measured or Path(own)
            folder.mkdir(parents=True, exist_ok=True)
            if not (folder / "contexts").is_file():
                measure(folder, options.jobs)
            measured = read_measured(folder)
            outcomes = tried(mutants, lambda mutant: measured.of(mutant.path, mutant.change.line), options.jobs)
        return _report(outcomes, seed=options.seed, count=len(mutants))


def _report(outcomes: Iterable[Outcome], *, seed: int, count: int) -> int:
    """Prints what lives as it comes, and the counts at the end; the exit code."""
    ends: Counter[str] = Counter()
    console = Console(stderr=True)
    if console.is_terminal:
        outcomes = track(outcomes, "mutants", total=count, console=console)
    for outcome in outcomes:
        ends[outcome.end] += 1
        if outcome.end != "died":
            sys.stdout.write(
                f"{outcome.number}: {outcome.end}, {outcome.tests} tests, {outcome.mutant.change.kind}\n"
                f"{outcome.mutant.diff()}\n\n"
            )
            sys.stdout.flush()
    sys.stdout.write(json.dumps({"mutants": count, "seed": seed, **ends}) + "\n")
    return 0 if ends["died"] + ends["hung"] >= NOTICED_SHARE_MIN * count else 1


if __name__ == "__main__":
    sys.exit(main())
