"""What a build adds to the code: pages of docs and bill of materials in the wheel, the revision in sdist and wheel.

The pages lie in the package `reconciler`, where `reconciler docs` and the console read them. Drawings come with them,
pictures of the console do not: who reads there has the console.

For the revision these are asked in this order, and the first that answers is taken:

1. the file REVISION in the package `reconciler`, which an unpacked sdist has;
2. the variable RECONCILER_REVISION, for a build without the history, such as an image's;
3. git, if the repository is this tree's own. Files that differ from the commit, or that it does not have, make it
   `<commit>+changes`;
4. `unknown`.

An editable installation gets neither: its code and its pages are the checkout's, which change.
"""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FILE = "reconciler/REVISION"
#: Where the pages come from, and where they go to.
DOCS, PACKED_DOCS = "docs", "reconciler/docs"
#: Dashboard and rules of the chart: links, since a chart reads no file beside its folder. An sdist has files there.
CHART_LINKS = "deploy/helm/reconciler/files"
VARIABLE = "RECONCILER_REVISION"
UNKNOWN = "unknown"
#: What a shell, a label of an image and a log line take as it is.
FORM = re.compile(r"[0-9A-Za-z][0-9A-Za-z._+-]{0,99}")


class BuildHook(BuildHookInterface[Any]):
    """Called by hatchling for each archive that it builds."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Adds the files. `version` is the kind of build, `standard` or `editable`. Raises ValueError."""
        if version == "editable":
            return
        self._written = tempfile.TemporaryDirectory()
        if self.target_name == "wheel":
            build_data["force_include"].update(pages(Path(self.root)))
            bill = runpy.run_path(str(Path(__file__).with_name("bill_of_materials.py")))
            build_data["sbom_files"].append(self._write(bill["NAME"], bill["text"]()))
        for link in sorted(Path(self.root, CHART_LINKS).glob("*")) if self.target_name == "sdist" else ():
            copied = self._write(link.name, link.read_text(encoding="utf-8"))
            build_data["force_include"][copied] = f"{CHART_LINKS}/{link.name}"
        if not Path(self.root, FILE).exists():
            build_data["force_include"][self._write("REVISION", f"{revision(Path(self.root))}\n")] = FILE

    def _write(self, name: str, text: str) -> str:
        """The path of a file that is there until the archive is."""
        file = Path(self._written.name, name)
        file.write_text(text, encoding="utf-8")
        file.chmod(0o644)
        return str(file)

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002 - hatchling's
        """Removes what initialize() wrote."""
        if hasattr(self, "_written"):
            self._written.cleanup()


def pages(root: Path) -> dict[str, str]:
    """Each page and drawing of a tree -> its place in the wheel. Raises ValueError for a tree without pages."""
    docs = root / DOCS
    found = sorted(file for file in docs.rglob("*") if file.suffix in {".md", ".svg"})
    if docs / "index.md" not in found:
        raise ValueError(f"{docs} has no pages: a wheel without them leads nowhere who reads its messages")
    return {str(file): f"{PACKED_DOCS}/{file.relative_to(docs).as_posix()}" for file in found}


def revision(root: Path) -> str:
    """The revision of a tree without the file. Raises ValueError for a variable that is no revision."""
    told = os.environ.get(VARIABLE, "").strip()
    if told:
        if not FORM.fullmatch(told):
            raise ValueError(
                f"{VARIABLE}={told!r} is no revision: give a commit's name, for example $(git rev-parse HEAD)"
            )
        return told
    top = _git(root, "rev-parse", "--show-toplevel")
    # A sdist that was unpacked inside of another repository is none of its commits.
    if not top or Path(top).resolve() != root.resolve():
        return UNKNOWN
    commit = _git(root, "rev-parse", "--verify", "HEAD")
    changes = _git(root, "status", "--porcelain")
    if not commit or changes is None:
        return UNKNOWN
    return f"{commit}+changes" if changes else commit


def _git(root: Path, *words: str) -> str | None:
    """Its answer; None where there is no git, or no repository."""
    command = ["git", "-C", str(root), *words]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)  # noqa: S603 - our words
    except (OSError, subprocess.SubprocessError):
        return None
    return ran.stdout.strip()
