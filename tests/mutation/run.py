"""make mutants DRAWN=200: mutants drawn by lot, each tried by the tests that run its line.

First the unit and contract tests, and those of the audit, run once, and coverage notes which test runs which line. A
mutant is a copy of the checkout with one change. It dies when one of its line's tests fails. The tests of the mutant's
own room run first, the quickest at the front, then those of other rooms, as long as their measured time stays under a
bound. Where they do not notice it, `--histories 200` lets the simulator try it, if the simulator runs the file.

A mutant that lives is printed as a diff with its number: it gets a test, or an explanation. With
`--only NUMBER --tests FILE` it is tried by the tests of a file that is newer than the measurement.

The seed is the beginning of the commit's id, so that each commit draws others; `--seed` draws those of another one.
The measurement and the outcomes stay in a folder, `build/mutants/SEED`: a run that was interrupted goes on where it
was, and `--part 1/4` tries a quarter of the draw.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import hashlib
import itertools
import json
import os
import queue
import random
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import coverage
from rich.console import Console
from rich.progress import track

from tests.import_path import ROOT, import_path
from tests.mutation.mistakes import required_arguments
from tests.mutation.operators import Change, changes
from tests.mutation.results import NOTICED, Part, Results

#: All of the product.
ROOMS = ("producers/checkback_producers", "consumers/checkback_consumers", "reconciler")
#: Folders of it without a rule of their own: tables as they once were.
NOT_DRAWN = ("reconciler/sql/migrations",)
TESTS = ("tests/unit", "tests/contract", "tests/audit")
#: Adapters of the native client: their tests need an environment of its own.
NATIVE = "client_python"
#: Tests that look at the tree and not at what it does, and those of many seconds.
LEFT_OUT = ("--ignore-glob=tests/unit/test_*.py", "-m", "not slow and not nightly and not spark")
#: Of the measured tests, so many may fail without a mutant; they decide nothing. A loaded machine fails one.
FAILING_SHARE_MAX = 0.005
#: The tests of one mutant take this long together, measured without the mutant.
SECONDS_A_MUTANT = 180.0
#: A mutant that hangs has been noticed. A loaded machine takes three times as long as the measurement.
TIMEOUT_SECONDS = 600.0
#: Exit codes of pytest. 2 and 4: the changed module cannot be imported, so no test is found.
PASSED = 0
FAILED = {1, 2, 4}
MEMORY_BYTES_MAX = 4 << 30
#: Seconds at which mutants are said to be written, each another one.
_STAMPS = itertools.count(1_000_000_000)
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

    @property
    def name(self) -> str:
        """The same in each sitting, as long as the file is what it was."""
        digest = hashlib.sha256(self.source.encode()).hexdigest()[:8]
        change = self.change
        return f"{self.path}@{digest}:{change.start}-{change.end}:{change.kind}:{change.text}"

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
    #: "died", "hung", "died in a history", "lived", or "not run": no test runs the line.
    end: str
    tests: int


def drawn(count: int, seed: int, folders: Sequence[str] = ROOMS) -> list[Mutant]:
    """Mutants by lot, over all changes of all rooms. A smaller draw of a seed is the beginning of a larger one."""
    paths = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    sources = {str(path.relative_to(ROOT)): path.read_text() for path in paths if not path.name.startswith(NATIVE)}
    required = required_arguments(sources.values())
    every = [
        Mutant(path=path, change=change)
        for path, source in sources.items()
        if not path.startswith(NOT_DRAWN)
        for change in changes(source, required)
    ]
    random.Random(seed).shuffle(every)
    return every[:count]


def seed_of_commit() -> int:
    """The first eight hex digits of the commit's id."""
    return int(_git("rev-parse", "HEAD")[:8], 16)


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout


class TestsOfLines:
    """Which test runs which line, and how long each test takes."""

    __test__ = False

    def __init__(
        self, data: coverage.CoverageData, seconds: Mapping[str, float], failing: Collection[str] = ()
    ) -> None:  # fmt: skip
        self._data = data
        self._seconds = seconds
        #: These fail without a mutant, too.
        self._failing = failing
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
        running -= set(self._failing)
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
    return _python(checkout, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--no-header", *arguments, seconds=seconds)


def _python(checkout: Path, *arguments: str, seconds: float | None = None) -> int:
    """The exit code of Python in a checkout; raises subprocess.TimeoutExpired."""
    environment = os.environ | {"PYTHONPATH": import_path(checkout)}
    process = subprocess.Popen(
        [sys.executable, *arguments],
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
    junit = folder / "junit.xml"
    code = _pytest(
        ROOT,
        *TESTS,
        *LEFT_OUT,
        *("-n", str(jobs), "--dist", "loadgroup", "--hypothesis-profile=fast"),
        *("--cov", "--cov-context=test", "--cov-report="),
        *("--junit-xml", str(junit), "-o", "junit_family=xunit1"),
    )
    cases = list(ElementTree.parse(junit).iter("testcase")) if code in {PASSED, 1} else []
    if sum(map(_has_failed, cases)) > FAILING_SHARE_MAX * len(cases) or not cases:
        raise SystemExit(f"the tests do not pass without a mutant: exit code {code}, {junit} names them")
    shutil.move(ROOT / ".coverage", folder / "contexts")


def _has_failed(case: ElementTree.Element) -> bool:
    return case.find("failure") is not None or case.find("error") is not None


def read_measured(folder: Path) -> TestsOfLines:
    """What `measure` left in the folder."""
    data = coverage.CoverageData(basename=str(folder / "contexts"))
    data.read()
    seconds: dict[str, float] = {}
    failing = set()
    for case in ElementTree.parse(folder / "junit.xml").iter("testcase"):
        module = case.attrib["file"].removesuffix(".py").replace("/", ".")
        parents = [part for part in case.attrib["classname"].removeprefix(module).split(".") if part]
        name = "::".join([case.attrib["file"], *parents, _without_group(case.attrib["name"])])
        seconds[name] = float(case.attrib["time"])
        if _has_failed(case):
            failing.add(name)
    return TestsOfLines(data, seconds, failing)


def _copy_of_checkout(folder: Path) -> Path:
    """What git knows of the checkout, as it is on the disk."""
    for name in filter(None, _git("ls-files", "-z").split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What a mutant is tried by: tests, and after them so many histories."""

    tests_of: Callable[[Mutant], Sequence[str]]
    seed: int
    histories: int
    #: Files that the simulator imports.
    simulated: Collection[str] = ()

    def attempt(self, mutant: Mutant, checkout: Path) -> tuple[str, int]:
        """How a mutant ends, and by how many tests; the copy of the checkout is as before afterwards.

        Raises RuntimeError.
        """
        tests, file = self.tests_of(mutant), checkout / mutant.path
        source, written = file.read_text(), file.stat().st_mtime_ns
        file.write_text(mutant.change.applied(source))
        # Byte code is kept in the copy, and is known by its source's second and size.
        os.utime(file, (stamp := next(_STAMPS), stamp))
        try:
            end = _by_tests(mutant, tests, checkout) if tests else "not run"
            if end in {"lived", "not run"} and self.histories and mutant.path in self.simulated:
                end = _by_histories(self.seed, self.histories, checkout) or end
        finally:
            file.write_text(source)
            os.utime(file, ns=(written, written))
        return end, len(tests)


def _by_tests(mutant: Mutant, tests: Sequence[str], checkout: Path) -> str:
    chosen = checkout / ".chosen-tests"
    chosen.write_text("\n".join(tests))
    try:
        code = _pytest(checkout, "-x", "--hypothesis-profile=fast", f"@{chosen}", seconds=TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        return "hung"
    if code not in {PASSED, *FAILED}:
        raise RuntimeError(f"pytest ended with exit code {code}, which says nothing about a mutant of {mutant.path}")
    return "lived" if code == PASSED else "died"


def _by_histories(seed: int, count: int, checkout: Path) -> str | None:
    """None: no history of the simulator noticed it."""
    search = f"first_failure({seed}, {count}, frozenset(), frozenset())[0]"
    script = f"import sys; from tests.simulation.until_failure import first_failure; sys.exit({search} is not None)"
    try:
        code = _python(checkout, "-c", script, seconds=TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        return "hung"
    return "died in a history" if code else None


def simulated_files() -> set[str]:
    """The product's files that the simulator imports."""
    script = (
        "import sys, tests.simulation.until_failure\n"
        "for module in list(sys.modules.values()): print(getattr(module, '__file__', None) or '')"
    )
    listed = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": import_path()},
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    return {str(Path(file).relative_to(ROOT)) for file in listed if file and Path(file).is_relative_to(ROOT)}


def tried(mutants: Mapping[int, Mutant], trial: Trial, jobs: int) -> Iterator[Outcome]:
    """Outcomes as they come, `jobs` mutants at a time; mutants by their numbers."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, ThreadPoolExecutor(jobs) as pool:
        free: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for number in range(jobs):
            (Path(folder) / str(number)).mkdir()
            free.put(_copy_of_checkout(Path(folder) / str(number)))

        def one(number: int, mutant: Mutant) -> Outcome:
            checkout = free.get()
            try:
                end, tests = trial.attempt(mutant, checkout)
                return Outcome(mutant=mutant, number=number, end=end, tests=tests)
            finally:
                free.put(checkout)

        for future in as_completed([pool.submit(one, number, mutant) for number, mutant in mutants.items()]):
            yield future.result()


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make mutants")
    parser.add_argument("--mutants", type=int, default=200)
    parser.add_argument("--seed", type=int, default=None, help="default: the first eight hex digits of the commit's id")
    parser.add_argument("--part", type=Part.read, default=Part(number=1, of=1), help="1/4: a quarter of the draw")
    parser.add_argument("--histories", type=int, default=0, help="by the simulator, where the tests do not notice it")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--folder", type=Path, default=None, help="measurement and outcomes: build/mutants/SEED")
    parser.add_argument("--in", dest="folders", nargs="+", default=ROOMS, help="folders of the product; default: all")
    parser.add_argument(
        "--only", type=int, nargs="+", default=None, help="numbers of this draw, as an earlier run printed"
    )
    parser.add_argument("--tests", nargs="+", default=None, help="files or tests in place of the measured ones")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0: at least 95 of 100 mutants that were tried so far were noticed; 1: fewer."""
    options = _options(arguments)
    seed = seed_of_commit() if options.seed is None else options.seed
    folder = options.folder or ROOT / "build/mutants" / str(seed)
    drawing = dict(enumerate(drawn(options.mutants, seed, options.folders)))
    simulated = simulated_files() if options.histories else ()

    def trial(tests_of: Callable[[Mutant], Sequence[str]]) -> Trial:
        return Trial(tests_of=tests_of, seed=seed, histories=options.histories, simulated=simulated)

    if options.tests:
        chosen = {number: drawing[number] for number in options.only or drawing}
        results = Results(folder / "again.jsonl")
        return _report(tried(chosen, trial(lambda mutant: options.tests), options.jobs), results, chosen, seed)
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "contexts").is_file():
        measure(folder, options.jobs)
    measured = read_measured(folder)
    results = Results(folder / "outcomes.jsonl")
    part = options.part.of_draw(drawing)
    wanted = {number: drawing[number] for number in options.only} if options.only else {
        number: mutant for number, mutant in part.items() if results.end_of(mutant.name) is None
    }  # fmt: skip
    outcomes = tried(wanted, trial(lambda mutant: measured.of(mutant.path, mutant.change.line)), options.jobs)
    return _report(outcomes, results, wanted if options.only else drawing, seed)


def _report(outcomes: Iterable[Outcome], results: Results, drawing: Mapping[int, Mutant], seed: int) -> int:
    """Prints what lives as it comes, and the counts of all sittings at the end; the exit code."""
    console = Console(stderr=True)
    if console.is_terminal:
        outcomes = track(outcomes, "mutants", total=None, console=console)
    for outcome in outcomes:
        mutant = outcome.mutant
        told = {"number": outcome.number, "line": mutant.change.line, "kind": mutant.change.kind}
        results.add(mutant.name, outcome.end, told | {"tests": outcome.tests, "diff": mutant.diff()})
        if outcome.end not in {"died", "died in a history"}:
            sys.stdout.write(
                f"{outcome.number}: {outcome.end}, {outcome.tests} tests, {mutant.change.kind}\n{mutant.diff()}\n\n"
            )
            sys.stdout.flush()
    ends = results.counted(mutant.name for mutant in drawing.values())
    answer = {"drawn": len(drawing), "tried": ends.total(), "seed": seed, **ends}
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0 if sum(ends[end] for end in NOTICED) >= NOTICED_SHARE_MIN * ends.total() else 1


if __name__ == "__main__":
    sys.exit(main())
