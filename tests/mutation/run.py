"""make mutants DRAWN=200 SEED=1: mutants drawn by lot, each tried by the tests that run its line.

First the unit and contract tests run once, and coverage notes which test runs which line. A mutant is a copy of the
checkout with one change. It dies when one of its line's tests fails; the quickest run first. A mutant that lives is
printed as a diff: it gets a test, or an explanation.
"""

from __future__ import annotations

import argparse
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
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
#: The tests of one mutant: so many seconds of the quickest, measured without the mutant.
SECONDS_A_MUTANT = 60.0
#: A mutant that hangs has been noticed.
TIMEOUT_SECONDS = 300.0
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

    def of(self, path: str, line: int) -> list[str]:
        """The quickest tests that run a line; a line that runs at import is tried by the tests of its whole file."""
        if path not in self._lines:
            self._lines[path] = self._data.contexts_by_lineno(str(ROOT / path))
        lines = self._lines[path]
        running = {_test_of(context) for context in lines.get(line, ()) if context}
        if not running:
            running = {_test_of(context) for contexts in lines.values() for context in contexts if context}
        chosen: list[str] = []
        total = 0.0
        for test in sorted(running, key=lambda test: self._seconds.get(test, 1.0)):
            total += self._seconds.get(test, 1.0)
            if total > SECONDS_A_MUTANT and chosen:
                break
            chosen.append(test)
        return chosen


def _test_of(context: str) -> str:
    """The test of a context `test@group|phase`; groups are those of pytest-xdist."""
    return context.partition("|")[0].partition("@")[0]


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
        name = "::".join([case.attrib["file"], *parents, case.attrib["name"].partition("@")[0]])
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


def attempt(mutant: Mutant, tests: Sequence[str], checkout: Path) -> Outcome:
    """Runs a mutant's tests in a copy of the checkout, which is as before afterwards."""
    if not tests:
        return Outcome(mutant=mutant, end="not run", tests=0)
    source = mutant.source
    chosen = checkout / ".chosen-tests"
    chosen.write_text("\n".join(tests))
    (checkout / mutant.path).write_text(mutant.change.applied(source))
    try:
        code = _pytest(checkout, "-x", "--hypothesis-profile=fast", f"@{chosen}", seconds=TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        return Outcome(mutant=mutant, end="hung", tests=len(tests))
    finally:
        (checkout / mutant.path).write_text(source)
    return Outcome(mutant=mutant, end="lived" if code == 0 else "died", tests=len(tests))


def tried(mutants: Sequence[Mutant], measured: TestsOfLines, jobs: int) -> Iterator[Outcome]:
    """Outcomes as they come, `jobs` mutants at a time."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, ThreadPoolExecutor(jobs) as pool:
        free: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for number in range(jobs):
            (Path(folder) / str(number)).mkdir()
            free.put(_copy_of_checkout(Path(folder) / str(number)))

        def one(mutant: Mutant) -> Outcome:
            checkout = free.get()
            try:
                return attempt(mutant, measured.of(mutant.path, mutant.change.line), checkout)
            finally:
                free.put(checkout)

        for future in as_completed([pool.submit(one, mutant) for mutant in mutants]):
            yield future.result()


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0: at least 95 of 100 mutants were noticed; 1: fewer."""
    parser = argparse.ArgumentParser(prog="make mutants")
    parser.add_argument("--mutants", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--measured", type=Path, default=None, help="folder of an earlier measurement, or for this one")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="measured-") as own:
        folder = options.measured or Path(own)
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "contexts").is_file():
            measure(folder, options.jobs)
        measured = read_measured(folder)
        ends: Counter[str] = Counter()
        mutants = drawn(options.mutants, options.seed)
        outcomes: Iterable[Outcome] = tried(mutants, measured, options.jobs)
        console = Console(stderr=True)
        if console.is_terminal:
            outcomes = track(outcomes, "mutants", total=len(mutants), console=console)
        for outcome in outcomes:
            ends[outcome.end] += 1
            if outcome.end in ("lived", "not run"):
                sys.stdout.write(
                    f"{outcome.end}, {outcome.tests} tests, {outcome.mutant.change.kind}\n{outcome.mutant.diff()}\n\n"
                )
    noticed = ends["died"] + ends["hung"]
    sys.stdout.write(json.dumps({"mutants": len(mutants), "seed": options.seed, **ends}) + "\n")
    return 0 if noticed >= NOTICED_SHARE_MIN * len(mutants) else 1


if __name__ == "__main__":
    sys.exit(main())
