"""The release is written in pyproject.toml; what else names it follows, or somebody installs another one."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[3]
VERSION = str(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"])
#: A tag of the image, and what `reconciler --version` prints.
NAMED = re.compile(r"(?:checkback-reconciler:|checkback_reconciler-|^reconciler )(\d+\.\d+\.\d+)", re.MULTILINE)


def pages() -> list[Path]:
    """What people read or install by."""
    listed = [
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "deploy").rglob("*"),
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
    ]
    return [path for path in listed if path.is_file() and "__pycache__" not in path.parts]


def test_every_page_and_file_names_the_release_that_there_is() -> None:
    named = {
        f"{path.relative_to(ROOT)}: {found[1]}"
        for path in pages()
        for found in NAMED.finditer(path.read_text(encoding="utf-8"))
    }
    assert {one.split(": ")[0] for one in named} >= {"deploy/image/Dockerfile", "deploy/compose/compose.yml"}
    assert [one for one in named if not one.endswith(f": {VERSION}")] == []


def test_the_newest_release_of_the_changelog_is_that_one_with_its_day() -> None:
    sections = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    released = [section for section in sections if section != "Unreleased"]
    assert sections[-len(released) :] == released, "what is not released stands above"
    assert re.fullmatch(rf"{re.escape(VERSION)} \(\d{{4}}-\d\d-\d\d\)", released[0])
