"""Licences of the packages in requirements/service.lock, and which package needs which, as the installed ones declare.

A build has none of them installed. So `make docs` writes this down in deploy/declared_packages.toml, from which
deploy/bill_of_materials.py makes the bill.
"""

from __future__ import annotations

import json
import re
import tomllib
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from typing import Any

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from deploy.bill_of_materials import DECLARED, ROOT, locked

NAME = DECLARED.name
#: What a package declares that is not installed on every machine and Python; written down for all of them.
NOT_EVERYWHERE = {"async-timeout": "Apache-2.0", "colorama": "BSD-3-Clause"}
#: An identifier of SPDX has no space. Longer texts are names.
SPDX = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+-]*")
#: What is installed is told of this machine, wherever it is written.
MACHINE = {
    "python_version": "3.12",
    "python_full_version": "3.12.0",
    "sys_platform": "linux",
    "platform_system": "Linux",
    "os_name": "posix",
}


def text() -> str:
    """A table for each package, and for this project: `expression` (SPDX) or `licence` (a name), and `needs`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = dict.fromkeys(package.name for package in locked())
    needs = _needs(project, names)
    lines = ["# Written by docs/generate.py from the installed packages; run `make docs`."]
    for name in names:
        kind, licence = _licence(name)
        lines.append(
            f"{name} = {{ {kind} = {json.dumps(licence)}, needs = {json.dumps(sorted(needs.get(name, ())))} }}"
        )
    lines.append(f"{project['name']} = {{ needs = {json.dumps(sorted(needs[project['name']]))} }}")
    return "\n".join(lines) + "\n"


def _licence(name: str) -> tuple[str, str]:
    """The key and the text. Raises SystemExit for a package that declares none."""
    if name in NOT_EVERYWHERE:
        return "expression", NOT_EVERYWHERE[name]
    metadata: Any = distribution(name).metadata
    expression, named = metadata.get("License-Expression"), metadata.get("License") or ""
    if expression or SPDX.fullmatch(named):
        return "expression", expression or named
    declared = classified_licence(name) or named
    if not declared:
        raise SystemExit(f"{name} declares no licence: look it up")
    return "licence", declared.splitlines()[0]


def _needs(project: dict[str, Any], names: dict[str, None]) -> dict[str, set[str]]:
    """Package -> those of the lock that it needs."""
    asked = [*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)]
    extras: dict[str, set[str]] = {}
    needed: dict[str, set[str]] = {}
    waiting = [(str(project["name"]), Requirement(one), "") for one in asked]
    while waiting:
        asker, requirement, extra = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name not in names or not is_installed_with(requirement, extra):
            continue
        needed.setdefault(asker, set()).add(name)
        new = {"", *requirement.extras} - extras.setdefault(name, set())
        extras[name] |= new
        waiting += [(name, Requirement(one), extra) for one in _requires(name) for extra in sorted(new)]
    return needed


def is_installed_with(requirement: Requirement, extra: str) -> bool:
    """Whether a package that is asked for with an extra, or with none (""), brings what it requires."""
    environment: dict[str, Any] = {**default_environment(), **MACHINE, "extra": extra}
    return requirement.marker is None or requirement.marker.evaluate(environment)


def classified_licence(name: str) -> str:
    """What the classifiers of an installed package say; empty: nothing."""
    metadata: Any = distribution(name).metadata
    lines = metadata.get_all("Classifier", ())
    return " or ".join(line.rpartition(" :: ")[2] for line in lines if "License ::" in line)


def _requires(name: str) -> list[str]:
    if name in NOT_EVERYWHERE:
        return []
    found: Distribution
    try:
        found = distribution(name)
    except PackageNotFoundError as error:
        raise SystemExit(f"{name} of requirements/service.lock is not installed: make setup") from error
    return found.requires or []
