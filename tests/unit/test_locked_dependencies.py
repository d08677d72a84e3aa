"""What CI installs is what pyproject.toml asks for, by hash, from any registry."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

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
    for name, version in re.findall(r"^([\w.-]+)==([^\s;]+)", (ROOT / "requirements" / lock).read_text(), re.MULTILINE):
        found.setdefault(canonicalize_name(name), []).append(Version(version))
    return found


def test_every_requirement_is_locked_to_a_version_that_it_allows() -> None:
    locked = pinned("ci.lock")
    wrong = [str(w) for w in asked("test", "dev") if not is_met(w, locked)]
    wrong += [
        text for text in DOCUMENT["dependency-groups"]["build"] if not is_met(Requirement(text), pinned("build.lock"))
    ]
    assert wrong == [], "run: make lock"


def is_met(wanted: Requirement, locked: dict[str, list[Version]]) -> bool:
    versions = locked.get(canonicalize_name(wanted.name), [])
    return bool(versions) and all(wanted.specifier.contains(version) for version in versions)


def test_lower_bounds_are_what_the_oldest_environment_has() -> None:
    locked = pinned("lowest.lock")
    wrong: list[str] = []
    for wanted in asked("test"):
        (bound,) = (Version(one.version) for one in wanted.specifier if one.operator == ">=")
        # The first release of a bound may be yanked: ">=4.4" is 4.4.3.
        if wanted.name != SPARK and any(
            version.release[: len(bound.release)] != bound.release for version in locked[canonicalize_name(wanted.name)]
        ):
            wrong.append(str(wanted))
    assert wrong == [], "run: make lock"


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_a_lock_has_a_hash_for_everything_and_names_no_place(lock: Path) -> None:
    text = lock.read_text(encoding="utf-8")
    entries = re.split(r"^(?=[^\s#])", text, flags=re.MULTILINE)[1:]
    assert entries
    assert [entry for entry in entries if not re.search(r"--hash=sha256:[0-9a-f]{64}", entry)] == []
    assert re.search(r"://|(?<![\w])/|--(index|find|extra-index|trusted)", text) is None
