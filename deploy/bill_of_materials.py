"""The bill of materials (CycloneDX 1.6) of what the service installs: `make sbom`, and `make docs`, write it.

Its components are the packages of requirements/service.lock and the code of others that the console's pages load. The
wheel has it in its folder `sboms` (PEP 770). It holds no time and no random number, so the same lock gives the same
bytes.

A package's hashes are those of all its files, since which of them pip takes depends on the machine: they stand at the
external reference of its distribution. Licences are as the packages declare them.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
NAME = "checkback-reconciler.cdx.json"
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Locked:
    """One package of the lock, at one version."""

    name: str
    version: str
    #: On which machines and Pythons it is installed; empty: on all.
    marker: str
    #: SHA-256 of each of its files.
    hashes: tuple[str, ...]

    @property
    def purl(self) -> str:
        """Its package URL."""
        return f"pkg:pypi/{self.name}@{self.version}"


def locked() -> list[Locked]:
    """What the lock names, in its order. Raises ValueError for an entry of another form."""
    text = (ROOT / "requirements/service.lock").read_text(encoding="utf-8")
    return [_locked(entry) for entry in re.split(r"^(?=[^\s#])", text, flags=re.MULTILINE)[1:]]


def _locked(entry: str) -> Locked:
    first = entry.splitlines()[0].removesuffix("\\")
    pinned = re.fullmatch(r"([\w.-]+)==([\w.+!-]+)(?: *; *(.+?))? *", first)
    hashes = re.findall(r"--hash=sha256:([0-9a-f]{64})", entry)
    if pinned is None or not hashes:
        raise ValueError(f"requirements/service.lock: {first!r} is no pinned package with hashes: make lock")
    name, version, marker = pinned.groups()
    return Locked(name=canonicalize_name(name), version=version, marker=marker or "", hashes=tuple(hashes))


def document() -> dict[str, Any]:
    """The whole bill."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    packages, carried = locked(), list(_carried())
    own = f"pkg:pypi/{project['name']}@{project['version']}"
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": own,
                "name": project["name"],
                "version": project["version"],
                "description": project["description"],
                "licenses": [_expression(project["license"])],
                "purl": own,
            },
        },
        "components": [*map(_component, packages), *carried],
        "dependencies": _edges(own, packages, carried),
    }


def text() -> str:
    """As it is written."""
    return json.dumps(document(), indent=1, ensure_ascii=False) + "\n"


def _component(package: Locked) -> dict[str, Any]:
    component: dict[str, Any] = {
        "type": "library",
        "bom-ref": package.purl,
        "name": package.name,
        "version": package.version,
        "licenses": [_licence(package.name)],
        "purl": package.purl,
        "externalReferences": [
            {
                "type": "distribution",
                "url": package.purl,
                "comment": "pip installs one of the files with these hashes.",
                "hashes": [{"alg": "SHA-256", "content": one} for one in package.hashes],
            }
        ],
    }
    if package.marker:
        component["properties"] = [{"name": "checkback:marker", "value": package.marker}]
    return component


def _carried() -> Iterator[dict[str, Any]]:
    """Code of others in the wheel, by the table of its README.md."""
    folder = ROOT / "reconciler/web/console/static/vendor"
    row = re.compile(r"^\| `(\S+)` \| (\S+) \| (\S+) \| (\S+) \(.*\) \| `([0-9a-f]{64})` \|$", re.MULTILINE)
    for file, name, version, licence, digest in row.findall((folder / "README.md").read_text(encoding="utf-8")):
        yield {
            "type": "file",
            "bom-ref": f"pkg:npm/{name}@{version}#{file}",
            "name": str((folder / file).relative_to(ROOT)),
            "version": version,
            "hashes": [{"alg": "SHA-256", "content": digest}],
            "licenses": [_expression(licence)],
            "purl": f"pkg:npm/{name}@{version}",
        }


def _licence(name: str) -> dict[str, Any]:
    """Raises SystemExit for a package that declares none."""
    if name in NOT_EVERYWHERE:
        return _expression(NOT_EVERYWHERE[name])
    metadata: Any = distribution(name).metadata
    expression, named = metadata.get("License-Expression"), metadata.get("License") or ""
    if expression:
        return _expression(expression)
    if SPDX.fullmatch(named):
        return _expression(named)
    declared = classified_licence(name) or named
    if not declared:
        raise SystemExit(f"{name} declares no licence: look it up")
    return {"license": {"name": declared.splitlines()[0], "acknowledgement": "declared"}}


def _expression(expression: str) -> dict[str, Any]:
    return {"expression": expression, "acknowledgement": "declared"}


def _edges(own: str, packages: list[Locked], carried: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Who needs whom, as the installed packages say."""
    by_name: dict[str, list[str]] = {}
    for package in packages:
        by_name.setdefault(package.name, []).append(package.purl)
    document = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = [*document["dependencies"], *(one for extra in document["optional-dependencies"].values() for one in extra)]
    extras: dict[str, set[str]] = {}
    needed: dict[str, set[str]] = {}
    waiting = [(own, Requirement(one), "") for one in asked]
    while waiting:
        asker, requirement, extra = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name not in by_name or not is_installed_with(requirement, extra):
            continue
        needed.setdefault(asker, set()).update(by_name[name])
        new = {"", *requirement.extras} - extras.setdefault(name, set())
        extras[name] |= new
        for text in _requires(name):
            waiting += [(purl, Requirement(text), one) for purl in by_name[name] for one in sorted(new)]
    needed.setdefault(own, set()).update(one["bom-ref"] for one in carried)
    refs = [own, *(package.purl for package in packages), *(one["bom-ref"] for one in carried)]
    return [{"ref": ref, "dependsOn": sorted(needed.get(ref, ()))} for ref in refs]


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


def main() -> int:
    """Writes it."""
    (Path(__file__).parent / NAME).write_text(text(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
