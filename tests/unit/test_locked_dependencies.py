"""What CI installs is what pyproject.toml asks for, by hash, from any registry."""

from __future__ import annotations

import re
import shlex
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.services.locks import pinned_here, pins

ROOT = Path(__file__).parents[2]
DOCUMENT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LOCKS = sorted((ROOT / "requirements").glob("*.lock"))
#: Neither is installed with the others: the project itself, what no registry carries whole, half a gigabyte.
OWN, NATIVE, SPARK = "checkback-reconciler", "rocketmq-client-python", "pyspark"


def asked(*groups: str) -> list[Requirement]:
    """Direct requirements of the project, its extras and some groups."""
    project, of_group = DOCUMENT["project"], DOCUMENT["dependency-groups"]
    texts = [*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)]
    texts += [one for group in groups for one in of_group[group] if isinstance(one, str)]
    return [wanted for wanted in map(Requirement, texts) if wanted.name not in {OWN, NATIVE}]


def pinned(lock: str) -> dict[str, list[Version]]:
    """Versions by package: one for some Pythons, another for others."""
    found: dict[str, list[Version]] = {}
    for pin in pins(lock):
        found.setdefault(pin.name, []).append(pin.version)
    return found


def test_every_requirement_is_locked_to_a_version_that_it_allows() -> None:
    locked = pinned("ci.lock")
    wrong = [str(w) for w in asked("test", "dev") if not is_met(w, locked)]
    for group in ("build", "tools", "nightly"):
        here = pinned(f"{group}.lock")
        wrong += [text for text in DOCUMENT["dependency-groups"][group] if not is_met(Requirement(text), here)]
    assert wrong == [], "run: make lock"


def test_an_extra_that_repeats_another_one_asks_for_the_same() -> None:
    offered = {name: set(asked) for name, asked in DOCUMENT["project"]["optional-dependencies"].items()}
    assert offered["audit"] - offered["audit-here"] == {one for one in offered["audit"] if one.startswith(SPARK)}
    assert offered["audit-here"] <= offered["audit"]
    base, all_of = set(DOCUMENT["project"]["dependencies"]), offered["all"]
    assert offered["audit-here"] <= all_of | offered["daemon"] | base, "a host judges with --engine here"
    named = re.search(r"\[([\w,-]+)\]", next(one for one in all_of if one.startswith(OWN)))
    assert named is not None
    others = {"all", "asyncio", "audit", "audit-here", "demo", "native", "testing"}
    assert {*named[1].split(","), *others} == offered.keys()


def test_the_demo_s_environment_judges_without_spark() -> None:
    """Where Spark or Java is missing, its audit runs with `--engine here`."""
    locked = pinned("demo.lock")
    needed = map(Requirement, DOCUMENT["project"]["optional-dependencies"]["audit-here"])
    assert [str(one) for one in needed if not is_met(one, locked)] == [], "run: make lock"


@pytest.mark.parametrize("lock", ["build.lock", "demo.lock", "service.lock", "nightly.lock"])
def test_what_is_installed_beside_the_tests_packages_has_their_versions_and_is_not_installed_again(lock: str) -> None:
    of_tests = pinned("ci.lock")
    other = {name: versions for name, versions in pinned(lock).items() if versions != of_tests.get(name, versions)}
    assert other == {}, "run: make lock"


def test_the_environment_of_the_tests_is_the_locked_one() -> None:
    there = {canonicalize_name(one.name): Version(one.version) for one in metadata.distributions()}
    other = {name: (there[name], to) for name, to in pinned_here("ci.lock").items() if there.get(name, to) != to}
    assert other == {}, "run: make setup"


def test_each_python_that_is_promised_is_tried() -> None:
    promised = re.findall(r"Python :: (3\.\d+)", " ".join(DOCUMENT["project"]["classifiers"]))
    first, *others = promised
    assert DOCUMENT["project"]["requires-python"] == f">={first}"
    makefile, run, readme = ((ROOT / name).read_text(encoding="utf-8") for name in ("Makefile", ".ci/run", "README.md"))
    assert f"PYTHONS ?= {' '.join(others)}\n" in makefile, "make test-nightly"
    assert f"tests.services.other_python {others[-1]})" in run
    assert f"Python {first} to {others[-1]} (" in readme


#: What installs the service, the tests or a release, and how often at least.
INSTALLING = {
    "Makefile": 5,
    "deploy/image/Dockerfile": 4,
    "docs/how-to/install-systemd.md": 3,
    "docs/how-to/upgrade.md": 3,
}


@pytest.mark.parametrize("file", INSTALLING)
def test_pip_resolves_nothing_where_a_lock_is_installed_and_is_asked_what_is_missing(file: str) -> None:
    text = re.sub(r"\\\n\s*", "", (ROOT / file).read_text(encoding="utf-8"))
    text = re.sub(
        r"^(LOCKED) := (.*)\n((?:.*\n)*)", lambda found: found[3].replace("$(LOCKED)", found[2]), text, flags=re.M
    )
    commands = r"^[^`]*\bpip\b[^`]* (install|wheel|check)\b"  # outside of prose
    lines = [line for line in re.split(r"\n|&&", text) if re.search(commands, line)]
    installs = [set(shlex.split(line)) for line in lines if not line.rstrip().endswith("check")]
    assert len(installs) >= INSTALLING[file]
    assert [words for words in installs if "--no-deps" not in words] == []
    assert [words for words in installs if "--requirement" in words and "--require-hashes" not in words] == []
    assert [words for words in installs if "." in words and "--no-build-isolation" not in words] == []
    assert lines[-1].rstrip().endswith("check")


def is_met(wanted: Requirement, locked: dict[str, list[Version]]) -> bool:
    versions = locked.get(canonicalize_name(wanted.name), [])
    return bool(versions) and all(wanted.specifier.contains(version) for version in versions)


def test_lower_bounds_are_what_the_oldest_environment_has() -> None:
    locked = pinned("lowest.lock")
    bounds: dict[str, Version] = {}
    for wanted in asked("test"):
        (bound,) = (Version(one.version) for one in wanted.specifier if one.operator == ">=")
        # Of pytest the tests ask for a newer one than the test kit does.
        bounds[wanted.name] = max(bound, bounds.get(wanted.name, bound))
    # The first release of a bound may be yanked: ">=4.4" is 4.4.3.
    wrong = {
        name: version
        for name, bound in bounds.items()
        for version in locked.get(canonicalize_name(name), [])
        if name != SPARK and version.release[: len(bound.release)] != bound.release
    }
    assert wrong == {}, "run: make lock"


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_a_lock_has_a_hash_for_everything_and_names_no_place(lock: Path) -> None:
    text = lock.read_text(encoding="utf-8")
    entries = re.split(r"^(?=[^\s#])", text, flags=re.MULTILINE)[1:]
    assert entries
    assert [entry for entry in entries if not re.search(r"--hash=sha256:[0-9a-f]{64}", entry)] == []
    assert re.search(r"://|(?<![\w])/|--(index|find|extra-index|trusted)", text) is None
