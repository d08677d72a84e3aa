"""The bill of materials (CycloneDX 1.6) of what the service installs: each build of a wheel makes it.

Its components are the packages of requirements/service.lock and the code of others that the console's pages load. The
wheel has it in its folder `sboms` (PEP 770). It holds no time and no random number, so the same lock gives the same
bytes. A build has no other package than its own tools: this file imports the standard library only.

A package's hashes are those of all its files, since which of them pip takes depends on the machine: they stand at the
external reference of its distribution. Licences, and who needs whom, are as the packages declare them
(deploy/declared_packages.py).
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
NAME = "checkback-reconciler.cdx.json"
#: Licence and needs of each package of the lock; `make docs` writes it.
DECLARED = Path(__file__).with_name("declared_packages.toml")


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
    return Locked(name=name, version=version, marker=marker or "", hashes=tuple(hashes))


def document() -> dict[str, Any]:
    """The whole bill."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = tomllib.loads(DECLARED.read_text(encoding="utf-8"))
    packages, carried = locked(), list(_carried())
    own = f"pkg:pypi/{project['name']}@{project['version']}"
    needed = {package.purl: _purls(declared[package.name], packages) for package in packages}
    needed[own] = [*_purls(declared[project["name"]], packages), *(one["bom-ref"] for one in carried)]
    refs = [own, *(package.purl for package in packages), *(one["bom-ref"] for one in carried)]
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
        "components": [*(_component(package, declared[package.name]) for package in packages), *carried],
        "dependencies": [{"ref": ref, "dependsOn": sorted(needed.get(ref, ()))} for ref in refs],
    }


def text() -> str:
    """As it is written."""
    return json.dumps(document(), indent=1, ensure_ascii=False) + "\n"


def _purls(declared: dict[str, Any], packages: list[Locked]) -> list[str]:
    return [package.purl for package in packages if package.name in declared["needs"]]


def _component(package: Locked, declared: dict[str, Any]) -> dict[str, Any]:
    component: dict[str, Any] = {
        "type": "library",
        "bom-ref": package.purl,
        "name": package.name,
        "version": package.version,
        "licenses": [_licence(declared)],
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


def _licence(declared: dict[str, Any]) -> dict[str, Any]:
    if "expression" in declared:
        return _expression(declared["expression"])
    return {"license": {"name": declared["licence"], "acknowledgement": "declared"}}


def _expression(expression: str) -> dict[str, Any]:
    return {"expression": expression, "acknowledgement": "declared"}
