"""The bill of materials: who looks for a package with a hole finds it there, at the version that is installed."""

from __future__ import annotations

import json
import re
from hashlib import sha256
from pathlib import Path
from typing import Any

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packaging.utils import canonicalize_name

from deploy import bill_of_materials

ROOT = Path(__file__).parents[3]
TEXT = bill_of_materials.text()
BILL: dict[str, Any] = json.loads(TEXT)
VENDOR = "reconciler/web/console/static/vendor"


def components(kind: str) -> list[dict[str, Any]]:
    return [one for one in BILL["components"] if one["type"] == kind]


def test_it_is_what_its_schema_says() -> None:
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(TEXT) is None
    damaged = JsonStrictValidator(SchemaVersion.V1_6).validate_str(TEXT.replace('"SHA-256"', '"SHA-9"'))
    assert damaged is not None


def test_it_has_each_locked_package_with_its_version_and_hashes_and_no_other() -> None:
    lock = (ROOT / "requirements/service.lock").read_text(encoding="utf-8").replace("\\\n", "")
    entries = [line for line in lock.splitlines() if line and not line.startswith("#")]
    listed = [
        (one["name"], one["version"], one["purl"], [h["content"] for h in one["externalReferences"][0]["hashes"]])
        for one in components("library")
    ]
    expected = []
    for entry in entries:
        name, version = re.split(r"==|\s|;", entry)[:2]
        purl = f"pkg:pypi/{canonicalize_name(name)}@{version}"
        expected.append((canonicalize_name(name), version, purl, re.findall(r"sha256:(\w+)", entry)))
    assert listed == expected


def test_it_has_the_code_of_others_that_pages_load_as_it_is() -> None:
    listed = {one["name"]: one["hashes"][0]["content"] for one in components("file")}
    there = [path for path in (ROOT / VENDOR).iterdir() if path.suffix in {".js", ".css"}]
    assert listed == {f"{VENDOR}/{path.name}": sha256(path.read_bytes()).hexdigest() for path in there}


def test_everything_has_a_licence_and_is_needed_by_somebody_or_by_some_machines_only() -> None:
    assert [one["bom-ref"] for one in BILL["components"] if not one["licenses"]] == []
    refs = {one["bom-ref"] for one in BILL["components"]} | {BILL["metadata"]["component"]["bom-ref"]}
    assert {edge["ref"] for edge in BILL["dependencies"]} == refs
    needed = {ref for edge in BILL["dependencies"] for ref in edge["dependsOn"]}
    assert needed <= refs
    alone = [one for one in BILL["components"] if one["bom-ref"] not in needed]
    assert [one["bom-ref"] for one in alone if "properties" not in one] == []


def test_it_names_the_release_and_nothing_that_changes_with_each_writing() -> None:
    version = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert version is not None
    assert BILL["metadata"]["component"]["version"] == version[1]
    assert "serialNumber" not in BILL
    assert "timestamp" not in BILL["metadata"]
