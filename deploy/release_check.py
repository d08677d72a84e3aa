"""What keeps this commit from being released: `make release` asks before it builds.

Whether the product works is not asked here: that is `.ci/run`.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def problems(root: Path) -> list[str]:
    """One sentence each, with its remedy; empty: nothing. Raises CalledProcessError without git or a commit."""
    version = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    found = []
    changes = _git(root, "status", "--porcelain")
    if changes:
        found.append(f"the tree differs from its commit: commit or remove\n{changes}")
    if _git(root, "tag", "--list", f"v{version}"):
        found.append(f"the tag v{version} exists: raise the version in pyproject.toml")
    day = _git(root, "log", "-1", "--format=%cs")
    newest = re.search(r"^## (.+)$", (root / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    heading = f"{version} ({day})"
    if newest is None or newest[1] != heading:
        told = "no section" if newest is None else f"the section {newest[1]!r}"
        found.append(f"CHANGELOG.md begins with {told}: its heading is '## {heading}', the day of the last commit")
    return found


def _git(root: Path, *words: str) -> str:
    command = ["git", "-C", str(root), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.strip()  # noqa: S603 - our words


def main() -> int:
    """Tells them on standard error. Returns 1 where there is one."""
    found = problems(ROOT)
    sys.stderr.writelines(f"not to be released: {problem}\n" for problem in found)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
