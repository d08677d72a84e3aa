"""What each [extra](../how-to/install.md#extras) brings, as the packages themselves declare it. Versions and hashes that
are tested: `requirements/ci.lock`; the oldest ones: `requirements/lowest.lock`. What only builds wheels (hatchling,
setuptools, wheel: MIT) is left out.
"""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import distribution, distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from deploy.declared_packages import classified_licence, is_installed_with

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"
PAGE = Path(__file__).parent / "reference/dependencies.md"
_FIRST_HEADING = "## What asks something of you"
#: Licences that ask something of who passes the package on or changes it.
COPYLEFT = re.compile(r"GPL|Mozilla|MPL|EPL|CDDL|EUPL", re.IGNORECASE)
#: Those that are known, and what they ask. A new one stops this script.
ASKS = {
    "psycopg": "the extra `postgres` only; your code may import it under any licence; whoever distributes it must add its licence and let it be replaced",
    "psycopg-binary": "as psycopg",
    "axe-playwright-python": "tests only, never shipped",
    "certifi": "the extra `otel` only; whoever distributes a changed list of authorities must publish the change",
    "hypothesis": "tests only, never shipped",
    "pathspec": "development only, never shipped",
}
#: Not installed here: it needs a native library that no registry carries.
NOT_INSTALLED = {"rocketmq-client-python": "Apache Software License 2.0"}
#: Read in their files: the packages declare none. Or the releases for different Pythons say it in different words.
UNDECLARED = {"axe-playwright-python": "MIT, and MPL-2.0 for the axe-core in it", "deprecated": "MIT License"}


def lines() -> list[str]:
    """Every package that the project or one of its extras brings, with its licence.

    The page as it is where not all of them are installed, as without PySpark: the same wherever it is written. Raises
    SystemExit if pyproject.toml then asks for one that the page does not have.
    """
    document = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))
    project, groups = document["project"], document["dependency-groups"]
    asked = {"base": project["dependencies"], **project["optional-dependencies"]}
    asked["tests and lint"] = [one for name in ("test", "dev") for one in groups[name] if isinstance(one, str)]
    direct = {canonicalize_name(Requirement(one).name) for requirements in asked.values() for one in requirements}
    direct -= {canonicalize_name(project["name"])}
    there = {canonicalize_name(one.name) for one in distributions()}
    if not direct <= there | NOT_INSTALLED.keys():
        page = PAGE.read_text(encoding="utf-8")
        unknown = sorted(name for name in direct if f"\n| {name} | " not in page)
        if unknown:
            raise SystemExit(f"the licences of {unknown} are not on the page of dependencies: make setup docs")
        written = page.splitlines()
        return written[written.index(_FIRST_HEADING) :]
    brought: dict[str, set[str]] = {}
    for name, requirements in asked.items():
        for requirement in requirements:
            _follow(Requirement(requirement), name, brought)
    names = [name for name in sorted(brought) if name != canonicalize_name(project["name"])]
    licences = {name: NOT_INSTALLED.get(name) or _licence(name) for name in names}
    copyleft = {name for name, licence in licences.items() if COPYLEFT.search(licence)}
    if copyleft != ASKS.keys():
        raise SystemExit(f"licences that ask something: say of each in ASKS what: {copyleft ^ ASKS.keys()}")
    return [
        _FIRST_HEADING,
        "",
        "All others are permissive: keep their notices.",
        "",
        "| package | licence | what it asks |",
        "|---|---|---|",
        *(f"| {name} | {licences[name]} | {ASKS[name]} |" for name in sorted(copyleft)),
        "",
        "## All",
        "",
        "| package | licence | brought by |",
        "|---|---|---|",
        *(f"| {name} | {licences[name]} | {', '.join(sorted(brought[name]))} |" for name in names),
    ]


def _follow(requirement: Requirement, asker: str, brought: dict[str, set[str]], extra: str = "") -> None:
    name = canonicalize_name(requirement.name)
    if not is_installed_with(requirement, extra):
        return
    if asker in brought.get(name, ()) and not requirement.extras:
        return
    brought.setdefault(name, set()).add(asker)
    if name in NOT_INSTALLED:
        return
    for text in distribution(name).requires or ():
        for wanted in ("", *requirement.extras):
            _follow(Requirement(text), asker, brought, wanted)


def _licence(name: str) -> str:
    metadata = distribution(name).metadata
    declared = UNDECLARED.get(name) or metadata.get("License-Expression") or classified_licence(name)
    declared = declared or metadata.get("License")
    if not declared:
        raise SystemExit(f"{name} declares no licence: look it up")
    return declared.splitlines()[0]
